//! A shell that goes on living in a directory, and does one line after the other.

use crate::env::Env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A shell that does what it is told and says how that went.
pub struct Shell {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts one that stands in `directory`.
    pub fn start(env: &Env, directory: &Path) -> Shell {
        let mut command = env.program("sh");
        command
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        Shell {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status of a line of commands, carried out in a shell of their own.
    pub fn say(&mut self, line: &str) -> i32 {
        writeln!(self.to, "({line}) >/dev/null; echo $?").unwrap();
        let mut status = String::new();
        self.from.read_line(&mut status).unwrap();
        status.trim().parse().unwrap()
    }

    /// Has the shell itself carry out a line, such as `cd` or `exec`; it must go well.
    #[track_caller]
    pub fn do_itself(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
        assert_eq!(self.say("true"), 0, "{line}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
