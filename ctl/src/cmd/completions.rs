//! `agentvfs completions`.

use crate::cli::{self, CompletionsArgs, CompletionsVerb};
use crate::output::{Facts, print, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::home::process_env;
use agentvfs_pages::Shell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const WHAT: &str = "cannot install the completions";

/// Prints or installs the completions of a shell.
pub fn run(args: &CompletionsArgs, json: bool) -> Result<u8, Failure> {
    match (&args.verb, args.shell) {
        (Some(CompletionsVerb::Install { shell }), _) => install(*shell, json),
        (None, Some(shell)) => print(&cli::completions(shell)).map(|()| 0),
        (None, None) => Err(Failure::usage("a shell is missing")
            .hint("agentvfs completions install finds it by $SHELL")),
    }
}

fn install(shell: Option<Shell>, json: bool) -> Result<u8, Failure> {
    let shell = match shell {
        Some(shell) => shell,
        None => own_shell()?,
    };
    let file = place(shell)?;
    let failed = |e: std::io::Error| Failure::new(WHAT, format!("{}: {e}", file.display()));
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    std::fs::write(&file, cli::completions(shell)).map_err(failed)?;
    let mut facts = Facts::default();
    facts.add("shell", shell.to_string().as_bytes());
    facts.add("file", file.as_os_str().as_bytes());
    facts.print(json)?;
    let next = match shell {
        Shell::Zsh => "; zsh reads it if its directory is in fpath before compinit",
        _ => "",
    };
    talk(&format!(
        "completions of {shell}: installed for new shells{next}; removing the file takes them back"
    ));
    Ok(0)
}

fn own_shell() -> Result<Shell, Failure> {
    process_env("SHELL")
        .and_then(Shell::from_shell_path)
        .ok_or_else(|| {
            Failure::usage("$SHELL names no shell that has completions")
                .hint("agentvfs completions install bash")
        })
}

/// Where a shell looks for what a user adds.
fn place(shell: Shell) -> Result<PathBuf, Failure> {
    let data = || directory("XDG_DATA_HOME", ".local/share");
    let config = || directory("XDG_CONFIG_HOME", ".config");
    match shell {
        Shell::Bash => Ok(data()?.join("bash-completion/completions/agentvfs")),
        Shell::Zsh => Ok(data()?.join("zsh/site-functions/_agentvfs")),
        Shell::Fish => Ok(config()?.join("fish/completions/agentvfs.fish")),
        other => Err(Failure::usage(format!(
            "it is not known where {other} looks for completions"
        ))
        .hint("agentvfs completions SHELL prints them")),
    }
}

/// A directory of the XDG base directories; an empty or relative one counts as none.
fn directory(variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    let set = |name| {
        process_env(name)
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute())
    };
    set(variable)
        .or_else(|| Some(set("HOME")?.join(below_home)))
        .ok_or_else(|| Failure::new(WHAT, "$HOME is not set"))
}
