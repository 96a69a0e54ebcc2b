//! Files of a project that run by themselves: programs that the user starts outside of any sandbox execute them, or what
//! they name, without being asked to.
//!
//! What a command in a sandbox wrote to such a file is applied only by a user who trusts it. Not found: files that a
//! setting of the project names (`core.hooksPath`), and what is run on request (a `Makefile`).

use super::plan::Plan;
use crate::workspace::Workspace;
use crate::workspace::untrusted::{Reach, Shown};
use std::collections::BTreeSet;

/// Files of that name, in every directory.
const FILES: [&[u8]; 2] = [b".envrc", b".mcp.json"];
/// Directories, or links in their place, and the files in them.
const FILES_IN: [(&[u8], &[u8]); 2] = [(b".vscode", b"tasks.json"), (b".cursor", b"hooks.json")];
/// Files that lead git elsewhere or name programs.
const OF_GIT: [&[u8]; 3] = [b"config", b"config.worktree", b"commondir"];

/// Files that the plan changes and that run by themselves, if what the branch shows may be of a command in a sandbox.
pub(super) fn untrusted(ws: &Workspace, branch: &str, plan: &Plan) -> Vec<Vec<u8>> {
    if ws.untrusted.reach(branch) != Reach::Shown {
        return Vec::new();
    }
    let puts = plan.puts.iter().map(|put| &put.path);
    let all = puts.chain(&plan.removes);
    let found: BTreeSet<&Vec<u8>> = all.filter(|path| runs_by_itself(path)).collect();
    found.into_iter().cloned().collect()
}

/// Notes that what the branch showed then was applied. That is done, so a failure here is none of it: the branch stays
/// marked.
pub(super) fn note_applied(ws: &Workspace, branch: &str, shown: Shown) {
    if let Err(error) = ws.untrusted.applied(branch, shown) {
        tracing::warn!("branch {branch} stays marked: {error}");
    }
}

/// Whether a file (or a link) at this path of a project runs by itself.
fn runs_by_itself(path: &[u8]) -> bool {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let Some((name, dirs)) = parts.split_last() else {
        return false;
    };
    let of_git = |at| is_of_git(parts.get(at + 1..).unwrap_or_default());
    FILES.contains(name)
        || parts.contains(&&b".codex"[..])
        || is_in(dirs, name, b".claude", &|name| {
            name.starts_with(b"settings") && name.ends_with(b".json")
        })
        || FILES_IN
            .iter()
            .any(|(dir, file)| is_in(dirs, name, dir, &|name| name == *file))
        || (0..parts.len()).any(|at| parts.get(at) == Some(&&b".git"[..]) && of_git(at))
}

/// Whether it is such a file of that directory, or stands in the directory's place.
fn is_in(dirs: &[&[u8]], name: &[u8], dir: &[u8], file: &dyn Fn(&[u8]) -> bool) -> bool {
    name == dir || (dirs.last() == Some(&dir) && file(name))
}

/// Whether git executes what is at this path below `.git`, or takes from it what it executes.
fn is_of_git(parts: &[&[u8]]) -> bool {
    let Some((first, more)) = parts.split_first() else {
        // In the place of `.git`: names another directory.
        return true;
    };
    match *first {
        // Submodules and work trees have such files of their own.
        b"modules" | b"worktrees" => {
            let is_config = more.last().is_none_or(|name| OF_GIT.contains(name));
            is_config || more.contains(&&b"hooks"[..])
        }
        b"hooks" => true,
        name => more.is_empty() && OF_GIT.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::runs_by_itself;

    #[test]
    fn what_runs_by_itself_is_found_in_every_directory() {
        for path in [
            ".envrc",
            "sub/.envrc",
            ".mcp.json",
            ".git",
            "sub/.git",
            ".git/config",
            ".git/config.worktree",
            ".git/hooks",
            ".git/hooks/pre-commit",
            "sub/.git/hooks/deep/er",
            ".git/modules/a/b/config",
            ".git/modules/a/hooks/post-merge",
            ".git/worktrees/w/commondir",
            ".git/modules",
            ".vscode",
            ".vscode/tasks.json",
            "a/.vscode/tasks.json",
            ".claude",
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".codex",
            ".codex/config.toml",
            ".codex/a/b",
            ".cursor/hooks.json",
        ] {
            assert!(runs_by_itself(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "envrc",
            ".envrc/x",
            "config",
            ".git/HEAD",
            ".git/index",
            ".git/refs/heads/hooks",
            ".git/refs/heads/hooks/config",
            ".git/objects/12/config",
            ".git/modules/a/HEAD",
            ".gitignore",
            ".vscode/settings.json",
            ".vscode/a/tasks.json",
            "tasks.json",
            ".claude/CLAUDE.md",
            ".claude/a/settings.json",
            ".cursor/rules",
            "codex",
        ] {
            assert!(!runs_by_itself(path.as_bytes()), "{path}");
        }
    }
}
