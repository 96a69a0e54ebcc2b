//! The errors with which a change may be denied.
//!
//! Only such as tell a program that it may not: others mean something else to the kernel or to the C library. ENOSYS
//! would end a whole kind of request, ESTALE is tried again, and with EXDEV mv(1) copies and deletes.

use std::fmt;

/// An error that a program may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno {
    name: &'static str,
    /// Its number on Linux (asm-generic).
    pub code: i32,
}

const fn errno(name: &'static str, code: i32) -> Errno {
    Errno { name, code }
}

impl Errno {
    /// What a rule without `errno` gives.
    pub const DEFAULT: Errno = errno("EACCES", 13);

    /// All that a rule may name.
    pub const ALL: [Errno; 7] = [
        Errno::DEFAULT,
        errno("EPERM", 1),
        errno("EROFS", 30),
        errno("EBUSY", 16),
        errno("ENOSPC", 28),
        errno("EDQUOT", 122),
        errno("EIO", 5),
    ];

    /// The error of a name.
    pub fn of(name: &str) -> Option<Errno> {
        Errno::ALL.into_iter().find(|errno| errno.name == name)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
