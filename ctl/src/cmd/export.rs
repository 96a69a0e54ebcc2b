//! `agentvfs export`.

use super::Context;
use crate::cli::ExportArgs;
use crate::output::{Facts, human_bytes, talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Bytes, Call, ExportAnswer, ExportFile};
use agentvfs_client::quote::shown;
use agentvfs_client::render::count;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Writes a commit as a database and prints what it holds.
pub fn run(args: &ExportArgs, context: &mut Context) -> Result<u8, Failure> {
    let (workspace, file) = words(&args.words)?;
    let file = context.absolute(file)?;
    let workspace = context.workspace(workspace)?;
    let branch = context.branch()?;
    let call = Call::Export(ExportFile {
        workspace: workspace.clone(),
        branch: branch.clone(),
        reference: args.reference.clone(),
        file: Bytes::from(file.as_path()),
        force: args.force,
        history: args.history,
        progress: true,
    });
    let since = Instant::now();
    let what = format!("cannot export {workspace}");
    // A history is counted in commits, files in bytes.
    let doing = match args.history {
        true => "exporting history",
        false => "exporting",
    };
    let answer: ExportAnswer = context.ask_cancellable(&what, &call, doing, &mut |_| {})?;
    tell(&answer, &Bytes::from(file.as_path()), args.history, context)?;
    if answer.renamed > 0 {
        warn(&format!(
            "{} not UTF-8: AgentFS's tools show them under other names; an import restores them exactly",
            count(answer.renamed, "name") + if answer.renamed == 1 { " is" } else { " are" }
        ));
    }
    talk(&format!(
        "workspace {workspace}, branch {branch}: {} with {} exported in {:.1?}; rm {} takes that back",
        count(answer.names, "name"),
        human_bytes(answer.bytes),
        since.elapsed(),
        shown(file.as_os_str().as_bytes())
    ));
    Ok(0)
}

fn tell(
    answer: &ExportAnswer,
    file: &Bytes,
    history: bool,
    context: &Context,
) -> Result<(), Failure> {
    let mut facts = Facts::default();
    facts.add("file", &file.0);
    facts.add("commit", answer.commit.as_bytes());
    let mut numbers = vec![
        ("names", answer.names),
        ("bytes", answer.bytes),
        ("file_bytes", answer.file_bytes),
    ];
    if history {
        numbers.push(("commits", answer.commits));
    }
    for (key, number) in numbers {
        facts.line(key, number.to_string().as_bytes());
        facts.json(key, number);
    }
    facts.json("tree", answer.tree.clone());
    facts.json("renamed", answer.renamed);
    facts.print(context.json())
}

/// The workspace, where two words are given, and the file.
fn words(words: &[PathBuf]) -> Result<(Option<&str>, &Path), Failure> {
    match words {
        [file] => Ok((None, file)),
        [workspace, file] => {
            let name = workspace.to_str();
            let name = name.ok_or_else(|| Failure::usage("the workspace's name is not UTF-8"))?;
            Ok((Some(name), file))
        }
        _ => Err(Failure::usage("name the file to write")),
    }
}
