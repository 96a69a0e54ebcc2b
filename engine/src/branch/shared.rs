//! What all branches of a workspace share.

use super::auto::Expiring;
use crate::base::Base;
use crate::feed::Feed;
use crate::judge::Judges;
use crate::settings::SharedSettings;
use objstore::ObjectStore;
use objstore::import_table::ImportTable;
use objstore::io::Storage;
use objstore::refs::RefStore;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What all branches of a workspace share.
#[derive(Debug, Clone)]
pub(crate) struct SharedParts {
    pub storage: Arc<dyn Storage>,
    pub store: Arc<ObjectStore>,
    pub refs: Arc<RefStore>,
    pub base: Arc<Base>,
    pub table: Arc<ImportTable>,
    pub boot: u64,
    /// Settings of the store.
    pub settings: SharedSettings,
    /// Held by who needs that nothing expires.
    pub expiry: Expiring,
    /// Set where something was deleted that gc may take.
    pub garbage: Arc<AtomicBool>,
    /// What happens in the workspace.
    pub feed: Arc<Feed>,
    /// Rules that changes are judged by.
    pub judges: Arc<Judges>,
}
