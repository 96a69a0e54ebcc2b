//! `agentvfs workspace start`.

use super::init::new_name;
use super::{Context, workspace_facts};
use crate::cli::{LatencyArg, StartArgs};
use crate::exit::Failure;
use crate::infer::covered_by;
use crate::output::warn;
use crate::protocol::{Bytes, Call, Latency, MountChoice, Start, StartAnswer};
use std::path::{Path, PathBuf};

/// Mounts a workspace and prints its facts.
pub fn run(args: &StartArgs, context: &mut Context) -> Result<u8, Failure> {
    context.renew_daemon()?;
    let (name, base) = workspace_and_base(args, context)?;
    let mount = args
        .mount
        .as_deref()
        .map(|mount| context.absolute(mount))
        .transpose()?;
    let branch = context.branch()?;
    let call = Call::Start(Start {
        workspace: name.clone(),
        base: base.as_deref().map(Bytes::from),
        mount: mount.as_deref().map(Bytes::from),
        options: options(args),
    });
    let answer: StartAnswer = context.ask(&format!("cannot start {name}"), &call)?;
    for warning in &answer.warnings {
        warn(warning);
    }
    print(&answer, &branch, context)?;
    Ok(0)
}

fn print(answer: &StartAnswer, branch: &str, context: &Context) -> Result<(), Failure> {
    let mut facts = workspace_facts(&answer.info, branch, context.home());
    // A paused import must be heard of; otherwise `status` is the place to ask.
    if let Some(import) = answer
        .import
        .as_ref()
        .filter(|import| import.state == "paused")
    {
        facts.add("import", import.state.as_bytes());
    }
    facts.print(context.json())
}

fn workspace_and_base(
    args: &StartArgs,
    context: &mut Context,
) -> Result<(String, Option<PathBuf>), Failure> {
    let Some(from) = &args.from else {
        return Ok((context.workspace(args.name.as_deref())?, None));
    };
    let base = context.absolute(from)?;
    match covering(context, args, &base)? {
        Some(name) => Ok((name, None)),
        None => Ok((new_name(context, args.name.as_deref(), &base)?, Some(base))),
    }
}

/// A directory that is covered by a workspace's mount means that workspace, unless another name is
/// given: then the daemon says why that cannot be.
fn covering(
    context: &mut Context,
    args: &StartArgs,
    base: &Path,
) -> Result<Option<String>, Failure> {
    let mut explicit = context.surroundings().clone();
    explicit.variable = None;
    let given = explicit.named(args.name.as_deref())?;
    let covered = covered_by(base, context.list()?).map(|info| info.name.clone());
    Ok(covered.filter(|name| given.as_ref().is_none_or(|given| given == name)))
}

fn options(args: &StartArgs) -> MountChoice {
    MountChoice {
        allow_other: args.allow_other,
        suid: args.suid,
        dev: args.dev,
        latency: match args.latency {
            LatencyArg::Low => Latency::Low,
            LatencyArg::Normal => Latency::Normal,
        },
    }
}
