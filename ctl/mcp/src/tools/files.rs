//! Tools that change files: `write_file`, `mkdir`, `remove`, `rename`.

use super::Tool;
use super::reading::Encoding;
use crate::answer::Answer;
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Bytes, Call, MakeDir, Nothing, PIECE_BYTES, RemovePath, RenamePath, WriteAnswer, WriteFile,
};
use agentvfs_client::quote::{base64, from_base64};
use rmcp::schemars::JsonSchema;
use serde::Deserialize;

pub fn tools() -> [Tool; 4] {
    [
        Tool::changes(
            "write_file",
            "Write a file: its whole content, or with append at its end. It is created if it does not \
             exist. The write is on stable storage when the call returns.",
            write_file,
        ),
        Tool::changes(
            "mkdir",
            "Create a directory; with parents also its missing parents, and then an existing one is no \
             error.",
            mkdir,
        ),
        Tool::changes(
            "remove",
            "Remove a file, a symbolic link (not its target) or an empty directory; with recursive \
             a directory with all its entries.",
            remove,
        ),
        Tool::changes(
            "rename",
            "Move or rename a file or directory. A file at the new path is replaced, and an empty \
             directory by a directory.",
            rename,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct WriteFileArgs {
    /// The file, from the workspace's root
    path: String,
    /// What to write
    content: String,
    /// How content is given: utf8 (without this) or base64
    encoding: Option<Encoding>,
    /// Make missing directories above it
    #[serde(default)]
    create_dirs: bool,
    /// Add to the end of what is there
    #[serde(default)]
    append: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn write_file(turn: &mut Turn<'_>, args: WriteFileArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let path = turn.path(&state, &args.path)?;
    if args.path.ends_with('/') {
        let why = format!(
            "write_file: {} ends with a slash, as only a directory's path may",
            args.path
        );
        return Err(Failure::usage(why).hint("use the file's name; mkdir creates directories"));
    }
    let bytes = match args.encoding {
        Some(Encoding::Base64) => from_base64(&args.content).ok_or_else(|| {
            Failure::usage("write_file: content is not base64")
                .hint("use the standard alphabet, padded and without line breaks")
        })?,
        _ => args.content.into_bytes(),
    };
    let what = format!("cannot write in {}", state.workspace);
    let pieces = bytes.chunks(PIECE_BYTES).count().max(1);
    let mut size = 0;
    for i in 0..pieces {
        let start = i * PIECE_BYTES;
        let piece = &bytes[start..bytes.len().min(start + PIECE_BYTES)];
        let call = Call::FsWrite(WriteFile {
            workspace: state.workspace.clone(),
            branch: state.branch.clone(),
            path: Bytes(path.clone()),
            offset: (!args.append).then_some(start as u64),
            b64: base64(piece),
            last: i + 1 == pieces,
            perm: 0o644,
            parents: args.create_dirs,
            unsynced: turn.is_unsynced(),
        });
        let answer: WriteAnswer = turn.ask(&what, &call)?;
        size = answer.size;
    }
    let text = format!("Wrote {} bytes to {}", bytes.len(), args.path);
    Ok(Answer::text(text).fact("size", size))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct MkdirArgs {
    /// The new directory, from the workspace's root
    path: String,
    /// Make missing directories above it too
    #[serde(default)]
    parents: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn mkdir(turn: &mut Turn<'_>, args: MkdirArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let path = turn.path(&state, &args.path)?;
    let what = format!("cannot write in {}", state.workspace);
    let call = Call::FsMkdir(MakeDir {
        workspace: state.workspace,
        branch: state.branch,
        path: Bytes(path),
        parents: args.parents,
    });
    let Nothing {} = turn.ask(&what, &call)?;
    Ok(Answer::text(format!("Created directory {}", args.path)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct RemoveArgs {
    /// What to remove, from the workspace's root
    path: String,
    /// Remove a directory with everything in it
    #[serde(default)]
    recursive: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn remove(turn: &mut Turn<'_>, args: RemoveArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let path = turn.path(&state, &args.path)?;
    let what = format!("cannot remove from {}", state.workspace);
    let call = Call::FsRemove(RemovePath {
        workspace: state.workspace,
        branch: state.branch,
        path: Bytes(path),
        recursive: args.recursive,
        expect: None,
    });
    let Nothing {} = turn.ask(&what, &call)?;
    Ok(Answer::text(format!("Removed {}", args.path)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct RenameArgs {
    /// The path that it has, from the workspace's root
    from: String,
    /// The path that it gets, its name included
    to: String,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn rename(turn: &mut Turn<'_>, args: RenameArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, None);
    let from = turn.path(&state, &args.from)?;
    let to = turn.path(&state, &args.to)?;
    let what = format!("cannot move in {}", state.workspace);
    let call = Call::FsRename(RenamePath {
        workspace: state.workspace,
        branch: state.branch,
        from: Bytes(from),
        to: Bytes(to),
    });
    let Nothing {} = turn.ask(&what, &call)?;
    Ok(Answer::text(format!(
        "Renamed {} to {}",
        args.from, args.to
    )))
}
