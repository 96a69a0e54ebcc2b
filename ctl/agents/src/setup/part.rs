//! Where something is set up, what can be, and how it stands. Knows no files' contents.
//!
//! Tests: `tests/tests/agent_setup.rs`.

use std::path::PathBuf;

/// Where it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For all projects of a user.
    User(User),
    /// For the project in this directory.
    Project(PathBuf),
}

/// Where a user's settings are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The home directory.
    pub home: PathBuf,
    /// Directories of agents (by name) that are elsewhere than usual.
    pub dirs: Vec<(&'static str, PathBuf)>,
}

/// What can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Hooks in the agent's settings.
    Hooks,
    /// A Skill.
    Skill,
    /// An MCP server in the agent's settings.
    Mcp,
    /// A region in the instructions that the agent reads.
    Instructions,
}

impl Part {
    /// All of them, in the order in which they are written.
    pub const ALL: [Part; 4] = [Part::Hooks, Part::Skill, Part::Mcp, Part::Instructions];

    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Part::Hooks => "hooks",
            Part::Skill => "skill",
            Part::Mcp => "mcp",
            Part::Instructions => "instructions",
        }
    }
}

/// How a part stands, or what was done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It was written.
    Written,
    /// It was written, and the agent does nothing with it before its user says that it may.
    NeedsTrust,
    /// It is there as it should be.
    Same,
    /// The user has changed it: it is left alone.
    Changed,
    /// It is not there.
    Absent,
    /// It was taken away.
    Removed,
    /// It stays, since another agent uses it.
    Shared,
    /// The file cannot be used; nothing was done.
    Failed(String),
}

impl State {
    /// Its name in rows.
    pub fn name(&self) -> &'static str {
        match self {
            State::Written => "written",
            State::NeedsTrust => "needs-trust",
            State::Same => "same",
            State::Changed => "changed",
            State::Absent => "absent",
            State::Removed => "removed",
            State::Shared => "shared",
            State::Failed(_) => "failed",
        }
    }
}

/// One part of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the agent.
    pub agent: &'static str,
    /// The part.
    pub part: Part,
    /// The file that it is in.
    pub file: PathBuf,
    /// How it stands.
    pub state: State,
}
