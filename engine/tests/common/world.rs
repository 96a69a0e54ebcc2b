//! An engine on a simulated disk (or real files) with one open workspace, which can be killed.

use engine::{CloseMode, Closed, Engine, EngineConfig, Result, Workspace};
use objstore::crash_storage::{CrashStorage, Policy};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// Name of the workspace.
pub const NAME: &str = "w";
/// Its branch.
pub const MAIN: &str = "main";

/// An engine with an open workspace.
pub struct World {
    /// The simulated disk; `None` on real files.
    pub disk: Option<CrashStorage>,
    pub engine: Arc<Engine>,
    /// The workspace; `None` only inside of a method.
    open: Option<Arc<Workspace>>,
    base: PathBuf,
    /// Last: removed when nobody works in it any more.
    home: TempDir,
}

/// An engine at `home`.
pub fn config(home: &Path) -> EngineConfig {
    EngineConfig {
        root: home.to_owned(),
        author: "test".into(),
    }
}

impl World {
    /// A new workspace on `base`, on a simulated disk.
    pub fn on_disk(disk: CrashStorage, base: &Path) -> World {
        World::try_open(disk, base).unwrap()
    }

    /// As [`World::on_disk`]; what is on the disk already is opened.
    pub fn try_open(disk: CrashStorage, base: &Path) -> Result<World> {
        let home = tempfile::tempdir().unwrap();
        let engine = Engine::on_storage(config(home.path()), Arc::new(disk.clone()))?;
        World::start(Some(disk), home, engine, base)
    }

    /// A new workspace on `base`, on files.
    pub fn on_files(base: &Path) -> World {
        let home = tempfile::tempdir().unwrap();
        let engine = Engine::open(config(home.path())).unwrap();
        World::start(None, home, engine, base).unwrap()
    }

    /// The workspace of `engine`, made on `base` where there is none.
    pub fn start(
        disk: Option<CrashStorage>,
        home: TempDir,
        engine: Arc<Engine>,
        base: &Path,
    ) -> Result<World> {
        if engine.get(NAME).is_err() {
            engine.create(NAME, base, None)?;
        }
        let open = engine.open_workspace(NAME)?;
        Ok(World {
            disk,
            home,
            engine,
            open: Some(open),
            base: base.to_owned(),
        })
    }

    /// The open workspace.
    pub fn w(&self) -> &Workspace {
        self.open.as_ref().unwrap()
    }

    /// The open workspace, shared.
    pub fn shared(&self) -> Arc<Workspace> {
        self.open.as_ref().unwrap().clone()
    }

    /// Closes in order.
    pub fn close(&mut self, mode: CloseMode) -> Result<Closed> {
        let closed = self.engine.close_workspace(NAME, mode, &|_, _| ())?;
        self.open = None;
        Ok(closed)
    }

    /// Opens again after [`World::close`], by a new engine.
    pub fn reopen(&mut self) -> Result<()> {
        let storage = self.disk.clone();
        let old = self.engine.shut_down();
        old?;
        match storage {
            Some(disk) => {
                self.home = tempfile::tempdir().unwrap();
                let home = config(self.home.path());
                self.engine = Engine::on_storage(home, Arc::new(disk))?;
            }
            None => self.engine = reopened(&mut self.engine, self.home.path())?,
        }
        self.open = Some(self.engine.open_workspace(NAME)?);
        Ok(())
    }

    /// The daemon dies here; another one comes. Real files are closed in order instead.
    pub fn kill(&mut self) -> Result<()> {
        let Some(disk) = self.disk.clone() else {
            self.close(CloseMode::NoCheckpoint)?;
            return self.reopen();
        };
        let left = disk.image_at(usize::MAX, Policy::Keep, 0);
        self.end();
        *self = World::try_open(left, &self.base.clone())?;
        Ok(())
    }

    /// Ends the threads; what that does to the disk does not matter any more.
    pub fn end(&mut self) {
        if self.open.take().is_some() {
            let _ = self
                .engine
                .close_workspace(NAME, CloseMode::NoCheckpoint, &|_, _| ());
        }
    }
}

/// A second engine on the same files, once the first one is gone.
fn reopened(old: &mut Arc<Engine>, home: &Path) -> Result<Arc<Engine>> {
    // The lock on the store goes with the last owner of the engine; until then it stands in memory.
    let spare = tempfile::tempdir().unwrap();
    *old = Engine::on_storage(config(spare.path()), Arc::new(CrashStorage::without_log()))?;
    Engine::open(config(home))
}

impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}
