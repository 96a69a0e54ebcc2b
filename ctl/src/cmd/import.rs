//! `agentvfs import`.

use super::{Context, check_name};
use crate::cli::ImportArgs;
use crate::output::{Facts, human_bytes, talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Bytes, Call, ImportAnswer, ImportFile};
use agentvfs_client::render::count;
use serde_json::json;
use std::time::Instant;

/// Makes a workspace, or a branch, of a database and prints its name and commit.
pub fn run(args: &ImportArgs, context: &mut Context) -> Result<u8, Failure> {
    let Some(workspace) = context.surroundings().option.clone() else {
        let failure = Failure::usage("the name of the new workspace is missing");
        return Err(failure.hint("name it with --workspace NAME"));
    };
    check_name(engine::names::check_workspace_name(&workspace))?;
    let branch = context.options().branch.clone();
    if let Some(branch) = &branch {
        check_name(engine::names::check_branch_name(branch))?;
    }
    let file = context.absolute(&args.file)?;
    let base = args.base.as_deref();
    let base = base.map(|base| context.absolute(base)).transpose()?;
    let is_branch = branch.is_some();
    let call = Call::Import(ImportFile {
        workspace: workspace.clone(),
        branch,
        file: Bytes::from(file.as_path()),
        base: base.as_deref().map(Bytes::from),
        sparse: args.sparse,
        skip_invalid: args.skip_invalid,
        progress: true,
    });
    let since = Instant::now();
    let what = format!("cannot import {}", args.file.display());
    let answer: ImportAnswer = context.ask_cancellable(&what, &call, "importing", &mut |_| {})?;
    tell(&workspace, &answer, context)?;
    warn_of(&answer);
    let (next, reverse) = match is_branch {
        true => (
            String::new(),
            format!("branch delete {} -w {workspace}", answer.branch),
        ),
        false => (
            format!("`agentvfs start {workspace}` mounts it, "),
            format!("delete {workspace}"),
        ),
    };
    talk(&format!(
        "workspace {workspace}, branch {}: {} with {} imported in {:.1?}; {next}`agentvfs {reverse}` deletes it",
        answer.branch,
        count(answer.names, "name"),
        human_bytes(answer.bytes),
        since.elapsed()
    ));
    Ok(0)
}

fn tell(workspace: &str, answer: &ImportAnswer, context: &Context) -> Result<(), Failure> {
    let skipped = &answer.skipped;
    let mut facts = Facts::default();
    facts.add("name", workspace.as_bytes());
    facts.add("branch", answer.branch.as_bytes());
    facts.add("commit", answer.commit.as_bytes());
    facts.add("content", answer.content.as_bytes());
    facts.json("tree", answer.tree.clone());
    facts.json("names", answer.names);
    facts.json("bytes", answer.bytes);
    facts.json("changed", answer.changed.clone());
    facts.json("unchecked", answer.unchecked.clone());
    facts.json(
        "skipped",
        json!({
            "keys_count": skipped.keys_count,
            "keys": skipped.keys,
            "calls_count": skipped.calls_count,
            "calls": skipped.calls,
        }),
    );
    facts.print(context.json())
}

/// Says what is not as it was exported, and what was left out.
fn warn_of(answer: &ImportAnswer) {
    if !answer.changed.is_empty() {
        warn(&format!(
            "changed or damaged since the export: {}",
            answer.changed.join(", ")
        ));
    }
    let skipped = &answer.skipped;
    for (number, noun, named) in [
        (skipped.keys_count, "key", &skipped.keys),
        (skipped.calls_count, "call", &skipped.calls),
    ] {
        if number > 0 {
            let more = match number as usize > named.len() {
                true => "; and more",
                false => "",
            };
            let named = named.join("; ");
            warn(&format!("left out {}: {named}{more}", count(number, noun)));
        }
    }
}
