//! Requests that the kernel sends again because who got them first is gone: each is carried out once.
//!
//! The engine keeps what each request that changed something gave, as long as it may not be answered. One that it does not
//! know changed nothing, and is carried out like a new one.

use crate::limits::FOREVER;
use crate::serve::{Front, Outcome};
use crate::transport::Space;
use crate::wire::{Answer, Header, Request};
use engine::record;
use engine::types::Wait;
use engine::{RequestId, within_request};

impl Front {
    /// Carries out a request, unless a process before did already.
    pub(crate) fn answer_once(
        &self,
        from: &Header,
        request: &Request<'_>,
        room: &mut impl Space,
        wait: Wait,
    ) -> Outcome<Answer> {
        let Some(connection) = self.0.connection else {
            return self.answer(from, request, room, wait);
        };
        let unique = from.number();
        let id = RequestId { connection, unique };
        if from.is_resent()
            && let Some(answer) = self.answer_again(from, request, id)?
        {
            return Ok(answer);
        }
        within_request(id, || self.answer(from, request, room, wait))
    }

    /// The answer to a request that was carried out already; `None` where it was not.
    fn answer_again(
        &self,
        from: &Header,
        request: &Request<'_>,
        id: RequestId,
    ) -> Outcome<Option<Answer>> {
        let (ws, node) = (&*self.0.ws.0, from.node);
        let Some(outcome) = ws.outcome(node, id) else {
            return Ok(None);
        };
        let answer = match (*request, outcome) {
            (Request::Create { .. }, record::Outcome::Inode(nid)) => {
                Answer::Created(ws.handed_again(node, nid)?, FOREVER)
            }
            (
                Request::Mknod { .. }
                | Request::Mkdir { .. }
                | Request::Symlink { .. }
                | Request::Link { .. },
                record::Outcome::Inode(nid),
            ) => Answer::Entry(ws.handed_again(node, nid)?, FOREVER),
            (Request::Setattr { .. }, _) => Answer::Attributes(ws.getattr(node)?, FOREVER),
            (Request::Write { .. }, record::Outcome::Bytes(len)) => Answer::Written(len as u32),
            (Request::CopyFileRange { wide: true, .. }, record::Outcome::Bytes(len)) => {
                Answer::Copied(len)
            }
            (Request::CopyFileRange { .. }, record::Outcome::Bytes(len)) => {
                Answer::Written(len as u32)
            }
            _ => Answer::Done,
        };
        tracing::debug!(number = id.unique, opcode = from.opcode, "answered again");
        Ok(Some(answer))
    }
}
