//! `agentvfs workspace init`.

use super::{Context, check_name, workspace_facts};
use crate::cli::InitArgs;
use crate::output::talk;
use agentvfs_client::failure::Failure;
use agentvfs_client::infer::default_name;
use agentvfs_client::protocol::{Bytes, Call, Init, StartAnswer};
use agentvfs_client::quote::shown;
use std::path::Path;

/// Makes a workspace and prints its facts.
pub fn run(args: &InitArgs, context: &mut Context) -> Result<u8, Failure> {
    let base = context.absolute(&args.from)?;
    let name = new_name(context, args.name.as_deref(), &base)?;
    let mount = args
        .mount
        .as_deref()
        .map(|mount| context.absolute(mount))
        .transpose()?;
    let branch = context.branch()?;
    let call = Call::Init(Init {
        workspace: name.clone(),
        base: Bytes::from(base.as_path()),
        mount: mount.as_deref().map(Bytes::from),
    });
    let answer: StartAnswer = context.ask(&format!("cannot create workspace {name}"), &call)?;
    workspace_facts(&answer.info, &branch, context.home()).print(context.json())?;
    talk(&format!(
        "workspace {name} of {}: created; `agentvfs start {name}` mounts it, `agentvfs delete {name}` deletes it",
        shown(&answer.info.base.0)
    ));
    Ok(0)
}

/// Name of a workspace that is to be made: as given by option or word, else the directory's.
///
/// `$AGENTVFS_WORKSPACE` does not count: it names the workspace one works in, and a new project
/// would be taken for it.
pub fn new_name(context: &Context, word: Option<&str>, base: &Path) -> Result<String, Failure> {
    let mut explicit = context.surroundings().clone();
    explicit.variable = None;
    let name = explicit.named(word)?.unwrap_or_else(|| default_name(base));
    check_name(engine::names::check_workspace_name(&name))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_made_of_odd_directories_are_allowed_names() {
        for odd in ["/x/.hidden", "/x/größe", "/", "/x/--", "/x/日本語"] {
            engine::names::check_workspace_name(&default_name(Path::new(odd))).unwrap();
        }
    }
}
