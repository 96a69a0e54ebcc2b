//! Other names of the program: what ContextFS's and AgentFS's users type, in words of this one.
//!
//! One table for each name. A command line is translated before it is read; what has no like here names the verb that does it.
//! Invariant, tested below: whatever is translated to is a command line of this program.

use agentvfs_client::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the words of a command become.
#[derive(Clone, Copy)]
enum Means {
    /// These words, and what follows. The word of a workspace, where there is one, comes as `-w`.
    Words(&'static [&'static str], Workspace),
    /// Nothing: this says what to type.
    Told(&'static str),
}

/// Whether the word after a command names a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Workspace {
    /// It never does.
    Never,
    /// It does.
    First,
    /// It does, and a command follows.
    BeforeCommand,
    /// It does, or is not there.
    Maybe,
}

use Means::{Told, Words};
use Workspace::{BeforeCommand, First, Maybe, Never};

/// Commands of a program of another name: their words, and what they mean. The first that fits counts.
type Table = &'static [(&'static [&'static str], Means)];

/// `agentvfs-ctl`.
const CTL: Table = &[
    (&["raw", "gc.run"], Words(&["gc"], Never)),
    (&["raw", "gc.verify"], Words(&["fsck"], Never)),
    (
        &["raw"],
        Told("agentvfs --help lists the commands; docs/protocol.md has the requests"),
    ),
    (
        &["state"],
        Told(
            "agentvfs checkpoint keeps files and keys together, agentvfs kv set KEY JSON keeps a value",
        ),
    ),
    (
        &["runtime"],
        Told("agentvfs run runs a command on a branch, in a sandbox"),
    ),
    (
        &["policy"],
        Told("agentvfs run --allow PATH and --hide PATH say what a command may reach"),
    ),
    (&[], Words(&[], Never)),
];

/// `agentfs`.
const AGENTFS: Table = &[
    (&["init"], Words(&["start"], Never)),
    (
        &["exec"],
        Words(&["run", "--session", "main"], BeforeCommand),
    ),
    (&["run"], Words(&["run"], Never)),
    (&["mount"], Words(&["start"], Never)),
    (&["fs"], Words(&["fs"], First)),
    (&["diff"], Words(&["diff", "--base"], Maybe)),
    (&["timeline"], Words(&["timeline"], Maybe)),
    (&["serve", "mcp"], Words(&["serve", "mcp"], Maybe)),
    (
        &["serve"],
        Told("agentvfs start mounts a workspace, agentvfs serve mcp serves it to an agent"),
    ),
    (&["ps"], Words(&["run", "--list"], Never)),
    (
        &["prune"],
        Told("agentvfs start clears a dead mount; agentvfs gc frees space"),
    ),
    (
        &["migrate"],
        Told("agentvfs import FILE --workspace NAME reads databases of every version"),
    ),
    (&["completions"], Words(&["completions"], Never)),
];

/// The words of a command line of this program, for one under another name; `None` where the name is its own.
///
/// # Errors
/// There is no such command here; the hint names what does it.
pub fn translated(words: &[OsString]) -> Option<Result<Vec<OsString>, Failure>> {
    let own = Path::new(words.first()?).file_name()?.to_str()?;
    let rest = words.get(1..).unwrap_or_default();
    let done = match own {
        "agentvfs-quickstart" => Ok([&["quickstart".into()], rest].concat()),
        "agentvfs-ctl" => ctl(rest),
        "agentfs" => agentfs(rest),
        _ => return None,
    };
    Some(done.map(|mut line| {
        line.insert(0, "agentvfs".into());
        line
    }))
}

/// The words with a table's words in place of the command's.
fn by_table(own: &str, table: Table, words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let fits = |command: &&[&str]| {
        words.len() >= command.len() && command.iter().zip(words).all(|(word, its)| its == word)
    };
    let asks = |word: &OsString| {
        ["-h", "--help", "-V", "--version"]
            .iter()
            .any(|asks| word == asks)
    };
    let found = match words.first() {
        // What is asked about the program.
        Some(word) if asks(word) => Some((&[][..], Words(&[], Never))),
        Some(_) => table
            .iter()
            .find(|(command, _)| fits(command))
            .map(|(c, m)| (*c, *m)),
        None => Some((&[][..], Words(&["--help"], Never))),
    };
    let (command, means) = found.unwrap_or((&[], Told("agentvfs --help lists the commands")));
    let rest = &words[command.len()..];
    let (meant, workspace) = match means {
        Words(meant, workspace) => (meant, workspace),
        Told(hint) => {
            let word = words
                .first()
                .map(|word| word.to_string_lossy().into_owned());
            let why = format!(
                "`{own} {}` is no command of agentvfs",
                word.unwrap_or_default()
            );
            return Err(Failure::usage(why).hint(hint));
        }
    };
    let mut line: Vec<OsString> = meant.iter().map(OsString::from).collect();
    let is_word = |word: &&OsString| !word.as_encoded_bytes().starts_with(b"-");
    let named = rest.first().filter(is_word).filter(|_| workspace != Never);
    if workspace != Never && workspace != Maybe && named.is_none() && !rest.iter().any(asks) {
        let why = format!("`{own} {}` takes a name first", command.join(" "));
        return Err(Failure::usage(why).hint("the name is that of a workspace: agentvfs list"));
    }
    if let Some(name) = named {
        line.extend(["-w".into(), name.clone()]);
    }
    if workspace == BeforeCommand {
        line.push("--".into());
    }
    line.extend(rest.iter().skip(usize::from(named.is_some())).cloned());
    Ok(line)
}

/// `agentvfs-ctl [--sock PATH] …`: the socket is that of a home.
fn ctl(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let variable = std::env::var_os("AGENTVFS_SOCK").filter(|path| !path.is_empty());
    let (socket, words) = match words {
        [option, path, rest @ ..] if option == "--sock" => (Some(path.clone()), rest),
        [option] if option == "--sock" => {
            return Err(
                Failure::usage("--sock takes a path").hint("agentvfs status prints socket=")
            );
        }
        _ => (variable, words),
    };
    let json = words.first().is_some_and(|word| word == "--json");
    let words = if json { &words[1..] } else { words };
    let mut line = Vec::new();
    if let Some(socket) = socket {
        line.extend(["--root".into(), home_of(Path::new(&socket))?]);
    }
    if json {
        line.push("--json".into());
    }
    line.extend(by_table("agentvfs-ctl", CTL, words)?);
    Ok(line)
}

/// The home that a socket is of.
fn home_of(socket: &Path) -> Result<OsString, Failure> {
    let is_daemons = socket.file_name().is_some_and(|name| name == "daemon.sock");
    let home = socket.parent().filter(|_| is_daemons);
    let home = home.map(|home| {
        if home.as_os_str().is_empty() {
            Path::new(".")
        } else {
            home
        }
    });
    home.map(|home| home.as_os_str().to_owned()).ok_or_else(|| {
        let why = format!("{} is no socket of an agentvfs home", socket.display());
        Failure::usage(why)
            .hint("agentvfs status prints socket=; agentvfs --root DIR names the home itself")
    })
}

/// `agentfs`: `--base` of `init` is `--from`, its `-c` a command in a sandbox; a word after `mount` is a directory.
fn agentfs(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|its| its == word);
    if is(0, "init") {
        return init(&words[1..]);
    }
    if is(0, "fs") && is(2, "write") && words.len() > 4 {
        let why = "`agentfs fs ID write PATH TEXT` takes the text from standard input here";
        return Err(Failure::usage(why).hint("echo TEXT | agentvfs fs write PATH"));
    }
    if is(0, "fs") && words.len() > 3 {
        return by_table("agentfs", AGENTFS, &from_root(words));
    }
    if let [command, name, dir] = words
        && command == "mount"
    {
        return Ok(vec![
            "start".into(),
            name.clone(),
            "--mount".into(),
            dir.clone(),
        ]);
    }
    if words.len() == 1 && is(0, "mount") {
        return Ok(vec!["list".into()]);
    }
    by_table("agentfs", AGENTFS, words)
}

/// Paths of `agentfs fs` begin at the root with a slash; here they do without.
fn from_root(words: &[OsString]) -> Vec<OsString> {
    let path = |word: &OsString| match word.as_bytes().strip_prefix(b"/") {
        Some(rest) => Some(OsStr::from_bytes(rest).to_owned()).filter(|rest| !rest.is_empty()),
        None => Some(word.clone()),
    };
    let rest = words[3..].iter().filter_map(path);
    words[..3].iter().cloned().chain(rest).collect()
}

fn init(words: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let (mut name, mut base, mut command) = (None, None, None);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("--base") => base = rest.next(),
            Some("-c" | "--command") => command = rest.next(),
            Some("--force") => {
                return Err(
                    Failure::usage("`agentfs init --force` replaces a workspace")
                        .hint("agentvfs delete NAME deletes it first"),
                );
            }
            Some("-h" | "--help") => return Ok(vec!["start".into(), "--help".into()]),
            Some(option) if option.starts_with('-') => {
                return Err(
                    Failure::usage(format!("`agentfs init` has no option {option} here"))
                        .hint("agentvfs start --help"),
                );
            }
            _ => name = Some(word),
        }
    }
    let from = base.cloned().unwrap_or_else(|| ".".into());
    let mut line: Vec<OsString> = Vec::new();
    match command {
        None => {
            line.push("start".into());
            line.extend(name.cloned());
            line.extend(["--from".into(), from]);
        }
        Some(command) => {
            line.push("run".into());
            line.extend(
                name.into_iter()
                    .flat_map(|name| ["-w".into(), name.clone()]),
            );
            line.extend(["--session", "main", "--from"].map(OsString::from));
            line.extend([from, "--".into(), "sh".into(), "-c".into(), command.clone()]);
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &str) -> Result<String, Failure> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let line = translated(&words).unwrap()?;
        let line: Vec<&str> = line.iter().filter_map(|word| word.to_str()).collect();
        Ok(line.join(" "))
    }

    /// What is typed, and what it is here.
    const LINES: &[(&str, &str)] = &[
        ("/usr/bin/agentvfs-quickstart p", "quickstart p"),
        ("agentvfs-ctl status", "status"),
        (
            "agentvfs-ctl --sock /h/daemon.sock checkpoint L --branch b",
            "--root /h checkpoint L --branch b",
        ),
        (
            "agentvfs-ctl --sock /h/daemon.sock --json rollback L",
            "--root /h --json rollback L",
        ),
        (
            "agentvfs-ctl branch create n --from m",
            "branch create n --from m",
        ),
        (
            "agentvfs-ctl branch merge s --into t --label l",
            "branch merge s --into t --label l",
        ),
        (
            "agentvfs-ctl session register --cgroup /c --branch b",
            "session register --cgroup /c --branch b",
        ),
        ("agentvfs-ctl raw gc.run", "gc"),
        ("agentfs init", "start --from ."),
        (
            "agentfs init my-agent --base /p",
            "start my-agent --from /p",
        ),
        (
            "agentfs init a --base /p -c ls",
            "run -w a --session main --from /p -- sh -c ls",
        ),
        ("agentfs exec a ls -l", "run --session main -w a -- ls -l"),
        (
            "agentfs run --session s --allow /x ls",
            "run --session s --allow /x ls",
        ),
        ("agentfs mount", "list"),
        ("agentfs mount a", "start a"),
        ("agentfs mount a /m", "start a --mount /m"),
        ("agentfs fs a ls /", "fs -w a ls"),
        ("agentfs fs a ls /src", "fs -w a ls src"),
        ("agentfs fs a cat f", "fs -w a cat f"),
        ("agentfs diff a", "diff --base -w a"),
        (
            "agentfs timeline a --limit 5 --format json",
            "timeline -w a --limit 5 --format json",
        ),
        ("agentfs timeline --status error", "timeline --status error"),
        ("agentfs serve mcp a", "serve mcp -w a"),
        ("agentfs ps", "run --list"),
    ];

    #[test]
    fn what_others_type_is_a_command_line_of_this_program() {
        for (words, wanted) in LINES {
            let found = line(words).unwrap();
            assert_eq!(found, format!("agentvfs {wanted}"), "{words}");
            let parsed = crate::cli::parse(found.split(' ').map(OsString::from));
            assert!(parsed.is_ok(), "{found}: {parsed:?}");
        }
        assert!(translated(&["agentvfs".into(), "status".into()]).is_none());
        assert!(translated(&["/x/other".into()]).is_none() && translated(&[]).is_none());
    }

    #[test]
    fn what_has_no_like_here_names_what_does_it() {
        for (words, hint) in [
            ("agentvfs-ctl policy set x", "--allow PATH"),
            ("agentvfs-ctl runtime start", "agentvfs run"),
            ("agentvfs-ctl state latest", "agentvfs kv set"),
            ("agentvfs-ctl --sock /x/control.sock status", "--root DIR"),
            ("agentfs serve nfs", "agentvfs start"),
            ("agentfs prune mounts", "agentvfs start"),
            ("agentfs migrate a", "agentvfs import"),
            ("agentfs init a --force", "agentvfs delete"),
            ("agentfs fs a write f text", "agentvfs fs write"),
            ("agentfs fs", "agentvfs list"),
            ("agentfs no", "--help"),
        ] {
            let failure = line(words).unwrap_err();
            let told = failure.hint.as_deref().unwrap_or_default();
            assert!(
                failure.exit == 2 && told.contains(hint),
                "{words}: {failure:?}"
            );
        }
    }
}
