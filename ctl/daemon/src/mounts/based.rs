//! Starting a workspace on its project's directory, and where that is gone, replaced or another one.

use super::{Mounts, Slot};
use crate::faults;
use agentvfs_client::protocol::{Fault, Start};
use agentvfs_client::quote::quoted;
use engine::verbs;
use engine::{BaseFound, WorkspaceConfig};
use std::path::Path;

impl Mounts {
    /// Another directory in the place of the project is refused: what was applied to that is not in it.
    pub(super) fn check_not_replaced(&self, config: &WorkspaceConfig) -> Result<(), Fault> {
        let name = &config.name;
        let found = self.engine.find_base(config);
        match found.map_err(|e| faults::of_engine(&e, name))? {
            BaseFound::Replaced => {
                let base = config.base.display();
                let why = format!("{base} is no longer the directory that {name} was started from");
                Err(Fault::failed("base-moved", why).hint(format!(
                    "move the project back to {base}; or agentvfs start {name} --from {base} uses the new directory"
                )))
            }
            BaseFound::There | BaseFound::Gone | BaseFound::Closed(_) => Ok(()),
        }
    }

    /// Closes a workspace that was opened to be looked into while its project was gone. The lifecycle lock
    /// must be held.
    pub(super) fn close_blind(&self, name: &str, slot: &Slot) {
        let opened = self.engine.opened(name);
        if opened.is_some_and(|workspace| workspace.base_missing().is_some()) {
            self.close_read(name, slot);
        }
    }

    /// What is to be said of a project that is not there.
    pub(super) fn base_warning(&self, name: &str, slot: &Slot) -> Option<String> {
        let workspace = slot.live()?;
        workspace.base_missing()?;
        let status = verbs::status(&workspace, engine::MAIN).ok()?;
        let trouble = base_trouble(workspace.base(), &status)?;
        Some(format!(
            "{trouble}; stop it, then agentvfs start {name} --from DIR binds it to another directory"
        ))
    }

    /// The workspace that is to be started: made where it does not exist, given another directory where its own
    /// is gone. The lifecycle lock must be held.
    pub(super) fn config_for(&self, ask: &Start, slot: &Slot) -> Result<WorkspaceConfig, Fault> {
        let name = &ask.workspace;
        let fault = |e: engine::Error| faults::of_engine(&e, name);
        let Some(base) = &ask.base else {
            return self.config(name);
        };
        match self.engine.get(name) {
            Ok(config) if slot.live().is_none() && self.is_left(ask, &config)? => {
                self.check_base(base.path())?;
                self.close_read(name, slot);
                self.engine.bind(name, base.path()).map_err(fault)
            }
            Ok(config) if config.base == base.path() => Ok(config),
            Ok(config) => Err(fault(engine::Error::WorkspaceExists {
                name: name.clone(),
                base: config.base,
            })),
            Err(engine::Error::NoSuchWorkspace(_)) => {
                self.check_base(base.path())?;
                self.engine.create(name, base.path(), None).map_err(fault)
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// Whether a workspace that was named is to get another directory, because its own is gone.
    fn is_left(&self, ask: &Start, config: &WorkspaceConfig) -> Result<bool, Fault> {
        if !ask.named {
            return Ok(false);
        }
        let same = ask
            .base
            .as_ref()
            .is_some_and(|base| config.base == base.path());
        let found = self.engine.find_base(config);
        match found.map_err(|e| faults::of_engine(&e, &config.name))? {
            BaseFound::Replaced => Ok(true),
            BaseFound::Gone => Ok(!same),
            BaseFound::There | BaseFound::Closed(_) => Ok(false),
        }
    }
}

/// What is to be said of a project that cannot be used.
pub fn base_trouble(base: &Path, status: &engine::Status) -> Option<String> {
    const NAMED_MAX: usize = 10;
    let why = status.base_missing.as_deref()?;
    let missing = &status.not_imported;
    let mut text = format!("the project {} cannot be used: {why}; ", base.display());
    if missing.is_empty() {
        text.push_str("all of it was imported");
        return Some(text);
    }
    let name = |path: &Vec<u8>| String::from_utf8_lossy(&quoted(path)).into_owned();
    let named: Vec<String> = missing.iter().take(NAMED_MAX).map(name).collect();
    let more = if missing.len() > NAMED_MAX {
        ", …"
    } else {
        ""
    };
    text.push_str(&format!(
        "{} of its paths were not imported and cannot be read ({}{more})",
        missing.len(),
        named.join(", ")
    ));
    Some(text)
}
