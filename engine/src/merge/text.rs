//! Line merge of three texts, as `git merge-file --diff3` with the Myers algorithm does it.
//!
//! Two line differences (base to ours, base to theirs) are walked together. Changes that neither
//! overlap nor touch are taken both; a change that both made alike is taken once; anything else is a
//! conflict, shown between markers with the base's lines. The differences come from a port of git's own
//! algorithm; how they are joined is here, so that it can be held against git (`tests/merges/lines.rs`).

use gix_imara_diff::sources::byte_lines;
use gix_imara_diff::{Algorithm, Diff, InternedInput, Token};

/// Length of a conflict marker.
pub const MARKER_SIZE: usize = 7;

/// What stands behind the markers of a conflict.
#[derive(Clone, Copy, Debug)]
pub struct LineLabels<'a> {
    /// Behind `|||||||`.
    pub base: &'a [u8],
    /// Behind `<<<<<<<`.
    pub ours: &'a [u8],
    /// Behind `>>>>>>>`.
    pub theirs: &'a [u8],
}

/// Result of a line merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineMerge {
    /// The text, with markers where there are conflicts.
    pub bytes: Vec<u8>,
    /// How many conflicts it has.
    pub conflicts: usize,
}

/// Merges `ours` and `theirs`, both made from `base`.
pub fn merge_lines(
    base: &[u8],
    ours: &[u8],
    theirs: &[u8],
    labels: &LineLabels<'_>,
    marker_size: usize,
) -> LineMerge {
    let texts = Texts::new(base, ours, theirs);
    let (a, b) = (texts.changes(Side::Ours), texts.changes(Side::Theirs));
    let pieces = join(&texts, &a, &b);
    let mut out = Output {
        texts: &texts,
        labels,
        marker_size,
        bytes: Vec::with_capacity(ours.len().max(theirs.len())),
    };
    let mut done = 0;
    for piece in &pieces {
        out.piece(piece, done);
        done = piece.ours.end;
    }
    let rest = Run::new(done, texts.ours.len() as isize);
    out.lines(Side::Ours, rest, false, false);
    let is_conflict = |piece: &&Piece| piece.from == From::Conflict;
    LineMerge {
        bytes: out.bytes,
        conflicts: pieces.iter().filter(is_conflict).count(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Base,
    Ours,
    Theirs,
}

/// The three texts as lines, equal lines having equal tokens.
struct Texts<'a> {
    input: InternedInput<&'a [u8]>,
    base: Vec<Token>,
    ours: Vec<Token>,
    theirs: Vec<Token>,
}

/// Consecutive lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    start: isize,
    end: isize,
}

impl Run {
    fn new(start: isize, end: isize) -> Run {
        Run { start, end }
    }

    /// The lines that a text of this many has of it.
    fn within(&self, count: usize) -> std::ops::Range<usize> {
        let at = |line: isize| usize::try_from(line).unwrap_or(0).min(count);
        at(self.start)..at(self.end).max(at(self.start))
    }
}

/// Lines of the base that a side replaced by lines of its own.
#[derive(Clone, Copy, Debug)]
struct Change {
    base: Run,
    side: Run,
}

impl<'a> Texts<'a> {
    fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Texts<'a> {
        let mut input: InternedInput<&'a [u8]> = InternedInput::default();
        let mut tokens = |text: &'a [u8]| -> Vec<Token> {
            input.update_after(byte_lines(text));
            std::mem::take(&mut input.after)
        };
        let (base, ours, theirs) = (tokens(base), tokens(ours), tokens(theirs));
        Texts {
            input,
            base,
            ours,
            theirs,
        }
    }

    fn of(&self, side: Side) -> &[Token] {
        match side {
            Side::Base => &self.base,
            Side::Ours => &self.ours,
            Side::Theirs => &self.theirs,
        }
    }

    fn line(&self, side: Side, index: usize) -> &'a [u8] {
        self.input.interner[self.of(side)[index]]
    }

    fn changes(&self, side: Side) -> Vec<Change> {
        let (before, after) = (&self.base, self.of(side));
        let mut diff = Diff::default();
        let tokens = self.input.interner.num_tokens();
        diff.compute_with(Algorithm::Myers, before, after, tokens);
        diff.postprocess_with(before, after, gix_imara_diff::NoSliderHeuristic);
        let run = |r: &std::ops::Range<u32>| Run::new(r.start as isize, r.end as isize);
        diff.hunks()
            .map(|hunk| Change {
                base: run(&hunk.before),
                side: run(&hunk.after),
            })
            .collect()
    }
}

/// Where the lines of a piece come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Ours,
    Theirs,
    Conflict,
}

/// A part of the result that at least one side changed, and where it is in each text.
#[derive(Clone, Debug)]
struct Piece {
    from: From,
    base: Run,
    ours: Run,
    theirs: Run,
}

/// Joins the changes of both sides in the order of the base.
fn join(texts: &Texts<'_>, a: &[Change], b: &[Change]) -> Vec<Piece> {
    let mut pieces = Pieces(Vec::new());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    // How far lines of a side that no change touches stand from the base's.
    let (mut ours_off, mut theirs_off) = (0, 0);
    loop {
        match (a.peek(), b.peek()) {
            (None, None) => return pieces.0,
            (Some(x), y) if y.is_none_or(|y| x.base.end < y.base.start) => {
                pieces.push(From::Ours, x.base, x.side, shifted(x.base, theirs_off));
                ours_off = offset(x);
                a.next();
            }
            (x, Some(y)) if x.is_none_or(|x| y.base.end < x.base.start) => {
                pieces.push(From::Theirs, y.base, shifted(y.base, ours_off), y.side);
                theirs_off = offset(y);
                b.next();
            }
            (Some(&&x), Some(&&y)) => {
                if !same_change(texts, &x, &y) {
                    pieces.conflict(&x, &y);
                }
                if x.base.end >= y.base.end {
                    theirs_off = offset(&y);
                    b.next();
                }
                if y.base.end >= x.base.end {
                    ours_off = offset(&x);
                    a.next();
                }
            }
            _ => return pieces.0,
        }
    }
}

/// What a change does to the distance between a line and its place in the base.
fn offset(change: &Change) -> isize {
    change.side.end - change.base.end
}

/// May begin before the text where what lies before it shrank: only its end counts then.
fn shifted(run: Run, by: isize) -> Run {
    Run {
        start: run.start + by,
        end: run.end + by,
    }
}

fn same_change(texts: &Texts<'_>, a: &Change, b: &Change) -> bool {
    a.base == b.base
        && texts.ours[a.side.within(texts.ours.len())]
            == texts.theirs[b.side.within(texts.theirs.len())]
}

struct Pieces(Vec<Piece>);

impl Pieces {
    /// Adds a piece, or widens the last one where they touch in either side.
    fn push(&mut self, from: From, base: Run, ours: Run, theirs: Run) {
        match self.0.last_mut() {
            Some(last) if ours.start <= last.ours.end || theirs.start <= last.theirs.end => {
                if last.from != from {
                    last.from = From::Conflict;
                }
                last.base = Run::new(last.base.start, base.end);
                last.ours = Run::new(last.ours.start, ours.end);
                last.theirs = Run::new(last.theirs.start, theirs.end);
            }
            _ => self.0.push(Piece {
                from,
                base,
                ours,
                theirs,
            }),
        }
    }

    /// Two changes that overlap or touch: all lines from the first of them to the last.
    fn conflict(&mut self, a: &Change, b: &Change) {
        let start = a.base.start.min(b.base.start);
        let end = a.base.end.max(b.base.end);
        let widened = |c: &Change| {
            Run::new(
                c.side.start - (c.base.start - start),
                c.side.end + (end - c.base.end),
            )
        };
        self.push(From::Conflict, Run::new(start, end), widened(a), widened(b));
    }
}

struct Output<'a> {
    texts: &'a Texts<'a>,
    labels: &'a LineLabels<'a>,
    marker_size: usize,
    bytes: Vec<u8>,
}

impl Output<'_> {
    /// Writes what lies between `done` and the piece, then the piece.
    fn piece(&mut self, piece: &Piece, done: isize) {
        self.lines(Side::Ours, Run::new(done, piece.ours.start), false, false);
        match piece.from {
            From::Ours => self.lines(Side::Ours, piece.ours, false, false),
            From::Theirs => self.lines(Side::Theirs, piece.theirs, false, false),
            From::Conflict => {
                let cr = self.needs_cr(piece);
                self.marker(b'<', self.labels.ours, cr);
                self.lines(Side::Ours, piece.ours, cr, true);
                self.marker(b'|', self.labels.base, cr);
                self.lines(Side::Base, piece.base, cr, true);
                self.marker(b'=', b"", cr);
                self.lines(Side::Theirs, piece.theirs, cr, true);
                self.marker(b'>', self.labels.theirs, cr);
            }
        }
    }

    /// Writes lines; with `end_line` the last one is ended where it was not.
    fn lines(&mut self, side: Side, run: Run, cr: bool, end_line: bool) {
        let range = run.within(self.texts.of(side).len());
        let any = !range.is_empty();
        for index in range {
            self.bytes.extend_from_slice(self.texts.line(side, index));
        }
        if end_line && any && self.bytes.last() != Some(&b'\n') {
            self.end_line(cr);
        }
    }

    fn end_line(&mut self, cr: bool) {
        if cr {
            self.bytes.push(b'\r');
        }
        self.bytes.push(b'\n');
    }

    fn marker(&mut self, sign: u8, label: &[u8], cr: bool) {
        self.bytes
            .extend(std::iter::repeat_n(sign, self.marker_size));
        if !label.is_empty() {
            self.bytes.push(b' ');
            self.bytes.extend_from_slice(label);
        }
        self.end_line(cr);
    }

    /// Markers end with CR LF where the lines around them do, as far as that can be told.
    fn needs_cr(&self, piece: &Piece) -> bool {
        let before = |side: Side, run: Run| {
            self.ends_crlf(side, usize::try_from(run.start - 1).unwrap_or(0))
        };
        let told = [
            before(Side::Ours, piece.ours),
            before(Side::Theirs, piece.theirs),
            self.ends_crlf(Side::Base, 0),
        ];
        // Git asks one after the other and stops at the first that says no.
        !told.contains(&Some(false)) && told[2] == Some(true)
    }

    /// Whether a line ends with CR LF; `None` where the text does not tell.
    fn ends_crlf(&self, side: Side, index: usize) -> Option<bool> {
        let count = self.texts.of(side).len();
        let crlf = |line: &[u8]| line.len() > 1 && line[line.len() - 2] == b'\r';
        if count == 0 {
            return None;
        }
        let line = self.texts.line(side, index.min(count - 1));
        if index + 1 < count || line.last() == Some(&b'\n') {
            return Some(crlf(line));
        }
        let before = index.checked_sub(1)?;
        Some(crlf(self.texts.line(side, before)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(base: &str, ours: &str, theirs: &str) -> (String, usize) {
        let labels = LineLabels {
            base: b"base",
            ours: b"a",
            theirs: b"b",
        };
        let merged = merge_lines(
            base.as_bytes(),
            ours.as_bytes(),
            theirs.as_bytes(),
            &labels,
            MARKER_SIZE,
        );
        (String::from_utf8(merged.bytes).unwrap(), merged.conflicts)
    }

    #[test]
    fn changes_apart_are_both_taken() {
        let got = merge("1\n2\n3\n4\n5\n", "x\n2\n3\n4\n5\n", "1\n2\n3\n4\ny\n");
        assert_eq!(got, ("x\n2\n3\n4\ny\n".into(), 0));
    }

    #[test]
    fn the_same_change_is_taken_once() {
        assert_eq!(
            merge("1\n2\n3\n", "1\nx\n3\n", "1\nx\n3\n"),
            ("1\nx\n3\n".into(), 0)
        );
    }

    #[test]
    fn changes_that_touch_are_a_conflict_with_the_base_shown() {
        let (text, conflicts) = merge("1\n2\n3\n", "1\nx\n3\n", "1\n2\ny\n");
        assert_eq!(conflicts, 1);
        let want = "1\n<<<<<<< a\nx\n3\n||||||| base\n2\n3\n=======\n2\ny\n>>>>>>> b\n";
        assert_eq!(text, want);
    }

    #[test]
    fn markers_stand_on_lines_of_their_own() {
        let (text, _) = merge("1", "2", "3");
        assert_eq!(
            text,
            "<<<<<<< a\n2\n||||||| base\n1\n=======\n3\n>>>>>>> b\n"
        );
    }
}
