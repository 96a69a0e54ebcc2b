//! Times as people give and read them: `5m`, RFC 3339.

use crate::failure::Failure;
use crate::protocol::Moment;
use crate::units::duration;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What a text that names a moment before now means ([`parse_before`]).
pub fn before(text: &str) -> Option<Moment> {
    parse_before(text, Timestamp::now())
}

/// The same for a text that was given to go back to, of which it is said what it can be.
pub fn moment(text: &str) -> Result<Moment, Failure> {
    before(text).ok_or_else(|| {
        Failure::usage(format!("{text:?} is neither a duration nor a time"))
            .hint("durations are 90s, 5m, 2h, 1d; times are RFC 3339 such as 2026-11-21T15:04:05Z")
    })
}

/// The moment that `text` means: a duration before `now` (`90s`, `5m`, `2h`, `1d`, `1h30m`) or a
/// time in RFC 3339. `None` where it is neither.
fn parse_before(text: &str, now: Timestamp) -> Option<Moment> {
    if let Some(ago) = duration(text) {
        return Some(from_stamp(now.checked_sub(ago).ok()?));
    }
    let stamp: Timestamp = text.parse().ok()?;
    Some(from_stamp(stamp))
}

/// `time` in RFC 3339, in UTC, with as many digits as it needs.
pub fn rfc3339(time: Moment) -> String {
    to_stamp(time).to_string()
}

/// `time` in RFC 3339 to the second, for tables.
pub fn rfc3339_seconds(time: Moment) -> String {
    rfc3339(Moment { nsec: 0, ..time })
}

/// `time` in RFC 3339 to the second in the machine's time zone, with the offset that it has from UTC.
pub fn local_seconds(time: Moment) -> String {
    let stamp = to_stamp(Moment { nsec: 0, ..time });
    let offset = TimeZone::system().to_offset(stamp);
    stamp.display_with_offset(offset).to_string()
}

fn from_stamp(stamp: Timestamp) -> Moment {
    let nanos = stamp.as_nanosecond();
    let billion = 1_000_000_000;
    // A timestamp of jiff lies within the years -9999 to 9999, so its seconds fit.
    Moment {
        sec: nanos.div_euclid(billion) as i64,
        nsec: nanos.rem_euclid(billion) as u32,
    }
}

fn to_stamp(time: Moment) -> Timestamp {
    let nanos = i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec.min(999_999_999));
    let bounded = nanos.clamp(
        Timestamp::MIN.as_nanosecond(),
        Timestamp::MAX.as_nanosecond(),
    );
    Timestamp::from_nanosecond(bounded).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn durations_count_back_from_now() {
        let ago = |text| now().as_second() - parse_before(text, now()).unwrap().sec;
        assert_eq!(ago("90s"), 90);
        assert_eq!(ago("5m"), 300);
        assert_eq!(ago("2h"), 7200);
        assert_eq!(ago("1d"), 86_400);
        assert_eq!(ago("1h30m"), 5400);
    }

    #[test]
    fn times_are_rfc_3339() {
        let time = parse_before("2026-11-21T13:30:00.5+01:30", now()).unwrap();
        assert_eq!((time.sec, time.nsec), (now().as_second(), 500_000_000));
        assert_eq!(rfc3339(time), "2026-11-21T12:00:00.5Z");
        assert_eq!(rfc3339_seconds(time), "2026-11-21T12:00:00Z");
    }

    #[test]
    fn nonsense_is_refused() {
        // `units` has what is no duration.
        for text in ["", "5", "-5m", "2026-13-01T00:00:00Z"] {
            assert_eq!(parse_before(text, now()), None, "{text}");
        }
    }

    #[test]
    fn moments_before_1970_keep_their_nanoseconds() {
        let time = Moment {
            sec: -1,
            nsec: 250_000_000,
        };
        assert_eq!(rfc3339(time), "1969-12-31T23:59:59.25Z");
        assert_eq!(from_stamp(to_stamp(time)), time);
    }
}
