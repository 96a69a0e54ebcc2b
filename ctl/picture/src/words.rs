//! Words that differ between an old and a new line.

use gix_imara_diff::{Algorithm, Diff, InternedInput};

/// Longest line that is looked into, in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// Of a line that is more different than this, in percent of its bytes, no words stand out.
const DIFFERENT_MAX: usize = 70;

/// A piece of a line, and whether it differs from the other line.
pub type Pieces<'a> = Vec<(bool, &'a [u8])>;

/// Both lines in pieces; `None` where they have too little in common for single words to stand out.
pub fn words<'a>(old: &'a [u8], new: &'a [u8]) -> Option<(Pieces<'a>, Pieces<'a>)> {
    if old.len().max(new.len()) > LINE_BYTES_MAX {
        return None;
    }
    let (before, after) = (split(old), split(new));
    let mut input = InternedInput::default();
    input.update_before(before.iter().copied());
    input.update_after(after.iter().copied());
    let diff = Diff::compute(Algorithm::Myers, &input);
    let old = pieces(&before, |at| diff.is_removed(at));
    let new = pieces(&after, |at| diff.is_added(at));
    let is_similar = |pieces: &Pieces<'_>| {
        let long = |wanted: bool| -> usize {
            let some = pieces.iter().filter(|(differs, _)| *differs || !wanted);
            some.map(|(_, piece)| piece.len()).sum()
        };
        long(true) * 100 <= long(false) * DIFFERENT_MAX
    };
    (is_similar(&old) && is_similar(&new)).then_some((old, new))
}

/// Words, stretches of spaces, and everything else byte by byte; what is not ASCII counts as letters.
fn split(line: &[u8]) -> Vec<&[u8]> {
    let kind = |byte: u8| match byte {
        b'_' | 0x80.. => 1,
        byte if byte.is_ascii_alphanumeric() => 1,
        b' ' | b'\t' => 2,
        _ => 0,
    };
    line.chunk_by(|a, b| kind(*a) != 0 && kind(*a) == kind(*b))
        .collect()
}

/// The words, those that follow each other and are alike as one.
fn pieces<'a>(words: &[&'a [u8]], differs: impl Fn(u32) -> bool) -> Pieces<'a> {
    let mut pieces: Pieces<'a> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        pieces.push((differs(at as u32), word));
    }
    pieces
}
