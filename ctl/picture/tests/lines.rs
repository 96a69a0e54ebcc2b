//! Times ago, and lines that end where the terminal does.

use agentvfs_picture::{Paint, Style, Times, ago, facts, fit, share, table};

const DAY: i64 = 86_400;
const MONTH: i64 = 30 * DAY;
const YEAR: i64 = 365 * DAY;

#[test]
fn times_are_counted_in_the_largest_unit_that_says_enough() {
    for (seconds, text) in [
        (-5, "now"),
        (0, "now"),
        (1, "1 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3_599, "59 min ago"),
        (3_600, "1 h ago"),
        (2 * DAY - 1, "47 h ago"),
        (2 * DAY, "2 days ago"),
        (2 * MONTH - 1, "59 days ago"),
        (2 * MONTH, "2 months ago"),
        (2 * YEAR - 1, "24 months ago"),
        (2 * YEAR, "2 years ago"),
    ] {
        assert_eq!(ago(1_000_000_000, 1_000_000_000 + seconds), text);
    }
    assert_eq!(
        ago(i64::MIN, i64::MAX),
        format!("{} years ago", i64::MAX / YEAR)
    );
}

const STYLE: Style = Style {
    colour: false,
    unicode: true,
    width: 80,
    times: Times::Utc,
};

fn parts(texts: &[&str]) -> Vec<(Paint, String)> {
    texts
        .iter()
        .map(|text| (Paint::Id, (*text).to_owned()))
        .collect()
}

#[test]
fn lines_are_cut_where_the_terminal_ends() {
    for (texts, width, line) in [
        (&["abc", "def"][..], 6, "abcdef"),
        (&["abc", "def"], 5, "abcd…"),
        (&["abc", "def"], 4, "abc…"),
        (&["abc", "def"], 3, "ab…"),
        (&["abc", ""], 3, "abc"),
        (&["abc"], 0, ""),
        (&["日本語"], 6, "日本語"),
        (&["日本語"], 5, "日本…"),
        (&["日本語"], 4, "日…"),
        // Two characters that are drawn as one, which is wider than the first alone.
        (&["a❤\u{fe0f}b"], 3, "a❤…"),
        (&["a❤\u{fe0f}b"], 4, "a❤\u{fe0f}b"),
        (&["e\u{301}e\u{301}e\u{301}"], 2, "e\u{301}…"),
        (&[], 4, ""),
    ] {
        assert_eq!(fit(&parts(texts), width, STYLE), line, "{texts:?} {width}");
    }
}

#[test]
fn colours_take_no_columns() {
    let style = Style {
        colour: true,
        ..STYLE
    };
    assert_eq!(fit(&parts(&["abc"]), 3, style), "\x1b[1;35mabc\x1b[0m");
    assert_eq!(fit(&parts(&["abc"]), 2, style), "\x1b[1;35ma…\x1b[0m");
}

#[test]
fn columns_of_tables_are_as_wide_as_their_cells() {
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    let rows = [row(["日本", "1", "##"]), row(["a", "1,000", "#"])];
    assert_eq!(
        table(&["NAME", "SIZE", ""], &rows, STYLE),
        "NAME   SIZE\n日本      1  ##\na     1,000  #\n"
    );
    let narrow = Style { width: 8, ..STYLE };
    assert_eq!(
        table(&["NAME", "SIZE", ""], &rows, narrow),
        "NAME   …\n日本   …\na     1…\n"
    );
    assert_eq!(
        facts(&[("a", "b".to_owned()), ("key", "c".to_owned())], STYLE),
        "a    b\nkey  c\n"
    );
    let long = [(
        "key",
        "one two 日本語 three /a/long/path/of-a-project/x".to_owned(),
    )];
    let narrow = Style { width: 21, ..STYLE };
    assert_eq!(
        facts(&long, narrow),
        "key  one two 日本語\n     three\n     /a/long/path/of-\n     a-project/x\n"
    );
    let narrowest = Style { width: 12, ..STYLE };
    assert_eq!(facts(&long, narrowest), "key  one tw…\n");
}

#[test]
fn bars_are_at_most_full() {
    assert_eq!(share(0, 0, STYLE), "");
    assert_eq!(share(1, 2, STYLE), "█".repeat(10));
    assert_eq!(share(5, 2, STYLE), "█".repeat(20));
    let ascii = Style {
        unicode: false,
        ..STYLE
    };
    assert_eq!(share(u64::MAX, u64::MAX, ascii), "#".repeat(20));
}
