//! `agentvfs agent`.

use super::Context;
use super::agents::{WHAT, meant, on_path, set_up_parts, trust, user};
use super::run::run as run_command;
use crate::cli::{AgentArgs, AgentLookArgs, AgentVerb, Global, RunArgs};
use crate::output::{Rows, print_json, talk, warn};
use agentvfs_agents::setup::{self, Action, Part, Row, Scope, State};
use agentvfs_client::failure::{FAILED, Failure};
use agentvfs_client::quote::shown;
use agentvfs_client::render::insert_bytes;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;

/// Runs a verb.
pub fn run(verb: AgentVerb, global: Global) -> Result<u8, Failure> {
    match verb {
        AgentVerb::List(args) => list(args.nul, global.json),
        AgentVerb::Install(args) => change(Action::Install, &args, &global),
        AgentVerb::Status(args) => {
            let rows = set_up(Action::Look, &args, false, &global)?;
            tell(&rows, args.nul, global.json)
        }
        AgentVerb::Remove(args) => change(Action::Remove, &args, &global),
        AgentVerb::Run(args) => run_command(&of_words(*args)?, &mut Context::new(global)?),
    }
}

/// `agent run [OPTIONS] NAME [ARG…]` as `run --agent NAME [OPTIONS] [ARG…]`.
fn of_words(mut args: RunArgs) -> Result<RunArgs, Failure> {
    if args.list || args.stop.is_some() || args.discard.is_some() {
        return Err(Failure::usage("agent run runs an agent")
            .hint("agentvfs run --list, --stop and --discard are about all runs"));
    }
    if args.agent.is_some() || args.command.is_empty() {
        return Err(Failure::usage("agent run takes the name of one agent")
            .hint("agentvfs agent run claude"));
    }
    let name = args.command.remove(0);
    args.agent = Some(name.to_string_lossy().into_owned());
    Ok(args)
}

fn change(action: Action, args: &AgentArgs, global: &Global) -> Result<u8, Failure> {
    let rows = set_up(action, &args.look, args.dry_run, global)?;
    let status = tell(&rows, args.look.nul, global.json)?;
    let is_done = |row: &&Row| {
        matches!(
            row.state,
            State::Written | State::NeedsTrust | State::Removed
        )
    };
    let done = rows.iter().filter(is_done).count();
    let what = match (args.dry_run, done) {
        (true, _) => "nothing was written: a dry run".to_owned(),
        (false, 0) => "nothing to do".to_owned(),
        (false, 1) => "1 file was changed".to_owned(),
        (false, many) => format!("{many} files were changed"),
    };
    let back = match action {
        Action::Install if done > 0 && !args.dry_run => "; `agentvfs agent remove` takes it back",
        _ => "",
    };
    talk(&format!("{what}{back}"));
    if !args.dry_run {
        rows.iter().filter_map(trust).for_each(talk);
    }
    Ok(status)
}

fn list(nul: bool, json: bool) -> Result<u8, Failure> {
    let user = user()?;
    let mut rows = Rows::new(&["AGENT", "PROGRAM", "DIRECTORY"]);
    let mut objects = Vec::new();
    for agent in setup::all() {
        let program = on_path(agent.program).unwrap_or_default();
        let dir = Some(agent.own_dir(&user)).filter(|dir| dir.is_dir());
        let dir = dir.unwrap_or_default();
        let (program, dir) = (program.as_os_str().as_bytes(), dir.as_os_str().as_bytes());
        let mut object = Map::new();
        object.insert("agent".into(), agent.name.into());
        insert_bytes(&mut object, "program", program);
        insert_bytes(&mut object, "directory", dir);
        objects.push(Value::Object(object));
        rows.push(vec![agent.name.into(), program.to_owned(), dir.to_owned()]);
    }
    match json {
        true => print_json(&json!({ "agents": objects }))?,
        false => rows.print(nul)?,
    }
    Ok(0)
}

/// Does it, or says what would be done.
fn set_up(
    action: Action,
    args: &AgentLookArgs,
    dry_run: bool,
    global: &Global,
) -> Result<Vec<Row>, Failure> {
    let agents = meant(&args.names)?;
    if agents.is_empty() {
        return Err(
            Failure::new(WHAT, "no agent that is known is on this machine")
                .hint("name one; agentvfs agent list shows them"),
        );
    }
    let named = [args.hooks, args.skill, args.mcp, args.instructions];
    let all = !named.contains(&true);
    let parts = Part::ALL.into_iter().zip(named);
    let parts: Vec<Part> = parts
        .filter(|(_, named)| all || *named)
        .map(|(part, _)| part)
        .collect();
    let scope = match args.project {
        true => {
            Scope::Project(std::env::current_dir().map_err(|e| Failure::new(WHAT, e.to_string()))?)
        }
        false => Scope::User(user()?),
    };
    set_up_parts(action, (&agents, &parts), (scope, dry_run), global)
}

/// Prints rows; the status is 1 if a file could not be used.
fn tell(rows: &[Row], nul: bool, json: bool) -> Result<u8, Failure> {
    if json {
        let all: Vec<Value> = rows.iter().map(object).collect();
        print_json(&json!({ "parts": all }))?;
    } else {
        let mut table = Rows::new(&["AGENT", "PART", "FILE", "STATE"]);
        for row in rows {
            table.push(vec![
                row.agent.into(),
                row.part.name().into(),
                row.file.as_os_str().as_bytes().to_owned(),
                row.state.name().into(),
            ]);
        }
        table.print(nul)?;
    }
    let mut status = 0;
    for row in rows {
        if let State::Failed(why) = &row.state {
            warn(&format!(
                "{}: left alone: {why}",
                shown(row.file.as_os_str().as_bytes())
            ));
            status = FAILED;
        }
    }
    Ok(status)
}

fn object(row: &Row) -> Value {
    let mut object = Map::new();
    object.insert("agent".into(), row.agent.into());
    object.insert("part".into(), row.part.name().into());
    insert_bytes(&mut object, "file", row.file.as_os_str().as_bytes());
    object.insert("state".into(), row.state.name().into());
    if let State::Failed(why) = &row.state {
        object.insert("why".into(), why.clone().into());
    }
    Value::Object(object)
}
