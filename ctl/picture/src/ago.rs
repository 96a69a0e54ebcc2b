//! When something was: how long ago in words, or the time itself.

use crate::line::{Style, Times};
use agentvfs_client::protocol::Moment;
use agentvfs_client::when::{local_seconds, rfc3339_seconds};

/// Seconds of a minute, an hour, a day, a month and a year, and from how many seconds on each is counted in.
const UNITS: [(i64, i64, &str, &str); 5] = [
    (YEAR, 2 * YEAR, "year", "years"),
    (MONTH, 2 * MONTH, "month", "months"),
    (DAY, 2 * DAY, "day", "days"),
    (3600, 3600, "h", "h"),
    (60, 60, "min", "min"),
];
const DAY: i64 = 86_400;
const MONTH: i64 = 30 * DAY;
const YEAR: i64 = 365 * DAY;

/// How long before `now` a time was, both in seconds since 1970: `3 min ago`. What is not over yet is now.
pub fn ago(time: i64, now: i64) -> String {
    let seconds = now.saturating_sub(time);
    if seconds <= 0 {
        return "now".to_owned();
    }
    let unit = UNITS.iter().find(|(_, from, ..)| seconds >= *from);
    match unit {
        None => format!("{seconds} s ago"),
        Some((length, _, one, many)) => {
            let count = seconds / length;
            format!("{count} {} ago", if count == 1 { one } else { many })
        }
    }
}

/// A time as it is shown on what is drawn on.
pub fn when(time: Moment, style: Style) -> String {
    match style.times {
        Times::Ago(now) => ago(time.sec, now),
        Times::Local => local_seconds(time),
        Times::Utc => rfc3339_seconds(time),
    }
}
