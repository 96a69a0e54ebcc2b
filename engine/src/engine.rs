//! The engine of one store: which workspaces there are, and which of them are open.

pub(crate) mod away;
pub(crate) mod exchange;
pub(crate) mod fsck;
pub(crate) mod gc;
pub(crate) mod policy;

use crate::base::{Base, BaseIdent};
use crate::branch::auto::Expiring;
use crate::branch::shared::SharedParts;
use crate::clock;
use crate::engine::exchange::no_base;
use crate::engine::gc::tombs;
use crate::error::{Error, Result};
use crate::journal::this_boot;
use crate::limits::RESERVED_NAME;
use crate::names::check_workspace_name;
use crate::settings::{self, Settings, SharedSettings};
use crate::types::Progress;
use crate::types::Time;
use crate::workspace::WorkspaceConfig;
use crate::workspace::branch_refs;
use crate::workspace::{CloseMode, Closed, Workspace};
use objstore::file_storage::FileStorage;
use objstore::import_table::ImportTable;
use objstore::io::Storage;
use objstore::lock::StoreLock;
use objstore::refs::RefStore;
use objstore::reserve::{is_full, with_reserve};
use objstore::{ObjectStore, StoreConfig};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where an engine keeps everything.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The agentvfs home.
    pub root: PathBuf,
    /// Who makes commits.
    pub author: String,
}

#[derive(bincode::Encode, bincode::Decode)]
struct ConfigRecord {
    version: u16,
    base: Vec<u8>,
    mount: Option<Vec<u8>>,
    created: Time,
    running: Option<Vec<u8>>,
}

const CONFIG_VERSION: u16 = 1;

/// One store and its workspaces.
#[derive(Debug)]
pub struct Engine {
    cfg: EngineConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) store: Arc<ObjectStore>,
    pub(crate) refs: Arc<RefStore>,
    table: Arc<ImportTable>,
    open: Mutex<HashMap<String, Arc<Workspace>>>,
    settings: SharedSettings,
    /// Boot of the machine, 0 for a simulated disk: its power may be cut in between.
    pub(crate) boot: u64,
    /// Held by who collects, or must not be disturbed by that.
    pub(crate) collecting: Mutex<()>,
    /// Held while figures are added up, beside a gc that may run.
    pub(crate) figuring: Mutex<()>,
    /// Set when the engine ends.
    pub(crate) stop: AtomicBool,
    /// Something was deleted since gc ran.
    pub(crate) garbage: Arc<AtomicBool>,
    /// Held for writing while gc looks at what is needed: nothing expires then.
    pub(crate) expiry: Expiring,
    _lock: Option<StoreLock>,
}

fn ref_name(name: &str) -> String {
    format!("workspaces/{name}")
}

/// What is found where a workspace's base is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseFound {
    /// The directory that it was started from.
    There,
    /// Nothing, or no directory.
    Gone,
    /// Another directory.
    Replaced,
    /// Something that cannot be opened, for this reason.
    Closed(String),
}

impl BaseFound {
    /// What is there, in words.
    fn words(&self) -> &str {
        match self {
            BaseFound::There => "it is there",
            BaseFound::Gone => "it is gone",
            BaseFound::Replaced => "it is not the directory that the workspace was started from",
            BaseFound::Closed(why) => why,
        }
    }
}

fn record_of(refs: &RefStore, name: &str) -> Result<Option<ConfigRecord>> {
    let Some(bytes) = refs.get(&ref_name(name))? else {
        return Ok(None);
    };
    let damaged = |why: String| Error::Damaged {
        what: format!("the record of workspace {name}"),
        why,
    };
    let record: ConfigRecord = crate::record::decode(&bytes).map_err(damaged)?;
    match record.version {
        CONFIG_VERSION => Ok(Some(record)),
        found => Err(damaged(format!("its version is {found}"))),
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Where a workspace is meant to be mounted now.
pub(crate) fn running_at(refs: &RefStore, name: &str) -> Result<Option<PathBuf>> {
    let record = record_of(refs, name)?;
    Ok(record.and_then(|r| r.running).map(path_of))
}

impl Engine {
    /// Opens (or makes) the store below `cfg.root` and takes its lock.
    pub fn open(cfg: EngineConfig) -> Result<Arc<Engine>> {
        Self::open_files(cfg, StoreConfig::default())
    }

    /// As [`Engine::open`]; all packs are read in place of their indexes, which are written anew.
    pub fn open_rebuilding(cfg: EngineConfig) -> Result<Arc<Engine>> {
        let rebuild = StoreConfig {
            rebuild_index: true,
            ..StoreConfig::default()
        };
        Self::open_files(cfg, rebuild)
    }

    fn open_files(cfg: EngineConfig, store: StoreConfig) -> Result<Arc<Engine>> {
        let storage = FileStorage::open(&cfg.root)?;
        let lock = StoreLock::acquire(&cfg.root).map_err(|e| match e {
            objstore::Error::Locked { owner_pid } => Error::StoreLocked { pid: owner_pid },
            e => Error::Store(e),
        })?;
        Self::assemble(cfg, Arc::new(storage), Some(lock), store)
    }

    /// An engine whose store lives on `storage` (a simulated disk); the import table is below
    /// `cfg.root`. Nothing is locked, and nothing happens by itself before [`Engine::set_settings`].
    pub fn on_storage(cfg: EngineConfig, storage: Arc<dyn Storage>) -> Result<Arc<Engine>> {
        Self::assemble(cfg, storage, None, StoreConfig::default())
    }

    fn assemble(
        cfg: EngineConfig,
        storage: Arc<dyn Storage>,
        lock: Option<StoreLock>,
        store: StoreConfig,
    ) -> Result<Arc<Engine>> {
        let store = Arc::new(ObjectStore::open(storage.clone(), store)?);
        let refs = Arc::new(RefStore::open(storage.clone())?);
        let simulated = lock.is_none();
        let default = if simulated {
            Settings::quiet()
        } else {
            Settings::default()
        };
        let settings = settings::load(&refs, default);
        let table = Arc::new(ImportTable::open(&cfg.root.join("import")));
        let engine = Engine {
            cfg,
            storage,
            store,
            refs,
            table,
            open: Mutex::default(),
            settings: Arc::new(RwLock::new(settings)),
            boot: lock.as_ref().map_or(0, |_| this_boot()),
            collecting: Mutex::default(),
            figuring: Mutex::default(),
            stop: AtomicBool::new(false),
            garbage: Arc::default(),
            expiry: Arc::default(),
            _lock: lock,
        };
        engine.sweep_unfinished()?;
        Ok(Arc::new(engine))
    }

    /// The settings of the store.
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Changes the settings, durably; they hold at once.
    pub fn set_settings(&self, new: Settings) -> Result<()> {
        settings::store(&self.refs, &new)?;
        *self.settings.write() = new;
        for workspace in self.all_opened() {
            workspace.views.wake().changed();
        }
        Ok(())
    }

    /// All workspaces, by name.
    pub fn list(&self) -> Result<Vec<WorkspaceConfig>> {
        self.names()?.iter().map(|n| self.get(n)).collect()
    }

    /// Names of all workspaces, also of those whose record cannot be read.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let names = self.refs.list("workspaces")?;
        let bare = |n: &String| n.trim_start_matches("workspaces/").to_owned();
        Ok(names.iter().map(bare).collect())
    }

    /// What is remembered of a workspace.
    pub fn get(&self, name: &str) -> Result<WorkspaceConfig> {
        check_workspace_name(name)?;
        let r = record_of(&self.refs, name)?;
        let r = r.ok_or_else(|| Error::NoSuchWorkspace(name.to_owned()))?;
        // Without a base nothing is recorded: a home that was moved has another path.
        let base = match r.base.is_empty() {
            true => no_base(&self.cfg.root),
            false => path_of(r.base),
        };
        Ok(WorkspaceConfig {
            name: name.to_owned(),
            base,
            mount: r.mount.map(path_of),
            created: r.created,
            running: r.running.map(path_of),
        })
    }

    pub(crate) fn put(&self, c: &WorkspaceConfig) -> Result<()> {
        let bytes = |p: &PathBuf| p.as_os_str().as_bytes().to_vec();
        let record = ConfigRecord {
            version: CONFIG_VERSION,
            base: match c.base == no_base(&self.cfg.root) {
                true => Vec::new(),
                false => bytes(&c.base),
            },
            mount: c.mount.as_ref().map(bytes),
            created: c.created,
            running: c.running.as_ref().map(bytes),
        };
        Ok(self
            .refs
            .set(&ref_name(&c.name), &crate::record::encode(&record))?)
    }

    /// Makes a workspace on the directory `base` (absolute, without symbolic links).
    pub fn create(&self, name: &str, base: &Path, mount: Option<&Path>) -> Result<WorkspaceConfig> {
        check_workspace_name(name)?;
        self.check_is_new(name)?;
        self.check_base(base)?;
        tombs::clear_deleted(self, name)?;
        let c = WorkspaceConfig {
            name: name.to_owned(),
            base: base.to_owned(),
            mount: mount.map(Path::to_owned),
            created: clock::now(),
            running: None,
        };
        Base::open(base)?.ident()?.keep(&self.refs, name)?;
        self.put(&c)?;
        Ok(c)
    }

    /// What is where the workspace's base is to be. A workspace whose base is not there can be opened; what
    /// was not imported of it cannot be read then.
    pub fn find_base(&self, c: &WorkspaceConfig) -> Result<BaseFound> {
        Ok(self.opened_base(c, None)?.err().unwrap_or(BaseFound::There))
    }

    /// The base, or what is there in its place.
    fn opened_base(
        &self,
        c: &WorkspaceConfig,
        kept: Option<OwnedFd>,
    ) -> Result<Result<Base, BaseFound>> {
        let base = match kept {
            Some(root) => Base::at(&c.base, root),
            None if is_gone(&c.base) => return Ok(Err(BaseFound::Gone)),
            None => Base::open(&c.base),
        };
        let base = match base {
            Ok(base) => base,
            Err(Error::BadBase { why, .. }) => return Ok(Err(BaseFound::Closed(why))),
            Err(e) => return Err(e),
        };
        if c.base == no_base(&self.cfg.root) {
            return Ok(Ok(base));
        }
        match BaseIdent::load(&self.refs, &c.name)? {
            Some(kept) if !base.is(&kept)? => return Ok(Err(BaseFound::Replaced)),
            Some(_) => {}
            // Made by an older version.
            None => base.ident()?.keep(&self.refs, &c.name)?,
        }
        Ok(Ok(base))
    }

    /// Lets a workspace whose base is gone, or was replaced by another directory, have `base` (absolute,
    /// without symbolic links). It must not be open. Where that is not the same directory, moved, nothing
    /// counts as applied to it: what the branches have is never taken for something that was removed there.
    pub fn bind(&self, name: &str, base: &Path) -> Result<WorkspaceConfig> {
        let mut c = self.get(name)?;
        if self.opened(name).is_some() {
            return Err(Error::WorkspaceBusy(name.to_owned()));
        }
        if !matches!(self.find_base(&c)?, BaseFound::Gone | BaseFound::Replaced) {
            return Err(Error::WorkspaceExists {
                name: name.to_owned(),
                base: c.base,
            });
        }
        self.check_base(base)?;
        let opened = Base::open(base)?;
        let kept = BaseIdent::load(&self.refs, name)?;
        let same = kept.map(|kept| opened.is(&kept)).transpose()?;
        if same != Some(true) {
            self.refs.delete(&crate::verbs::apply::ref_name(name))?;
            self.refs.delete(&policy::ref_name(name))?;
            crate::verbs::apply::forget_interrupted(name, &opened, &*self.storage)?;
        }
        opened.ident()?.keep(&self.refs, name)?;
        base.clone_into(&mut c.base);
        self.put(&c)?;
        Ok(c)
    }

    /// An error where there is a workspace of that name.
    pub(crate) fn check_is_new(&self, name: &str) -> Result<()> {
        match self.get(name) {
            Ok(there) => Err(Error::WorkspaceExists {
                name: name.to_owned(),
                base: there.base,
            }),
            Err(Error::NoSuchWorkspace(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn check_base(&self, base: &Path) -> Result<()> {
        let bad = |why: &str| {
            Err(Error::BadBase {
                path: base.to_owned(),
                why: why.to_owned(),
            })
        };
        let found = std::fs::metadata(base).map_err(|e| Error::BadBase {
            path: base.to_owned(),
            why: e.to_string(),
        })?;
        if !found.is_dir() {
            return bad("it is not a directory");
        }
        let root = std::fs::canonicalize(&self.cfg.root).map_err(Error::io(&self.cfg.root))?;
        if root.starts_with(base) {
            return bad("it contains the store");
        }
        if std::fs::symlink_metadata(base.join(std::ffi::OsStr::from_bytes(RESERVED_NAME))).is_ok()
        {
            return bad("it contains a .agentvfs entry of its own");
        }
        let opened = Base::open(base)?;
        opened
            .read_dir(&crate::base::BaseDir::root())
            .map(|_| ())
            .map_err(|e| Error::BadBase {
                path: base.to_owned(),
                why: e.to_string(),
            })
    }

    /// Remembers the mount point that was asked for.
    pub fn set_mount(&self, name: &str, mount: Option<&Path>) -> Result<()> {
        let mut c = self.get(name)?;
        c.mount = mount.map(Path::to_owned);
        self.put(&c)
    }

    /// Remembers where the workspace runs; `None`: it was stopped.
    pub fn mark_running(&self, name: &str, mount: Option<&Path>) -> Result<()> {
        let mut c = self.get(name)?;
        c.running = mount.map(Path::to_owned);
        self.put(&c)
    }

    /// Opens a workspace (recovering it where its daemon died), or gives the one that is open.
    pub fn open_workspace(&self, name: &str) -> Result<Arc<Workspace>> {
        self.open_mounted(name, None)
    }

    /// Opens a workspace whose daemon died while it was mounted, by a connection that goes on: what programs hold open
    /// is there, and what became of the connection's requests is known. `base` is the project's directory, to which no path
    /// may lead that does not wait for the mount.
    ///
    /// # Errors
    /// As [`Engine::open_workspace`].
    pub fn open_kept(
        &self,
        name: &str,
        connection: u64,
        base: Option<OwnedFd>,
    ) -> Result<Arc<Workspace>> {
        self.open_mounted(name, Some((connection, base)))
    }

    fn open_mounted(
        &self,
        name: &str,
        kept: Option<(u64, Option<OwnedFd>)>,
    ) -> Result<Arc<Workspace>> {
        let mut open = self.open.lock();
        if let Some(w) = open.get(name) {
            return Ok(w.clone());
        }
        let c = self.get(name)?;
        let (connection, base) = kept.unzip();
        let base = match self.opened_base(&c, base.flatten())? {
            Ok(base) => {
                crate::verbs::apply::finish_interrupted(name, &base, &self.store, &*self.storage)?;
                base
            }
            Err(BaseFound::Closed(why)) => {
                return Err(Error::BadBase { path: c.base, why });
            }
            Err(found) => {
                let why = found.words().to_owned();
                tracing::warn!(
                    "{name}: the project {} cannot be used: {why}",
                    c.base.display()
                );
                Base::stand_in(&c.base, why, &self.make_no_base()?)?
            }
        };
        let shared = self.shared_parts(base);
        let (root, author) = (self.cfg.root.clone(), self.cfg.author.clone());
        let w = Workspace::start(&c, root, author, shared, connection)?;
        let w = Arc::new(w);
        open.insert(c.name, w.clone());
        Ok(w)
    }

    /// What the branches of a workspace on `base` share.
    pub(crate) fn shared_parts(&self, base: Base) -> SharedParts {
        SharedParts {
            storage: self.storage.clone(),
            store: self.store.clone(),
            refs: self.refs.clone(),
            base: Arc::new(base),
            table: self.table.clone(),
            boot: self.boot,
            settings: self.settings.clone(),
            expiry: self.expiry.clone(),
            garbage: self.garbage.clone(),
            feed: Arc::default(),
            judges: Arc::default(),
        }
    }

    /// Gives some of the reserve where the disk has next to no space: for small files beside the store.
    pub fn make_room(&self) {
        self.storage.make_room();
    }

    /// Does `work`, which writes a small file beside the store that must be written on a full disk too: again for as
    /// long as it fails for want of space and there is reserve to give.
    pub fn with_room<T>(&self, work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        with_reserve(&*self.storage, is_full, work)
    }

    /// Makes the disk's reserve whole where there is room for it.
    pub(crate) fn restore_reserve(&self) {
        if let Err(error) = self.storage.restore_reserve() {
            tracing::debug!(%error, "the reserve is not made whole");
        }
    }

    /// Bytes that the home takes on its disk, and bytes that are free there.
    pub fn disk(&self) -> Result<(u64, u64)> {
        let used = self.storage.used_bytes().map_err(Error::io(self.root()))?;
        let free = self.storage.free_bytes().map_err(Error::io(self.root()))?;
        Ok((used, free))
    }

    /// The agentvfs home.
    pub fn root(&self) -> &Path {
        &self.cfg.root
    }

    /// Who makes commits.
    pub fn author(&self) -> &str {
        &self.cfg.author
    }

    /// The workspace, where it is open.
    pub fn opened(&self, name: &str) -> Option<Arc<Workspace>> {
        self.open.lock().get(name).cloned()
    }

    /// All workspaces that are open.
    pub fn all_opened(&self) -> Vec<Arc<Workspace>> {
        self.open.lock().values().cloned().collect()
    }

    /// Closes an open workspace, which nothing has mounted any more.
    pub fn close_workspace(
        &self,
        name: &str,
        mode: CloseMode,
        progress: Progress<'_>,
    ) -> Result<Closed> {
        let w = self
            .opened(name)
            .ok_or_else(|| Error::NoSuchWorkspace(name.to_owned()))?;
        w.unmounted();
        let closed = w.close(mode, progress)?;
        self.open.lock().remove(name);
        self.table.release()?;
        Ok(closed)
    }

    /// Forgets a workspace and removes its branches. Its stored objects stay until they are collected.
    pub fn delete(&self, name: &str) -> Result<()> {
        let c = self.get(name)?;
        if self.opened(name).is_some() {
            return Err(Error::WorkspaceBusy(name.to_owned()));
        }
        tombs::remember_deleted(self, name)?;
        self.refs.delete(&ref_name(&c.name))?;
        branch_refs::forget_refs(&self.refs, name)?;
        self.refs.delete(&crate::verbs::apply::ref_name(name))?;
        BaseIdent::forget(&self.refs, name)?;
        let dir = format!("workspaces/{name}");
        self.storage.remove_dir_all(&dir).map_err(Error::io(dir))?;
        self.restore_reserve();
        Ok(())
    }

    /// Ends the engine in order: nothing must be open.
    pub fn shut_down(&self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let _none = (self.collecting.lock(), self.figuring.lock());
        self.table.release()?;
        Ok(self.store.close()?)
    }
}

/// True where there is no directory.
fn is_gone(base: &Path) -> bool {
    match std::fs::metadata(base) {
        Ok(found) => !found.is_dir(),
        Err(e) => matches!(
            e.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        ),
    }
}
