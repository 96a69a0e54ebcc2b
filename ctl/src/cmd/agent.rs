//! `agentvfs agent`.

use crate::cli::{AgentArgs, AgentLookArgs, AgentVerb, Global};
use crate::output::{Rows, print_json, talk, warn};
use agentvfs_agents::setup::{self, Action, Agent, Part, Row, Scope, Setup, State, User};
use agentvfs_client::context::find_home;
use agentvfs_client::failure::{FAILED, Failure, USAGE};
use agentvfs_client::home::process_env;
use agentvfs_client::launch::own_program;
use agentvfs_client::quote::shown;
use agentvfs_client::render::insert_bytes;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Runs a verb.
pub fn run(verb: &AgentVerb, global: &Global) -> Result<u8, Failure> {
    match verb {
        AgentVerb::List(args) => list(args.nul, global.json),
        AgentVerb::Install(args) => change(Action::Install, args, global),
        AgentVerb::Status(args) => {
            let rows = set_up(Action::Look, args, false, global)?;
            tell(&rows, args.nul, global.json)
        }
        AgentVerb::Remove(args) => change(Action::Remove, args, global),
    }
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
    if rows.iter().any(|row| row.state == State::NeedsTrust) && !args.dry_run {
        talk("codex runs new hooks only after you have trusted them: type /hooks in it");
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
    const WHAT: &str = "cannot set up agents";
    let user = user()?;
    let agents = match args.names.is_empty() {
        true => setup::all().filter(|agent| is_here(agent, &user)).collect(),
        false => named(&args.names)?,
    };
    if agents.is_empty() {
        return Err(
            Failure::new(WHAT, "no agent that is known is on this machine")
                .hint("name one; agentvfs agent list shows them"),
        );
    }
    let parts: Vec<Part> = match (args.hooks, args.skill) {
        (true, false) => vec![Part::Hooks],
        (false, true) => vec![Part::Skill],
        _ => vec![Part::Hooks, Part::Skill],
    };
    let scope = match args.project {
        true => {
            Scope::Project(std::env::current_dir().map_err(|e| Failure::new(WHAT, e.to_string()))?)
        }
        false => Scope::User(user),
    };
    let home = find_home(global.root.as_deref())?;
    let setup = Setup {
        agents: &agents,
        parts: &parts,
        scope,
        home: &home,
        program: &program()?,
        dry_run,
    };
    setup
        .run(action)
        .map_err(|e| Failure::new(WHAT, e.to_string()))
}

fn named(names: &[String]) -> Result<Vec<&'static Agent>, Failure> {
    let agent = |name: &String| {
        setup::named(name).ok_or_else(|| {
            let known: Vec<&str> = setup::all().map(|agent| agent.name).collect();
            let why = format!("no agent named {name} is known");
            let failure = Failure {
                exit: USAGE,
                ..Failure::new("cannot set up agents", why)
            };
            failure.hint(format!("known are {}", known.join(", ")))
        })
    };
    names.iter().map(agent).collect()
}

fn user() -> Result<User, Failure> {
    let home = process_env("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute()).ok_or_else(|| {
        Failure::new("cannot set up agents", "$HOME is not set")
            .hint("set HOME to your home directory")
    })?;
    let dir = |agent: &'static Agent| {
        let dir = PathBuf::from(process_env(agent.variable()?)?);
        dir.is_absolute().then_some((agent.name, dir))
    };
    let dirs = setup::all().filter_map(dir).collect();
    Ok(User { home, dirs })
}

/// Whether an agent is on this machine: its program, or its settings.
fn is_here(agent: &Agent, user: &User) -> bool {
    on_path(agent.program).is_some() || agent.own_dir(user).is_dir()
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = process_env("PATH")?;
    let mut found = std::env::split_paths(&path).map(|dir| dir.join(program));
    found.find(|file| file.is_file())
}

/// How a shell finds this program.
fn program() -> Result<String, Failure> {
    if on_path("agentvfs").is_some() {
        return Ok("agentvfs".to_owned());
    }
    let own = own_program();
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+".contains(b);
    let text = own
        .to_str()
        .filter(|text| OsStr::new(text).as_bytes().iter().all(is_plain));
    text.map(str::to_owned).ok_or_else(|| {
        let why = format!(
            "agentvfs is not in $PATH, and a hook cannot name {}",
            own.display()
        );
        Failure::new("cannot set up agents", why).hint("put the directory of agentvfs in $PATH")
    })
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
