//! A time as people read it, for plans. The engine knows no time zone.

use crate::types::Time;

const DAY_SEC: i64 = 86_400;

/// Date and time of day, UTC.
pub(super) fn utc(time: Time) -> String {
    let (days, second) = (time.sec.div_euclid(DAY_SEC), time.sec.rem_euclid(DAY_SEC));
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC",
        second % 60
    )
}

/// The date so many days after 1970-01-01, by eras of 400 years that begin in March
/// (H. Hinnant, "chrono-compatible low-level date algorithms", civil_from_days).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |sec| utc(Time { sec, nsec: 0 });
        assert_eq!(at(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(at(951_827_696), "2000-02-29 12:34:56 UTC");
        assert_eq!(at(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert_eq!(at(-1), "1969-12-31 23:59:59 UTC");
    }
}
