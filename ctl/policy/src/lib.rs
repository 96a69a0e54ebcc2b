//! Rules about what may be changed, and by whom: TOML text to a compiled [`Policy`], and what that says of a change or
//! a tool call (docs/policy.md).
//!
//! Pure data and functions: no I/O, no clock. Of the engine it knows what a change is to whoever judges it (`engine::judge`)
//! and nothing else: no branch, no tree. Whoever asks brings the time. Loading is total: any
//! text gives a policy or a [`Fault`] with its line and column. Each text, list and automaton has a limit, and judging
//! takes time that is linear in the length of the path, so no policy can cost more than its size allows.
//!
//! Invariant: rules are looked at in their order, and the first that fits decides. A rule with a rate fits only once
//! more changes than that came within its time.
//!
//! Tests: beside the parts; `tests/model.rs` (a naive reader of the same rules), fuzz target `policy`.
#![forbid(unsafe_code)]

mod bench;
mod errno;
mod load;
mod names;
mod op;
mod paths;
mod program;
mod rate;
mod rule;
mod tools;

pub use bench::{Asked, Bench, Said};
pub use engine::judge::{Asker, Counting, FeedOp, Ruling, Sentence, Touch};
pub use errno::Errno;
pub use load::Fault;
pub use op::{Ops, RULED, ruled};
pub use program::{PROGRAM_BYTES_MAX, ProgramText, with_program};
pub use tools::{ToolCall, ToolRuling, ToolVerdict};

use paths::{Fits, Paths};
use rule::ChangeRule;
use tools::ToolRule;

/// Longest text of a policy, in bytes.
pub const TEXT_BYTES_MAX: usize = 512 << 10;
/// Rules of a policy, at most.
pub const RULES_MAX: usize = 1_000;
/// Patterns of a policy, at most.
pub const PATTERNS_MAX: usize = 5_000;
/// Longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Questions to the program about one change, at most.
pub const ASKED_MAX: usize = 10_000;
/// Longest name of a rule, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Memory of all automata of a policy, in bytes, each at most.
pub const AUTOMATON_BYTES_MAX: usize = 4 << 20;

/// Compiled rules.
#[derive(Debug, Default)]
pub struct Policy {
    changes: Vec<ChangeRule>,
    /// By operation: its rules, in order.
    by_op: [Vec<usize>; FeedOp::ALL.len()],
    /// Those of them that need no pattern to fit: all that are looked at where none does, as at most paths.
    everywhere_by_op: [Vec<usize>; FeedOp::ALL.len()],
    paths: Paths,
    tools: Vec<ToolRule>,
    program: Option<ProgramText>,
}

impl Policy {
    /// Compiles a text.
    pub fn load(text: &str) -> Result<Policy, Fault> {
        load::load(text)
    }

    /// Rules that it has.
    pub fn len(&self) -> usize {
        self.changes.len() + self.tools.len()
    }

    /// Whether it has no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has rules about changes.
    pub fn is_about_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether it has rules about opens.
    pub fn is_about_opens(&self) -> bool {
        !self.rules_of(FeedOp::Open).is_empty()
    }

    /// Its program, which its rules may ask.
    pub fn program(&self) -> Option<&ProgramText> {
        self.program.as_ref()
    }

    /// With what error the program denies a change that this rule asks it about.
    pub fn denies_with(&self, rule: usize) -> Option<Errno> {
        self.changes.get(rule)?.asks
    }

    /// What is said of a change if the program that this rule asks gives no verdict.
    pub fn on_error(&self, rule: usize) -> Option<Sentence> {
        self.changes.get(rule).map(|rule| rule.verdict)
    }

    /// Whether a rule asks for the name of the program that changes something.
    pub fn wants_commands(&self) -> bool {
        let wants = |rule: &ChangeRule| rule.commands.is_some() || rule.asks.is_some();
        self.changes.iter().any(wants)
    }

    /// Whether some rule can fit a path below this directory, for an operation by which a directory is moved.
    pub fn reaches_below(&self, dir: &[u8]) -> bool {
        let moves = Ops::of_move();
        let can = |rule: &ChangeRule| rule.ops.meets(moves) && self.paths.reach_below(rule, dir);
        self.changes.iter().any(can)
    }

    /// What it says of a tool call.
    pub fn judge_tool(&self, call: &ToolCall<'_>) -> Option<ToolRuling> {
        self.tools.iter().find_map(|rule| rule.judge(call))
    }

    /// Whether it has rules about tool calls.
    pub fn is_about_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    fn new(
        changes: Vec<ChangeRule>,
        tools: Vec<ToolRule>,
        paths: Paths,
        program: Option<ProgramText>,
    ) -> Policy {
        let mut by_op: [Vec<usize>; FeedOp::ALL.len()] = Default::default();
        let mut everywhere_by_op = by_op.clone();
        for (number, rule) in changes.iter().enumerate() {
            for op in rule.ops.iter() {
                by_op[op as usize].push(number);
                if rule.globs.is_none() {
                    everywhere_by_op[op as usize].push(number);
                }
            }
        }
        Policy {
            changes,
            by_op,
            everywhere_by_op,
            paths,
            tools,
            program,
        }
    }

    fn rules_of(&self, op: FeedOp) -> &[usize] {
        &self.by_op[op as usize]
    }

    /// Rules of an operation that may fit a path which these patterns fit.
    fn rules_at(&self, op: FeedOp, fits: &Fits) -> &[usize] {
        match fits.is_none() {
            true => &self.everywhere_by_op[op as usize],
            false => self.rules_of(op),
        }
    }
}
