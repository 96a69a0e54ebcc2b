//! `agentvfs man`.

use crate::cli::{self, ManVerb};
use crate::output::{Facts, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::quote::shown;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const WHAT: &str = "cannot install the man pages";

/// Directory of a manual's pages about commands.
const COMMANDS: &str = "man1";

/// Writes the man pages.
pub fn run(verb: &ManVerb, json: bool) -> Result<u8, Failure> {
    let ManVerb::Install { dir } = verb;
    let manual = match dir {
        Some(dir) => std::path::absolute(dir).map_err(|e| failed(dir, &e))?,
        None => beside_program()?,
    };
    let place = manual.join(COMMANDS);
    let pages = cli::man_pages().map_err(|e| Failure::new(WHAT, e.to_string()))?;
    std::fs::create_dir_all(&place).map_err(|e| failed(&place, &e))?;
    for page in &pages {
        let file = place.join(&page.file);
        std::fs::write(&file, &page.text).map_err(|e| failed(&file, &e))?;
    }
    let mut facts = Facts::default();
    facts
        .add("directory", place.as_os_str().as_bytes())
        .add("pages", pages.len().to_string().as_bytes());
    facts.print(json)?;
    talk(&format!(
        "man pages: installed; `man agentvfs` shows the first; rm {}/agentvfs*.1 takes them back",
        shown(place.as_os_str().as_bytes())
    ));
    Ok(0)
}

fn failed(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(WHAT, format!("{}: {error}", file.display()))
        .hint("use another directory: agentvfs man install DIR")
}

/// Where man(1) looks for the pages of a program: `share/man` beside its directory (manpath(1)).
fn beside_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(WHAT, format!("cannot tell where the program is: {e}")))?;
    let prefix = program.parent().and_then(Path::parent);
    let prefix = prefix.ok_or_else(|| {
        Failure::new(WHAT, "the program is in no directory")
            .hint("name one: agentvfs man install DIR")
    })?;
    Ok(prefix.join("share/man"))
}
