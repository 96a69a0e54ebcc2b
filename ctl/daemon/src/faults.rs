//! The engine's and the front's errors as they are told: a word for programs, a text and a hint that
//! names the next command.

use super::errnos;
use agentvfs_client::protocol::{CANCELLED, Fault};
use engine::Error;
use fuse_front::MountError;
use std::io::ErrorKind;

/// An engine's error about workspace `name`.
pub fn of_engine(error: &Error, name: &str) -> Fault {
    let fault = Fault::failed(kind(error), error.to_string()).hint(hint(error, name));
    Fault {
        errno: errnos::name(error).map(Box::from),
        ..fault
    }
}

/// Whether the disk is full, whichever layer met that.
fn is_no_space(error: &Error) -> bool {
    error.errno() == rustix::io::Errno::NOSPC.raw_os_error()
}

/// An engine's error while it collected or looked at the whole store.
pub fn of_gc(error: &Error) -> Fault {
    let fault = Fault::failed(kind(error), error.to_string());
    match error {
        Error::Store(objstore_error) if objstore_error.is_damage() => {
            fault.hint("nothing was removed; agentvfs fsck shows what is damaged")
        }
        Error::Damaged { .. } | Error::Journal(_) => {
            fault.hint("nothing was removed; agentvfs fsck shows what is damaged")
        }
        error if is_no_space(error) => fault.hint("free space on the disk, then try again"),
        Error::Cancelled => fault.hint("run the command again"),
        _ => fault.hint("try again; daemon.log in the agentvfs home has details"),
    }
}

/// An engine's error while the store was opened.
pub fn at_open(error: &Error) -> Fault {
    let fault = Fault::failed(kind(error), error.to_string());
    match error {
        Error::StoreLocked { pid } => fault.hint(format!(
            "process {pid} owns the store; if it is an agentvfs daemon that hangs: kill {pid}"
        )),
        error if is_no_space(error) => fault.hint("free space on the disk of the agentvfs home"),
        _ => fault.hint("use another home: --root DIR or $AGENTVFS_HOME"),
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::NoSuchWorkspace(_) => "no-such-workspace",
        Error::WorkspaceExists { .. } => "workspace-exists",
        Error::WorkspaceBusy(_) => "workspace-running",
        Error::NoBase(_) => "no-base",
        Error::BadName { .. } => "bad-name",
        Error::BadBase { .. } => "bad-base",
        Error::BaseMissing { .. } => "base-missing",
        Error::BaseMoved { .. } => "base-moved",
        Error::NoSuchBranch(_) => "no-such-branch",
        Error::BranchExists(_) => "branch-exists",
        Error::NoSuchRemote(_) => "no-such-remote",
        Error::RemoteExists(_) => "remote-exists",
        Error::TooManyRemotes => "too-many-remotes",
        Error::RemoteNeeded(_) => "remote-needed",
        Error::Store(e) if e.is_elsewhere() => "remote-unreachable",
        Error::MainBranch => "main-branch",
        Error::MergeWithItself(_) => "merge-with-itself",
        Error::NoCommonHistory { .. } => "no-common-history",
        Error::KeepsChanging(_) => "keeps-changing",
        Error::NoConflict(_) => "no-conflict",
        Error::NotJson { .. } => "not-json",
        Error::ValueTooLong { .. } | Error::TooManyValues => "too-long",
        Error::NoSuchRef(_) => "no-such-ref",
        Error::Denied { .. } => "denied",
        Error::AmbiguousRef { .. } => "ambiguous-ref",
        Error::NotFound | Error::NoSuchPath(_) => "no-such-path",
        Error::InTheWay(_) => "in-the-way",
        Error::LeadsOut(_) => "leads-out",
        Error::LinkLoop(_) => "link-loop",
        Error::IsDir | Error::NotDir | Error::Invalid => "wrong-type",
        Error::Exists => "exists",
        Error::NotEmpty => "not-empty",
        Error::NothingTo(_) => "nothing-to-undo",
        Error::LaterAsked(_) => "later-changes",
        Error::BaseInUse(_) | Error::ChangedMeanwhile(_) => "base-changed",
        Error::NeedsPrivilege { .. } => "needs-privilege",
        Error::NeedsTrust { .. } => "needs-trust",
        Error::ApplyUnfinished { .. } => "apply-unfinished",
        Error::NoCommit(_) => "no-such-commit",
        Error::ImportPaused { .. } => "import-paused",
        Error::StoreLocked { .. } => "store-locked",
        Error::Closing => "stopping",
        Error::Cancelled => CANCELLED,
        Error::Quota { .. } => "quota",
        Error::NoSuchCall(_) => "no-such-call",
        Error::CallOver(_) => "call-over",
        Error::CallIdTaken(_) => "call-id-taken",
        Error::TooManyCalls(_) => "too-many-calls",
        Error::CallText(_) => "bad-call-text",
        Error::CallUnknown { .. } => "call-unknown",
        error if is_no_space(error) => "no-space",
        Error::Damaged { .. } => "damaged",
        Error::Io { .. } => "io",
        _ => "failed",
    }
}

fn hint(error: &Error, name: &str) -> String {
    match error {
        Error::NoSuchWorkspace(_) => {
            format!("agentvfs list shows all; agentvfs start {name} --from DIR creates it")
        }
        Error::WorkspaceExists { .. } => {
            format!("agentvfs start {name} starts it; use another name for another project")
        }
        Error::WorkspaceBusy(_) => format!("agentvfs stop {name}"),
        Error::NoBase(_) => format!(
            "agentvfs diff {name} --patch, or agentvfs export {name} FILE.db, writes its changes to a file"
        ),
        Error::BadName { .. } => "use another name".to_owned(),
        Error::BadBase { .. } => "use a readable project directory: --from DIR".to_owned(),
        Error::BaseMissing { .. } => {
            format!("restore it, or agentvfs stop {name}, then agentvfs start {name} --from DIR")
        }
        Error::BaseMoved { path, .. } => format!(
            "move it back to {}; or agentvfs stop {name}, then agentvfs start {name} --from DIR",
            path.display()
        ),
        Error::NoSuchBranch(_) => {
            format!("agentvfs branch list --workspace {name} shows all")
        }
        Error::Denied { .. } => format!("agentvfs policy show {name} prints the rules"),
        Error::BranchExists(_) => "use another name, or delete it first".to_owned(),
        Error::NoSuchRemote(_) => format!("agentvfs remote list -w {name} lists the remotes"),
        Error::RemoteExists(remote) => {
            format!("use another name, or agentvfs remote remove {remote} -w {name} first")
        }
        Error::Store(e) if e.is_elsewhere() => {
            format!(
                "try again when the remote can be reached; agentvfs status {name} says what it lacks"
            )
        }
        Error::RemoteNeeded(_) => format!("agentvfs prefetch --all -w {name} brings all of them"),
        Error::TooManyRemotes => format!("agentvfs remote remove NAME -w {name} removes one"),
        Error::MainBranch => {
            format!("agentvfs branch list --workspace {name} lists the other branches")
        }
        Error::MergeWithItself(_) => "use another branch: --into BRANCH".to_owned(),
        Error::NoCommonHistory { .. } => {
            "only branches with a common ancestor can be merged".to_owned()
        }
        Error::KeepsChanging(_) => {
            "pause the programs that write to it, then merge again".to_owned()
        }
        Error::NoConflict(_) => {
            format!("agentvfs branch conflicts --workspace {name} lists the conflicts")
        }
        Error::NotJson { .. } => "values must be JSON; put a text in double quotes".to_owned(),
        Error::ValueTooLong { .. } => {
            "store longer data in a file, and its path as the value".to_owned()
        }
        Error::TooManyValues => {
            format!("agentvfs kv delete -w {name} KEY removes one; store long data in files")
        }
        Error::NoSuchRef(_) | Error::NoCommit(_) => {
            format!(
                "agentvfs log {name} --all lists the commits; BRANCH:COMMIT is one of another branch"
            )
        }
        Error::NotFound | Error::NoSuchPath(_) => {
            format!(
                "agentvfs fs ls -w {name} lists what exists; paths start at the workspace's root, or in the mount at the current directory"
            )
        }
        Error::InTheWay(path) => format!(
            "restore {} itself, or move away what has its name",
            agentvfs_client::quote::shown(path)
        ),
        Error::LeadsOut(_) => "use the path of the file itself".to_owned(),
        Error::LinkLoop(_) => {
            format!("agentvfs fs stat -w {name} PATH shows the target of a symbolic link")
        }
        Error::Exists => {
            format!("use another name; agentvfs fs stat -w {name} PATH shows what has this one")
        }
        Error::NotEmpty => format!("agentvfs fs ls -w {name} PATH lists its entries"),
        Error::IsDir | Error::NotDir | Error::Invalid => {
            format!("agentvfs fs stat -w {name} PATH shows what it is")
        }
        Error::AmbiguousRef { .. } => {
            format!("use more digits; agentvfs log {name} --all lists the commits")
        }
        Error::BaseInUse(_) | Error::ChangedMeanwhile(_) => {
            "try again when no program writes to the project's directory".to_owned()
        }
        Error::NeedsPrivilege { .. } => {
            "--privileged also applies set-id bits, devices, capabilities and files of other owners"
                .to_owned()
        }
        Error::NeedsTrust { .. } => format!(
            "a command in a sandbox wrote in the branch: agentvfs diff {name} --base --patch shows the changes; --trust applies them"
        ),
        Error::ApplyUnfinished { .. } => format!(
            "the directory .agentvfs-apply-* in the project has the replaced files; \
             the next command on {name} tries again"
        ),
        Error::NothingTo(_) => {
            format!("agentvfs log {name} shows the head and the commits")
        }
        Error::LaterAsked(later) => format!(
            "agentvfs undo {name} --over-later-changes goes back past {}; the commits stay in the log",
            later.join(", ")
        ),
        Error::ImportPaused {
            wants_space: true, ..
        } => {
            format!(
                "free space on the disk (or raise the quota), then try again; agentvfs status {name} shows the import"
            )
        }
        Error::Closing => format!("agentvfs start {name}"),
        Error::Cancelled => "run the command again".to_owned(),
        Error::NoSuchCall(_) | Error::CallOver(_) => {
            format!("agentvfs timeline -w {name} lists the calls of a branch")
        }
        Error::CallIdTaken(_) => "leave out the id to get the next free one".to_owned(),
        Error::CallText(_) => {
            "parameters and results must be JSON texts of at most 1 MiB".to_owned()
        }
        Error::TooManyCalls(_) => {
            format!("agentvfs tool list -w {name} --status pending lists the running calls")
        }
        Error::CallUnknown { pending, .. } if !pending.is_empty() => ends(name, pending),
        Error::CallUnknown { call, .. } => format!(
            "agentvfs tool diff -w {name} {call} shows what changed while it ran; \
             agentvfs restore --ref COMMIT PATH restores single files"
        ),
        Error::Quota { .. } => {
            "agentvfs stats shows what uses the space; agentvfs gc frees space used by \
            unreachable objects; agentvfs config quota=SIZE raises the quota"
                .to_owned()
        }
        error if is_no_space(error) => {
            "free space on the disk of the agentvfs home, then try again".to_owned()
        }
        Error::Damaged { .. } => "copy the agentvfs home before you do anything else".to_owned(),
        _ if name.is_empty() => "daemon.log in the agentvfs home has details".to_owned(),
        _ => {
            format!(
                "agentvfs status {name} shows its state; daemon.log in the agentvfs home has details"
            )
        }
    }
}

/// An error of mounting or unmounting workspace `name`.
pub fn of_mount(error: &MountError, name: &str) -> Fault {
    let fault = Fault::failed("mount", error.to_string());
    match error {
        MountError::NoDevice(error) => fault.hint(no_device(error.kind())),
        MountError::Refused { .. } => {
            fault.hint("install fuse3 (fusermount3), or run as root with CAP_SYS_ADMIN; without FUSE: start --no-mount")
        }
        MountError::BadMountpoint { .. } => {
            fault.hint(format!("agentvfs start {name} --mount DIR"))
        }
        MountError::Busy(_) => fault.hint(format!("agentvfs stop {name} --force stops it anyway")),
        _ => fault,
    }
}

/// What gives access to /dev/fuse, by why there is none.
fn no_device(why: ErrorKind) -> &'static str {
    match why {
        ErrorKind::PermissionDenied => {
            "as root: chmod 0666 /dev/fuse; in a container pass --device /dev/fuse --cap-add SYS_ADMIN; without FUSE: start --no-mount"
        }
        _ => {
            "as root: modprobe fuse; in a container pass --device /dev/fuse; without FUSE: start --no-mount"
        }
    }
}

/// The workspace is not running.
pub fn not_running(name: &str) -> Fault {
    Fault::failed("not-running", format!("workspace {name} is not running"))
        .hint(format!("agentvfs start {name}"))
}

/// A file of this crate's own cannot be written.
pub fn of_io(what: &str, error: &std::io::Error) -> Fault {
    Fault::failed("io", format!("{what}: {error}"))
}

/// How calls are ended that nobody else may end.
pub fn ends(name: &str, pending: &[u64]) -> String {
    const NAMED_MAX: usize = 5;
    let named = pending.iter().take(NAMED_MAX);
    let commands: Vec<String> = named
        .map(|id| format!("agentvfs tool error -w {name} {id} TEXT"))
        .collect();
    let calls = if pending.len() == 1 {
        "that call"
    } else {
        "those calls"
    };
    format!("{} ends {calls} if no process does", commands.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_and_a_forbidden_one_have_hints_of_their_own() {
        let hint = |kind: ErrorKind| {
            of_mount(&MountError::NoDevice(kind.into()), "w")
                .hint
                .unwrap()
        };
        assert!(hint(ErrorKind::NotFound).contains("modprobe fuse"));
        let forbidden = hint(ErrorKind::PermissionDenied);
        assert!(forbidden.contains("chmod 0666 /dev/fuse") && !forbidden.contains("modprobe"));
    }

    #[test]
    fn hints_name_the_next_command() {
        let fault = of_engine(&Error::NoSuchWorkspace("w".into()), "w");
        assert_eq!(fault.kind, "no-such-workspace");
        assert!(fault.hint.unwrap().contains("agentvfs start w --from DIR"));
        assert_eq!(of_engine(&Error::NoSpace, "w").kind, "no-space");
        assert!(of_engine(&Error::Closing, "w").hint.is_some());
        let again = Some("run the command again".to_owned());
        assert_eq!(of_gc(&Error::Cancelled).hint, again);
        assert_eq!(of_engine(&Error::Cancelled, "w").hint, again);
        assert!(not_running("w").hint.unwrap().ends_with("agentvfs start w"));
        assert!(
            at_open(&Error::StoreLocked { pid: 7 })
                .message
                .contains("process 7")
        );
    }
}
