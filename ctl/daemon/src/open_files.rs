//! Requests about files that a connection has open.

use super::files::{at, checked_perm, data_of, of_node, owner};
use super::handles::{File, Handles, Open, read_only};
use super::mounts::Mounts;
use super::request::{looking_into, on, side};
use agentvfs_client::protocol::{
    Bytes, Fault, FileNode, HandleData, OfHandle, OpenPath, Opened, PIECE_BYTES, ReadHandle,
    ResizeHandle, Side, WriteAnswer, WriteHandle,
};
use agentvfs_client::quote::base64;
use engine::verbs;
use engine::{Cancel, DiffSide, OpenAs};
use std::sync::Arc;

/// Opens a file.
pub fn open(mounts: &Mounts, handles: &Handles, ask: &OpenPath) -> Result<Opened, Fault> {
    let perm = checked_perm(ask.perm)?;
    let changes = ask.create || ask.truncate;
    let (file, node) = match &ask.state {
        Side::Live => open_live(mounts, ask, perm),
        _ if changes => Err(read_only()),
        _ => open_kept(mounts, ask),
    }
    .map_err(|fault| at(fault, &ask.path))?;
    let workspace = ask.workspace.clone();
    let handle = handles.add(Open { workspace, file })?;
    Ok(Opened { handle, node })
}

fn open_live(mounts: &Mounts, ask: &OpenPath, perm: u32) -> Result<(File, FileNode), Fault> {
    let wanted = OpenAs {
        path: ask.path.0.clone(),
        create: ask.create,
        exclusive: ask.exclusive,
        truncate: ask.truncate,
        perm,
    };
    on(mounts, &ask.workspace, |w| {
        let (file, node) = verbs::open_file(w, &ask.branch, &owner(), &wanted)?;
        Ok((File::Live(Arc::downgrade(w), file), of_node(node)))
    })
}

/// A state is looked up each time, by its commit's id, as a label may move meanwhile.
fn open_kept(mounts: &Mounts, ask: &OpenPath) -> Result<(File, FileNode), Fault> {
    let mut found = side(&ask.state);
    looking_into(mounts, &ask.workspace, |w| {
        if let DiffSide::Ref(text) = &found {
            let name = Some(text.as_str());
            let commit = verbs::commit_of(w, &ask.branch, name, &|_, _| {}, &Cancel::new())?;
            found = DiffSide::Ref(commit.to_string());
        }
        let reader = verbs::read_state(w, &ask.branch, &found)?;
        // Fails where it is no file.
        reader.read_plain(&ask.path.0, 0, 0)?;
        let mut node = reader.stat(&ask.path.0, true)?;
        node.name.clear();
        let (branch, path) = (ask.branch.clone(), ask.path.0.clone());
        let state = found.clone();
        let file = File::Kept {
            branch,
            state,
            path,
        };
        Ok((file, of_node(node)))
    })
}

/// A part of an open file.
pub fn read(mounts: &Mounts, handles: &Handles, ask: &ReadHandle) -> Result<HandleData, Fault> {
    let open = handles.get(ask.handle)?;
    let most = ask.length.unwrap_or(PIECE_BYTES as u64);
    let most = most.min(PIECE_BYTES as u64);
    let (bytes, size) = match &open.file {
        File::Live(..) => open.live(mounts, |w, file| file.read(w, ask.offset, most as u32))?,
        File::Kept {
            branch,
            state,
            path,
        } => looking_into(mounts, &open.workspace, |w| {
            let reader = verbs::read_state(w, branch, state)?;
            reader.read_plain(path, ask.offset, most as usize)
        })?,
    };
    let b64 = base64(&bytes);
    Ok(HandleData { b64, size })
}

/// Writes a part of an open file.
pub fn write(mounts: &Mounts, handles: &Handles, ask: &WriteHandle) -> Result<WriteAnswer, Fault> {
    let data = data_of(&ask.b64)?;
    let open = handles.get(ask.handle)?;
    let size = open.live(mounts, |w, file| file.write(w, &owner(), ask.offset, &data))?;
    Ok(WriteAnswer { size })
}

/// Gives an open file another length.
pub fn resize(mounts: &Mounts, handles: &Handles, ask: &ResizeHandle) -> Result<(), Fault> {
    let open = handles.get(ask.handle)?;
    open.live(mounts, |w, file| file.resize(w, &owner(), ask.size))
}

/// What is known of an open file; it has no name there.
pub fn stat(mounts: &Mounts, handles: &Handles, ask: &OfHandle) -> Result<FileNode, Fault> {
    let open = handles.get(ask.handle)?;
    let node = match &open.file {
        File::Live(..) => open.live(mounts, |w, file| file.stat(w))?,
        File::Kept {
            branch,
            state,
            path,
        } => looking_into(mounts, &open.workspace, |w| {
            verbs::read_state(w, branch, state)?.stat(path, true)
        })?,
    };
    Ok(FileNode {
        name: Bytes(Vec::new()),
        ..of_node(node)
    })
}

/// Brings everything answered so far on the branch of an open file to stable storage.
pub fn sync(mounts: &Mounts, handles: &Handles, ask: &OfHandle) -> Result<(), Fault> {
    let open = handles.get(ask.handle)?;
    match &open.file {
        File::Live(..) => open.live(mounts, |w, file| file.sync(w)),
        File::Kept { .. } => Ok(()),
    }
}
