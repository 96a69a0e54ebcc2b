//! `log --graph`: the newest commits first and at once, whatever the length of the history.

use super::calls::Calls;
use super::pages::each_page;
use super::style_of;
use crate::cli::LogArgs;
use crate::cmd::Context;
use crate::output::print;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{BranchList, BranchListAnswer, Call, Log, LogRow};
use agentvfs_picture::Graph;

/// Kind of the fault that a workspace which does not run gives.
const NOT_RUNNING: &str = "not-running";

/// Draws the commits of a branch.
pub fn draw(args: &LogArgs, ask: &mut Log, context: &mut Context) -> Result<(), Failure> {
    let style = style_of(args);
    ask.digits = true;
    let heads = heads(&ask.workspace, context)?;
    let mut graph = Graph::new(style, !args.all, heads);
    let limit = args.limit.unwrap_or(u64::MAX);
    // Folding needs the automatic commits, and says by itself how many commits it shows.
    (ask.all, ask.limit) = (true, None);
    let mut is_enough = limit == 0;
    let mut calls = Calls::new(&ask.workspace, &ask.branch);
    each_page(ask, context, &mut |commits, context| {
        calls.add_those_of(&commits, &mut graph, context)?;
        is_enough = show(&mut graph, &commits, limit)?;
        Ok(!is_enough)
    })?;
    match is_enough {
        true => Ok(()),
        false => print(graph.finish().as_bytes()),
    }
}

/// Draws commits; says whether there are as many as are wanted.
fn show(graph: &mut Graph, commits: &[LogRow], limit: u64) -> Result<bool, Failure> {
    let mut text = String::new();
    let mut rows = commits.iter();
    while graph.commits() < limit
        && let Some(row) = rows.next()
    {
        text.push_str(&graph.push(row));
    }
    print(text.as_bytes())?;
    Ok(graph.commits() >= limit)
}

/// The branches with their heads; of a workspace that does not run they are not known.
fn heads(workspace: &str, context: &mut Context) -> Result<Vec<(String, String)>, Failure> {
    let call = Call::BranchList(BranchList {
        workspace: workspace.to_owned(),
        standing: false,
    });
    let what = format!("cannot show the log of {workspace}");
    let answer: BranchListAnswer = match context.try_ask(&what, &call)? {
        Ok(answer) => answer,
        Err(fault) if fault.kind == NOT_RUNNING => return Ok(Vec::new()),
        Err(fault) => return Err(Failure::from_fault(what, fault)),
    };
    let with_head = |row: agentvfs_client::protocol::BranchRow| Some((row.name, row.commit?));
    Ok(answer.branches.into_iter().filter_map(with_head).collect())
}
