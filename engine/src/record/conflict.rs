//! Conflicts as data: what a merge could not settle, with what each side has, so that it can be kept in
//! a commit and settled later.

use objstore::TreeEntry;

/// Why a path is in conflict. The numbers are those of the encoding: new kinds go last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode,
)]
pub enum ConflictKind {
    /// Both changed the same lines, or a special file in different ways.
    Content,
    /// A directory was renamed on one side and the other one added to it, or it is not clear where a
    /// directory went.
    DirectoryRename,
    /// Both added different files under one name.
    AddAdd,
    /// One changed what the other deleted.
    ModifyDelete,
    /// Both renamed a file, to different names.
    RenameRename,
    /// One renamed what the other deleted.
    RenameDelete,
    /// A directory on one side, a file on the other.
    DirectoryFile,
    /// Permissions or owner were changed in different ways.
    Mode,
    /// A symbolic link was changed in different ways, or stands against a file.
    Symlink,
    /// Both changed a file whose lines cannot be merged.
    Binary,
    /// An extended attribute was changed in different ways.
    Xattr,
}

impl ConflictKind {
    /// All kinds.
    pub const ALL: [ConflictKind; 11] = [
        ConflictKind::Content,
        ConflictKind::DirectoryRename,
        ConflictKind::AddAdd,
        ConflictKind::ModifyDelete,
        ConflictKind::RenameRename,
        ConflictKind::RenameDelete,
        ConflictKind::DirectoryFile,
        ConflictKind::Mode,
        ConflictKind::Symlink,
        ConflictKind::Binary,
        ConflictKind::Xattr,
    ];

    /// Word for output.
    pub fn word(self) -> &'static str {
        match self {
            ConflictKind::Content => "content",
            ConflictKind::DirectoryRename => "directory-rename",
            ConflictKind::AddAdd => "add-add",
            ConflictKind::ModifyDelete => "modify-delete",
            ConflictKind::RenameRename => "rename-rename",
            ConflictKind::RenameDelete => "rename-delete",
            ConflictKind::DirectoryFile => "directory-file",
            ConflictKind::Mode => "mode",
            ConflictKind::Symlink => "symlink",
            ConflictKind::Binary => "binary",
            ConflictKind::Xattr => "xattr",
        }
    }
}

/// What one side has for a path in conflict.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct ConflictSide {
    /// Where it stands in that side's tree, which renames may make another path.
    pub path: Vec<u8>,
    /// What it is there; its content is in the store.
    pub entry: TreeEntry,
}

/// A path that could not be merged.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Conflict {
    /// Path in the merged tree, as git names it.
    pub path: Vec<u8>,
    /// Why.
    pub kind: ConflictKind,
    /// In the common ancestor.
    pub base: Option<ConflictSide>,
    /// In ours.
    pub ours: Option<ConflictSide>,
    /// In theirs.
    pub theirs: Option<ConflictSide>,
}
