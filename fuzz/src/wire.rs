//! Requests of the kernel to the mount.
//!
//! A message says its own length, behind which hardly any mutation would get, so it is also looked at
//! with the right one.

use fuse_front::wire::{Layout, Request, abi, decode};

/// Any bytes give a request, an errno or nothing; what has a header gives no more than it holds.
pub fn check(bytes: &[u8]) {
    for long_setxattr in [false, true] {
        let layout = Layout { long_setxattr };
        look(bytes, layout);
        let mut sealed = bytes.to_vec();
        if let Some(len) = sealed.first_chunk_mut() {
            *len = (bytes.len() as u32).to_ne_bytes();
        }
        look(&sealed, layout);
    }
}

fn look(bytes: &[u8], layout: Layout) {
    let Some(found) = decode(bytes, layout) else {
        return;
    };
    let body = bytes.len() - abi::IN_HEADER_BYTES;
    let is_name = |name: &[u8]| {
        assert!(!name.is_empty() && name.len() < body);
        assert!(!name.contains(&0) && !name.contains(&b'/'));
    };
    match found.request {
        Ok(
            Request::Lookup { name }
            | Request::Mknod { name, .. }
            | Request::Mkdir { name, .. }
            | Request::Symlink { name, .. }
            | Request::Link { name, .. }
            | Request::Unlink { name }
            | Request::Rmdir { name }
            | Request::Create { name, .. },
        ) => is_name(name),
        Ok(Request::Rename { name, new_name, .. }) => {
            is_name(name);
            is_name(new_name);
        }
        Ok(Request::BatchForget(forgets)) => assert!(forgets.iter().count() * 16 <= body),
        Ok(Request::Write { data, .. }) => assert!(data.len() + abi::WRITE_IN_BYTES <= body),
        Ok(_) => {}
        Err(errno) => assert!(errno.raw_os_error() > 0),
    }
}

/// A request of each layout.
pub fn seeds() -> Vec<Vec<u8>> {
    use abi::opcode::*;
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let with = |fixed: &[u32], text: &[u8]| -> Vec<u8> {
        let fixed: Vec<u8> = words(fixed);
        [fixed, text.to_vec()].concat()
    };
    let bodies = [
        (LOOKUP, with(&[], b"name\0")),
        (FORGET, with(&[1, 0], b"")),
        (BATCH_FORGET, with(&[2, 0, 5, 0, 1, 0, 6, 0, 1, 0], b"")),
        (GETATTR, with(&[0; 4], b"")),
        (SETATTR, with(&[0xfff; 22], b"")),
        (SYMLINK, with(&[], b"name\0to/where\0")),
        (MKNOD, with(&[0o100644, 0, 0o22, 0], b"name\0")),
        (MKDIR, with(&[0o755, 0o22], b"name\0")),
        (RENAME, with(&[9, 0], b"old\0new\0")),
        (RENAME2, with(&[9, 0, 1, 0], b"old\0new\0")),
        (LINK, with(&[9, 0], b"name\0")),
        (READ, with(&[0, 0, 4096, 0, 4096, 0, 0, 0, 0, 0], b"")),
        (WRITE, with(&[0, 0, 4096, 0, 4, 0, 0, 0, 0, 0], b"data")),
        (SETXATTR, with(&[1, 0], b"user.a\0v")),
        (SETXATTR, with(&[1, 0, 1, 0], b"user.a\0v")),
        (GETXATTR, with(&[100, 0], b"user.a\0")),
        (
            INIT,
            with(&[7, 45, 0x2_0000, 0x7fff_ffff, 0xffff], &[0; 44]),
        ),
        (READDIRPLUS, with(&[0, 0, 0, 0, 4096, 0, 0, 0, 0, 0], b"")),
        (CREATE, with(&[0o101, 0o100644, 0o22, 0], b"name\0")),
        (FALLOCATE, with(&[0, 0, 0, 0, 8, 0, 3, 0], b"")),
        (LSEEK, with(&[0, 0, 0, 0, 3, 0], b"")),
        (COPY_FILE_RANGE_64, with(&[8; 14], b"")),
        (TMPFILE, with(&[0o20200002, 0o100600, 0o22, 0], b"/\0")),
        (RENAME2, with(&[9, 0, 5, 0], b"old\0new\0")),
    ];
    let message = |(opcode, body): (u32, Vec<u8>)| {
        let len = (abi::IN_HEADER_BYTES + body.len()) as u32;
        let header: Vec<u8> = words(&[len, opcode, 1, 0, 1, 0, 1000, 1000, 77, 0]);
        [header, body].concat()
    };
    bodies.into_iter().map(message).collect()
}
