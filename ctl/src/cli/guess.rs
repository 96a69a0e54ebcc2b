//! Words that are no command line: what was meant by them.
//!
//! By meaning first ([`super::meanings`]), then by where else a command of that name is, then by spelling. Called only
//! once the words have been refused, so that a right command line costs nothing here.
//! Invariant: a word is replaced only where it stands for a command; options and what follows `--` stay as they are.

use super::meanings::{self, Means};
use agentvfs_client::failure::Failure;
use clap::Command as Definition;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// How often words are replaced in one command line: `help`, a group's word and a command's.
pub const REPLACED_MAX: usize = 4;

/// The most commands that a hint names by their spelling.
const NAMED_MAX: usize = 3;

/// Options of every command that take a value as their next word.
const WITH_VALUE: [&str; 4] = ["--root", "--workspace", "-w", "--branch"];

/// What was meant.
pub enum Guess {
    /// This command line.
    Meant(Vec<OsString>),
    /// Something that must be said in other words.
    Told(Failure),
}

/// What was meant by `words`, which `error` refuses; `None` where what it says is all there is to say.
pub fn guess(
    words: &[OsString],
    error: &clap::Error,
    definition: impl Fn() -> Definition,
) -> Option<Guess> {
    let at = commands(words);
    match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let is_alone = at.is_empty() && !words.iter().any(|word| word == "--");
            is_alone.then(|| Guess::Meant([words, &["here".into()]].concat()))
        }
        ErrorKind::InvalidSubcommand => {
            let mut root = definition();
            // Names of commands are known once they are built.
            root.build();
            wrong_command(words, &at, &root)
        }
        ErrorKind::UnknownArgument => wrong_option(words, &at, error),
        _ => None,
    }
}

/// Where words stand that may be commands: those before `--` that are neither options nor values of an option of
/// every command.
fn commands(words: &[OsString]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_value = false;
    for (at, word) in words.iter().enumerate().skip(1) {
        let text = word.to_string_lossy();
        if text == "--" {
            break;
        }
        if !is_value && !text.starts_with('-') {
            found.push(at);
        }
        is_value = !is_value && WITH_VALUE.contains(&text.as_ref());
    }
    found
}

fn wrong_command(words: &[OsString], at: &[usize], root: &Definition) -> Option<Guess> {
    let text = |at: usize| words.get(at).and_then(|word| word.to_str());
    let first = *at.first()?;
    let group = text(first).and_then(|name| root.find_subcommand(name));
    let (wrong, group) = match group {
        Some(group) => (*at.get(1)?, Some(group)),
        None => (first, None),
    };
    let word = text(wrong)?;
    let name = group.map_or("", Definition::get_name);
    if word == "help" {
        return Some(help(words, wrong));
    }
    match meanings::command(name, word) {
        Some(Means::Same(meant)) => {
            let from = if group.is_some() { first } else { wrong };
            Some(instead(words, (from, wrong), meant))
        }
        Some(Means::Told(hint)) => Some(told(name, word, hint)),
        None => Some(told(name, word, &nearest(word, group, root))),
    }
}

/// `help WORD…` as `WORD… --help`.
fn help(words: &[OsString], at: usize) -> Guess {
    let mut meant = words.to_vec();
    meant.remove(at);
    meant.push("--help".into());
    Guess::Meant(meant)
}

/// The words with others in place of two of them, which may be the same.
fn instead(words: &[OsString], (from, wrong): (usize, usize), meant: &[&str]) -> Guess {
    let mut line = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at == from {
            line.extend(meant.iter().map(OsString::from));
        } else if at != wrong {
            line.push(word.clone());
        }
    }
    Guess::Meant(line)
}

fn told(group: &str, word: &str, hint: &str) -> Guess {
    let space = if group.is_empty() { "" } else { " " };
    let why = format!("there is no command `agentvfs {group}{space}{word}`");
    Guess::Told(Failure::usage(why).hint(hint))
}

/// Commands of that name elsewhere, else those with a similar name.
fn nearest(word: &str, group: Option<&Definition>, root: &Definition) -> String {
    let elsewhere = elsewhere(word, root);
    if !elsewhere.is_empty() {
        return elsewhere.join(", ");
    }
    let (within, of) = match group {
        Some(group) => (group, format!("agentvfs {}", group.get_name())),
        None => (root, "agentvfs".to_owned()),
    };
    let names = visible(within).map(Definition::get_name);
    let mut similar: Vec<(usize, &str)> = names
        .filter_map(|name| Some((difference(word, name)?, name)))
        .collect();
    similar.sort_unstable();
    similar.truncate(NAMED_MAX);
    let similar: Vec<String> = similar
        .into_iter()
        .map(|(_, name)| format!("{of} {name}"))
        .collect();
    match similar.is_empty() {
        true => format!("{of} --help lists the commands"),
        false => similar.join(", "),
    }
}

fn elsewhere(word: &str, root: &Definition) -> Vec<String> {
    if visible(root).any(|command| command.get_name() == word) {
        return vec![format!("agentvfs {word}")];
    }
    let groups = visible(root).filter(|group| visible(group).any(|c| c.get_name() == word));
    groups
        .map(|group| format!("agentvfs {} {word}", group.get_name()))
        .collect()
}

fn visible(of: &Definition) -> impl Iterator<Item = &Definition> {
    of.get_subcommands()
        .filter(|command| !command.is_hide_set())
}

/// How different a word is from a name that it may stand for: 0 for the name's beginning, else the number of
/// letters that are added, left out, replaced or exchanged; `None` where it is too different.
fn difference(word: &str, name: &str) -> Option<usize> {
    if word.len() >= 3 && name.starts_with(word) {
        return Some(0);
    }
    let most = if name.len() <= 4 { 1 } else { 2 };
    let count = edits(&word.to_lowercase(), name);
    (count <= most).then_some(count)
}

/// Optimal string alignment distance.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let is_other = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (last[j] + 1)
                .min(row[j - 1] + 1)
                .min(last[j - 1] + is_other);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

fn wrong_option(words: &[OsString], at: &[usize], error: &clap::Error) -> Option<Guess> {
    let option = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) if option.starts_with('-') => option,
        _ => return None,
    };
    if option == "-v" && words.len() == 2 {
        return Some(Guess::Meant(vec![words[0].clone(), "--version".into()]));
    }
    let mut verb: Vec<&str> = at.iter().filter_map(|at| words[*at].to_str()).collect();
    if verb.first() == Some(&"workspace") {
        verb.remove(0);
    }
    let hint = meanings::option(&verb, option)?;
    let of = verb
        .first()
        .map_or(String::new(), |verb| format!(" {verb}"));
    let why = format!("`agentvfs{of}` has no option {option}");
    Some(Guess::Told(Failure::usage(why).hint(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_counts_what_fingers_do() {
        for (word, name, count) in [
            ("rollbak", "rollback", Some(1)),
            ("chekcpoint", "checkpoint", Some(1)),
            ("check", "checkpoint", Some(0)),
            ("lgo", "log", Some(1)),
            ("Status", "status", Some(0)),
            ("mount", "import", None),
            ("xx", "gc", None),
            ("", "gc", None),
        ] {
            assert_eq!(difference(word, name), count, "{word} {name}");
        }
    }

    #[test]
    fn commands_are_neither_options_nor_their_values() {
        let line = "agentvfs -w list --root=x --json --branch b commit -m list -- mount";
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(commands(&words)[0], 7);
        assert!(!commands(&words).contains(&11));
    }
}
