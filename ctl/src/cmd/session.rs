//! `agentvfs session`.

use super::Context;
use crate::cli::{CgroupArgs, SessionVerb};
use crate::output::{Facts, Rows, print_json, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::*;
use agentvfs_client::quote::shown;
use agentvfs_client::render::insert_bytes;
use serde_json::{Map, Value, json};

/// Runs a verb.
pub fn run(verb: SessionVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        SessionVerb::Register(args) => register(&args, context),
        SessionVerb::List(args) => list(args.nul, context),
        SessionVerb::Unregister(args) => unregister(&args, context),
    }
}

fn register(args: &CgroupArgs, context: &mut Context) -> Result<u8, Failure> {
    let cgroup = context.absolute(&args.cgroup)?;
    let workspace = context.workspace(None)?;
    let what = format!("cannot register {}", args.cgroup.display());
    let call = Call::SessionRegister(SessionRegister {
        workspace: workspace.clone(),
        branch: context.branch()?,
        cgroup: Bytes::from(cgroup.as_path()),
    });
    let answer: SessionRegisterAnswer = context.ask_seen(&workspace, &what, &call)?;
    let mut facts = Facts::default();
    facts
        .add("view", &answer.view.0)
        .add("cgroup", &answer.session.cgroup.0)
        .add("branch", answer.session.branch.as_bytes())
        .add("workspace", answer.session.workspace.as_bytes())
        .json("moved_from", answer.moved_from.clone());
    facts.print(context.json())?;
    let SessionRow {
        cgroup,
        branch,
        workspace,
    } = &answer.session;
    let before = answer.moved_from.map_or(String::new(), |branch| {
        format!(", which used {branch} before")
    });
    let cgroup = shown(&cgroup.0);
    talk(&format!(
        "workspace {workspace}, branch {branch}: used by processes of {cgroup}{before}; \
         `agentvfs session unregister {cgroup}` ends that"
    ));
    Ok(0)
}

fn list(nul: bool, context: &mut Context) -> Result<u8, Failure> {
    let workspace = context.surroundings().named(None)?;
    let call = Call::SessionList(SessionList { workspace });
    let answer: SessionListAnswer = context.ask("cannot list the sessions", &call)?;
    tell(&answer.sessions, nul, context.json())
}

fn unregister(args: &CgroupArgs, context: &mut Context) -> Result<u8, Failure> {
    let cgroup = context.absolute(&args.cgroup)?;
    let what = format!("cannot unregister {}", args.cgroup.display());
    let call = Call::SessionUnregister(SessionUnregister {
        cgroup: Bytes::from(cgroup.as_path()),
        workspace: context.surroundings().named(None)?,
    });
    let answer: SessionListAnswer = context.ask(&what, &call)?;
    tell(&answer.sessions, false, context.json())
}

fn tell(sessions: &[SessionRow], nul: bool, json: bool) -> Result<u8, Failure> {
    if json {
        let rows: Vec<Value> = sessions.iter().map(object).collect();
        print_json(&json!({ "sessions": rows }))?;
        return Ok(0);
    }
    let mut rows = Rows::new(&["CGROUP", "BRANCH", "WORKSPACE"]);
    for s in sessions {
        let (branch, workspace) = (s.branch.clone().into(), s.workspace.clone().into());
        rows.push(vec![s.cgroup.0.clone(), branch, workspace]);
    }
    rows.print(nul)?;
    Ok(0)
}

fn object(session: &SessionRow) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "cgroup", &session.cgroup.0);
    object.insert("branch".into(), session.branch.clone().into());
    object.insert("workspace".into(), session.workspace.clone().into());
    Value::Object(object)
}
