//! Requests that concern the store as a whole.

use super::{faults, mounts::Mounts};
use crate::protocol::{Config, ConfigAnswer, Fault};
use crate::settings::{KEYS, set, show};

/// Changes settings, all or none, and tells all of them.
pub fn config(mounts: &Mounts, ask: &Config) -> Result<ConfigAnswer, Fault> {
    let engine = mounts.engine();
    let mut settings = engine.settings();
    for (key, value) in &ask.set {
        set(&mut settings, key, value).map_err(|why| Fault::failed("bad-setting", why))?;
    }
    if !ask.set.is_empty() {
        engine
            .set_settings(settings)
            .map_err(|e| faults::of_engine(&e, ""))?;
    }
    let shown = KEYS.iter().filter_map(|key| {
        let value = show(&settings, key)?;
        Some(((*key).to_owned(), value))
    });
    Ok(ConfigAnswer {
        settings: shown.collect(),
    })
}
