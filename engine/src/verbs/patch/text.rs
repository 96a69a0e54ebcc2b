//! Lines that differ, as hunks with three lines of context.

use super::{Blob, Sink};
use crate::error::Result;
use gix_imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::collections::HashMap;
use std::ops::Range;

/// Unchanged lines shown before and after a change.
const CONTEXT: u32 = 3;

/// Bytes of binary data that are compared as one piece for a similarity.
const PIECE_BYTES: usize = 64;

fn compare<'a>(old: &'a [u8], new: &'a [u8]) -> (InternedInput<&'a [u8]>, Diff) {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    (input, diff)
}

/// Lines added and removed.
pub fn count(old: &[u8], new: &[u8]) -> (u64, u64) {
    let (_, diff) = compare(old, new);
    (
        u64::from(diff.count_additions()),
        u64::from(diff.count_removals()),
    )
}

/// Writes the hunks.
pub fn write(old: &[u8], new: &[u8], out: Sink<'_>) -> Result<()> {
    let (input, diff) = compare(old, new);
    let before = Text::new(&input, &input.before);
    let after = Text::new(&input, &input.after);
    let hunks: Vec<Hunk> = diff.hunks().collect();
    for group in hunks.chunk_by(|a, b| b.before.start - a.before.end <= 2 * CONTEXT) {
        write_group(&before, &after, group, out)?;
    }
    Ok(())
}

/// The lines of one side.
struct Text<'a> {
    input: &'a InternedInput<&'a [u8]>,
    tokens: &'a [gix_imara_diff::Token],
}

impl<'a> Text<'a> {
    fn new(input: &'a InternedInput<&'a [u8]>, tokens: &'a [gix_imara_diff::Token]) -> Text<'a> {
        Text { input, tokens }
    }

    fn len(&self) -> u32 {
        self.tokens.len() as u32
    }

    fn push(&self, lines: Range<u32>, mark: u8, to: &mut Vec<u8>) {
        for token in &self.tokens[lines.start as usize..lines.end as usize] {
            let line = self.input.interner[*token];
            to.push(mark);
            to.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                to.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
}

/// Writes changes that are near one another as one hunk.
fn write_group(before: &Text<'_>, after: &Text<'_>, group: &[Hunk], out: Sink<'_>) -> Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return Ok(());
    };
    let lead = first.before.start.min(CONTEXT);
    let tail = (before.len() - last.before.end).min(CONTEXT);
    let old = first.before.start - lead..last.before.end + tail;
    let new = first.after.start - lead..last.after.end + tail;
    debug_assert!(new.end <= after.len());
    let mut text = format!("@@ -{} +{} @@\n", place(&old), place(&new)).into_bytes();
    let mut at = old.start;
    for hunk in group {
        before.push(at..hunk.before.start, b' ', &mut text);
        before.push(hunk.before.clone(), b'-', &mut text);
        after.push(hunk.after.clone(), b'+', &mut text);
        at = hunk.before.end;
    }
    before.push(at..old.end, b' ', &mut text);
    out(&text)
}

/// Where lines stand, counted from 1; no lines stand after the one before them.
fn place(lines: &Range<u32>) -> String {
    match lines.end - lines.start {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        n => format!("{},{n}", lines.start + 1),
    }
}

/// How much of two contents is the same, in per cent of the longer one: 100 only where all is.
pub fn similarity(a: &Blob, b: &Blob) -> u64 {
    if a.sha == b.sha {
        return 100;
    }
    let (Some(x), Some(y)) = (&a.bytes, &b.bytes) else {
        return 0;
    };
    let binary = a.binary || b.binary;
    let mut counts: HashMap<&[u8], u64> = HashMap::new();
    for piece in pieces(x, binary) {
        *counts.entry(piece).or_default() += 1;
    }
    let mut same = 0;
    for piece in pieces(y, binary) {
        if let Some(n) = counts.get_mut(piece).filter(|n| **n > 0) {
            *n -= 1;
            same += piece.len() as u64;
        }
    }
    (same * 100 / a.size.max(b.size).max(1)).min(99)
}

fn pieces(bytes: &[u8], binary: bool) -> Vec<&[u8]> {
    if binary {
        bytes.chunks(PIECE_BYTES).collect()
    } else {
        bytes.split_inclusive(|b| *b == b'\n').collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn patch(old: &str, new: &str) -> String {
        let mut text = Vec::new();
        write(old.as_bytes(), new.as_bytes(), &mut |bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn hunks_have_three_lines_of_context_and_join_when_near() {
        let old: String = (1..=30).map(|i| format!("{i}\n")).collect();
        let near = old.replace("\n10\n", "\nten\n").replace("\n17\n", "\n");
        let text = patch(&old, &near);
        assert_eq!(text.matches("@@ -").count(), 1, "{text}");
        assert!(
            text.starts_with("@@ -7,14 +7,13 @@\n 7\n 8\n 9\n-10\n+ten\n"),
            "{text}"
        );
        let far = old.replace("\n10\n", "\nten\n").replace("\n18\n", "\n");
        assert_eq!(patch(&old, &far).matches("@@ -").count(), 2);
    }

    #[test]
    fn missing_newline_at_the_end_is_told() {
        assert_eq!(
            patch("a\n", "a"),
            "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"
        );
        assert_eq!(patch("", "a\nb\n"), "@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(patch("a\n", ""), "@@ -1 +0,0 @@\n-a\n");
    }
}
