//! Tools that look at files: `read_file`, `readdir`, `stat`, `access`.

use super::Tool;
use crate::answer::{Answer, Page};
use crate::limits::{BYTES_DEFAULT, BYTES_MAX};
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::files::TreeAt;
use agentvfs_client::protocol::{
    Bytes, Call, FileKind, FileNode, ListFiles, ListFilesAnswer, ReadAnswer, ReadFile,
};
use agentvfs_client::quote::{base64, from_base64};
use agentvfs_client::render::insert_bytes;
use agentvfs_client::when::rfc3339;
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub fn tools() -> [Tool; 4] {
    [
        Tool::looks(
            "read_file",
            "Read a file, as text if it is UTF-8, else in base64 (a note says so). At most 32 KiB are \
             returned unless limit is higher; a note shows how to continue. ref reads it as it was in a \
             commit.",
            read_file,
        ),
        Tool::looks(
            "readdir",
            "List the names in a directory, as a JSON array in order of names; with details also type, \
             size and time of each. Long lists come in pages; a note shows how to get more.",
            readdir,
        ),
        Tool::looks(
            "stat",
            "Show the metadata of a path: type, size, permissions, owner, time of the last change, and \
             the target of a symbolic link (which is not followed).",
            stat,
        ),
        Tool::looks(
            "access",
            "Show whether a path exists, and its type; symbolic links are followed.",
            access,
        ),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
pub enum Encoding {
    Utf8,
    Base64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ReadFileArgs {
    /// The file, from the workspace's root
    path: String,
    /// How to give it: utf8 fails where it is not UTF-8; without this, text where it is, else base64
    encoding: Option<Encoding>,
    /// Byte to begin at; 0 without this
    offset: Option<u64>,
    /// Bytes to give at most; 32768 without this, 262144 at most
    limit: Option<u64>,
    /// A commit to read it from instead of now: a label, an id or the beginning of one, @ (the last
    /// checkpoint), @~1 (the one before)
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn read_file(turn: &mut Turn<'_>, args: ReadFileArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, args.reference);
    let path = turn.path(&state, &args.path)?;
    let offset = args.offset.unwrap_or(0);
    let limit = args.limit.unwrap_or(BYTES_DEFAULT).clamp(1, BYTES_MAX);
    let (bytes, size) = read(turn, &state, &path, offset, limit)?;
    let is_end = offset.saturating_add(bytes.len() as u64) >= size;
    let (text, encoding, count) = match (args.encoding, text_of(&bytes, is_end)) {
        (Some(Encoding::Base64), _) | (None, None) => (base64(&bytes), "base64", bytes.len()),
        (_, Some(text)) => (text.to_owned(), "utf8", text.len()),
        (Some(Encoding::Utf8), None) => {
            let what = format!("cannot read a file of {}", state.workspace);
            return Err(
                Failure::new(what, format!("{} is not UTF-8 text there", args.path))
                    .hint("read it with encoding base64"),
            );
        }
    };
    let end = offset.saturating_add(count as u64);
    let mut notes = Vec::new();
    if encoding == "base64" && args.encoding.is_none() {
        notes.push("not UTF-8, so in base64".to_owned());
    }
    if end < size {
        notes.push(format!(
            "bytes {offset} to {end} of {size}; to continue, use offset {end}"
        ));
    } else if count == 0 {
        notes.push(format!("no data at this offset: the file has {size} bytes"));
    }
    let mut answer = Answer::text(text)
        .fact("encoding", encoding)
        .fact("size", size);
    if end < size {
        answer = answer.fact("next_offset", end);
    }
    Ok(if notes.is_empty() {
        answer
    } else {
        answer.note(notes.join("; "))
    })
}

/// The text that bytes begin with; of the last character, which may be cut, only if it is whole.
fn text_of(bytes: &[u8], is_end: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(e) if e.error_len().is_none() && !is_end && e.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..e.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// A stretch of a file with its holes, and the length of all of it.
fn read(
    turn: &mut Turn<'_>,
    state: &TreeAt,
    path: &[u8],
    offset: u64,
    limit: u64,
) -> Result<(Vec<u8>, u64), Failure> {
    let what = format!("cannot read a file of {}", state.workspace);
    let mut bytes = Vec::new();
    loop {
        let at = offset.saturating_add(bytes.len() as u64);
        let call = Call::FsRead(ReadFile {
            workspace: state.workspace.clone(),
            branch: state.branch.clone(),
            state: state.side.clone(),
            path: Bytes(path.to_vec()),
            offset: at,
            length: Some(limit - bytes.len() as u64),
        });
        let answer: ReadAnswer = turn.ask(&what, &call)?;
        let piece = from_base64(&answer.b64)
            .ok_or_else(|| Failure::new(what.clone(), "the daemon sent no base64"))?;
        let wanted = answer.size.saturating_sub(offset).min(limit);
        let hole = answer
            .offset
            .saturating_sub(at)
            .min(wanted - (bytes.len() as u64).min(wanted));
        bytes.resize(bytes.len() + hole as usize, 0);
        let room = wanted
            .saturating_sub(bytes.len() as u64)
            .min(piece.len() as u64) as usize;
        bytes.extend_from_slice(&piece[..room]);
        // A file that became shorter meanwhile ends where it ends now.
        if bytes.len() as u64 >= wanted || piece.is_empty() {
            return Ok((bytes, answer.size));
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ReaddirArgs {
    /// The directory, from the workspace's root; / is the root
    path: String,
    /// Give objects with name, type, size and time instead of names
    #[serde(default)]
    details: bool,
    /// How many names to pass over; 0 without this
    offset: Option<u64>,
    /// How many names to give at most; 100 without this, 1000 at most
    limit: Option<u64>,
    /// A commit to look into instead of now: a label, an id, @, @~1
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn readdir(turn: &mut Turn<'_>, args: ReaddirArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, args.reference);
    let path = turn.path(&state, &args.path)?;
    let page = Page::new(args.offset, args.limit);
    let call = Call::FsList(ListFiles {
        workspace: state.workspace.clone(),
        branch: state.branch.clone(),
        state: state.side.clone(),
        path: Bytes(path),
        after: None,
        skip: page.offset,
        limit: Some(page.limit),
    });
    let what = format!("cannot look into {}", state.workspace);
    let answer: ListFilesAnswer = turn.ask(&what, &call)?;
    let entries: Vec<Value> = match args.details {
        true => answer.entries.iter().map(details).collect(),
        false => answer
            .entries
            .iter()
            .map(|node| name(node).into())
            .collect(),
    };
    let count = entries.len() as u64;
    let listed = Answer::text(Value::Array(entries).to_string());
    Ok(page.noted(listed, count, answer.total))
}

fn name(node: &FileNode) -> String {
    String::from_utf8_lossy(&node.name.0).into_owned()
}

fn details(node: &FileNode) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "name", &node.name.0);
    object.insert("type".into(), kind_word(node.kind));
    object.insert("size".into(), node.size.into());
    object.insert("modified".into(), rfc3339(node.mtime).into());
    if let Some(target) = &node.target {
        insert_bytes(&mut object, "target", &target.0);
    }
    Value::Object(object)
}

fn kind_word(kind: FileKind) -> Value {
    serde_json::to_value(kind).unwrap_or_default()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct PathArgs {
    /// The path, from the workspace's root
    path: String,
    /// A commit to look into instead of now: a label, an id, @, @~1
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn stat(turn: &mut Turn<'_>, args: PathArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, args.reference);
    let path = turn.path(&state, &args.path)?;
    let node = turn.stat(&state, &path, false)?;
    let mut object = json!({
        "type": kind_word(node.kind),
        "ino": node.inode,
        "mode": type_bits(node.kind) | node.perm,
        "nlink": node.nlink,
        "uid": node.uid,
        "gid": node.gid,
        "size": node.size,
        "mtime": node.mtime.sec,
        "modified": rfc3339(node.mtime),
        "is_file": node.kind == FileKind::File,
        "is_directory": node.kind == FileKind::Directory,
        "is_symlink": node.kind == FileKind::Symlink,
    });
    if let (Some(object), Some(target)) = (object.as_object_mut(), &node.target) {
        insert_bytes(object, "target", &target.0);
    }
    Ok(Answer::json(&object))
}

/// The type in the bits of a mode (inode(7)).
fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 0o100_000,
        FileKind::Directory => 0o040_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Fifo => 0o010_000,
        FileKind::Socket => 0o140_000,
        FileKind::CharacterDevice => 0o020_000,
        FileKind::BlockDevice => 0o060_000,
    }
}

fn access(turn: &mut Turn<'_>, args: PathArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, args.reference);
    let path = turn.path(&state, &args.path)?;
    let found = turn.find(&state, &path)?;
    Ok(Answer::json(&match found {
        Some(node) => json!({ "exists": true, "type": kind_word(node.kind) }),
        None => json!({ "exists": false }),
    }))
}

#[cfg(test)]
mod tests {
    use super::text_of;

    #[test]
    fn text_ends_at_a_whole_character() {
        let bytes = "aé€".as_bytes();
        assert_eq!(text_of(bytes, true), Some("aé€"));
        assert_eq!(text_of(&bytes[..2], false), Some("a"));
        assert_eq!(text_of(&bytes[..5], false), Some("aé"));
        // At the end of a file there is nothing that a cut character could go on with.
        assert_eq!(text_of(&bytes[..2], true), None);
        assert_eq!(text_of(b"a\xffb", false), None);
        assert_eq!(text_of(b"\xc3", false), None);
    }
}
