//! The settings of a store in words: `quota=20G`, `keep-all=1h`.
//!
//! Both sides use it: the command to find wrong usage before anything is asked, the daemon to apply.

use agentvfs_client::units::{duration, duration_text, size, size_text};
use engine::Settings;
use std::time::Duration;

/// All keys, in the order in which they are shown.
pub const KEYS: [&str; 11] = [
    "auto-idle",
    "auto-busy",
    "keep-all",
    "keep-hourly",
    "keep-daily",
    "keep-calls",
    "end-calls",
    "quota",
    "cache",
    "gc-grace",
    "gc",
];

/// Shortest pause between automatic commits, so that they never become the main work.
const AUTO_MIN: Duration = Duration::from_millis(100);
/// Smallest quota: below it not even a journal fits.
const QUOTA_MIN: u64 = 64 << 20;

/// The value of a setting, or `None` where there is no such key.
pub fn show(settings: &Settings, key: &str) -> Option<String> {
    let s = settings;
    Some(match key {
        "auto-idle" => s.auto_idle.map_or("off".into(), duration_text),
        "auto-busy" => s.auto_busy.map_or("off".into(), duration_text),
        "keep-all" => duration_text(s.keep_all),
        "keep-hourly" => duration_text(s.keep_hourly),
        "keep-daily" => duration_text(s.keep_daily),
        "keep-calls" => duration_text(s.keep_calls),
        "end-calls" => s.end_calls.map_or("off".into(), duration_text),
        "quota" => s.quota.map_or("none".into(), size_text),
        "cache" => s.cache.map_or("none".into(), size_text),
        "gc-grace" => duration_text(s.gc_grace),
        "gc" => if s.gc_auto { "auto" } else { "off" }.to_owned(),
        _ => return None,
    })
}

/// Changes a setting; says what is wrong with the key or the value.
pub fn set(settings: &mut Settings, key: &str, value: &str) -> Result<(), String> {
    let s = settings;
    let time = || duration(value).ok_or_else(|| format!("{key}: {value:?} is not a duration"));
    let pause = || match value {
        "off" => Ok::<_, String>(None),
        _ => Ok(Some(time()?.max(AUTO_MIN))),
    };
    match key {
        "auto-idle" => s.auto_idle = pause()?,
        "auto-busy" => s.auto_busy = pause()?,
        "keep-all" => s.keep_all = time()?,
        "keep-hourly" => s.keep_hourly = time()?,
        "keep-daily" => s.keep_daily = time()?,
        "keep-calls" => s.keep_calls = time()?,
        "end-calls" if value == "off" => s.end_calls = None,
        "end-calls" => s.end_calls = Some(time()?),
        "gc-grace" => s.gc_grace = time()?,
        "quota" if value == "none" => s.quota = None,
        "quota" => match size(value) {
            Some(bytes) if bytes >= QUOTA_MIN => s.quota = Some(bytes),
            Some(_) => return Err(format!("quota: {value} is too small; the minimum is 64M")),
            None => return Err(format!("quota: {value:?} is not a size")),
        },
        "cache" if value == "none" => s.cache = None,
        "cache" => {
            s.cache = Some(size(value).ok_or_else(|| format!("cache: {value:?} is not a size"))?);
        }
        "gc" if value == "auto" || value == "off" => s.gc_auto = value == "auto",
        "gc" => return Err(format!("gc: {value:?} is neither auto nor off")),
        _ => return Err(format!("there is no setting {key:?}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set() {
        let mut changed = Settings::default();
        for (key, value) in [
            ("auto-idle", "off"),
            ("auto-busy", "1m30s"),
            ("keep-all", "2h"),
            ("keep-hourly", "2d12h"),
            ("keep-daily", "90d"),
            ("end-calls", "off"),
            ("quota", "20G"),
            ("cache", "300M"),
            ("cache", "none"),
            ("gc-grace", "0s"),
            ("gc", "off"),
        ] {
            set(&mut changed, key, value).unwrap();
            assert_eq!(show(&changed, key).unwrap(), value);
        }
        let mut again = Settings::default();
        for key in KEYS {
            set(&mut again, key, &show(&changed, key).unwrap()).unwrap();
        }
        assert_eq!(again, changed);
    }

    #[test]
    fn nonsense_is_refused() {
        for (key, value) in [
            ("auto-idle", ""),
            ("auto-busy", "5"),
            ("keep-all", "h"),
            ("keep-all", "99999999999999999d"),
            ("quota", "1M"),
            ("quota", "-1"),
            ("quota", "99999999T"),
            ("quota", "20X"),
            ("cache", "-1"),
            ("cache", "all"),
            ("gc", "on"),
            ("colour", "red"),
        ] {
            assert!(
                set(&mut Settings::default(), key, value).is_err(),
                "{key}={value}"
            );
        }
    }
}
