//! Parameters and results of the methods about single files, patches, and the daemon itself.

use super::types::is_not;
use super::{Bytes, Changed, Moment, Side};
use serde::{Deserialize, Serialize};

/// Answer to `hello`. More may come in it, so that any client can tell whom it talks to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HelloAnswer {
    /// [`super::PROTOCOL_VERSION`] of the daemon.
    pub protocol: u32,
    /// Version of the daemon.
    pub version: String,
    /// Which build of that version it is.
    #[serde(default)]
    pub build: String,
    /// The daemon's process id.
    pub pid: u32,
    /// How many requests may be in flight on the connection.
    #[serde(default = "one")]
    pub in_flight: u32,
}

/// Answer of `daemon.hand_over`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandOverAnswer {
    /// Workspaces that were mounted, and are to be started again.
    pub workspaces: Vec<String>,
}

/// Parameters of `fs.stat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtPath {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Which state.
    #[serde(default = "live")]
    pub state: Side,
    /// The path, relative to the workspace's root; empty for the root.
    pub path: Bytes,
    /// Of a symbolic link, tell what it leads to.
    #[serde(default)]
    pub follow: bool,
}

/// Parameters of `fs.mkdir`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MakeDir {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The new directory.
    pub path: Bytes,
    /// Make missing directories above it too; one that exists is no error.
    #[serde(default)]
    pub parents: bool,
}

/// Parameters of `fs.remove`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovePath {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// What to remove.
    pub path: Bytes,
    /// Of a directory, remove everything in it too.
    #[serde(default)]
    pub recursive: bool,
    /// What it must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expected>,
}

/// What is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expected {
    /// Anything but a directory.
    File,
    /// A directory.
    Directory,
}

/// Parameters of `fs.rename`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenamePath {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The path that it has.
    pub from: Bytes,
    /// The path that it gets.
    pub to: Bytes,
}

/// Parameters of `fs.copy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyPath {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The file.
    pub from: Bytes,
    /// What gets its content.
    pub to: Bytes,
    /// An existing file gets it, too.
    #[serde(default = "yes")]
    pub overwrite: bool,
}

/// Parameters of `fs.symlink`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MakeLink {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The new link.
    pub path: Bytes,
    /// What it says.
    pub target: Bytes,
}

/// Parameters of `fs.truncate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLength {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The file.
    pub path: Bytes,
    /// Its new length in bytes.
    pub size: u64,
}

/// Parameters of `fs.chmod`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPerm {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The path.
    pub path: Bytes,
    /// Its new permission bits.
    pub perm: u32,
}

/// Answer of `fs.statfs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceAnswer {
    /// Bytes of the disk that holds the store.
    pub bytes_total: u64,
    /// Those that are free.
    pub bytes_free: u64,
    /// Those that an ordinary user may take.
    pub bytes_available: u64,
    /// Inodes of the live tree.
    pub inodes: u64,
    /// Length of its files, together.
    pub bytes_used: u64,
    /// Longest name.
    pub name_max: u32,
}

/// Parameters of `fs.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListFiles {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Which state.
    #[serde(default = "live")]
    pub state: Side,
    /// The directory.
    pub path: Bytes,
    /// Only names behind this one.
    #[serde(default)]
    pub after: Option<Bytes>,
    /// How many of those to pass over.
    #[serde(default)]
    pub skip: u64,
    /// How many to give at most; the daemon has a limit of its own.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// Parameters of `fs.read`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// Which state.
    #[serde(default = "live")]
    pub state: Side,
    /// The file.
    pub path: Bytes,
    /// Where to begin.
    #[serde(default)]
    pub offset: u64,
    /// How many bytes to give at most; the daemon has a limit of its own.
    #[serde(default)]
    pub length: Option<u64>,
}

/// Answer of `fs.read`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAnswer {
    /// Where the data begins: behind a hole, if one was asked for.
    pub offset: u64,
    /// The data in base64; empty at the end of the file.
    pub b64: String,
    /// Length of the whole file.
    pub size: u64,
}

/// Parameters of `fs.write`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// The workspace's name.
    pub workspace: String,
    /// The branch's name.
    pub branch: String,
    /// The file.
    pub path: Bytes,
    /// Where the data goes; `null`: at the end.
    #[serde(default)]
    pub offset: Option<u64>,
    /// The data in base64.
    pub b64: String,
    /// The file ends with the data, and is on stable storage when this is answered.
    #[serde(default)]
    pub last: bool,
    /// Permission bits of a file that is made.
    #[serde(default = "default_perm")]
    pub perm: u32,
    /// Make missing directories.
    #[serde(default)]
    pub parents: bool,
    /// With `last`: answer before it is on stable storage.
    #[serde(default, skip_serializing_if = "is_not")]
    pub unsynced: bool,
}

/// Answer of `fs.write`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteAnswer {
    /// Length of the file afterwards.
    pub size: u64,
}

/// What is known of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileNode {
    /// The name in its directory; empty for the root.
    pub name: Bytes,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `character-device` or `block-device`.
    #[serde(rename = "type")]
    pub kind: FileKind,
    /// Permission bits with set-id and sticky.
    pub perm: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Moment,
    /// The same for all names of one inode of the state.
    pub inode: u64,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Bytes>,
    /// Extended attributes: names and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<(Bytes, Bytes)>,
}

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharacterDevice,
    /// Block device.
    BlockDevice,
}

/// Answer of `fs.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListFilesAnswer {
    /// By name.
    pub entries: Vec<FileNode>,
    /// There are more behind the last one.
    pub more: bool,
    /// How many entries the directory has.
    #[serde(default)]
    pub total: u64,
}

/// Answer of `workspace.patch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchAnswer {
    /// By path.
    pub changes: Vec<Changed>,
    /// Changed paths that a patch cannot express.
    pub left_out: Vec<Bytes>,
}

/// How many lines a change added and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineCount {
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
    /// It is binary, and no lines are counted.
    pub binary: bool,
    /// Length before, in bytes.
    pub old_size: u64,
    /// Length now.
    pub new_size: u64,
}

/// Parameters of the notification `data`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Id of the request.
    pub id: i64,
    /// The next part, in base64.
    pub b64: String,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

pub(super) fn live() -> Side {
    Side::Live
}

pub(super) fn default_perm() -> u32 {
    0o644
}
