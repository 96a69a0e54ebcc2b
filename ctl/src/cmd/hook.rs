//! `agentvfs hook`.

use crate::output::print;
use agentvfs_agents::hook::{Surroundings, hear};
use agentvfs_client::context::find_home;
use agentvfs_client::home::process_env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// In the environment of hooks: the agent's project.
const PROJECT_VARIABLES: &[&str] = &[
    "CLAUDE_PROJECT_DIR",
    "GEMINI_PROJECT_DIR",
    "CURSOR_PROJECT_DIR",
    "OPENHANDS_PROJECT_DIR",
];

/// The agent, where the process's arguments are those that agents' settings have. Such a hook does without the table
/// of all commands, which takes longer than the hook.
pub fn plain(mut arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let hook = arguments.nth(1)?;
    let agent = arguments.next()?.into_string().ok()?;
    let is_plain = hook == "hook" && !agent.starts_with('-') && arguments.next().is_none();
    is_plain.then_some(agent)
}

/// Notes what an agent says. The exit status is always 0: agents take others for a command to stop.
pub fn run(agent: &str, root: Option<&Path>) -> u8 {
    let Ok(home) = find_home(root) else {
        return 0;
    };
    let project = |name: &&str| process_env(name).map(PathBuf::from);
    let mut dirs: Vec<PathBuf> = PROJECT_VARIABLES.iter().filter_map(project).collect();
    dirs.extend(std::env::current_dir());
    let text = |name: &str| process_env(name)?.into_string().ok();
    let run = text("AGENTVFS_RUN").and_then(|_| {
        let workspace = text("AGENTVFS_WORKSPACE")?;
        Some((workspace, text("AGENTVFS_BRANCH")?))
    });
    // A run that hides files of the project has no socket inside, and its home is not seen.
    let is_unsandboxed = text("AGENTFS_SANDBOX").is_some_and(|kind| kind == "none");
    if run.is_some() && home.socket_of_run().is_none() && !is_unsandboxed {
        return 0;
    }
    let surroundings = Surroundings { dirs, run };
    let answer = hear(agent, home, surroundings, std::io::stdin());
    if !answer.is_empty() {
        // An agent that reads no more needs no answer.
        let _ = print((answer + "\n").as_bytes());
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_agents_call_is_plain() {
        let agent = |words: &[&str]| plain(words.iter().map(OsString::from));
        assert_eq!(
            agent(&["agentvfs", "hook", "claude"]).as_deref(),
            Some("claude")
        );
        for words in [
            &["agentvfs", "hook"][..],
            &["agentvfs", "hook", "--help"],
            &["agentvfs", "hook", "claude", "--json"],
            &["agentvfs", "run", "claude"],
        ] {
            assert_eq!(agent(words), None, "{words:?}");
        }
    }
}
