//! Durations and sizes as people give and read them: `1h30m`, `20G`.

use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use jiff::{SignedDuration, Span, SpanRelativeTo, SpanRound, Unit};
use parse_size::Config;
use std::time::Duration;

/// Units of size in which one is shown, the largest first.
const SIZES: [(&str, u64); 4] = [
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
];

/// What a text such as `90s`, `1h30m`, `2d`, `200ms` or `PT5M` stands for, a day being 24 hours; `None` where
/// it is no duration, or a negative one.
pub fn duration(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(exact).ok()
}

/// A duration to the millisecond, as [`duration`] reads it: `1d12h`.
pub fn duration_text(duration: Duration) -> String {
    let rounded = SpanRound::new()
        .largest(Unit::Day)
        .smallest(Unit::Millisecond)
        .days_are_24_hours();
    let exact = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    let printer = SpanPrinter::new()
        .designator(Designator::Compact)
        .spacing(Spacing::None);
    match Span::try_from(exact).and_then(|span| span.round(rounded)) {
        Ok(span) => printer.span_to_string(&span),
        // Thousands of years.
        Err(_) => printer.duration_to_string(&exact),
    }
}

/// Bytes that a text such as `20G`, `1.5 GiB` or `4096` stands for, each unit being 1,024 of the one below.
pub fn size(text: &str) -> Option<u64> {
    Config::new().with_binary().parse_size(text).ok()
}

/// A size without loss, as [`size`] reads it: in the largest unit of which it is a whole number.
pub fn size_text(bytes: u64) -> String {
    let exact = SIZES
        .iter()
        .find(|(_, n)| bytes >= *n && bytes.is_multiple_of(*n));
    exact.map_or_else(
        || bytes.to_string(),
        |(unit, n)| format!("{}{unit}", bytes / n),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_come_back_as_they_were_given() {
        for (text, millis) in [
            ("0s", 0),
            ("200ms", 200),
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("1h30m", 5_400_000),
            ("2d12h", 216_000_000),
            ("90d", 7_776_000_000),
            ("1d1h1m1s1ms", 90_061_001),
        ] {
            let duration = duration(text).unwrap();
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
            let shown = duration_text(duration);
            assert_eq!(super::duration(&shown), Some(duration), "{text}: {shown}");
            assert!(shown == text || text == "90s", "{text}: {shown}");
        }
        assert_eq!(duration("PT5M"), Some(Duration::from_secs(300)));
        let longest = duration_text(Duration::MAX);
        assert!(
            longest.ends_with('s') || longest.ends_with("ns"),
            "{longest}"
        );
    }

    #[test]
    fn sizes_come_back_as_they_were_given() {
        for (text, bytes) in [
            ("0", 0),
            ("4097", 4097),
            ("4K", 4096),
            ("64M", 64 << 20),
            ("20G", 20 << 30),
            ("3T", 3 << 40),
        ] {
            assert_eq!((size(text), &*size_text(bytes)), (Some(bytes), text));
        }
        for text in ["20 GiB", "20g", "20GB", "20480M", "20GiB"] {
            assert_eq!(size(text), Some(20 << 30), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "5",
            "m",
            "h",
            "5x",
            "five",
            "99999999999999999999d",
            "-5m",
            "5m ago",
            "1mo",
            "1y",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
        for text in ["", "-1", "G", "99999999T", "20X", "20 apples"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
