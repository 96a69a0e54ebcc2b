//! Names with lines to those that they come from.

use crate::line::Style;

/// How things stand below each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twig {
    /// Which of them it is.
    pub at: usize,
    /// The lines before its name.
    pub lines: String,
}

/// Orders things below those that they come from, in their own order otherwise. What comes from itself, directly or
/// over others, is left out, so a thing without an origin must come first.
pub fn tree(origins: &[Option<usize>], style: Style) -> Vec<Twig> {
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); origins.len()];
    let mut work = Vec::new();
    for (at, origin) in origins.iter().enumerate().rev() {
        match origin {
            Some(origin) => children[*origin].push(at),
            None => work.push((at, String::new(), String::new())),
        }
    }
    let (last, other, space, line) = match style.unicode {
        true => ("└─ ", "├─ ", "   ", "│  "),
        false => ("`- ", "|- ", "   ", "|  "),
    };
    let mut twigs = Vec::new();
    while let Some((at, lines, below)) = work.pop() {
        twigs.push(Twig { at, lines });
        // They were found from the last to the first, and are taken in that order again.
        for (n, child) in children[at].iter().enumerate() {
            let (to, over) = match n {
                0 => (last, space),
                _ => (other, line),
            };
            work.push((*child, format!("{below}{to}"), format!("{below}{over}")));
        }
    }
    twigs
}
