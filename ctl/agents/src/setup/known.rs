//! The agents that are known: where their settings are, and in which form.

use super::config::Config;
use super::edit::Change;
use super::hooks::Hooks;
use super::region::Region;
use super::servers::Servers;
use super::{Part, Scope, User};
use std::path::{Path, PathBuf};

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
    /// Its directory of Skills below the home or the project.
    skills: &'static str,
    /// Hooks do nothing before the user trusts them.
    needs_trust: bool,
    /// How its settings name MCP servers, and where.
    mcp: Mcp,
    /// File of instructions in its own directory, if it reads one there, and in a project.
    instructions: (Option<&'static str>, &'static str),
}

/// Where an agent's settings name MCP servers.
#[derive(Debug, PartialEq, Eq)]
struct Mcp {
    form: McpForm,
    /// For a user.
    user: Place,
    /// For a project, from its directory; the first that is there. Without any there is no such file.
    project: &'static [&'static str],
    /// In a project they do nothing before the user trusts them.
    needs_trust: bool,
}

/// A form of such settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpForm {
    /// JSON.
    Json(Servers),
    /// Codex's TOML.
    Toml,
}

/// Where a user's file is.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// In the agent's directory; the first that is there.
    Own(&'static [&'static str]),
    /// In the home, or in the agent's directory if that is elsewhere than usual.
    HomeOrOwn(&'static str),
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

/// Names of OpenCode's settings.
const OPENCODE: &[&str] = &["opencode.json", "opencode.jsonc"];

/// What all agents are told in a sentence or two; the Skill has the rest.
pub const INSTRUCTIONS: &str = "\
## agentvfs

If `agentvfs status` shows that this directory is in a workspace, every state of it is kept and can be restored:

- before risky work: `agentvfs checkpoint LABEL`; back to it: `agentvfs rollback LABEL`; `agentvfs undo` reverses that
- one file as it was: `agentvfs restore --ref LABEL PATH`; what changed: `agentvfs diff`
- one tool call taken back: `agentvfs timeline`, then `agentvfs tool undo ID`
- beside other agents: a branch of one's own, `agentvfs branch create NAME`
- never `agentvfs apply` or `agentvfs delete` unless the user asked for it

`agentvfs skill` prints more.
";

/// All that are known.
static AGENTS: [Agent; 6] = [
    Agent {
        name: "claude",
        program: "claude",
        form: Form::Groups,
        events: CLAUDE,
        dir: (".claude", Some("CLAUDE_CONFIG_DIR")),
        hooks: "settings.json",
        skills: ".claude/skills",
        needs_trust: false,
        mcp: Mcp {
            form: McpForm::Json(Servers::Typed),
            user: Place::HomeOrOwn(".claude.json"),
            project: &[".mcp.json"],
            needs_trust: true,
        },
        instructions: (Some("CLAUDE.md"), "CLAUDE.md"),
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
        skills: ".agents/skills",
        needs_trust: true,
        mcp: Mcp {
            form: McpForm::Toml,
            user: Place::Own(&["config.toml"]),
            project: &[".codex/config.toml"],
            needs_trust: true,
        },
        instructions: (Some("AGENTS.md"), "AGENTS.md"),
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
        skills: ".agents/skills",
        needs_trust: false,
        mcp: Mcp {
            form: McpForm::Json(Servers::Plain),
            user: Place::Own(&["settings.json"]),
            project: &[".gemini/settings.json"],
            needs_trust: false,
        },
        instructions: (Some("GEMINI.md"), "GEMINI.md"),
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
        skills: ".agents/skills",
        needs_trust: false,
        mcp: Mcp {
            form: McpForm::Json(Servers::Plain),
            user: Place::Own(&["mcp.json"]),
            project: &[".cursor/mcp.json"],
            needs_trust: false,
        },
        instructions: (None, "AGENTS.md"),
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
        skills: ".agents/skills",
        needs_trust: false,
        mcp: Mcp {
            form: McpForm::Json(Servers::Plain),
            user: Place::Own(&["mcp.json"]),
            project: &[],
            needs_trust: false,
        },
        instructions: (None, "AGENTS.md"),
    },
    Agent {
        name: "opencode",
        program: "opencode",
        form: Form::Groups,
        events: &[],
        dir: (".config/opencode", None),
        hooks: "",
        skills: ".agents/skills",
        needs_trust: false,
        mcp: Mcp {
            form: McpForm::Json(Servers::OpenCode),
            user: Place::Own(OPENCODE),
            project: OPENCODE,
            needs_trust: false,
        },
        instructions: (Some("AGENTS.md"), "AGENTS.md"),
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
            (Part::Hooks, Scope::User(user)) => Some(self.own_dir(user).join(self.hooks)),
            (Part::Hooks, Scope::Project(dir)) => Some(dir.join(self.dir.0).join(self.hooks)),
            (Part::Skill, _) => Some(self.skills(scope).join("agentvfs/SKILL.md")),
            (Part::Mcp, Scope::User(user)) => self.mcp_of_user(user),
            (Part::Mcp, Scope::Project(dir)) => first(dir, self.mcp.project),
            (Part::Instructions, Scope::User(user)) => {
                Some(self.own_dir(user).join(self.instructions.0?))
            }
            (Part::Instructions, Scope::Project(dir)) => Some(dir.join(self.instructions.1)),
        }
    }

    fn mcp_of_user(&self, user: &User) -> Option<PathBuf> {
        match self.mcp.user {
            Place::Own(names) => first(&self.own_dir(user), names),
            Place::HomeOrOwn(name) => Some(match self.dir_elsewhere(user) {
                Some(dir) => dir.join(name),
                None => user.home.join(name),
            }),
        }
    }

    /// How its settings name MCP servers.
    pub fn mcp_form(&self) -> McpForm {
        self.mcp.form
    }

    /// What is changed in the file of a part; `None` for the Skill, which is a file of its own.
    pub fn change(&self, part: Part) -> Option<Box<dyn Change>> {
        Some(match part {
            Part::Hooks => Box::new(Hooks {
                form: self.form,
                events: self.events,
                agent: self.name,
            }),
            Part::Mcp => match self.mcp.form {
                McpForm::Json(servers) => Box::new(servers),
                McpForm::Toml => Box::new(Config),
            },
            Part::Instructions => Box::new(Region { text: INSTRUCTIONS }),
            Part::Skill => return None,
        })
    }

    /// Whether the agent does nothing with a part before its user says that it may.
    pub fn needs_trust(&self, part: Part, scope: &Scope) -> bool {
        match (part, scope) {
            (Part::Hooks, _) => self.needs_trust,
            (Part::Mcp, Scope::Project(_)) => self.mcp.needs_trust,
            _ => false,
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
        let elsewhere = self.dir_elsewhere(user);
        elsewhere.map_or_else(|| user.home.join(self.dir.0), Path::to_owned)
    }

    fn dir_elsewhere<'a>(&self, user: &'a User) -> Option<&'a Path> {
        let mut dirs = user.dirs.iter();
        let named = dirs.find(|(agent, _)| *agent == self.name);
        named.map(|(_, dir)| dir.as_path())
    }
}

/// The first of some files that is there, else the first; `None` of none.
fn first(dir: &Path, names: &[&str]) -> Option<PathBuf> {
    let mut there = names.iter().map(|name| dir.join(name));
    let there = there.find(|path| path.exists());
    there.or_else(|| Some(dir.join(names.first()?)))
}
