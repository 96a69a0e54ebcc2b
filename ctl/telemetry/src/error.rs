//! Why programs cannot be loaded into the kernel, or not be told something.

use std::io;

/// The error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel does not describe its types.
    #[error("the kernel does not describe its types: /sys/kernel/btf/vmlinux: {0}")]
    NoTypes(String),
    /// Where this machine's registers are is not known here.
    #[error("not for processors of this kind")]
    Machine,
    /// bpf(2) was refused, or the kernel has not what it is asked for.
    #[error("{what}: {why}")]
    Refused {
        /// What it was asked for.
        what: &'static str,
        /// What it says.
        why: String,
    },
    /// A system call for the thread failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What a reason may have of characters: the verifier's can be long.
const WHY_MAX: usize = 300;

/// The last reason of a chain, which is the kernel's own, on one line.
pub(crate) fn why(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(WHY_MAX)
        .collect()
}

/// An error of bpf(2) in doing something.
pub(crate) fn refused<E: std::error::Error + 'static>(what: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::Refused {
        what,
        why: why(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_last_of_the_chain_and_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] io::Error);
        let error = Outer(io::Error::other("inner\nand a log"));
        let said = refused("loading")(error).to_string();
        assert_eq!(said, "loading: inner");
    }
}
