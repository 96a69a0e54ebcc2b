//! `agentvfs quickstart`: a workspace of a project, and agents that use it.

use super::Context;
use super::agents::{meant, set_up_all, trust};
use super::start::{planned_on, project_here, started_on};
use crate::cli::{Global, QuickstartArgs};
use crate::doctor::{Grade, examine};
use crate::output::{Facts, warn};
use agentvfs_agents::setup::{Action, Agent, Row, State};
use agentvfs_client::failure::{FAILED, Failure};
use agentvfs_client::protocol::MAIN;
use agentvfs_client::quote::{one_line, shown};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Starts the workspace, sets the agents up, prints where to go on.
pub fn run(args: &QuickstartArgs, global: Global) -> Result<u8, Failure> {
    let agents = meant(&args.agent)?;
    let mut context = Context::new(global.clone())?;
    let base = match &args.dir {
        Some(dir) => context.absolute(dir)?,
        None => project_here(&context, "agentvfs quickstart DIR")?,
    };
    if !base.is_dir() {
        let why = format!("{} is no directory", shown(base.as_os_str().as_bytes()));
        return Err(
            Failure::usage(why).hint("name the project's directory: agentvfs quickstart DIR")
        );
    }
    let findings = examine(context.home());
    for finding in findings
        .iter()
        .filter(|finding| finding.grade == Grade::Broken)
    {
        let fix = finding.fix.as_deref().map(|fix| format!("; fix: {fix}"));
        warn(&one_line(&format!(
            "{}{}",
            finding.text,
            fix.unwrap_or_default()
        )));
    }
    let mount = match args.dry_run {
        true => planned_on(&base, &mut context)?,
        false => started_on(&base, &mut context)?.mount.to_path(),
    };
    let rows = set_up_all(Action::Install, &agents, args.dry_run, &global)?;
    let names: Vec<&str> = agents.iter().map(|agent| agent.name).collect();
    let mut facts = Facts::default();
    facts
        .add("mount", mount.as_os_str().as_bytes())
        .add("branch", MAIN.as_bytes())
        .line("agents", names.join(",").as_bytes())
        .json("agents", json!(names));
    facts.print(context.json())?;
    tell(args.dry_run, &rows, &mount, &agents);
    let is_failed = rows.iter().any(|row| matches!(row.state, State::Failed(_)));
    Ok(if is_failed { FAILED } else { 0 })
}

/// Says what was written, what was not, and what to type next.
fn tell(dry_run: bool, rows: &[Row], mount: &Path, agents: &[&Agent]) {
    for row in rows {
        let file = shown(row.file.as_os_str().as_bytes());
        match &row.state {
            State::Failed(why) => warn(&format!("{file}: left alone: {why}")),
            State::Changed => warn(&format!(
                "{file}: you have changed its {}: left alone",
                row.part.name()
            )),
            State::Written | State::NeedsTrust if dry_run => {
                warn(&format!("would write {} to {file}", row.part.name()))
            }
            State::Written | State::NeedsTrust => {
                warn(&format!("wrote {} to {file}", row.part.name()))
            }
            _ => {}
        }
    }
    if dry_run {
        return warn("nothing was done: a dry run");
    }
    let mut trust: Vec<&str> = rows.iter().filter_map(trust).collect();
    trust.dedup();
    trust.into_iter().for_each(warn);
    let next = match agents.first() {
        Some(agent) => format!(" && {}", agent.program),
        None => {
            warn("no agent that is known is on this machine; agentvfs agent list shows them");
            String::new()
        }
    };
    let mount = mount.display().to_string().replace('\'', "'\\''");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let mount = match mount.chars().all(is_plain) {
        true => mount,
        false => format!("'{mount}'"),
    };
    warn(&format!("now: cd {mount}{next}"));
}
