//! Where the lines of a file come from, found by going through its versions, the oldest first.
//!
//! Invariant: there is one origin for each line, and a line keeps it for as long as no version replaces the line.

use gix_imara_diff::sources::byte_lines;
use gix_imara_diff::{Algorithm, Diff, InternedInput};

/// The lines of one version of a file, each with its origin.
#[derive(Debug, Clone)]
pub struct LinesFrom<O> {
    text: Vec<u8>,
    origins: Vec<O>,
}

impl<O: Clone> LinesFrom<O> {
    /// A file whose lines all have one origin.
    pub fn new(text: Vec<u8>, origin: O) -> LinesFrom<O> {
        let many = byte_lines(&text).count();
        LinesFrom {
            text,
            origins: vec![origin; many],
        }
    }

    /// Goes on to the next version: lines that are new get the origin that `origin` says for them.
    pub fn turn_into(&mut self, text: Vec<u8>, mut origin: impl FnMut(&[u8]) -> O) {
        let mut origins = Vec::new();
        {
            let input = InternedInput::new(self.text.as_slice(), text.as_slice());
            let mut diff = Diff::compute(Algorithm::Histogram, &input);
            diff.postprocess_lines(&input);
            let mut old = 0;
            for (at, token) in input.after.iter().enumerate() {
                if diff.is_added(at as u32) {
                    origins.push(origin(input.interner[*token]));
                    continue;
                }
                while diff.is_removed(old as u32) {
                    old += 1;
                }
                origins.push(self.origins[old].clone());
                old += 1;
            }
        }
        (self.text, self.origins) = (text, origins);
    }

    /// Lines that are in the second of two versions and not in the first.
    pub fn added(old: &[u8], new: &[u8]) -> Vec<Vec<u8>> {
        let input = InternedInput::new(old, new);
        let diff = Diff::compute(Algorithm::Histogram, &input);
        let lines = input.after.iter().enumerate();
        let lines = lines.filter(|(at, _)| diff.is_added(*at as u32));
        lines
            .map(|(_, token)| input.interner[*token].to_vec())
            .collect()
    }

    /// The lines with their line ends, and their origins.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &O)> {
        byte_lines(&self.text).zip(&self.origins)
    }
}
