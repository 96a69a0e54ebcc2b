//! Notifications: what the kernel is told without having asked.
//!
//! A notification is an answer to no request, with a positive code where an answer has its errno.

use super::Head;
use super::abi::notify_code;
use engine::types::NodeId;

/// A notification: its code, its head, and the name that comes after it, if any.
#[derive(Clone, Copy, Debug)]
pub struct Notification<'a> {
    code: i32,
    head: Head,
    name: Option<&'a [u8]>,
}

impl<'a> Notification<'a> {
    /// Attributes of an inode, and its pages from `offset` on for `len` bytes (0: to the end), are others
    /// now.
    pub fn inode(node: NodeId, offset: i64, len: i64) -> Notification<'static> {
        let head = Head::default().u64(node.0);
        Notification {
            code: notify_code::INVAL_INODE,
            head: head.u64(offset as u64).u64(len as u64),
            name: None,
        }
    }

    /// A name, or its absence, is no longer to be kept.
    pub fn entry(parent: NodeId, name: &'a [u8]) -> Notification<'a> {
        let head = Head::default().u64(parent.0);
        Notification {
            code: notify_code::INVAL_ENTRY,
            head: head.u32(name.len() as u32).u32(0),
            name: Some(name),
        }
    }

    /// No name of the mount is to be kept (Linux 6.16).
    pub fn all_entries() -> Notification<'static> {
        Notification {
            code: notify_code::INC_EPOCH,
            head: Head::default(),
            name: None,
        }
    }

    /// What was not answered is to be sent again (Linux 6.9).
    pub fn resend() -> Notification<'static> {
        Notification {
            code: notify_code::RESEND,
            head: Head::default(),
            name: None,
        }
    }

    /// Its bytes, in up to three runs. A name is ended by NUL.
    pub fn runs(&mut self) -> [&[u8]; 3] {
        let (name, end): (&[u8], &[u8]) = match self.name {
            Some(name) => (name, &[0]),
            None => (&[], &[]),
        };
        let head = self.head.finish(0, self.code, name.len() + end.len());
        [head, name, end]
    }

    /// Its bytes.
    pub fn to_bytes(mut self) -> Vec<u8> {
        self.runs().concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(note: Notification<'_>) -> Vec<u8> {
        note.to_bytes()
    }

    #[test]
    fn notifications_have_the_kernels_layout() {
        let number = |value: u64| value.to_ne_bytes().to_vec();
        let header = |len: u32, code: u32| {
            [
                len.to_ne_bytes().to_vec(),
                code.to_ne_bytes().to_vec(),
                number(0),
            ]
            .concat()
        };
        let inode = bytes(Notification::inode(NodeId(7), -1, 9));
        let fields = [number(7), number(u64::MAX), number(9)].concat();
        assert_eq!(inode, [header(40, 2), fields].concat());
        let entry = bytes(Notification::entry(NodeId(7), b"abc"));
        let length = [3u32.to_ne_bytes(), [0; 4]].concat();
        let fields = [number(7), length, b"abc\0".to_vec()].concat();
        assert_eq!(entry, [header(36, 3), fields].concat());
        assert_eq!(bytes(Notification::all_entries()), header(16, 8));
        assert_eq!(bytes(Notification::resend()), header(16, 7));
    }
}
