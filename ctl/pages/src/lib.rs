//! Completions and man pages, made from the definition of the command line.
//!
//! Invariant: every command that the help shows has a page, and no other has. Nothing is read or written here. Tests:
//! `ctl/tests/cli.rs` (a page for each command), `tests/tests/package.rs` (what `man` says of them).

#![forbid(unsafe_code)]

use clap::Command;
pub use clap_complete::Shell;
use clap_mangen::Man;
use std::io;

/// Section of the manual for commands of users.
const SECTION: &str = "1";

/// A man page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Name of its file, as `agentvfs-branch-list.1`.
    pub file: String,
    /// What `man` formats.
    pub text: Vec<u8>,
}

/// The completions of a shell for `command`.
pub fn completions(mut command: Command, shell: Shell) -> Vec<u8> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

/// A page for `command` and for each of its subcommands. The subcommands of the group `alias` are those of `command`
/// itself under another name, so their pages lead to those.
///
/// # Errors
/// The formatter's own; nothing is written to a file.
pub fn pages(mut command: Command, alias: &str) -> io::Result<Vec<Page>> {
    command.build();
    let name = command.get_name().to_owned();
    let source = format!("{name} {}", command.get_version().unwrap_or_default());
    let page = |title: &str, of: &Command, is_first| page(title, of, is_first, &source);
    let mut found = vec![page(&name, &command, true)?];
    for group in shown(&command) {
        let title = format!("{name}-{}", group.get_name());
        found.push(page(&title, group, false)?);
        for verb in shown(group) {
            let verb_title = format!("{title}-{}", verb.get_name());
            found.push(match group.get_name() == alias {
                true => leading(&verb_title, &format!("{name}-{}", verb.get_name())),
                false => page(&verb_title, verb, false)?,
            });
        }
    }
    Ok(found)
}

fn shown(of: &Command) -> impl Iterator<Item = &Command> {
    of.get_subcommands()
        .filter(|command| !command.is_hide_set())
}

/// A page; options of every command are on the first one alone.
fn page(title: &str, command: &Command, is_first: bool, source: &str) -> io::Result<Page> {
    let command = command.clone().mut_args(|arg| {
        let is_hidden = arg.is_hide_set() || arg.is_global_set() && !is_first;
        arg.hide(is_hidden)
    });
    let mut text = Vec::new();
    Man::new(command)
        .title(title)
        .section(SECTION)
        .source(source)
        .manual("agentvfs")
        .render(&mut text)?;
    Ok(Page {
        file: format!("{title}.{SECTION}"),
        text,
    })
}

/// A page that shows another one.
fn leading(title: &str, to: &str) -> Page {
    Page {
        file: format!("{title}.{SECTION}"),
        text: format!(".so man{SECTION}/{to}.{SECTION}\n").into_bytes(),
    }
}
