//! `agentvfs workspace start`.

use super::init::new_name;
use super::place::told;
use super::transfer;
use super::{Context, workspace_facts};
use crate::cli::{LatencyArg, StartArgs};
use crate::output::{talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::infer::{Surroundings, covered_by, of_project};
use agentvfs_client::protocol::{Bytes, Call, Info, Latency, MountChoice, Start, StartAnswer};
use agentvfs_client::quote::shown;
use agentvfs_client::seen::Look;
use std::path::{Path, PathBuf};

/// What `--audit` names beside a file; `./opens` is a file of that name.
const OPENS: &str = "opens";

/// Mounts a workspace and prints its facts.
pub fn run(args: &StartArgs, context: &mut Context) -> Result<u8, Failure> {
    if let Some(fault) = context.renew_daemon()? {
        warn(&format!(
            "the daemon is of another build and was not replaced: {}",
            fault.message
        ));
    }
    if let Some(url) = &args.clone {
        let name = args.name.as_ref().ok_or_else(|| {
            Failure::usage("--clone needs the name of the project")
                .hint("agentvfs start NAME --clone URL")
        })?;
        transfer::cloned_for_start(url, name, context)?;
    }
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
        named: args.name.is_some() || context.surroundings().option.is_some(),
        mount: mount.as_deref().map(Bytes::from),
        options: options(args, context)?,
    });
    let answer: StartAnswer =
        context.ask_with_bar(&format!("cannot start {name}"), &call, "starting")?;
    for warning in &answer.warnings {
        warn(warning);
    }
    context.check_seen(&answer.info, Look::Into)?;
    print(&answer, &branch, context)?;
    talk(&match answer.info.unmounted {
        false => format!(
            "{}mounted; `agentvfs stop {name}` unmounts it",
            told(&name, &branch, Some(answer.info.mount.path()))
        ),
        true => format!(
            "{}runs without a mount; `agentvfs stop {name}` stops it",
            told(&name, &branch, None)
        ),
    });
    Ok(0)
}

/// The current directory as a project. What is more than a project must be named, as `hint` says.
pub fn project_here(context: &Context, hint: &str) -> Result<PathBuf, Failure> {
    let cwd = context.surroundings().cwd.clone();
    let cwd = cwd.ok_or_else(|| Failure::usage("the current directory is gone"))?;
    let cwd = context.absolute(&cwd)?;
    let user_home = std::env::var_os("HOME").map(PathBuf::from);
    let user_home = user_home.map(|home| home.canonicalize().unwrap_or(home));
    let is_more = cwd == Path::new("/")
        || user_home.as_ref() == Some(&cwd)
        || context.home().root().starts_with(&cwd);
    if is_more {
        let why = format!(
            "{} is no project",
            shown(cwd.as_os_str().as_encoded_bytes())
        );
        return Err(Failure::usage(why).hint(format!(
            "change to the project's directory, or name it: {hint}"
        )));
    }
    Ok(cwd)
}

/// The workspace that a project has.
fn existing_of(base: &Path, context: &mut Context) -> Result<Option<String>, Failure> {
    if explicit(context).named(None)?.is_some() {
        return Ok(None);
    }
    let covered = covered_by(base, context.list()?).map(|info| info.name.clone());
    match covered {
        Some(name) => Ok(Some(name)),
        None => of_project(base, context.list()?),
    }
}

/// Where the workspace of a project is mounted, or would be.
pub fn planned_on(base: &Path, context: &mut Context) -> Result<PathBuf, Failure> {
    let name = match existing_of(base, context)? {
        Some(name) => name,
        None => new_name(context, None, base)?,
    };
    let info = context.info(&name)?;
    let default = context.home().default_mount(&name);
    Ok(info.map_or(default, |info| info.mount.to_path()))
}

/// The workspace of a project, running; it is made where there is none.
pub fn started_on(base: &Path, context: &mut Context) -> Result<Info, Failure> {
    let (name, base) = match existing_of(base, context)? {
        Some(name) => (name, None),
        None => (new_name(context, None, base)?, Some(Bytes::from(base))),
    };
    let call = Call::Start(Start {
        workspace: name.clone(),
        base,
        named: context.surroundings().option.is_some(),
        mount: None,
        options: mounted(),
    });
    let answer: StartAnswer = context.ask(&format!("cannot start {name}"), &call)?;
    answer.warnings.iter().for_each(|warning| warn(warning));
    Ok(answer.info)
}

/// A mount as usual, also for what runs without one.
pub fn mounted() -> MountChoice {
    MountChoice {
        unmounted: Some(false),
        ..MountChoice::default()
    }
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

/// What the words of `start` mean.
enum Meant {
    /// A workspace that there is, or that the daemon says is not.
    Workspace(String),
    /// A project's directory, which has a workspace or gets one.
    Project(PathBuf),
}

fn workspace_and_base(
    args: &StartArgs,
    context: &mut Context,
) -> Result<(String, Option<PathBuf>), Failure> {
    let meant = match (&args.from, &args.mount) {
        (Some(from), _) => Meant::Project(context.absolute(from)?),
        (None, Some(mount)) => by_mount(context, args, mount)?,
        (None, None) => Meant::Workspace(context.workspace(args.name.as_deref())?),
    };
    let base = match meant {
        Meant::Workspace(name) => return Ok((name, None)),
        Meant::Project(base) => base,
    };
    match covering(context, args, &base)? {
        Some(name) => Ok((name, None)),
        None => Ok((new_name(context, args.name.as_deref(), &base)?, Some(base))),
    }
}

/// What `--mount` alone means. A directory that is a project's, or that is not empty, can only be mounted at in
/// place of itself, so it is the project; else the workspace is found as for any verb.
fn by_mount(context: &mut Context, args: &StartArgs, mount: &Path) -> Result<Meant, Failure> {
    let place = context.absolute(mount)?;
    let word = args.name.as_deref();
    let given = explicit(context).named(word)?;
    if let Some(name) = context.surroundings().named(word)?
        && let Some(info) = context.info(&name)?
        && (given.is_some() || info.base.path() == place)
    {
        return Ok(Meant::Workspace(name));
    }
    if given.is_none()
        && let Some(name) = of_project(&place, context.list()?)?
    {
        return Ok(Meant::Workspace(name));
    }
    if is_project(&place) {
        return Ok(Meant::Project(place));
    }
    Ok(Meant::Workspace(context.workspace(word)?))
}

fn is_project(place: &Path) -> bool {
    place
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
}

/// What names a workspace that may be new: not `$AGENTVFS_WORKSPACE`.
fn explicit(context: &Context) -> Surroundings {
    Surroundings {
        variable: None,
        ..context.surroundings().clone()
    }
}

/// A directory that is covered by a workspace's mount means that workspace, unless another name is
/// given: then the daemon says why that cannot be.
fn covering(
    context: &mut Context,
    args: &StartArgs,
    base: &Path,
) -> Result<Option<String>, Failure> {
    let given = explicit(context).named(args.name.as_deref())?;
    let covered = covered_by(base, context.list()?).map(|info| info.name.clone());
    Ok(covered.filter(|name| given.as_ref().is_none_or(|given| given == name)))
}

fn options(args: &StartArgs, context: &Context) -> Result<MountChoice, Failure> {
    let is_opens = |word: &&PathBuf| word.as_os_str() == OPENS;
    let opens = args.audit.iter().any(|word| is_opens(&word));
    let mut files = args.audit.iter().filter(|word| !is_opens(word));
    let audit = files.next().map(|file| context.absolute(file));
    if files.next().is_some() {
        return Err(Failure::usage("--audit names more than one file"));
    }
    Ok(MountChoice {
        allow_other: args.allow_other,
        suid: args.suid,
        dev: args.dev,
        latency: match args.latency {
            LatencyArg::Low => Latency::Low,
            LatencyArg::Normal => Latency::Normal,
        },
        audit: audit.transpose()?.as_deref().map(Bytes::from),
        opens,
        telemetry: args.telemetry.clone(),
        unmounted: Some(args.no_mount),
    })
}
