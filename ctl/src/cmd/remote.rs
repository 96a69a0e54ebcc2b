//! `agentvfs remote`.

use super::transfer::{self, options, url};
use super::{Context, check_name};
use crate::cli::{RemoteAddArgs, RemoteNameArgs, RemoteVerb, RowArgs};
use crate::output::{Facts, Rows, print_json, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Call, Nothing, RemoteAdd, RemoteList, RemoteListAnswer, RemoteRemove, RemoteRow,
};
use serde_json::{Value, json};

/// Runs a verb.
pub fn run(verb: RemoteVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        RemoteVerb::Add(args) => add(args, context),
        RemoteVerb::List(args) => list(&args, context),
        RemoteVerb::Remove(args) => remove(args, context),
        RemoteVerb::Gc(args) => transfer::gc(args, context),
    }
}

fn add(args: RemoteAddArgs, context: &mut Context) -> Result<u8, Failure> {
    check_name(engine::names::check_remote_name(&args.name))?;
    if let Some(project) = &args.project {
        check_name(engine::names::check_workspace_name(project))?;
    }
    let url = url(&args.url, context)?;
    let workspace = context.workspace_to_change(None)?;
    let what = format!("cannot add the remote {}", args.name);
    let access = transfer::access(&[&url])?;
    let call = Call::RemoteAdd(RemoteAdd {
        workspace: workspace.clone(),
        name: args.name,
        url,
        project: args.project,
        options: options(args.endpoint, args.region),
        access,
    });
    let row: RemoteRow = context.ask(&what, &call)?;
    let mut facts = Facts::default();
    for (key, value) in [
        ("name", &row.name),
        ("url", &row.url),
        ("project", &row.project),
    ]
    .into_iter()
    .chain(row.options.iter().map(|(key, value)| (&**key, value)))
    {
        facts.add(key, value.as_bytes());
    }
    facts.print(context.json())?;
    talk(&format!(
        "workspace {workspace}: remote added; `agentvfs remote remove {} -w {workspace}` removes it",
        row.name
    ));
    Ok(0)
}

fn list(args: &RowArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace(None)?;
    let what = format!("cannot list the remotes of {workspace}");
    let call = Call::RemoteList(RemoteList { workspace });
    let answer: RemoteListAnswer = context.ask(&what, &call)?;
    if context.json() {
        let rows: Vec<Value> = answer.remotes.iter().map(object).collect();
        print_json(&json!({ "remotes": rows }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["NAME", "URL", "PROJECT"]);
    for row in answer.remotes {
        rows.push(vec![row.name.into(), row.url.into(), row.project.into()]);
    }
    rows.print(args.nul)?;
    Ok(0)
}

fn object(row: &RemoteRow) -> Value {
    json!({
        "name": row.name,
        "url": row.url,
        "project": row.project,
        "options": row.options,
    })
}

fn remove(args: RemoteNameArgs, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.workspace_to_change(None)?;
    let what = format!("cannot remove the remote {}", args.name);
    let call = Call::RemoteRemove(RemoteRemove {
        workspace: workspace.clone(),
        name: args.name.clone(),
    });
    let _: Nothing = context.ask(&what, &call)?;
    let mut facts = Facts::default();
    facts.add("name", args.name.as_bytes());
    facts.print(context.json())?;
    talk(&format!(
        "workspace {workspace}: remote {} removed; nothing in it was changed",
        args.name
    ));
    Ok(0)
}
