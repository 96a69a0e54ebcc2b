//! One workspace that is open and mounted.

use crate::audit::Audit;
use crate::ebpf;
use crate::fanotify::Hearing;
use crate::keeping::Held;
use agentvfs_client::protocol::{Device, Import, Latency, MountChoice, Requests};
use agentvfs_client::record::Record;
use engine::verbs;
use engine::{ImportState, Workspace};
use fuse_front::{Kept, MountError, MountOptions, Mounted, Transport};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mounted workspace.
pub struct Running {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// Its mount; `None` while it is being taken away, and for one that runs without.
    pub mounted: Option<Mounted>,
    /// Where it is mounted.
    pub place: PathBuf,
    /// Somebody else has taken the mount away; the workspace is being closed.
    pub gone: bool,
    /// The kernel checks permissions.
    pub permissions: bool,
    /// While the keeper holds the mount.
    pub held: Option<Held>,
    /// While its events are appended to a file.
    pub audit: Option<Audit>,
    /// While opens and reads are heard of.
    pub hearing: Option<Hearing>,
    /// While opens are asked about.
    pub asked: Option<Hearing>,
    /// While what its runs do is heard of.
    pub ebpf: Option<ebpf::Hearing>,
    /// What was asked for.
    pub options: MountChoice,
}

impl Running {
    /// Mounts `workspace` as `record` says, with or without other users, by a transport, so that it can be kept or
    /// not; `ended` is called when the mount has ended.
    pub fn mount(
        workspace: Arc<Workspace>,
        record: &Record,
        allow_other: bool,
        (transport, keep): (Transport, bool),
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Running, MountError> {
        let name = workspace.name();
        let options = MountOptions {
            transport,
            keep,
            ..options(record.place(), name, allow_other, &record.options)
        };
        let permissions = options.default_permissions;
        let mounted = fuse_front::mount(workspace.clone(), options)?;
        Ok(Running::of(workspace, record, permissions, mounted, ended))
    }

    /// Goes on with a mount that outlived the daemon before.
    pub fn resume(
        workspace: Arc<Workspace>,
        record: &Record,
        permissions: bool,
        kept: Kept,
        ended: impl FnOnce() + Send + 'static,
    ) -> Result<Running, MountError> {
        let options = MountOptions {
            default_permissions: permissions,
            ..options(record.place(), workspace.name(), false, &record.options)
        };
        let mounted = fuse_front::resume(workspace.clone(), &options, kept)?;
        Ok(Running::of(workspace, record, permissions, mounted, ended))
    }

    /// Runs it without a mount.
    pub fn unmounted(workspace: Arc<Workspace>, record: &Record) -> Running {
        Running {
            workspace,
            mounted: None,
            place: record.place().to_owned(),
            gone: false,
            permissions: false,
            held: None,
            audit: None,
            hearing: None,
            asked: None,
            ebpf: None,
            options: record.options.clone(),
        }
    }

    /// Whether it was started without a mount.
    pub fn is_unmounted(&self) -> bool {
        self.options.is_unmounted()
    }

    fn of(
        workspace: Arc<Workspace>,
        record: &Record,
        permissions: bool,
        mounted: Mounted,
        ended: impl FnOnce() + Send + 'static,
    ) -> Running {
        mounted.on_unmounted(ended);
        Running {
            mounted: Some(mounted),
            permissions,
            ..Running::unmounted(workspace, record)
        }
    }

    /// False once somebody else has taken the mount away.
    pub fn works(&self) -> bool {
        !self.gone && self.mounted.as_ref().is_none_or(Mounted::is_alive)
    }

    /// By which a directory that shows this mount can be told.
    pub fn device(&self) -> Option<Device> {
        let (major, minor) = self.mounted.as_ref()?.device();
        Some(Device { major, minor })
    }

    /// What the kernel has asked, by kind of request.
    pub fn requests(&self) -> BTreeMap<String, Requests> {
        let stats = self.mounted.as_ref().map(|mounted| mounted.stats());
        let kinds = stats.map(|stats| stats.snapshot()).unwrap_or_default();
        let told = |(kind, count, nanos): (&str, u64, u64)| {
            let us = nanos / 1000;
            (kind.to_owned(), Requests { count, us })
        };
        kinds.into_iter().map(told).collect()
    }
}

/// Permissions are left to nobody only where root alone can reach the mount: there each check would
/// cost a request and refuse nothing.
fn options(place: &Path, name: &str, allow_other: bool, choice: &MountChoice) -> MountOptions {
    let is_root = rustix::process::geteuid().is_root();
    MountOptions {
        fs_name: format!("agentvfs:{name}"),
        allow_other,
        default_permissions: allow_other || !is_root,
        nosuid: !choice.suid,
        nodev: !choice.dev,
        latency: match choice.latency {
            Latency::Low => fuse_front::Latency::Low,
            Latency::Normal => fuse_front::Latency::Normal,
        },
        opens: choice.opens,
        ..MountOptions::new(place)
    }
}

/// How the import of a running workspace is doing; `None` where it cannot tell.
pub fn import(workspace: &Workspace) -> Option<Import> {
    verbs::status(workspace, "main")
        .ok()
        .map(|status| of_import(&status.import))
}

/// An import's state as it is told.
pub fn of_import(import: &engine::ImportStatus) -> Import {
    let state = match import.state {
        ImportState::Running => "running",
        ImportState::Done => "done",
        ImportState::Paused => "paused",
        ImportState::Scanning => "scanning",
    };
    Import {
        state: state.to_owned(),
        files_done: import.files_done,
        files_total: import.files_total,
        bytes_done: import.bytes_done,
        bytes_total: import.bytes_total,
    }
}
