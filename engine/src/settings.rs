//! Settings of a store: how often automatic commits are made, how long they are kept, how much space
//! may be used.
//!
//! Kept as the ref `settings`, so replaced atomically and checksummed. Invariant: what cannot be read
//! counts as the defaults and is said in the log; no setting ever makes something go that was asked for.

use crate::error::{Error, Result};
use objstore::refs::RefStore;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;

/// Name of the ref that holds the settings.
pub(crate) const SETTINGS_REF: &str = "settings";
/// Without what came later, with the first of it, and so on: what is not the default is written, with all before it.
const VERSIONS: [u16; 4] = [1, 2, 3, 4];
/// Bytes of what lazy workspaces have fetched that are kept.
const CACHE_BYTES: u64 = 20 << 30;
const HOUR: Duration = Duration::from_secs(3600);

/// What can be set for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Rest after which an automatic commit is made of what changed; `None`: never.
    pub auto_idle: Option<Duration>,
    /// Time after which one is made though activity does not rest; `None`: never.
    pub auto_busy: Option<Duration>,
    /// Age up to which all automatic commits are kept.
    pub keep_all: Duration,
    /// Age up to which one an hour is kept.
    pub keep_hourly: Duration,
    /// Age up to which one a day is kept.
    pub keep_daily: Duration,
    /// Bytes that the home may take before writers are refused; `None`: as many as the disk has.
    pub quota: Option<u64>,
    /// Age up to which gc leaves a pack, and what was deleted, alone.
    pub gc_grace: Duration,
    /// gc runs by itself when that is worthwhile.
    pub gc_auto: bool,
    /// Age up to which what a branch was before and after tool calls is kept.
    pub keep_calls: Duration,
    /// Age at which a call of nobody's process counts as over; `None`: never.
    pub end_calls: Option<Duration>,
    /// Bytes up to which gc leaves what lazy workspaces could fetch again; `None`: all of it.
    pub cache: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            auto_idle: Some(Duration::from_secs(10)),
            auto_busy: Some(Duration::from_secs(60)),
            keep_all: HOUR,
            keep_hourly: 24 * HOUR,
            keep_daily: 30 * 24 * HOUR,
            quota: None,
            gc_grace: HOUR,
            gc_auto: true,
            keep_calls: 30 * 24 * HOUR,
            end_calls: Some(HOUR),
            cache: Some(CACHE_BYTES),
        }
    }
}

impl Settings {
    /// Nothing happens by itself: for simulated disks, whose operations a test counts.
    pub fn quiet() -> Settings {
        Settings {
            auto_idle: None,
            auto_busy: None,
            gc_auto: false,
            end_calls: None,
            ..Settings::default()
        }
    }
}

/// The settings of an open store; who holds it sees changes at once.
pub(crate) type SharedSettings = Arc<RwLock<Settings>>;

/// Times in milliseconds.
#[derive(bincode::Encode, bincode::Decode)]
struct SettingsRecord {
    version: u16,
    auto_idle: Option<u64>,
    auto_busy: Option<u64>,
    keep_all: u64,
    keep_hourly: u64,
    keep_daily: u64,
    quota: Option<u64>,
    gc_grace: u64,
    gc_auto: bool,
}

/// What version 2 has behind that.
#[derive(bincode::Encode, bincode::Decode)]
struct LaterRecord {
    keep_calls: u64,
}

/// What version 3 has behind that.
#[derive(bincode::Encode, bincode::Decode)]
struct EndRecord {
    end_calls: Option<u64>,
}

/// What version 4 has behind that.
#[derive(bincode::Encode, bincode::Decode)]
struct CacheRecord {
    cache: Option<u64>,
}

/// A record as far as its version goes.
type Parts = (
    SettingsRecord,
    Option<LaterRecord>,
    Option<EndRecord>,
    Option<CacheRecord>,
);

fn parts(bytes: &[u8]) -> Result<Parts, String> {
    use crate::record::decode;
    Ok(match bytes {
        [2, 0, ..] => decode(bytes).map(|(r, later)| (r, Some(later), None, None))?,
        [3, 0, ..] => decode(bytes).map(|(r, later, end)| (r, Some(later), Some(end), None))?,
        [4, 0, ..] => decode(bytes).map(|(r, l, e, c)| (r, Some(l), Some(e), Some(c)))?,
        _ => (decode(bytes)?, None, None, None),
    })
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// Decodes the value of the ref; says why where it is none.
pub fn decode_settings(bytes: &[u8]) -> Result<Settings, String> {
    let default = Settings::default();
    let (r, later, end, cache) = parts(bytes)?;
    if !VERSIONS.contains(&r.version) {
        return Err(format!("its version is {}", r.version));
    }
    let keep_calls = later.map_or(default.keep_calls, |l| Duration::from_millis(l.keep_calls));
    let end_calls = end.map_or(default.end_calls, |e| {
        e.end_calls.map(Duration::from_millis)
    });
    let settings = Settings {
        auto_idle: r.auto_idle.map(Duration::from_millis),
        auto_busy: r.auto_busy.map(Duration::from_millis),
        keep_all: Duration::from_millis(r.keep_all),
        keep_hourly: Duration::from_millis(r.keep_hourly),
        keep_daily: Duration::from_millis(r.keep_daily),
        quota: r.quota,
        gc_grace: Duration::from_millis(r.gc_grace),
        gc_auto: r.gc_auto,
        keep_calls,
        end_calls,
        cache: cache.map_or(default.cache, |c| c.cache),
    };
    match r.version == version_of(&settings) {
        true => Ok(settings),
        false => Err("its version is not the one that it needs".into()),
    }
}

/// The lowest version that has all that is not the default.
fn version_of(s: &Settings) -> u16 {
    let default = Settings::default();
    if s.cache != default.cache {
        VERSIONS[3]
    } else if s.end_calls != default.end_calls {
        VERSIONS[2]
    } else if s.keep_calls != default.keep_calls {
        VERSIONS[1]
    } else {
        VERSIONS[0]
    }
}

/// The value of the ref.
pub fn encode_settings(s: &Settings) -> Vec<u8> {
    let version = version_of(s);
    let mut bytes = crate::record::encode(&SettingsRecord {
        version,
        auto_idle: s.auto_idle.map(millis),
        auto_busy: s.auto_busy.map(millis),
        keep_all: millis(s.keep_all),
        keep_hourly: millis(s.keep_hourly),
        keep_daily: millis(s.keep_daily),
        quota: s.quota,
        gc_grace: millis(s.gc_grace),
        gc_auto: s.gc_auto,
    });
    if version > VERSIONS[0] {
        let keep_calls = millis(s.keep_calls);
        bytes.extend(crate::record::encode(&LaterRecord { keep_calls }));
    }
    if version > VERSIONS[1] {
        let end_calls = s.end_calls.map(millis);
        bytes.extend(crate::record::encode(&EndRecord { end_calls }));
    }
    if version > VERSIONS[2] {
        bytes.extend(crate::record::encode(&CacheRecord { cache: s.cache }));
    }
    bytes
}

/// The stored settings; `default` where there are none or they are damaged.
pub(crate) fn load(refs: &RefStore, default: Settings) -> Settings {
    let stored = match refs.get(SETTINGS_REF) {
        Ok(None) => return default,
        Ok(Some(bytes)) => decode_settings(&bytes),
        Err(e) => Err(e.to_string()),
    };
    stored.unwrap_or_else(|why| {
        tracing::error!("the settings cannot be read, the defaults hold: {why}");
        default
    })
}

/// Stores the settings, durably.
pub(crate) fn store(refs: &RefStore, s: &Settings) -> Result<()> {
    refs.set(SETTINGS_REF, &encode_settings(s))
        .map_err(Error::Store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use objstore::crash_storage::CrashStorage;

    #[test]
    fn settings_come_back_and_damage_gives_the_defaults() {
        let disk = Arc::new(CrashStorage::without_log());
        let refs = RefStore::open(disk.clone()).unwrap();
        assert_eq!(load(&refs, Settings::quiet()), Settings::quiet());
        let mut set = Settings {
            quota: Some(7 << 30),
            auto_busy: None,
            ..Settings::default()
        };
        store(&refs, &set).unwrap();
        assert_eq!(load(&refs, Settings::default()), set);
        set.keep_calls = HOUR;
        store(&refs, &set).unwrap();
        assert_eq!(load(&refs, Settings::default()), set);
        for end_calls in [None, Some(2 * HOUR)] {
            set.end_calls = end_calls;
            store(&refs, &set).unwrap();
            assert_eq!(load(&refs, Settings::default()), set);
        }
        for cache in [None, Some(0), Some(7 << 30)] {
            set.cache = cache;
            set.end_calls = Settings::default().end_calls;
            store(&refs, &set).unwrap();
            assert_eq!(load(&refs, Settings::default()), set);
        }
        assert!(disk.flip_bit("refs/settings.ref", 12, 3));
        assert_eq!(load(&refs, Settings::default()), Settings::default());
    }

    #[test]
    fn hostile_settings_neither_panic_nor_pass() {
        let good = encode_settings(&Settings::default());
        for i in 0..good.len() {
            assert!(decode_settings(&good[..i]).is_err());
        }
        let mut newer = good;
        newer[0] = 9;
        assert!(decode_settings(&newer).is_err());
    }
}
