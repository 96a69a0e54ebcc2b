//! Programs that judge events: WebAssembly and Lua, by ContextFS's entry points (docs/policy.md).
//!
//! Data alone goes in and comes out: an event's sixteen fields and texts, a verdict and texts. Invariants: a program has no files, no
//! network, no clock and no way to the rest of this process; it has [`limits`], and one that exceeds them, traps or answers what
//! is no verdict gives an error, which whoever asked decides about. After an error its state is made anew, so nothing of
//! what went wrong is seen by the next event. Nothing here waits, does I/O or knows of the engine.
//!
//! Tests: hostile programs are in `tests/hostile.rs`, ContextFS's own shape in `tests/judging.rs`.

#![forbid(unsafe_code)]

pub mod limits;
mod lua;
mod wasm;

pub use agentvfs_policy as policy;

use policy::{Policy, ProgramText};
use std::fmt;

/// Longest line that is said of what failed, in characters.
const LINE_CHARS_MAX: usize = 200;

/// An event as a program sees it: ContextFS's fields, in their order.
#[derive(Clone, Debug, Default)]
pub struct ProgramEvent<'a> {
    /// Nanoseconds since 1970.
    pub ts: u64,
    /// Number of the session.
    pub session_id: u64,
    /// Number of the branch.
    pub branch_id: u64,
    /// Version of the policy.
    pub policy_version: u64,
    /// What is done.
    pub op: &'a str,
    /// What was decided before the program is asked.
    pub verdict: Verdict,
    /// Device of the mount.
    pub dev: u64,
    /// Number of the inode.
    pub ino: u64,
    /// Its generation.
    pub i_generation: u64,
    /// Path from the workspace's root.
    pub path: &'a [u8],
    /// Process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes that are written.
    pub bytes: u64,
    /// Nanoseconds since the request.
    pub latency_ns: u64,
    /// By which way it came.
    pub backend: &'a str,
    /// Further texts.
    pub extra: &'a [(&'a str, &'a [u8])],
}

/// What a program decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It may be done.
    #[default]
    Allow,
    /// It may be done, and is to be told of.
    SoftWatch,
    /// It is not to be done.
    Deny,
}

impl Verdict {
    /// All of them, by their numbers.
    pub const ALL: [Verdict; 3] = [Verdict::Allow, Verdict::SoftWatch, Verdict::Deny];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::SoftWatch => "soft_watch",
            Verdict::Deny => "deny",
        }
    }
}

/// A program's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The verdict.
    pub verdict: Verdict,
    /// Texts that go with it, sorted by key; Lua alone has them.
    pub extra: Vec<(String, String)>,
}

/// Why a program cannot be used, or gave no verdict.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// It is too long.
    #[error("the program has {bytes} bytes, more than {max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// It cannot be loaded.
    #[error("the program cannot be loaded: {0}")]
    Invalid(String),
    /// It has no function of that name and kind.
    #[error("the program has no function on_event: {0}")]
    NoEntry(String),
    /// It trapped, raised an error or exceeded a limit.
    #[error("the program failed: {0}")]
    Failed(String),
    /// It used more time than it may.
    #[error("the program took longer than it may")]
    TooSlow,
    /// What it returned is no verdict.
    #[error("the program returned {0}, which is no verdict")]
    NoVerdict(String),
}

/// A program that is ready to judge.
#[derive(Debug)]
pub struct Program(Kind);

enum Kind {
    Wasm(Box<wasm::WasmProgram>),
    Lua(lua::LuaProgram),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Wasm(_) => "wasm",
            Kind::Lua(_) => "lua",
        })
    }
}

impl Program {
    /// The program of a policy, if it has one.
    ///
    /// # Errors
    /// As for [`Program::wasm`] and [`Program::lua`].
    pub fn of(policy: &Policy) -> Result<Option<Program>, ProgramError> {
        let program = policy.program().map(|program| match program {
            ProgramText::Lua(text) => Program::lua(text.as_bytes()),
            ProgramText::Wasm(module) => Program::wasm(module),
        });
        program.transpose()
    }

    /// A module of WebAssembly that exports `on_event(i32) -> i32`.
    ///
    /// # Errors
    /// It is too long, invalid, imports something, exceeds a limit when it begins, or has no such function.
    pub fn wasm(module: &[u8]) -> Result<Program, ProgramError> {
        check_length(module)?;
        Ok(Program(Kind::Wasm(Box::new(wasm::WasmProgram::load(
            module,
        )?))))
    }

    /// A text of Lua 5.4 that defines `on_event(event)`.
    ///
    /// # Errors
    /// It is too long or no Lua, exceeds a limit when it begins, or has no such function.
    pub fn lua(text: &[u8]) -> Result<Program, ProgramError> {
        check_length(text)?;
        Ok(Program(Kind::Lua(lua::LuaProgram::load(text)?)))
    }

    /// Asks it about an event.
    ///
    /// # Errors
    /// It gave no verdict; the next event finds it as it was when it was loaded.
    pub fn judge(&mut self, event: &ProgramEvent<'_>) -> Result<Answer, ProgramError> {
        match &mut self.0 {
            Kind::Wasm(program) => program.judge(event),
            Kind::Lua(program) => program.judge(event),
        }
    }
}

/// A text as one line of limited length: what libraries say may have several.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((cut, _)) = line.char_indices().nth(LINE_CHARS_MAX) {
        line.truncate(cut);
    }
    line
}

fn check_length(program: &[u8]) -> Result<(), ProgramError> {
    let (bytes, max) = (program.len(), limits::PROGRAM_BYTES_MAX);
    if bytes > max {
        return Err(ProgramError::TooLong { bytes, max });
    }
    Ok(())
}
