//! A patch on a terminal: in colours, and with the words that differ within a line.

use crate::output::colour_wanted;
use crate::pager::Pager;
use agentvfs_client::failure::Failure;
use agentvfs_picture::words;
use std::io::{BufRead, Write};

/// Lines that were replaced in one place, beyond which no words are compared.
const LINES_MAX: usize = 1000;

/// Shows a patch through a pager.
pub fn show(text: impl BufRead) -> Result<(), Failure> {
    let mut pager = Pager::open();
    let mut painter = Painter::new(colour_wanted());
    let mut painted = Vec::new();
    for line in text.split(b'\n') {
        painter.push(line?, &mut painted);
        if pager.write_all(&painted).is_err() {
            // Whoever reads has had enough.
            pager.finish()?;
            return Ok(());
        }
        painted.clear();
    }
    painter.flush(&mut painted);
    // The same holds of the last lines.
    let _ = pager.write_all(&painted);
    pager.finish()?;
    Ok(())
}

/// Paints the lines of a patch.
struct Painter {
    colour: bool,
    in_head: bool,
    /// Lines that were removed and added in one place, and are not painted yet.
    removed: Vec<Vec<u8>>,
    added: Vec<Vec<u8>>,
}

impl Painter {
    fn new(colour: bool) -> Painter {
        Painter {
            colour,
            in_head: true,
            removed: Vec::new(),
            added: Vec::new(),
        }
    }

    fn push(&mut self, line: Vec<u8>, out: &mut Vec<u8>) {
        self.in_head = match line.as_slice() {
            [b'd', b'i', b'f', b'f', ..] => true,
            [b'@', b'@', ..] => false,
            _ => self.in_head,
        };
        if !self.colour {
            out.extend([&line[..], b"\n"].concat());
            return;
        }
        let is_full = self.removed.len().max(self.added.len()) == LINES_MAX;
        match (line.first(), self.in_head) {
            (Some(b'-'), false) if self.added.is_empty() && !is_full => self.removed.push(line),
            (Some(b'+'), false) if !is_full => self.added.push(line),
            (Some(b'-'), false) => {
                self.flush(out);
                self.removed.push(line);
            }
            (Some(b'+'), false) => {
                self.flush(out);
                self.added.push(line);
            }
            (first, in_head) => {
                self.flush(out);
                let code = match (first, in_head) {
                    (Some(_), true) => "1",
                    (Some(b'@'), _) => "36",
                    _ => "",
                };
                paint(code, &[(false, &line)], out);
            }
        }
    }

    /// Paints what was put back.
    fn flush(&mut self, out: &mut Vec<u8>) {
        let (removed, added) = (
            std::mem::take(&mut self.removed),
            std::mem::take(&mut self.added),
        );
        let mut new = Vec::new();
        let are_pairs = removed.len() == added.len();
        for (at, line) in removed.iter().enumerate() {
            let pair = added.get(at).filter(|_| are_pairs);
            match pair.and_then(|other| words(&line[1..], &other[1..])) {
                Some((old_words, new_words)) => {
                    paint("31", &[&[(false, &b"-"[..])], &old_words[..]].concat(), out);
                    paint(
                        "32",
                        &[&[(false, &b"+"[..])], &new_words[..]].concat(),
                        &mut new,
                    );
                }
                None => {
                    paint("31", &[(false, line)], out);
                    pair.inspect(|other| paint("32", &[(false, other)], &mut new));
                }
            }
        }
        if !are_pairs {
            added
                .iter()
                .for_each(|line| paint("32", &[(false, line)], &mut new));
        }
        out.extend(new);
    }
}

/// Adds a line in a colour, those of its pieces that stand out reversed.
fn paint(code: &str, pieces: &[(bool, &[u8])], out: &mut Vec<u8>) {
    if !code.is_empty() {
        out.extend(format!("\x1b[{code}m").bytes());
    }
    for (stands_out, piece) in pieces {
        match stands_out {
            true => out.extend([b"\x1b[7m", *piece, b"\x1b[27m"].concat()),
            false => out.extend(*piece),
        }
    }
    out.extend(if code.is_empty() {
        &b"\n"[..]
    } else {
        b"\x1b[0m\n"
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(patch: &str) -> String {
        let (mut painter, mut out) = (Painter::new(true), Vec::new());
        for line in patch.lines() {
            painter.push(line.as_bytes().to_vec(), &mut out);
        }
        painter.flush(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn words_stand_out_in_lines_that_were_replaced_one_by_one() {
        let text =
            painted("diff --git a/f b/f\n--- a/f\n@@ -1 +1 @@\n same\n-let a = 1;\n+let a = 2;\n");
        assert_eq!(
            text,
            "\x1b[1mdiff --git a/f b/f\x1b[0m\n\x1b[1m--- a/f\x1b[0m\n\x1b[36m@@ -1 +1 @@\x1b[0m\n same\n\
            \x1b[31m-let a = \x1b[7m1\x1b[27m;\x1b[0m\n\x1b[32m+let a = \x1b[7m2\x1b[27m;\x1b[0m\n"
        );
    }

    #[test]
    fn lines_that_are_no_pairs_or_have_nothing_in_common_are_whole() {
        let text = painted("@@ -1,2 +1 @@\n-let a = 1;\n-x\n+let a = 2;\n");
        assert!(
            !text.contains("\x1b[7m") && text.ends_with("\x1b[32m+let a = 2;\x1b[0m\n"),
            "{text:?}"
        );
        let text = painted("@@ -1 +1 @@\n-alpha beta\n+gamma delta\n");
        assert!(!text.contains("\x1b[7m"), "{text:?}");
    }

    #[test]
    fn many_replaced_lines_come_all() {
        let lines = |sign: char| format!("{sign}x\n").repeat(LINES_MAX + 5);
        let text = painted(&format!("@@ -1 +1 @@\n{}{}", lines('-'), lines('+')));
        assert_eq!(text.matches("-x").count(), LINES_MAX + 5);
        assert_eq!(text.matches("+x").count(), LINES_MAX + 5);
    }
}
