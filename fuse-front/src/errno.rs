//! The one place where failures become the errno that a program sees.
//!
//! Whatever becomes EIO is logged with its cause: the program is told nothing else.

use crate::stats::Op;
use engine::Error;
use rustix::io::Errno;

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine refused it or could not do it.
    Engine(Error),
    /// The handler panicked (and was logged).
    Panicked,
    /// The request itself cannot be carried out.
    Request(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Request(errno)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl Failure {
    /// The errno, logging what it hides.
    pub(crate) fn errno(&self, op: Op) -> Errno {
        match self {
            Failure::Engine(error) => engine_errno(op, error),
            Failure::Panicked => Errno::IO,
            Failure::Request(Errno::IO) => {
                tracing::error!(op = op.name(), "the kernel sent what is no such request");
                Errno::IO
            }
            Failure::Request(errno) => *errno,
        }
    }

    /// True for "wait for the disk and call again".
    pub(crate) fn would_block(&self) -> bool {
        matches!(self, Failure::Engine(Error::WouldBlock))
    }
}

/// Errno of an engine error. `WouldBlock` must not come this far: it is our own signal, and EAGAIN
/// would make programs think that the file is non-blocking.
fn engine_errno(op: Op, error: &Error) -> Errno {
    let errno = match error {
        Error::WouldBlock => Errno::IO,
        other => Errno::from_raw_os_error(other.errno()),
    };
    if errno == Errno::IO {
        tracing::error!(op = op.name(), %error, cause = ?error, "request failed with EIO");
    }
    errno
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_errors_keep_their_errno() {
        let errno = |error: Error| Failure::from(error).errno(Op::Lookup);
        assert_eq!(errno(Error::NotFound), Errno::NOENT);
        assert_eq!(errno(Error::NotEmpty), Errno::NOTEMPTY);
        assert_eq!(errno(Error::NoData), Errno::NODATA);
    }

    #[test]
    fn would_block_is_never_shown() {
        assert!(Failure::from(Error::WouldBlock).would_block());
        assert_eq!(Failure::from(Error::WouldBlock).errno(Op::Read), Errno::IO);
        assert_eq!(Failure::Panicked.errno(Op::Read), Errno::IO);
    }
}
