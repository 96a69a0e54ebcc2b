//! The workspaces that run: starting, stopping, bringing back.
//!
//! Per workspace one lifecycle lock serialises start, stop, delete and recovery, so twenty starts at
//! once make one mount. Requests on a running workspace take only its `Arc`; the engine serialises
//! them. Invariant: the engine is told that a workspace runs before it is mounted and that it does
//! not only after it is unmounted, so a mount left by a dead daemon is always known.

mod audited;
mod based;
mod handover;
mod kept;
mod lazy;
mod opening;
mod reading;
mod running;
mod stopping;
mod telemetry;
mod unmounted;

pub use based::base_trouble;
pub use running::of_import;
pub use stopping::Progress;

use super::callers::Callers;
use super::gate::Gate;
use super::jobs::Jobs;
use super::keeping::Keeping;
use super::policies::Policies;
use super::sessions::Sessions;
use super::{faults, mountpoint, project, sharing};
use agentvfs_client::home::Home;
use agentvfs_client::protocol::{
    Bytes, Device, Fault, Info, Init, MountChoice, Requests, Start, StartAnswer, WorkspaceStatus,
};
use agentvfs_client::record::{Record, Records};
use engine::{Calls, CloseMode, CommitId, Engine, Workspace, WorkspaceConfig};
use fuse_front::{MountError, Transport};
use lazy::Lazies;
use mountpoint::MountPoints;
use parking_lot::Mutex;
use running::Running;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The running workspaces of a home.
pub struct Mounts {
    engine: Arc<Engine>,
    home: Home,
    transport: Transport,
    gate: Arc<Gate>,
    keeping: Arc<Keeping>,
    records: Records,
    points: MountPoints,
    sessions: Arc<Sessions>,
    jobs: Jobs,
    callers: Callers,
    policies: Policies,
    lazies: Lazies,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
}

/// What belongs to one workspace.
#[derive(Default)]
struct Slot {
    lifecycle: Mutex<()>,
    running: Mutex<Option<Running>>,
    /// When it was last looked into, where it is open without running.
    looked_at: Mutex<Option<Instant>>,
}

impl Slot {
    /// The workspace, where it is mounted and works.
    fn live(&self) -> Option<Arc<Workspace>> {
        self.running
            .lock()
            .as_ref()
            .filter(|running| running.works())
            .map(|r| r.workspace.clone())
    }
}

impl Mounts {
    /// None yet. All will speak to the kernel by `transport`.
    pub fn new(
        engine: Arc<Engine>,
        home: Home,
        gate: Arc<Gate>,
        transport: Transport,
        keeping: Arc<Keeping>,
    ) -> Mounts {
        let records = Records::new(home.running());
        let sessions = Arc::new(Sessions::open(home.sessions()));
        Mounts {
            callers: Callers::new(engine.clone()),
            lazies: Lazies::new(engine.objects()),
            engine,
            transport,
            keeping,
            points: MountPoints::new(home.clone()),
            home,
            gate,
            records,
            sessions,
            jobs: Jobs::default(),
            policies: Policies::default(),
            slots: Mutex::default(),
        }
    }

    /// Who holds the devices of mounts.
    pub fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    /// The home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What is worked on that can be cancelled.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The processes whose tool calls run.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Which cgroups see which branches.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether no workspace runs.
    pub fn are_none(&self) -> bool {
        self.slots
            .lock()
            .values()
            .all(|slot| slot.running.lock().is_none())
    }

    /// All workspaces.
    pub fn list(&self) -> Result<Vec<Info>, Fault> {
        let mut configs = self.engine.list().map_err(|e| faults::of_engine(&e, ""))?;
        configs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(configs.iter().map(|config| self.info(config)).collect())
    }

    /// One workspace.
    pub fn get(&self, name: &str) -> Result<Info, Fault> {
        Ok(self.info(&self.config(name)?))
    }

    fn config(&self, name: &str) -> Result<WorkspaceConfig, Fault> {
        self.engine
            .get(name)
            .map_err(|e| faults::of_engine(&e, name))
    }

    fn info(&self, config: &WorkspaceConfig) -> Info {
        let status = self.status(config);
        let mount = self
            .mounted_at(&config.name)
            .unwrap_or_else(|| self.place(config));
        Info {
            name: config.name.clone(),
            mount: Bytes::from(mount.as_path()),
            base: Bytes::from(config.base.as_path()),
            status,
            device: self.device(&config.name),
            unmounted: self.is_unmounted(&config.name),
        }
    }

    /// The device of a workspace's mount.
    pub fn device(&self, name: &str) -> Option<Device> {
        let slot = self.slots.lock().get(name).cloned();
        slot.and_then(|slot| slot.running.lock().as_ref().and_then(Running::device))
    }

    fn status(&self, config: &WorkspaceConfig) -> WorkspaceStatus {
        let slot = self.slots.lock().get(&config.name).cloned();
        let works = slot.and_then(|slot| slot.running.lock().as_ref().map(Running::works));
        match works {
            Some(true) => WorkspaceStatus::Started,
            Some(false) => WorkspaceStatus::Stopped,
            None if config.running.is_some() => WorkspaceStatus::Stale,
            None if self.records.was_started(&config.name) => WorkspaceStatus::Stopped,
            None => WorkspaceStatus::Initialized,
        }
    }

    /// Where the workspace is mounted, or was when its daemon died.
    pub fn mounted_at(&self, name: &str) -> Option<PathBuf> {
        self.records
            .running(name)
            .map(|record| record.mountpoint.to_path())
    }

    /// What was written at the workspace's mount point while nothing was mounted there.
    pub fn aside(&self, name: &str) -> Vec<PathBuf> {
        self.points.aside(name)
    }

    /// Where it would be mounted.
    fn place(&self, config: &WorkspaceConfig) -> PathBuf {
        config
            .mount
            .clone()
            .unwrap_or_else(|| self.home.default_mount(&config.name))
    }

    /// What the kernel has asked of a workspace's mount, by kind of request; nothing where it does
    /// not run.
    pub fn requests(&self, name: &str) -> BTreeMap<String, Requests> {
        let slot = self.slots.lock().get(name).cloned();
        let running = slot.and_then(|slot| slot.running.lock().as_ref().map(Running::requests));
        running.unwrap_or_default()
    }

    fn slot(&self, name: &str) -> Arc<Slot> {
        self.slots
            .lock()
            .entry(name.to_owned())
            .or_default()
            .clone()
    }

    /// Makes a workspace.
    pub fn init(&self, ask: &Init) -> Result<StartAnswer, Fault> {
        let name = &ask.workspace;
        let mount = ask.mount.as_ref().map(Bytes::path);
        if let Ok(config) = self.engine.get(name) {
            let taken = engine::Error::WorkspaceExists {
                name: name.clone(),
                base: config.base,
            };
            return Err(faults::of_engine(&taken, name));
        }
        self.check_base(ask.base.path())?;
        if let Some(place) = mount {
            mountpoint::check_place(place, ask.base.path(), &self.home)?;
        }
        let config = self
            .engine
            .create(name, ask.base.path(), mount)
            .map_err(|e| faults::of_engine(&e, name))?;
        Ok(StartAnswer {
            info: self.info(&config),
            import: None,
            warnings: Vec::new(),
        })
    }

    /// The mount of ours that a path lies in.
    fn mount_around(&self, path: &Path) -> Option<PathBuf> {
        let names: Vec<String> = self.slots.lock().keys().cloned().collect();
        let mut mounts = names.iter().filter_map(|name| self.mounted_at(name));
        mounts.find(|place| path.starts_with(place))
    }

    /// A file that the daemon writes must not be in a mount of its own.
    pub fn check_outside(&self, file: &Path) -> Result<(), Fault> {
        match self.mount_around(file) {
            None => Ok(()),
            Some(place) => {
                let why = format!("{} is in the mount {}", file.display(), place.display());
                Err(Fault::failed("bad-target", why).hint("use a name outside of all workspaces"))
            }
        }
    }

    /// An error where there is a workspace of that name.
    pub fn check_new(&self, name: &str) -> Result<(), Fault> {
        match self.engine.get(name) {
            Err(engine::Error::NoSuchWorkspace(_)) => Ok(()),
            Err(error) => Err(faults::of_engine(&error, name)),
            Ok(config) => {
                let (name, base) = (config.name.clone(), config.base);
                let taken = engine::Error::WorkspaceExists { name, base };
                let hint = format!(
                    "use another name, or import it as a branch of {}: --branch B",
                    config.name
                );
                Err(faults::of_engine(&taken, &config.name).hint(hint))
            }
        }
    }

    /// Makes a workspace that begins with a commit.
    pub fn make_of_commit(
        &self,
        name: &str,
        (commit, lazy): (CommitId, Option<&str>),
        calls: Calls<'_>,
    ) -> engine::Result<()> {
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        let made = self.engine.create_from_commit(name, commit, lazy, calls);
        made.map(|_| ())
    }

    /// A base below a mount of ours would have the daemon wait for itself; one of the kernel's own
    /// directories has no end.
    fn check_base(&self, base: &Path) -> Result<(), Fault> {
        project::check(base)?;
        match self.mount_around(base) {
            None => Ok(()),
            Some(place) => {
                let why = format!("{} is in the mount {}", base.display(), place.display());
                Err(Fault::failed("bad-base", why)
                    .hint("use the project's own directory: --from DIR"))
            }
        }
    }

    /// Mounts a workspace, making it first where a base is given and it does not exist.
    pub fn start(&self, ask: &Start) -> Result<StartAnswer, Fault> {
        let name = &ask.workspace;
        engine::names::check_workspace_name(name).map_err(|e| faults::of_engine(&e, name))?;
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        self.reap(name, &slot);
        // Before anything else: a path may lead into it.
        self.take_refused(name, &slot);
        let is_new = self.engine.get(name).is_err();
        let config = self.config_for(ask, &slot)?;
        let warnings = if let Some(workspace) = slot.live() {
            let checked = workspace.check_base_place();
            checked.map_err(|e| faults::of_engine(&e, name))?;
            match self.is_unmounted(name) && ask.options.unmounted == Some(false) {
                true => self.mount_running(ask, config, &slot)?,
                false => self.warnings(ask),
            }
        } else {
            self.check_not_replaced(&config)?;
            self.close_blind(name, &slot);
            self.start_stopped(ask, config, &slot)
                .inspect_err(|_| self.forget_new(name, is_new))?
                .into_iter()
                .chain(self.base_warning(name, &slot))
                .collect()
        };
        let info = self.get(name)?;
        let import = slot
            .live()
            .and_then(|workspace| running::import(&workspace));
        Ok(StartAnswer {
            info,
            import,
            warnings,
        })
    }

    /// A workspace that a failed start made is taken away again: nothing is left half done.
    fn forget_new(&self, name: &str, is_new: bool) {
        if !is_new {
            return;
        }
        match self.engine.delete(name) {
            Ok(()) => self.records.remove(name),
            Err(error) => tracing::error!(workspace = name, "cannot unmount it again: {error}"),
        }
    }

    /// What a start of a running workspace did not do.
    fn warnings(&self, ask: &Start) -> Vec<String> {
        let asked = ask.mount.as_ref().map(Bytes::path);
        let elsewhere = match (self.mounted_at(&ask.workspace), asked) {
            (Some(place), Some(asked)) if place != asked => Some(format!(
                "{} is already running at {}",
                ask.workspace,
                place.display()
            )),
            _ => None,
        };
        elsewhere
            .into_iter()
            .chain(self.mounted_warning(ask))
            .chain(self.telling_warnings(ask))
            .collect()
    }

    fn start_stopped(
        &self,
        ask: &Start,
        config: WorkspaceConfig,
        slot: &Slot,
    ) -> Result<Vec<String>, Fault> {
        let asked = ask.mount.as_ref().map(Bytes::to_path);
        let remains = self.records.running(&config.name);
        let place = asked.clone().unwrap_or_else(|| self.place(&config));
        // A plain start of what a dead daemon left brings it back as it was.
        let options = match &remains {
            Some(record) => ask.options.or_as(&record.options),
            None => ask.options.clone(),
        };
        self.check_telling(ask, &config.base, &place)?;
        let warnings = self.mount(&config, slot, &place, &options)?;
        if asked.is_some() && asked != config.mount {
            self.engine
                .set_mount(&config.name, asked.as_deref())
                .map_err(|e| faults::of_engine(&e, &config.name))?;
        }
        Ok(warnings)
    }

    /// Takes away what a dead daemon left: its mount and the directories made for it.
    fn clear_remains(&self, name: &str) -> Result<(), Fault> {
        if self.keeping.is_refused(name) {
            self.keeping.let_go(name);
        }
        if let Some(record) = self.record_of_mount(name) {
            mountpoint::detach_dead(record.place())?;
            self.points.release(name, record.place(), &record.made);
        }
        Ok(())
    }

    /// The workspace, where it runs; one whose daemon died is brought back first.
    pub fn workspace(&self, name: &str) -> Result<Arc<Workspace>, Fault> {
        let known = self.slots.lock().get(name).cloned();
        if let Some(workspace) = known.and_then(|slot| slot.live()) {
            return Ok(workspace);
        }
        self.config(name)?;
        let slot = self.slot(name);
        let _lifecycle = slot.lifecycle.lock();
        self.reap(name, &slot);
        self.take_refused(name, &slot);
        if let Some(workspace) = slot.live() {
            return Ok(workspace);
        }
        let config = self.config(name)?;
        if config.running.is_none() {
            return Err(faults::not_running(name));
        }
        self.bring_back(&config, &slot)
    }

    fn bring_back(&self, config: &WorkspaceConfig, slot: &Slot) -> Result<Arc<Workspace>, Fault> {
        tracing::info!(workspace = config.name, "recovering after a daemon crash");
        let (place, options) = match self.records.running(&config.name) {
            Some(record) => (record.mountpoint.to_path(), record.options),
            None => (self.place(config), MountChoice::default()),
        };
        for warning in self.mount(config, slot, &place, &options)? {
            tracing::warn!(workspace = config.name, "{warning}");
        }
        slot.live().ok_or_else(|| faults::not_running(&config.name))
    }

    /// Mounts a workspace that is not mounted. What a dead daemon left stays until the new mount takes its
    /// place, so that what lies below never shows. Gives what the user should know.
    fn mount(
        &self,
        config: &WorkspaceConfig,
        slot: &Slot,
        place: &Path,
        options: &MountChoice,
    ) -> Result<Vec<String>, Fault> {
        if options.is_unmounted() {
            return self.run_unmounted(config, slot, place, options);
        }
        let name = &config.name;
        mountpoint::check_place(place, &config.base, &self.home)?;
        self.check_unshared(place, name)?;
        let before = self.record_of_mount(name);
        let stays = before
            .as_ref()
            .is_some_and(|record| record.place() == place);
        if !stays {
            self.clear_remains(name)?;
        }
        let ready = self
            .points
            .prepare(place, &config.base, name, before.as_ref())?;
        let record = Record {
            mountpoint: Bytes::from(place),
            made: ready.made,
            options: options.clone(),
        };
        let (allow_other, closed) = sharing::decide(options.allow_other, &config.base);
        let mounted = self
            .note(config, Some(&record))
            .and_then(|()| self.open_and_mount(config, &record, allow_other, before.is_some()));
        match mounted {
            Ok(running) => {
                // From now on it is open for more than being looked into.
                slot.looked_at.lock().take();
                *slot.running.lock() = Some(running);
                Ok(ready.warnings.into_iter().chain(closed).collect())
            }
            Err(fault) => {
                if !stays {
                    self.points.release(name, place, &record.made);
                }
                self.note_failure(config);
                Err(fault)
            }
        }
    }

    /// Two mounts at one place would hide one another.
    fn check_unshared(&self, place: &Path, name: &str) -> Result<(), Fault> {
        let names: Vec<String> = self
            .slots
            .lock()
            .keys()
            .filter(|other| *other != name)
            .cloned()
            .collect();
        let taken = names.iter().find(|other| {
            self.record_of_mount(other)
                .is_some_and(|r| r.place() == place)
        });
        match taken {
            None => Ok(()),
            Some(other) => {
                let why = format!("workspace {other} is mounted at {}", place.display());
                Err(Fault::failed("bad-mount", why).hint("use another directory: --mount DIR"))
            }
        }
    }

    /// Writes down that the workspace runs as `record` says, or that it is stopped.
    fn note(&self, config: &WorkspaceConfig, record: Option<&Record>) -> Result<(), Fault> {
        let name = &config.name;
        self.engine
            .with_room(|| self.records.write(name, record))
            .map_err(|e| faults::of_io("cannot record the mount", &e))?;
        self.engine
            .mark_running(name, record.map(Record::place))
            .map_err(|e| faults::of_engine(&e, name))
    }

    /// After a failed start: stopped again, or as stale as it was.
    fn note_failure(&self, config: &WorkspaceConfig) {
        let undone = if config.running.is_some() {
            Ok(())
        } else {
            self.note(config, None)
        };
        if let Err(fault) = undone {
            tracing::error!(
                workspace = config.name,
                "cannot undo the start: {}",
                fault.message
            );
        }
    }

    fn open_and_mount(
        &self,
        config: &WorkspaceConfig,
        record: &Record,
        allow_other: bool,
        goes_on: bool,
    ) -> Result<Running, Fault> {
        let name = &config.name;
        let (workspace, audit) = self.open_told(name, record, goes_on)?;
        let attempt = || {
            let gate = self.gate.clone();
            let below = self.points.below(&config.base, record);
            let woken = move || gate.wake();
            let way = (self.transport, self.keeping.is_wanted());
            let mut running = Running::mount(workspace.clone(), record, allow_other, way, woken)?;
            running.held = self.hold(&workspace, running.mounted.as_ref(), running.permissions);
            if let Some(below) = below {
                self.points.clear_below(name, &below);
            }
            Ok(running)
        };
        let mounted = match attempt() {
            Err(MountError::Dead(_)) => self
                .points
                .uncover_dead(name, &config.base, record)
                .and_then(|()| attempt().map_err(|e| faults::of_mount(&e, name))),
            mounted => mounted.map_err(|e| faults::of_mount(&e, name)),
        };
        drop(workspace);
        let mounted = mounted.map(|mut running| {
            self.begin_telling(&mut running, audit);
            running
        });
        mounted.inspect_err(|_| {
            if let Err(fault) = self.close_engine(name, CloseMode::NoCheckpoint, &|_, _| {}) {
                tracing::error!(workspace = name, "cannot close it again: {}", fault.message);
            }
        })
    }
}
