//! Trees, bars and the words and lines that differ, as they are looked at.

#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::{Bytes, Changed, LineCount, Moment};
use agentvfs_picture::{
    Cell, Columns, Ended, LinesFrom, Paint, Side, Span, Style, Times, cell, columns, histogram,
    id_cell, leave_out, spans, tree, words,
};

const STYLE: Style = Style {
    colour: false,
    unicode: true,
    width: 60,
    times: Times::Utc,
};

#[test]
fn columns_that_are_empty_take_no_room_and_wide_letters_two() {
    let row = |a: &str, b: &str, c: &str| {
        vec![
            cell(Paint::Plain, a),
            cell(Paint::Plain, b),
            cell(Paint::Plain, c),
        ]
    };
    let rows = [row("字", "", "1"), row("abc", "", "23")];
    let sides = [Side::Left, Side::Left, Side::Right];
    assert_eq!(columns(&rows, &sides, STYLE), "字    1\nabc  23\n");
    let narrow = Style { width: 4, ..STYLE };
    assert_eq!(columns(&rows, &sides, narrow), "字 …\nabc…\n");
}

#[test]
fn columns_of_later_pages_are_no_narrower() {
    let row = |a: &str, b: &str| vec![cell(Paint::Plain, a), cell(Paint::Plain, b)];
    let mut table = Columns::new(&[Side::Left, Side::Left], STYLE);
    assert_eq!(table.page(&[row("abc", "1")]), "abc  1\n");
    assert_eq!(
        table.page(&[row("a", "2"), row("b", "3")]),
        "a    2\nb    3\n"
    );
    assert_eq!(table.page(&[row("abcd", "4")]), "abcd  4\n");
    assert_eq!(table.page(&[row("a", "5")]), "a     5\n");
}

#[test]
fn ids_are_shown_to_eight_digits_or_as_many_as_name_them() {
    let id = "0123456789abcdef";
    let text = |digits| -> Vec<String> {
        id_cell(id, digits)
            .into_iter()
            .map(|(_, text)| text)
            .collect()
    };
    assert_eq!(text(Some(4)), ["0123", "4567"]);
    assert_eq!(text(Some(10)), ["0123456789", ""]);
    assert_eq!(text(Some(64)), [id, ""]);
    assert_eq!(text(None), ["0123456789ab"]);
}

#[test]
fn a_tree_keeps_the_order_and_draws_lines_to_origins() {
    let drawn = |origins: &[Option<usize>], style| -> Vec<String> {
        let twigs = tree(origins, style).into_iter();
        twigs
            .map(|twig| format!("{}{}", twig.lines, twig.at))
            .collect()
    };
    let origins = [None, Some(0), Some(1), Some(0), Some(3), None];
    assert_eq!(
        drawn(&origins, STYLE),
        ["0", "├─ 1", "│  └─ 2", "└─ 3", "   └─ 4", "5"]
    );
    let ascii = Style {
        unicode: false,
        ..STYLE
    };
    assert_eq!(drawn(&origins[..2], ascii), ["0", "`- 1"]);
    assert_eq!(drawn(&[None, Some(2), Some(1)], STYLE), ["0"]);
}

fn span(name: &str, from: i64, to: i64) -> Span {
    Span {
        id: "1".to_owned(),
        name: name.to_owned(),
        ended: Ended::Well,
        status: "ok".to_owned(),
        took: String::new(),
        branch: String::new(),
        from: Moment { sec: from, nsec: 0 },
        to: Moment { sec: to, nsec: 0 },
    }
}

/// Columns that the bars of calls take.
fn bars(all: &[Span], style: Style) -> Vec<(usize, usize)> {
    let text = spans(all, style);
    let bar = |line: &str| {
        let marks: Vec<usize> = line
            .chars()
            .enumerate()
            .filter(|(_, c)| *c == '█')
            .map(|(at, _)| at)
            .collect();
        (marks[0], marks[marks.len() - 1] + 1)
    };
    text.lines().skip(1).map(bar).collect()
}

#[test]
fn bars_share_columns_just_where_calls_overlap() {
    let all = [
        span("a", 0, 10),
        span("b", 10, 11),
        span("c", 5, 9),
        span("d", 1_000_000, 1_000_000),
        span("e", 11, 1_000_000),
    ];
    let wide = Style { width: 90, ..STYLE };
    let drawn = bars(&all, wide);
    for (x, a) in drawn.iter().zip(&all) {
        for (y, b) in drawn.iter().zip(&all) {
            let share = x.0 < y.1 && y.0 < x.1;
            let overlap = a.name == b.name || (a.from.sec < b.to.sec && b.from.sec < a.to.sec);
            assert_eq!(share, overlap, "{} {}: {drawn:?}", a.name, b.name);
        }
    }
    let many: Vec<Span> = (0..500).map(|n| span("x", n, n + 1)).collect();
    assert!(
        bars(&many, wide)
            .iter()
            .all(|(from, to)| from < to && *to <= 90)
    );
    // What is said of a call makes room for the bars; where that is not enough, it stays.
    let narrow = spans(&all, Style { width: 30, ..STYLE });
    assert!(
        narrow.contains('█') && !narrow.contains("STARTED"),
        "{narrow}"
    );
    let narrow = spans(&all, Style { width: 16, ..STYLE });
    assert!(
        !narrow.contains('█') && narrow.contains("STATU"),
        "{narrow}"
    );
}

fn changed(path: &str, lines: Option<(u64, u64)>) -> Changed {
    Changed {
        status: 'M',
        path: Bytes(path.into()),
        old_path: None,
        lines: Some(LineCount {
            added: lines.map_or(0, |lines| lines.0),
            removed: lines.map_or(0, |lines| lines.1),
            binary: lines.is_none(),
            old_size: 0,
            new_size: 0,
        }),
    }
}

#[test]
fn bars_of_a_diff_fit_and_show_what_is_little() {
    let all = [
        changed(
            "src/very/long/directory/name/with/a/file/at/the/end.rs",
            Some((100_000, 1)),
        ),
        changed("b", Some((0, 2))),
        changed("c", None),
    ];
    let text = histogram(&all, Style { width: 40, ..STYLE });
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 40),
        "{text}"
    );
    assert!(
        lines[0].starts_with('…') && lines[0].contains("end.rs  100001  +++++++"),
        "{text}"
    );
    assert!(
        lines[1].trim_end().ends_with("2  -") && lines[2].ends_with("binary"),
        "{text}"
    );
    assert_eq!(
        lines[3], "3 paths, 100000 lines added, 3 lines re…",
        "{text}"
    );
    assert_eq!(histogram(&[], STYLE), "");
    let piped = histogram(
        &all,
        Style {
            width: usize::MAX,
            ..STYLE
        },
    );
    assert!(
        piped.lines().all(|line| line.chars().count() <= 80),
        "{piped}"
    );
}

#[test]
fn words_that_differ_are_found_where_lines_are_alike() {
    let marked = |old: &str, new: &str| {
        let text = |pieces: Vec<(bool, &[u8])>| -> String {
            let piece = |(differs, piece): (bool, &[u8])| {
                let text = String::from_utf8_lossy(piece);
                if differs {
                    format!("[{text}]")
                } else {
                    text.into_owned()
                }
            };
            pieces.into_iter().map(piece).collect()
        };
        let found = words(old.as_bytes(), new.as_bytes());
        found.map(|(old, new)| (text(old), text(new)))
    };
    let wanted = Some((
        "let größe = [old]();".to_owned(),
        "let größe = [new]();".to_owned(),
    ));
    assert_eq!(marked("let größe = old();", "let größe = new();"), wanted);
    assert_eq!(marked("one two", "three four"), None);
    assert_eq!(marked("a", &"a".repeat(5000)), None);
    assert_eq!(marked("", ""), Some((String::new(), String::new())));
}

#[test]
fn lines_keep_their_origin_until_they_are_replaced() {
    let mut lines = LinesFrom::new(b"a\nb\nc".to_vec(), 0);
    lines.turn_into(b"a\nx\nc\n".to_vec(), |_| 1);
    lines.turn_into(b"new\na\nx\n".to_vec(), |line| {
        if line == b"new\n" { 2 } else { 9 }
    });
    let found: Vec<(&[u8], i32)> = lines
        .lines()
        .map(|(line, origin)| (line, *origin))
        .collect();
    assert_eq!(found, [(&b"new\n"[..], 2), (b"a\n", 0), (b"x\n", 1)]);
    lines.turn_into(Vec::new(), |_| 9);
    assert_eq!(lines.lines().count(), 0);
    assert_eq!(
        LinesFrom::<()>::added(b"a\nb\n", b"b\nc\n"),
        [b"c\n".to_vec()]
    );
}

/// A picture as it is looked at: overlaps, a failure, what has not ended, wide names, also in ASCII.
#[test]
fn bars_of_a_timeline_are_drawn_like_this() {
    let mut all = [
        span("edit", 0, 10),
        span("後で", 5, 20),
        span("test", 20, 20),
        span("serve", 10, 40),
    ];
    for (at, span) in all.iter_mut().enumerate() {
        span.id = (at + 1).to_string();
    }
    (all[2].ended, all[2].status) = (Ended::Failed, "error".to_owned());
    (all[3].ended, all[3].status) = (Ended::Not, "pending".to_owned());
    let wanted = "\
        ID  TOOL   STATUS   TOOK  STARTED               OVER TIME\n \
        1  edit   ok             1970-01-01T00:00:00Z  █████████\n \
        2  後で   ok             1970-01-01T00:00:05Z      ██████████\n \
        3  test   error          1970-01-01T00:00:20Z                █\n \
        4  serve  pending        1970-01-01T00:00:10Z           ███████████▒\n";
    let style = Style { width: 70, ..STYLE };
    assert_eq!(spans(&all, style), wanted);
    let ascii = Style {
        unicode: false,
        ..style
    };
    let wanted = wanted.replace('█', "#").replace('▒', ">");
    assert_eq!(spans(&all, ascii), wanted);
}

#[test]
fn long_names_of_wide_letters_take_no_more_columns_than_others() {
    let wide = "後".repeat(30);
    let all = [span(&wide, 0, 10), span(&"x".repeat(60), 5, 20)];
    let text = spans(
        &all,
        Style {
            width: 100,
            ..STYLE
        },
    );
    let rows: Vec<&str> = text.lines().collect();
    let column = |line: &str, word: &str| {
        let before = &line[..line.find(word).unwrap()];
        unicode_width::UnicodeWidthStr::width(before)
    };
    let status = column(rows[0], "STATUS");
    assert_eq!(status, 4 + 24 + 2, "{text}");
    assert_eq!(column(rows[1], "ok"), status, "{text}");
    assert_eq!(column(rows[2], "ok"), status, "{text}");
}

#[test]
fn columns_are_left_out_one_by_one_until_rows_fit() {
    let all = || -> Vec<Vec<Cell>> {
        let row = |texts: [&str; 3]| texts.map(|text| cell(Paint::Plain, text)).into();
        vec![row(["aaaa", "bbb", "cc"]), row(["後で", "b", ""])]
    };
    let left = |room: usize| -> String {
        let mut rows = all();
        leave_out(&mut rows, &[1, 0], room);
        let style = Style {
            width: usize::MAX,
            ..STYLE
        };
        columns(&rows, &[Side::Left; 3], style)
    };
    assert_eq!(left(usize::MAX), left(13));
    assert_eq!(left(13), "aaaa  bbb  cc\n後で  b\n");
    assert_eq!(left(12), "aaaa  cc\n後で\n");
    assert_eq!(left(7), "cc\n\n");
}
