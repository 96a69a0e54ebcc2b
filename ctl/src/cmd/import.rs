//! `agentvfs import`.

use super::{Context, check_name};
use crate::cli::ImportArgs;
use crate::exit::Failure;
use crate::output::{Facts, count, human_bytes, talk};
use crate::protocol::{Bytes, Call, ImportAnswer, ImportFile};
use std::time::Instant;

/// Makes a workspace, or a branch, of a database and prints its name and commit.
pub fn run(args: &ImportArgs, context: &mut Context) -> Result<u8, Failure> {
    let Some(workspace) = context.surroundings().option.clone() else {
        let failure = Failure::usage("the workspace to make is not named");
        return Err(failure.hint("name it with --workspace W"));
    };
    check_name(engine::names::check_workspace_name(&workspace))?;
    let branch = context.global.branch.clone();
    if let Some(branch) = &branch {
        check_name(engine::names::check_branch_name(branch))?;
    }
    let file = context.absolute(&args.file)?;
    let base = args.base.as_deref();
    let base = base.map(|base| context.absolute(base)).transpose()?;
    let call = Call::Import(ImportFile {
        workspace: workspace.clone(),
        branch,
        file: Bytes::from(file.as_path()),
        base: base.as_deref().map(Bytes::from),
        sparse: args.sparse,
        progress: true,
    });
    let since = Instant::now();
    let what = format!("cannot import {}", args.file.display());
    let answer: ImportAnswer = context.ask_cancellable(&what, &call, "importing", &mut |_| {})?;
    let mut facts = Facts::default();
    facts.add("name", workspace.as_bytes());
    facts.add("branch", answer.branch.as_bytes());
    facts.add("commit", answer.commit.as_bytes());
    facts.json("tree", answer.tree);
    facts.json("names", answer.names);
    facts.json("bytes", answer.bytes);
    facts.print(context.json())?;
    talk(&format!(
        "{} with {} in {:.1?}; agentvfs workspace start {workspace} shows it",
        count(answer.names, "name"),
        human_bytes(answer.bytes),
        since.elapsed()
    ));
    Ok(0)
}
