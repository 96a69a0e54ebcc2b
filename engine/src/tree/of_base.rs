//! What of a file is of one version of a base file, or cannot be read there: found, and put in another's
//! place when that version is taken anew or left out.
//!
//! Tested by `engine/tests/unreadable.rs` and `engine/tests/base/base.rs`.

use super::file::{Body, FileData, Piece, Src};
use crate::base::Stamp;
use std::sync::Arc;

impl FileData {
    /// True where the body, or a range shared with it, is this version of a base file.
    pub fn is_of(&self, stamp: &Stamp) -> bool {
        is_version(self.body().0, stamp)
            || self
                .extents()
                .any(|p| matches!(&p.src, Src::Shared { body, .. } if is_version(body, stamp)))
    }

    /// Gives ranges that are shared with the base version `old` to `new`, which is `len` bytes long;
    /// what that lacks is a hole.
    pub fn share_anew(&mut self, old: &Stamp, new: &Body, len: u64) {
        let new = Arc::new(new.clone());
        let pieces: Vec<Piece> = self.extents().collect();
        for Piece { range, src } in pieces {
            let Src::Shared { body, at } = src else {
                continue;
            };
            if !is_version(&body, old) {
                continue;
            }
            let end = range.end.min(range.start + len.saturating_sub(at));
            let body = new.clone();
            if end < range.end {
                self.punch(end..range.end);
            }
            self.set(range.start..end, Src::Shared { body, at });
        }
    }

    /// True where some of `size` bytes are of a base file that cannot be read.
    pub fn is_unreadable(&self, size: u64) -> bool {
        let bad = |body: &Body| *body == Body::Unreadable;
        if self.is_plain() {
            let (body, len) = self.body();
            return bad(body) && len > 0;
        }
        let pieces = self.pieces(0..size);
        let mut sources = pieces.iter().map(|p| &p.src);
        sources.any(|src| matches!(src, Src::Shared { body, .. } if bad(body)))
    }
}

fn is_version(body: &Body, stamp: &Stamp) -> bool {
    matches!(body, Body::Base(file) if file.stamp() == stamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{BaseDir, BaseFile};
    use crate::types::Time;

    fn stamp(ino: u64) -> Stamp {
        Stamp {
            dev: 1,
            ino,
            size: 100,
            mtime: Time::default(),
            ctime: Time::default(),
        }
    }

    fn base(ino: u64) -> Body {
        Body::Base(BaseFile::new(BaseDir::root(), b"f", stamp(ino), 100))
    }

    fn shared(ino: u64, at: u64) -> Src {
        let body = Arc::new(base(ino));
        Src::Shared { body, at }
    }

    #[test]
    fn what_is_shared_goes_over_to_a_shorter_version_and_ends_in_a_hole() {
        let mut file = FileData::new(base(1), 100, 100);
        file.set(10..30, shared(2, 20));
        file.set(50..60, shared(3, 0));
        assert!(file.is_of(&stamp(1)) && file.is_of(&stamp(2)) && !file.is_of(&stamp(4)));
        file.share_anew(&stamp(2), &base(4), 32);
        let pieces: Vec<_> = file.extents().collect();
        let ranges: Vec<_> = pieces.iter().map(|p| p.range.clone()).collect();
        assert_eq!(ranges, [10..22, 22..30, 50..60]);
        assert_eq!(pieces[0].src, shared(4, 20));
        assert_eq!(pieces[1].src, Src::Hole);
        assert_eq!(pieces[2].src, shared(3, 0));
    }

    #[test]
    fn a_file_is_unreadable_as_long_as_a_part_of_it_is() {
        let mut file = FileData::new(Body::Unreadable, 100, 100);
        assert!(file.is_unreadable(100));
        file.set(0..60, Src::Zero);
        assert!(file.is_unreadable(100));
        file.set(60..100, Src::Zero);
        assert!(!file.is_unreadable(100));
        let mut copy = FileData::default();
        let body = Arc::new(Body::Unreadable);
        copy.set(5..9, Src::Shared { body, at: 0 });
        assert!(copy.is_unreadable(9));
        copy.truncate(5);
        assert!(!copy.is_unreadable(5));
    }
}
