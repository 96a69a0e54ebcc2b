//! Going through the parts of any content, with or without a manifest.

use crate::content::FileContent;
use crate::error::Result;
use crate::object::manifest::{Cursor, Part, Placed, Step};
use crate::store::ObjectStore;

/// The parts of any content from an offset on.
pub(super) enum Parts<'a> {
    One(Option<Placed>),
    Many(Cursor<'a>, u64),
}

impl<'a> Parts<'a> {
    /// From the part that holds `offset`, which is below the content's length.
    pub fn new(store: &'a ObjectStore, content: &FileContent, offset: u64) -> Result<Parts<'a>> {
        match Parts::start(store, content, offset, true)? {
            Step::Done(parts) => Ok(parts),
            Step::WouldWait => Ok(Parts::One(None)),
        }
    }

    pub fn start(
        store: &'a ObjectStore,
        content: &FileContent,
        offset: u64,
        may_wait: bool,
    ) -> Result<Step<Parts<'a>>> {
        Ok(match *content {
            FileContent::Empty => Step::Done(Parts::One(None)),
            FileContent::Chunk { id, len } => {
                Step::Done(Parts::One(Some((0, Part::Data { len, id }))))
            }
            FileContent::Manifest { id, len } => {
                match Cursor::new(store, &id, len, offset, may_wait)? {
                    Step::Done(cursor) => Step::Done(Parts::Many(cursor, offset)),
                    Step::WouldWait => Step::WouldWait,
                }
            }
        })
    }

    pub fn step(&mut self) -> Result<Step<Option<Placed>>> {
        match self {
            Parts::One(part) => Ok(Step::Done(part.take())),
            Parts::Many(cursor, offset) => cursor.next(*offset),
        }
    }

    pub fn next(&mut self) -> Result<Option<Placed>> {
        match self.step()? {
            Step::Done(part) => Ok(part),
            Step::WouldWait => Ok(None),
        }
    }
}
