//! The agents that are known: where their settings are, and in which form.

use super::{Part, Scope, User};
use std::path::PathBuf;

/// How an agent's settings name hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `{"hooks": {EVENT: [{"hooks": [{"type": "command", "command": …}]}]}}`: Claude Code's, which most others took
    /// over.
    Groups,
    /// `{"version": 1, "hooks": {EVENT: [{"command": …}]}}`: Cursor's.
    Flat,
}

/// A program that works for a user.
#[derive(Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its name here, which `agentvfs hook` takes, too.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// Form of its hooks.
    pub form: Form,
    /// Events that it tells; none where it has no hooks of this kind.
    pub events: &'static [&'static str],
    /// Its directory below the user's home, and the variable that may name another one.
    dir: (&'static str, Option<&'static str>),
    /// File of the hooks in its directory.
    hooks: &'static str,
    /// Its hooks are for projects alone.
    project_only: bool,
    /// Its directory of Skills below the home or the project.
    skills: &'static str,
    /// Hooks do nothing before the user trusts them.
    pub needs_trust: bool,
}

/// Events of Claude Code.
const CLAUDE: &[&str] = &[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "SubagentStop",
    "Stop",
    "SessionEnd",
];

/// All that are known.
static AGENTS: [Agent; 6] = [
    Agent {
        name: "claude",
        program: "claude",
        form: Form::Groups,
        events: CLAUDE,
        dir: (".claude", Some("CLAUDE_CONFIG_DIR")),
        hooks: "settings.json",
        project_only: false,
        skills: ".claude/skills",
        needs_trust: false,
    },
    Agent {
        name: "codex",
        program: "codex",
        form: Form::Groups,
        events: &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "SubagentStop",
            "Stop",
        ],
        dir: (".codex", Some("CODEX_HOME")),
        hooks: "hooks.json",
        project_only: false,
        skills: ".agents/skills",
        needs_trust: true,
    },
    Agent {
        name: "gemini",
        program: "gemini",
        form: Form::Groups,
        events: &[
            "SessionStart",
            "BeforeAgent",
            "BeforeTool",
            "AfterTool",
            "AfterAgent",
            "SessionEnd",
        ],
        dir: (".gemini", None),
        hooks: "settings.json",
        project_only: false,
        skills: ".agents/skills",
        needs_trust: false,
    },
    Agent {
        name: "cursor",
        program: "cursor-agent",
        form: Form::Flat,
        events: &[
            "sessionStart",
            "beforeSubmitPrompt",
            "preToolUse",
            "postToolUse",
            "postToolUseFailure",
            "stop",
            "sessionEnd",
        ],
        dir: (".cursor", None),
        hooks: "hooks.json",
        project_only: false,
        skills: ".agents/skills",
        needs_trust: false,
    },
    Agent {
        name: "openhands",
        program: "openhands",
        form: Form::Groups,
        events: &[
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "Stop",
            "SessionEnd",
        ],
        dir: (".openhands", None),
        hooks: "hooks.json",
        project_only: true,
        skills: ".agents/skills",
        needs_trust: false,
    },
    Agent {
        name: "opencode",
        program: "opencode",
        form: Form::Groups,
        events: &[],
        dir: (".config/opencode", None),
        hooks: "",
        project_only: false,
        skills: ".agents/skills",
        needs_trust: false,
    },
];

/// All agents that are known.
pub fn all() -> impl Iterator<Item = &'static Agent> {
    AGENTS.iter()
}

/// The agent of a name.
pub fn named(name: &str) -> Option<&'static Agent> {
    all().find(|agent| agent.name == name)
}

impl Agent {
    /// The variable that may name its directory.
    pub fn variable(&self) -> Option<&'static str> {
        self.dir.1
    }

    /// The file of a part; `None` where the agent has no such part there.
    pub fn file(&self, part: Part, scope: &Scope) -> Option<PathBuf> {
        match (part, scope) {
            (Part::Hooks, _) if self.events.is_empty() => None,
            (Part::Hooks, Scope::User(_)) if self.project_only => None,
            (Part::Hooks, Scope::User(user)) => Some(self.own_dir(user).join(self.hooks)),
            (Part::Hooks, Scope::Project(dir)) => Some(dir.join(self.dir.0).join(self.hooks)),
            (Part::Skill, _) => Some(self.skills(scope).join("agentvfs/SKILL.md")),
        }
    }

    fn skills(&self, scope: &Scope) -> PathBuf {
        match scope {
            // Claude Code's are in its directory, wherever that is.
            Scope::User(user) if self.skills.starts_with(self.dir.0) => {
                self.own_dir(user).join("skills")
            }
            Scope::User(User { home: dir, .. }) | Scope::Project(dir) => dir.join(self.skills),
        }
    }

    /// Its directory for a user.
    pub fn own_dir(&self, user: &User) -> PathBuf {
        let named = user.dirs.iter().find(|(agent, _)| *agent == self.name);
        named.map_or_else(|| user.home.join(self.dir.0), |(_, dir)| dir.clone())
    }
}
