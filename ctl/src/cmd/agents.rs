//! The agents on this machine, and what they are set up with.

use crate::cli::Global;
use agentvfs_agents::setup::{self, Action, Agent, Once, Part, Row, Scope, Setup, State, User};
use agentvfs_client::context::find_home;
use agentvfs_client::failure::{Failure, USAGE};
use agentvfs_client::home::{Home, process_env};
use agentvfs_client::launch::own_program;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What fails.
pub const WHAT: &str = "cannot set up agents";

/// The agents that are on this machine, or those of these names.
pub fn meant(names: &[String]) -> Result<Vec<&'static Agent>, Failure> {
    let user = user()?;
    match names.is_empty() {
        true => Ok(setup::all().filter(|agent| is_here(agent, &user)).collect()),
        false => named(names),
    }
}

/// Does it with all parts for the user.
pub fn set_up_all(
    action: Action,
    agents: &[&'static Agent],
    dry_run: bool,
    global: &Global,
) -> Result<Vec<Row>, Failure> {
    set_up_parts(
        action,
        (agents, &Part::ALL),
        (Scope::User(user()?), dry_run),
        global,
    )
}

/// Does it with these parts of these agents, or says what would be done.
pub fn set_up_parts(
    action: Action,
    (agents, parts): (&[&'static Agent], &[Part]),
    (scope, dry_run): (Scope, bool),
    global: &Global,
) -> Result<Vec<Row>, Failure> {
    let home = find_home(global.root.as_deref())?;
    let setup = Setup {
        agents,
        parts,
        scope,
        home: &home,
        program: &program()?,
        dry_run,
    };
    setup
        .run(action)
        .map_err(|e| Failure::new(WHAT, e.to_string()))
}

/// What an agent is started with for one run: all that is not set up already.
pub fn once(name: &str, home: &Home) -> Result<Once, Failure> {
    let agent = named(&[name.to_owned()])?.swap_remove(0);
    let user = user()?;
    let mut scopes = vec![Scope::User(user.clone())];
    scopes.extend(std::env::current_dir().map(Scope::Project));
    let mut parts = vec![Part::Hooks, Part::Mcp, Part::Instructions];
    let program = program()?;
    for scope in scopes {
        let setup = Setup {
            agents: &[agent],
            parts: &parts.clone(),
            scope,
            home,
            program: &program,
            dry_run: true,
        };
        let rows = setup
            .run(Action::Look)
            .map_err(|e| Failure::new(WHAT, e.to_string()))?;
        let is_there = |part: &Part| {
            rows.iter()
                .any(|r| r.part == *part && r.state == State::Same)
        };
        parts.retain(|part| !is_there(part));
    }
    agent.once(&parts, &program, &user).ok_or_else(|| {
        let why = format!("{name} has no options by which it is set up for one run");
        Failure::usage(why).hint(format!(
            "agentvfs agent install {name} writes to its settings; then agentvfs run -- {}",
            agent.program
        ))
    })
}

/// How the user has an agent trust what was written.
pub fn trust(row: &Row) -> Option<&'static str> {
    match (row.agent, row.part) {
        _ if row.state != State::NeedsTrust => None,
        (_, Part::Hooks) => {
            Some("codex runs new hooks only after you have trusted them: type /hooks in it")
        }
        ("codex", _) => Some("codex reads .codex/config.toml only in a project that you trust"),
        _ => Some("claude starts servers of .mcp.json only after you have allowed that: it asks"),
    }
}

fn named(names: &[String]) -> Result<Vec<&'static Agent>, Failure> {
    let agent = |name: &String| {
        setup::named(name).ok_or_else(|| {
            let known: Vec<&str> = setup::all().map(|agent| agent.name).collect();
            let why = format!("no agent named {name} is known");
            let failure = Failure {
                exit: USAGE,
                ..Failure::new(WHAT, why)
            };
            failure.hint(format!("known are {}", known.join(", ")))
        })
    };
    names.iter().map(agent).collect()
}

/// Where the user's settings are.
pub fn user() -> Result<User, Failure> {
    let home = process_env("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute()).ok_or_else(|| {
        Failure::new(WHAT, "$HOME is not set").hint("set HOME to your home directory")
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

/// A program where `$PATH` has it.
pub fn on_path(program: &str) -> Option<PathBuf> {
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
        Failure::new(WHAT, why).hint("put the directory of agentvfs in $PATH")
    })
}
