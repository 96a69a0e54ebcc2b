//! `agentvfs fs mkdir`, `rm` and `mv`: names of the live tree, without a mount.

use super::{Context, TreeAt};
use crate::cli::{FsMkdirArgs, FsMvArgs, FsRmArgs};
use crate::cmd::path_or_root;
use crate::cmd::place::{Directory, place};
use crate::output::{print_json, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Bytes, Call, MakeDir, Nothing, RemovePath, RenamePath};
use agentvfs_client::quote::shown;
use agentvfs_client::render::insert_bytes;
use serde_json::{Map, Value};
use std::path::Path;

/// Makes a directory.
pub fn mkdir(args: &FsMkdirArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, path) = at(&args.path, context)?;
    let what = format!("cannot write in {}", state.workspace);
    let call = Call::FsMkdir(MakeDir {
        workspace: state.workspace.clone(),
        branch: state.branch.clone(),
        path: path.clone(),
        parents: args.parents,
    });
    let Nothing {} = context.ask(&what, &call)?;
    let path_shown = given(&args.path);
    say(
        &state,
        &format!("{path_shown} made; `agentvfs fs rm {path_shown}` removes it"),
        context,
    );
    tell(&[("path", &path)], context)
}

/// Removes a file or directory.
pub fn remove(args: &FsRmArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, path) = at(&args.path, context)?;
    let what = format!("cannot remove from {}", state.workspace);
    let call = Call::FsRemove(RemovePath {
        workspace: state.workspace.clone(),
        branch: state.branch.clone(),
        path: path.clone(),
        recursive: args.recursive,
        expect: None,
    });
    let Nothing {} = context.ask(&what, &call)?;
    let path_shown = given(&args.path);
    let restore = format!("`agentvfs restore {path_shown}` takes it from the head");
    say(&state, &format!("{path_shown} removed; {restore}"), context);
    tell(&[("path", &path)], context)
}

/// Gives a file or directory another path.
pub fn rename(args: &FsMvArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, from) = at(&args.from, context)?;
    let (_, to) = at(&args.to, context)?;
    let what = format!("cannot move in {}", state.workspace);
    let call = Call::FsRename(RenamePath {
        workspace: state.workspace.clone(),
        branch: state.branch.clone(),
        from: from.clone(),
        to: to.clone(),
    });
    let Nothing {} = context.ask(&what, &call)?;
    let (old, new) = (given(&args.from), given(&args.to));
    say(
        &state,
        &format!("{old} is {new} now; `agentvfs fs mv {new} {old}` reverses it"),
        context,
    );
    tell(&[("from", &from), ("to", &to)], context)
}

/// The live tree, and a path in it that is not its root.
fn at(path: &Path, context: &mut Context) -> Result<(TreeAt, Bytes), Failure> {
    let state = TreeAt::to_change(context)?;
    let inside = path_or_root(path, &state.workspace, context)?;
    if inside.is_empty() {
        let why = format!(
            "{} is the whole workspace",
            agentvfs_client::quote::shown(path.as_os_str().as_encoded_bytes())
        );
        return Err(Failure::usage(why).hint("name a file or directory in it"));
    }
    Ok((state, Bytes(inside)))
}

/// A path as it was given, so that it means the same in the next command.
pub fn given(path: &Path) -> String {
    shown(path.as_os_str().as_encoded_bytes())
}

/// Says what was done to the live tree.
pub fn say(state: &TreeAt, done: &str, context: &mut Context) {
    let place = place(&state.workspace, &state.branch, Directory::Mount, context);
    talk(&format!("{place}{done}"));
}

fn tell(facts: &[(&str, &Bytes)], context: &Context) -> Result<(), Failure> {
    if !context.json() {
        return Ok(());
    }
    let mut object = Map::new();
    for (key, path) in facts {
        insert_bytes(&mut object, key, &path.0);
    }
    print_json(&Value::Object(object))
}
