//! Binary contents as git's binary patches have them: deflated, in base 85; and git's ids of contents.

use super::{Blob, Side, Sink};
use crate::error::{Error, Result};
use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output, create_comp_flags_from_zip_params,
};

/// Bytes on one line.
const LINE_BYTES: usize = 52;
/// Level of compression, as zlib counts.
const LEVEL: i32 = 6;
/// A zlib header with a window of 2^15 bytes.
const WINDOW_BITS: i32 = 15;

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Git's id of a content: SHA-1 of its type, length and bytes. Not used for anything of our own.
pub struct Sha(sha1_smol::Sha1);

impl Sha {
    /// The id that stands for no file.
    pub const NOTHING: &'static str = "0000000000000000000000000000000000000000";

    /// Begins a content of `size` bytes.
    pub fn new(size: u64) -> Sha {
        Sha(sha1_smol::Sha1::from(format!("blob {size}\0")))
    }

    /// The id of a whole content.
    pub fn of(bytes: &[u8]) -> String {
        let mut sha = Sha::new(bytes.len() as u64);
        sha.update(bytes);
        sha.finish()
    }

    /// Takes more of it.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Its id.
    pub fn finish(&self) -> String {
        self.0.digest().to_string()
    }
}

/// Writes a content as a literal.
pub fn write(side: &Side<'_>, blob: &Blob, out: Sink<'_>) -> Result<()> {
    out(format!("literal {}\n", blob.size).as_bytes())?;
    let mut lines = Lines {
        out,
        rest: Vec::new(),
        failed: None,
    };
    let flags = create_comp_flags_from_zip_params(LEVEL, WINDOW_BITS, 0);
    let mut deflate = CompressorOxide::new(flags);
    match &blob.bytes {
        Some(bytes) => compress(&mut deflate, bytes, TDEFLFlush::None, &mut lines)?,
        None => {
            let mut sha = Sha::new(blob.size);
            side.each_piece(&mut |bytes| {
                sha.update(bytes);
                compress(&mut deflate, bytes, TDEFLFlush::None, &mut lines)
            })?;
            if sha.finish() != blob.sha {
                return Err(Error::Stale);
            }
        }
    }
    compress(&mut deflate, &[], TDEFLFlush::Finish, &mut lines)?;
    lines.end()
}

fn compress(
    deflate: &mut CompressorOxide,
    bytes: &[u8],
    flush: TDEFLFlush,
    lines: &mut Lines<'_>,
) -> Result<()> {
    let mut rest = bytes;
    loop {
        let (status, used) = compress_to_output(deflate, rest, flush, |made| lines.take(made));
        if let Some(e) = lines.failed.take() {
            return Err(e);
        }
        rest = rest.get(used..).unwrap_or_default();
        match status {
            TDEFLStatus::Done => return Ok(()),
            TDEFLStatus::Okay if rest.is_empty() && flush == TDEFLFlush::None => return Ok(()),
            TDEFLStatus::Okay => {}
            _ => return Err(Error::Invalid),
        }
    }
}

/// Deflated bytes becoming lines.
struct Lines<'a> {
    out: Sink<'a>,
    rest: Vec<u8>,
    failed: Option<Error>,
}

impl Lines<'_> {
    /// Takes deflated bytes; false where the reader of the lines fails.
    fn take(&mut self, made: &[u8]) -> bool {
        self.rest.extend_from_slice(made);
        let whole = self.rest.len() / LINE_BYTES * LINE_BYTES;
        let mut text = Vec::with_capacity(whole / 4 * 5 + whole / LINE_BYTES * 2);
        self.rest[..whole]
            .chunks(LINE_BYTES)
            .for_each(|line| push_line(line, &mut text));
        self.rest.drain(..whole);
        match (self.out)(&text) {
            Ok(()) => true,
            Err(e) => {
                self.failed = Some(e);
                false
            }
        }
    }

    fn end(self) -> Result<()> {
        let mut text = Vec::new();
        if !self.rest.is_empty() {
            push_line(&self.rest, &mut text);
        }
        text.push(b'\n');
        (self.out)(&text)
    }
}

/// One line: how many bytes, as a letter, then five digits for each four of them.
fn push_line(bytes: &[u8], text: &mut Vec<u8>) {
    let count = bytes.len() as u8;
    text.push(match count {
        1..=26 => b'A' + count - 1,
        _ => b'a' + count - 27,
    });
    for group in bytes.chunks(4) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let mut number = at(0) << 24 | at(1) << 16 | at(2) << 8 | at(3);
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(number % 85) as usize];
            number /= 85;
        }
        text.extend_from_slice(&digits);
    }
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_git() {
        assert_eq!(Sha::of(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(Sha::of(b"x\n"), "587be6b4c3f93f93c489c0111bba5596147a26cb");
    }

    #[test]
    fn lines_have_a_length_and_five_digits_for_four_bytes() {
        let mut text = Vec::new();
        push_line(&[0; 4], &mut text);
        push_line(&[255; 27], &mut text);
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "D00000");
        assert!(lines[1].starts_with("a|NsC0|NsC0") && lines[1].len() == 36);
    }
}
