//! Drawn graphs, as they are looked at.

#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::Moment;
use agentvfs_picture::{Graph, Row, Style, Times};
use unicode_width::UnicodeWidthStr;

const PLAIN: Style = Style {
    colour: false,
    unicode: true,
    width: 60,
    times: Times::Ago(1_000),
};

/// A commit: its id, parents, labels; `@` before the id for the head, `.` for an automatic one.
fn row(id: &str, parents: &[&str], label: &str) -> Row {
    let name = id.trim_start_matches(['@', '.']);
    Row {
        number: None,
        commit: Some(name.to_owned()),
        time: Moment { sec: 940, nsec: 0 },
        labels: label.split_whitespace().map(str::to_owned).collect(),
        message: String::new(),
        meta: Vec::new(),
        automatic: id.starts_with('.'),
        head: id.starts_with('@'),
        parents: parents.iter().map(|id| (*id).to_owned()).collect(),
        kind: "checkpoint".to_owned(),
        digits: None,
    }
}

fn drawn(rows: &[Row], style: Style, heads: &[(&str, &str)]) -> String {
    let heads = heads
        .iter()
        .map(|(b, c)| ((*b).to_owned(), (*c).to_owned()));
    let mut graph = Graph::new(style, true, heads.collect());
    let mut text: String = rows.iter().map(|row| graph.push(row)).collect();
    text.push_str(&graph.finish());
    text
}

fn merged() -> Vec<Row> {
    vec![
        row("@m2", &["m1", "b1"], "done"),
        row("b1", &["s"], "second"),
        row("m1", &["t", "a1"], ""),
        row("a1", &["s"], "first"),
        row("t", &["s"], ""),
        row("s", &[], ""),
    ]
}

#[test]
fn three_branches_and_their_merges() {
    let heads = [("main", "m2"), ("a", "a1"), ("b", "b1")];
    assert_eq!(drawn(&merged(), PLAIN, &heads), MERGED);
    let ascii = Style {
        unicode: false,
        ..PLAIN
    };
    let text = drawn(&merged(), ascii, &heads);
    assert!(text.is_ascii(), "{text}");
    assert_eq!(text.lines().count(), MERGED.lines().count(), "{text}");
}

const MERGED: &str = "\
@    m2  1 min ago  [main]  done
├─╮
│ ○  b1  1 min ago  [b]  second
◆ │    m1  1 min ago
├───╮
│ │ ○  a1  1 min ago  [a]  first
│ ├─╯
○ │  t  1 min ago
├─╯
○  s  1 min ago
";

#[test]
fn chains_of_automatic_commits_are_one_row() {
    let rows = [
        row("@h", &["a3"], "now"),
        row(".a3", &["a2"], ""),
        row(".a2", &["a1"], ""),
        row("side", &["a1"], "side"),
        row(".a1", &["a0"], ""),
        row(".a0", &["s"], ""),
        row("s", &[], "start"),
    ];
    let text = drawn(&rows, PLAIN, &[]);
    // What another commit begins from is not in the middle of a fold.
    assert_eq!(
        text.matches("2 automatic commits, 1 min ago").count(),
        2,
        "{text}"
    );
    assert_eq!(
        text.lines().filter(|line| line.contains("ago")).count(),
        5,
        "{text}"
    );
    let mut graph = Graph::new(PLAIN, false, Vec::new());
    let all: String = rows.iter().map(|row| graph.push(row)).collect();
    assert!(!all.contains("automatic") && graph.commits() == 7, "{all}");
}

#[test]
fn calls_and_runs_stand_beside_their_commits() {
    let mut rows = [
        row("@h", &["a2"], "now"),
        row(".a2", &["a1"], ""),
        row(".a1", &["s"], ""),
        row("s", &[], "start"),
    ];
    let meta = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    rows[1].meta = vec![
        meta("run-end", "r1"),
        meta("command", "cargo test\u{202e}"),
        meta("exit", "101"),
    ];
    rows[2].meta = vec![meta("run", "r1"), meta("command", "cargo test")];
    let drawn = |style: Style, calls: &[(&str, &str)]| {
        let mut graph = Graph::new(style, true, Vec::new());
        for (commit, tool) in calls {
            graph.add_call((*commit).to_owned(), (*tool).to_owned());
        }
        let mut text: String = rows.iter().map(|row| graph.push(row)).collect();
        text.push_str(&graph.finish());
        text
    };
    let wide = Style {
        width: 200,
        ..PLAIN
    };
    let calls = [("h", "edit"), ("a2", "b"), ("a1", "b"), ("a1", "c")];
    let text = drawn(wide, &calls);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("ago")).collect();
    assert!(lines[0].ends_with("  now  1 call: edit"), "{text}");
    let folded = concat!(
        "2 automatic commits, 1 min ago",
        r#"  run: "cargo test\342\200\256" (exit 101)  3 calls: b, c"#
    );
    assert!(lines[1].ends_with(folded), "{text}");
    assert!(lines[2].ends_with("  start"), "{text}");
    let many = ["a", "b", "c", "d", "e"].map(|tool| ("s", tool));
    assert!(drawn(wide, &many).ends_with("start  5 calls: a, b, c, …\n"));
    let ascii = Style {
        unicode: false,
        ..wide
    };
    assert!(drawn(ascii, &many).is_ascii());
}

#[test]
fn lines_are_no_wider_than_the_terminal() {
    let mut rows = merged();
    rows[1].message = "\u{202e}\x1b[2J 日本語の長いメッセージ and more of it".to_owned();
    rows[2].message = "x".repeat(300);
    for width in [1, 10, 20, 40, 200] {
        for unicode in [true, false] {
            let style = Style {
                width,
                unicode,
                ..PLAIN
            };
            let text = drawn(&rows, style, &[]);
            assert!(!text.contains(['\x1b', '\u{202e}']), "{text}");
            let widest = text.lines().map(UnicodeWidthStr::width).max();
            // The lines to the parents take what they take.
            assert!(widest.unwrap() <= width.max(9), "{width}: {text}");
        }
    }
}

#[test]
fn rows_in_another_order_are_drawn_once_and_end() {
    let rows = [
        row("s", &[], "start"),
        row("@h", &["s"], "now"),
        row("s", &[], "start"),
        row("x", &["nowhere"], ""),
        row(".y", &["nowhere"], ""),
    ];
    let text = drawn(&rows, PLAIN, &[]);
    assert_eq!(text.matches("start").count(), 1, "{text}");
    assert!(
        text.contains("now") && text.contains("1 automatic commit,"),
        "{text}"
    );
}

#[test]
fn times_are_said_in_full_where_nobody_looks() {
    let style = Style {
        times: Times::Utc,
        ..PLAIN
    };
    let text = drawn(&merged(), style, &[]);
    assert!(text.contains("1970-01-01T00:15:40Z"), "{text}");
}

#[test]
fn first_row_comes_before_the_second_commit_is_known() {
    let mut graph = Graph::new(PLAIN, true, Vec::new());
    assert!(graph.push(&row("@h", &["p"], "now")).contains("now"));
}

#[test]
fn a_commit_of_another_branch_that_says_why_is_no_automatic_one() {
    let other = |message: &str| Row {
        kind: "other-branch".to_owned(),
        message: message.to_owned(),
        ..row(".b1", &["s"], "")
    };
    let shown = |message: &str| {
        let rows = [
            row("@m2", &["m1", "b1"], ""),
            row("m1", &["s"], ""),
            other(message),
            row("s", &[], ""),
        ];
        drawn(&rows, PLAIN, &[])
    };
    assert!(shown("say what it does").contains("say what it does"));
    assert!(shown("").contains("1 automatic commit"));
}
