//! How what was asked for ends badly: exit status, what failed and why, and what to do about it.
//!
//! Invariant: every failure is told as `agentvfs: WHAT: WHY`, then `hint: …`, each on one line, whatever names are
//! in it, or as one object `{"kind", "message", "hint"}`. Nothing is printed here.

use crate::protocol::Fault;
use crate::quote::one_line;
use serde_json::{Value, json};

/// It failed, or there are conflicts.
pub const FAILED: u8 = 1;
/// Wrong usage, found before anything was done.
pub const USAGE: u8 = 2;
/// No daemon can be reached or started.
pub const NO_DAEMON: u8 = 3;

/// It was interrupted, and what it did was cancelled.
pub const INTERRUPTED: u8 = 130;

/// A command's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Exit status.
    pub exit: u8,
    /// Word for programs, such as `no-such-ref`.
    pub kind: String,
    /// What failed, such as `cannot roll back my-task`.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure of the work itself.
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Failure {
        Failure {
            exit: FAILED,
            kind: "failed".to_owned(),
            what: what.into(),
            why: why.into(),
            hint: None,
        }
    }

    /// Wrong usage.
    pub fn usage(why: impl Into<String>) -> Failure {
        Failure {
            exit: USAGE,
            ..Failure::new("wrong usage", why).kind("usage")
        }
    }

    /// No daemon.
    pub fn no_daemon(why: impl Into<String>) -> Failure {
        Failure {
            exit: NO_DAEMON,
            ..Failure::new("cannot reach the daemon", why).kind("no-daemon")
        }
    }

    /// What the daemon answered to an attempt to do `what`.
    pub fn from_fault(what: impl Into<String>, fault: Fault) -> Failure {
        let exit = if fault.kind == "bad-name" {
            USAGE
        } else {
            FAILED
        };
        Failure {
            exit,
            // A daemon's error that says no more is still an error of a certain kind.
            kind: match fault.kind.as_str() {
                "" => "failed".to_owned(),
                _ => fault.kind,
            },
            what: what.into(),
            why: fault.message,
            hint: fault.hint,
        }
    }

    /// The same with another word for programs.
    pub fn kind(mut self, kind: &str) -> Failure {
        self.kind = kind.to_owned();
        self
    }

    /// The same with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Nobody reads standard output any more: ends quietly, with success.
    pub fn broken_pipe() -> Failure {
        Failure {
            exit: 0,
            kind: String::new(),
            what: String::new(),
            why: String::new(),
            hint: None,
        }
    }

    /// What it is for programs.
    pub fn object(&self) -> Value {
        json!({
            "kind": self.kind,
            "message": format!("{}: {}", self.what, self.why),
            "hint": self.hint,
        })
    }

    /// What is told, without colours.
    pub fn plain(&self) -> String {
        self.text(false)
    }

    /// What is told, with colours or without.
    pub fn text(&self, colour: bool) -> String {
        let (red, cyan, off) = if colour {
            ("\x1b[1;31m", "\x1b[36m", "\x1b[0m")
        } else {
            ("", "", "")
        };
        let (what, why) = (one_line(&self.what), one_line(&self.why));
        let mut text = format!("{red}agentvfs:{off} {what}: {why}\n");
        if let Some(hint) = &self.hint {
            text.push_str(&format!("{cyan}hint:{off} {}\n", one_line(hint)));
        }
        text
    }
}

impl From<std::io::Error> for Failure {
    /// An error of standard output: a broken pipe is success, as whoever read had enough.
    fn from(error: std::io::Error) -> Failure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Failure::broken_pipe();
        }
        Failure::new("cannot write the output", error.to_string()).kind("io")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_what_why_and_hint() {
        let failure = Failure::new("cannot stop a", "it is not running").hint("start it");
        assert_eq!(
            failure.text(false),
            "agentvfs: cannot stop a: it is not running\nhint: start it\n"
        );
    }

    #[test]
    fn object_has_kind_message_and_hint() {
        let fault = Fault::failed("not-running", "it is not running").hint("start it");
        let failure = Failure::from_fault("cannot stop a", fault);
        let wanted = json!({
            "kind": "not-running",
            "message": "cannot stop a: it is not running",
            "hint": "start it",
        });
        assert_eq!(failure.object(), wanted);
        let plain = Failure::new("a", "b").object();
        assert_eq!(
            (&plain["kind"], &plain["hint"]),
            (&json!("failed"), &Value::Null)
        );
        assert_eq!(Failure::usage("b").object()["kind"], "usage");
    }

    #[test]
    fn names_neither_end_a_line_nor_reach_the_terminal() {
        let failure = Failure::new("cannot read a\nb", "\u{9b}2J").hint("\x1b]0;x\x07 \u{202e}");
        assert_eq!(
            failure.text(false),
            "agentvfs: cannot read a\\nb: \\302\\2332J\nhint: \\033]0;x\\007 \\342\\200\\256\n"
        );
    }

    #[test]
    fn broken_pipe_is_quiet_success() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(failure.exit, 0);
    }
}
