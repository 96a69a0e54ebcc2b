//! What people mean by words that are no commands or options of this program.
//!
//! The one place for that. Invariant, tested below: whatever stands for a word is a command or option that exists.

/// What a word means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// Just what these words mean.
    Same(&'static [&'static str]),
    /// Something that this hint names.
    Told(&'static str),
}

use Means::{Same, Told};

/// What creates a workspace, and what its options are called elsewhere.
const FROM: &[&str] = &[
    "--path",
    "--dir",
    "--source",
    "--project",
    "--base",
    "--repo",
];

/// Words by the group of commands in which they are looked for; the group of those without any is empty.
const COMMANDS: &[(&str, &[&str], Means)] = &[
    ("", &["commit", "snapshot", "save"], Same(&["checkpoint"])),
    ("", &["mount"], Same(&["start"])),
    ("", &["umount", "unmount"], Same(&["stop"])),
    ("", &["history", "commits", "checkpoints"], Same(&["log"])),
    ("", &["runs"], Same(&["run", "--list"])),
    ("", &["remotes"], Same(&["remote", "list"])),
    ("", &["conflicts"], Same(&["branch", "conflicts"])),
    ("", &["resolve"], Same(&["branch", "resolve"])),
    ("", &["branches"], Same(&["branch", "list"])),
    ("", &["version"], Same(&["--version"])),
    ("", &["mcp"], Same(&["serve", "mcp"])),
    (
        "",
        &["ls"],
        Told("agentvfs list lists the workspaces, agentvfs fs ls the files of one"),
    ),
    (
        "",
        &["rm", "remove", "destroy"],
        Told(
            "agentvfs delete deletes a workspace, agentvfs branch delete a branch, agentvfs fs rm a file",
        ),
    ),
    (
        "",
        &["exec", "shell", "sandbox"],
        Told("agentvfs run runs a command in a sandbox, agentvfs tool exec records one"),
    ),
    (
        "",
        &["create", "new", "open", "up"],
        Told("agentvfs start --from DIR creates a workspace, agentvfs branch create NAME a branch"),
    ),
    (
        "",
        &["fork"],
        Told("agentvfs branch create NAME creates a branch"),
    ),
    (
        "",
        &["checkout"],
        Told(
            "agentvfs switch BRANCH prints a branch's directory, agentvfs rollback REF goes back to a commit, \
            agentvfs restore PATH restores files",
        ),
    ),
    (
        "",
        &["reset", "revert", "back", "goto"],
        Told(
            "agentvfs rollback REF goes back to a commit, agentvfs restore PATH restores files, \
            agentvfs undo undoes the last rollback or merge",
        ),
    ),
    (
        "",
        &["add", "stage"],
        Told("agentvfs checkpoint commits all files; there is nothing to add first"),
    ),
    (
        "",
        &["stash"],
        Told("agentvfs checkpoint LABEL keeps all files, agentvfs rollback LABEL brings them back"),
    ),
    (
        "",
        &["tag", "label"],
        Told("agentvfs checkpoint LABEL commits all files with a label"),
    ),
    (
        "",
        &["show"],
        Told("agentvfs diff REF REF shows what changed, agentvfs fs cat --ref REF PATH a file"),
    ),
    (
        "",
        &["sync"],
        Told("agentvfs update merges what changed in the project's directory"),
    ),
    (
        "",
        &["land", "write-back"],
        Told("agentvfs apply writes the changes to the project's directory"),
    ),
    (
        "",
        &["rebase", "cherry-pick"],
        Told("agentvfs merge BRANCH merges a branch"),
    ),
    (
        "",
        &["info", "where", "pwd"],
        Told("agentvfs status shows the state of a workspace"),
    ),
    (
        "",
        &["down", "exit", "quit", "close"],
        Told("agentvfs stop unmounts a workspace"),
    ),
    (
        "",
        &["du", "df", "usage", "size"],
        Told("agentvfs stats shows what takes the space"),
    ),
    (
        "",
        &["verify", "check"],
        Told("agentvfs fsck checks what is stored, agentvfs doctor the machine"),
    ),
    ("", &["clean", "prune"], Told("agentvfs gc frees space")),
    (
        "",
        &["settings", "set-config"],
        Told("agentvfs config shows the settings, agentvfs config KEY=VALUE changes one"),
    ),
    (
        "",
        &["ps"],
        Told("agentvfs list lists the workspaces, agentvfs session list the registered cgroups"),
    ),
    (
        "",
        &["calls"],
        Told("agentvfs timeline lists the tool calls"),
    ),
    ("workspace", &["ls"], Same(&["list"])),
    ("workspace", &["rm", "remove", "destroy"], Same(&["delete"])),
    (
        "workspace",
        &["new", "create", "add"],
        Told(
            "agentvfs start --from DIR creates a workspace and mounts it, agentvfs init only creates it",
        ),
    ),
    ("branch", &["checkout"], Same(&["switch"])),
    (
        "branch",
        &["new", "add", "fork"],
        Same(&["branch", "create"]),
    ),
    ("branch", &["rm", "remove"], Same(&["branch", "delete"])),
    ("branch", &["mv", "move"], Same(&["branch", "rename"])),
    ("branch", &["ls"], Same(&["branch", "list"])),
    ("fs", &["remove", "delete"], Same(&["fs", "rm"])),
    ("fs", &["rename", "move"], Same(&["fs", "mv"])),
    ("fs", &["read", "show"], Same(&["fs", "cat"])),
    ("fs", &["dir"], Same(&["fs", "ls"])),
    ("kv", &["put"], Same(&["kv", "set"])),
    ("kv", &["rm", "remove"], Same(&["kv", "delete"])),
    ("kv", &["ls"], Same(&["kv", "list"])),
    ("session", &["add"], Same(&["session", "register"])),
    (
        "session",
        &["rm", "remove"],
        Same(&["session", "unregister"]),
    ),
    ("session", &["ls"], Same(&["session", "list"])),
    ("tool", &["ls", "log"], Same(&["tool", "list"])),
    (
        "tool",
        &["run"],
        Told("agentvfs tool exec NAME -- CMD runs and records a command"),
    ),
    (
        "tool",
        &["end", "finish", "stop"],
        Told("agentvfs tool success or agentvfs tool error ends a call"),
    ),
];

/// Options by command; that of every command is empty, and comes after the command's own.
const OPTIONS: &[(&str, &[&str], &str)] = &[
    (
        "checkpoint",
        &["--label", "--name", "--tag", "-l", "-t"],
        "agentvfs checkpoint LABEL: the label is a word",
    ),
    (
        "checkpoint",
        &["-a", "--all", "-A"],
        "agentvfs checkpoint -m TEXT commits all files",
    ),
    ("start", FROM, "agentvfs start --from DIR"),
    (
        "start",
        &["--mountpoint", "--mount-point", "--at", "--target"],
        "agentvfs start --mount DIR",
    ),
    (
        "start",
        &["--name", "-n"],
        "agentvfs start NAME --from DIR: the name is a word",
    ),
    ("init", FROM, "agentvfs init --from DIR"),
    (
        "init",
        &["--name", "-n"],
        "agentvfs init NAME --from DIR: the name is a word",
    ),
    (
        "rollback",
        &["--hard", "--force", "-f"],
        "agentvfs rollback replaces all files; agentvfs undo reverses it",
    ),
    (
        "rollback",
        &["--ref", "--commit", "--label"],
        "agentvfs rollback --to REF",
    ),
    (
        "diff",
        &["--cached", "--staged"],
        "agentvfs diff compares all files with the head; nothing is staged",
    ),
    (
        "diff",
        &["--from", "--to", "--ref"],
        "agentvfs diff REF REF: the refs are words",
    ),
    ("delete", &["--force", "-f", "-y"], "agentvfs delete --yes"),
    ("stop", &["-f", "--kill"], "agentvfs stop --force"),
    ("apply", &["-n", "--check"], "agentvfs apply --dry-run"),
    ("update", &["-n", "--check"], "agentvfs update --dry-run"),
    (
        "rollback",
        &["-n", "--check"],
        "agentvfs rollback --dry-run",
    ),
    ("merge", &["-n", "--check"], "agentvfs merge --dry-run"),
    ("merge", &["--to"], "agentvfs merge BRANCH --into BRANCH"),
    (
        "merge",
        &["--abort"],
        "agentvfs undo reverses a merge; without --conflicts keep, conflicts change nothing",
    ),
    (
        "merge",
        &["--continue", "--ours", "--theirs"],
        "agentvfs branch resolve PATH --ours resolves a conflict",
    ),
    ("gc", &["-n", "--check"], "agentvfs gc --dry-run"),
    (
        "log",
        &["-p", "--patch"],
        "agentvfs diff REF REF --patch shows what changed between two commits",
    ),
    ("log", &["-a"], "agentvfs log --all"),
    (
        "list",
        &["-a", "--all", "-l"],
        "agentvfs list lists all workspaces, agentvfs list --json more of each",
    ),
    (
        "status",
        &["-s", "--short", "--porcelain"],
        "agentvfs status --json prints one object",
    ),
    (
        "switch",
        &["-c", "-b", "--create"],
        "agentvfs branch create NAME creates a branch",
    ),
    (
        "restore",
        &["--source", "-s", "--from"],
        "agentvfs restore --ref REF PATH",
    ),
    (
        "config",
        &["--set", "--get", "--list", "--global"],
        "agentvfs config KEY=VALUE changes a setting",
    ),
    ("timeline", &["-n"], "agentvfs timeline --limit N"),
    ("blame", &["-n"], "agentvfs blame --limit N"),
    ("", &["--home", "--store"], "agentvfs --root DIR"),
    (
        "",
        &["-v"],
        "agentvfs --verbose shows each request, agentvfs --version the version",
    ),
    ("", &["-b"], "agentvfs --branch NAME"),
    ("", &["--ws", "-W"], "agentvfs --workspace NAME"),
    (
        "",
        &["-j", "--output", "--format", "-o"],
        "agentvfs --json prints one object",
    ),
];

/// What a word means among the commands of a group; those of a workspace need no group.
pub fn command(group: &str, word: &str) -> Option<Means> {
    let of = |group: &str| {
        let mut rows = COMMANDS.iter();
        rows.find(|(of, words, _)| *of == group && words.contains(&word))
    };
    // What means a verb of a workspace means it with `workspace` before it, too.
    let found = of(group).or_else(|| of("").filter(|_| group == "workspace"));
    found.map(|(.., means)| *means)
}

/// What to use instead of an option of a command, whose words may be followed by others.
pub fn option(verb: &[&str], option: &str) -> Option<&'static str> {
    let verb = match verb {
        ["branch", name, ..] | [name, ..] => *name,
        [] => "",
    };
    let of = |verb: &str| {
        let mut rows = OPTIONS.iter();
        rows.find(|(of, options, _)| *of == verb && options.contains(&option))
    };
    of(verb).or_else(|| of("")).map(|(.., hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::{Command, CommandFactory};

    /// The command that words begin with, and whether any does.
    fn found<'a>(root: &'a Command, words: &[&str]) -> Option<&'a Command> {
        let first = root.find_subcommand(words.first()?)?;
        let second = words.get(1).and_then(|word| first.find_subcommand(word));
        match first.has_subcommands() {
            true => second,
            false => Some(first),
        }
    }

    #[test]
    fn what_stands_for_a_word_exists() {
        let mut root = Cli::command();
        root.build();
        for (group, words, means) in COMMANDS {
            let within = match *group {
                "" => &root,
                group => root.find_subcommand(group).unwrap(),
            };
            for word in *words {
                assert!(
                    within.find_subcommand(word).is_none(),
                    "{group} {word} is a command"
                );
            }
            match means {
                Same(["--version"]) => {}
                Same(meant) => assert!(found(&root, meant).is_some(), "{meant:?}"),
                Told(hint) => hint_names_commands(&root, hint),
            }
        }
        for (verb, _, hint) in OPTIONS {
            assert!(
                verb.is_empty()
                    || found(&root, &["branch", verb])
                        .or(found(&root, &[verb]))
                        .is_some()
            );
            hint_names_commands(&root, hint);
        }
    }

    /// Every `agentvfs …` in a hint is a command, with options that it has.
    fn hint_names_commands(root: &Command, hint: &str) {
        let mut parts = hint.split("agentvfs ");
        assert_eq!(parts.next(), Some(""), "{hint}");
        for part in parts {
            let words: Vec<&str> = part.split([' ', ',', ':', ';']).collect();
            let command = match words[0].starts_with("--") {
                true => root,
                false => found(root, &words).unwrap_or_else(|| panic!("{hint}")),
            };
            for option in words.iter().filter_map(|word| word.strip_prefix("--")) {
                let of = |command: &Command| {
                    command
                        .get_arguments()
                        .any(|a| a.get_long() == Some(option))
                };
                let is_other = hint.starts_with("agentvfs undo") || option.is_empty();
                assert!(of(command) || is_other, "{hint}: {option}");
            }
        }
    }
}
