//! Rates: how many changes of a rule may come within a time.
//!
//! A window begins with the first change that the rule fits, and ends after its time. Once a change was one too many,
//! the window lasts until that time has passed without another attempt: a program that goes on trying is not let
//! through again in small portions.

use std::time::Duration;

/// So many changes within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u64,
    period: Duration,
}

/// Highest count of a rate.
const COUNT_MAX: u64 = 1_000_000_000;
/// Longest time of a rate.
const PERIOD_MAX: Duration = Duration::from_secs(24 * 3600);

impl Rate {
    /// Reads `N/T`, such as `200/10s`; says what is wrong with it.
    pub fn parse(text: &str) -> Result<Rate, String> {
        let form = "a rate is N/T, such as 200/10s";
        let (count, time) = text.split_once('/').ok_or(form)?;
        let count = count.trim().parse::<u64>().map_err(|_| form)?;
        if count > COUNT_MAX {
            return Err(format!("a rate counts to {COUNT_MAX} at most"));
        }
        let period =
            period(time.trim()).ok_or("the time of a rate is a number with ms, s, m or h")?;
        if period.is_zero() || period > PERIOD_MAX {
            return Err("the time of a rate is between 1ms and 24h".into());
        }
        Ok(Rate { count, period })
    }

    /// The time within which it counts.
    pub fn period(self) -> Duration {
        self.period
    }
}

fn period(text: &str) -> Option<Duration> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

/// What a rule with a rate has counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// When it began; none before the first change.
    began: Option<Duration>,
    count: u64,
    /// When a change was refused last; none while none was.
    refused: Option<Duration>,
}

impl Window {
    fn is_over(&self, rate: Rate, now: Duration) -> bool {
        let since = self.refused.or(self.began);
        since.is_none_or(|since| now.saturating_sub(since) >= rate.period)
    }

    /// Whether one more change is too many.
    pub fn is_full(&self, rate: Rate, now: Duration) -> bool {
        match self.is_over(rate, now) {
            true => rate.count == 0,
            false => self.refused.is_some() || self.count >= rate.count,
        }
    }

    /// A change is made; true if the window begins with it.
    pub fn count(&mut self, rate: Rate, now: Duration) -> bool {
        let begins = self.is_over(rate, now);
        if begins {
            *self = Window {
                began: Some(now),
                ..Window::default()
            };
        }
        self.count += 1;
        begins
    }

    /// A change is refused; true if it is the first one of the window.
    pub fn refuse(&mut self, rate: Rate, now: Duration) -> bool {
        if self.is_over(rate, now) {
            *self = Window::default();
        }
        self.refused.replace(now).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn rates_are_read_and_nonsense_is_refused() {
        for (text, count, millis) in [
            ("200/10s", 200, 10_000),
            ("0/1h", 0, 3_600_000),
            (" 5 / 250ms ", 5, 250),
            ("7/2", 7, 2_000),
            ("1/24h", 1, 86_400_000),
        ] {
            let period = Duration::from_millis(millis);
            assert_eq!(Rate::parse(text), Ok(Rate { count, period }), "{text}");
        }
        for text in [
            "",
            "/",
            "5",
            "5/",
            "/5s",
            "-1/5s",
            "5/0s",
            "5/25h",
            "5/5d",
            "5/5ss",
            "5/s",
            "1000000001/1s",
            "5/99999999999999999999s",
            "5/18446744073709551615h",
            "5/1s/1s",
        ] {
            assert!(Rate::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_window_is_full_after_its_count_and_begins_again_after_its_time() {
        let rate = Rate::parse("2/10s").unwrap();
        let mut window = Window::default();
        assert!(!window.is_full(rate, at(0)));
        assert!(window.count(rate, at(0)));
        assert!(!window.count(rate, at(9)));
        assert!(window.is_full(rate, at(9)));
        assert!(!window.is_full(rate, at(10)), "its time has passed");
        assert!(window.count(rate, at(10)), "another one begins");
    }

    #[test]
    fn who_goes_on_trying_is_not_let_through() {
        let rate = Rate::parse("1/10s").unwrap();
        let mut window = Window::default();
        window.count(rate, at(0));
        assert!(window.refuse(rate, at(1)), "the first one");
        for second in 2..100 {
            assert!(window.is_full(rate, at(second)));
            assert!(!window.refuse(rate, at(second)));
        }
        assert!(window.is_full(rate, at(108)));
        assert!(!window.is_full(rate, at(109)));
        assert!(window.count(rate, at(109)));
        assert!(window.refuse(rate, at(109)), "the first one again");
    }

    #[test]
    fn a_rate_of_none_refuses_the_first() {
        let rate = Rate::parse("0/10s").unwrap();
        let mut window = Window::default();
        assert!(window.is_full(rate, at(5)));
        assert!(window.refuse(rate, at(5)));
    }
}
