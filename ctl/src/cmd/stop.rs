//! `agentvfs workspace stop`.

use super::{Context, id_or_pending};
use crate::cli::StopArgs;
use crate::output::{Bar, Facts, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Stop, StopAnswer, WorkspaceStatus};
use agentvfs_client::quote::shown;

/// Unmounts a workspace and prints what it kept.
pub fn run(args: &StopArgs, context: &mut Context) -> Result<u8, Failure> {
    let name = context.workspace_to_change(args.name.as_deref())?;
    // This process must not be what keeps the mount busy. Where even `/` cannot be entered, the
    // daemon says who does.
    let _ = std::env::set_current_dir("/");
    let call = Call::Stop(Stop {
        workspace: name.clone(),
        force: args.force,
        checkpoint: !args.no_checkpoint,
        progress: Bar::is_wanted(),
    });
    let is_unmounted = context.info(&name)?.is_some_and(|info| info.unmounted);
    let answer: StopAnswer =
        context.ask_with_bar(&format!("cannot stop {name}"), &call, "saving")?;
    facts(&answer, args, is_unmounted).print(context.json())?;
    let at = match is_unmounted {
        true => String::new(),
        false => format!(", {}", shown(&answer.mount.0)),
    };
    talk(&format!(
        "workspace {name} with all its branches{at}: stopped; `agentvfs start {name}` mounts it again"
    ));
    Ok(0)
}

fn facts(answer: &StopAnswer, args: &StopArgs, is_unmounted: bool) -> Facts {
    let mut facts = Facts::default();
    facts.add("name", answer.name.as_bytes());
    if !is_unmounted {
        facts.add("mount", &answer.mount.0);
    }
    if !args.no_checkpoint {
        facts.line(
            "checkpoint",
            id_or_pending(answer.commit.as_deref()).as_bytes(),
        );
        facts.json("checkpoint", answer.commit.clone());
    }
    facts.add("status", WorkspaceStatus::Stopped.word().as_bytes());
    facts
}
