//! A path, written from its end: whoever walks from an inode to the root meets its last part first.

/// The parts so far, with slashes between them.
pub(super) struct FromEnd {
    bytes: Vec<u8>,
    /// Where they begin; what is before is free.
    at: usize,
}

/// Room at first; most paths are shorter.
const ROOM: usize = 64;

impl FromEnd {
    /// No part yet.
    pub fn new() -> FromEnd {
        FromEnd {
            bytes: vec![0; ROOM],
            at: ROOM,
        }
    }

    /// Puts a part before those that there are.
    pub fn push(&mut self, part: &[u8]) {
        let slash = usize::from(self.at < self.bytes.len());
        let len = part.len() + slash;
        if len > self.at {
            self.grow(len);
        }
        self.at -= len;
        self.bytes[self.at..][..part.len()].copy_from_slice(part);
        if slash > 0 {
            self.bytes[self.at + part.len()] = b'/';
        }
    }

    fn grow(&mut self, more: usize) {
        let more = more.max(self.bytes.len());
        let mut longer = vec![0; self.bytes.len() + more];
        longer[more + self.at..].copy_from_slice(&self.bytes[self.at..]);
        self.bytes = longer;
        self.at += more;
    }

    /// The path.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.at);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_come_out_in_order_with_slashes(parts in vec(vec(1u8.., 1..256), 0..9)) {
            let mut path = FromEnd::new();
            parts.iter().rev().for_each(|part| path.push(part));
            prop_assert_eq!(path.into_bytes(), parts.join(&b'/'));
        }
    }
}
