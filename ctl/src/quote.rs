//! Paths as people and scripts read them: quoted as git quotes them, and base64 for JSON.
//!
//! Paths are bytes. A row must not break when a name has a newline in it, and a name that is not
//! UTF-8 must not be lost in JSON.

use std::borrow::Cow;

/// `path` for a row: as it is, or in double quotes with C escapes where it has control characters,
/// quotes or backslashes. Other bytes are never changed, whatever their encoding.
pub fn quoted(path: &[u8]) -> Cow<'_, [u8]> {
    if path.iter().copied().any(needs_quotes) {
        Cow::Owned(in_quotes(path))
    } else {
        Cow::Borrowed(path)
    }
}

fn needs_quotes(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f || byte == b'"' || byte == b'\\'
}

fn in_quotes(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len() + 8);
    out.push(b'"');
    for &byte in path {
        push_escaped(&mut out, byte);
    }
    out.push(b'"');
    out
}

fn push_escaped(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        byte if needs_quotes(byte) => {
            return out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        }
        byte => return out.push(byte),
    };
    out.extend_from_slice(&[b'\\', letter]);
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` in base64 (RFC 4648, with padding).
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for i in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
    }
    out
}

/// The bytes that `text` encodes; `None` where it is not base64 as [`base64`] writes it.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let digits = group.iter().take_while(|b| **b != b'=').count();
        let mut bits = 0;
        for &byte in &group[..digits] {
            bits = bits << 6 | digit_of(byte)?;
        }
        bits <<= 6 * (4 - digits);
        let bytes = bits.to_be_bytes();
        out.extend_from_slice(&bytes[1..1 + digits.saturating_sub(1)]);
    }
    // Padding within the text, and bits beyond the last byte, decode to something else again.
    (base64(&out) == text).then_some(out)
}

/// The value of a digit.
fn digit_of(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_as_they_are() {
        for name in ["src/größe und so.rs".as_bytes(), b"\xff\xfe"] {
            assert_eq!(*quoted(name), *name);
        }
    }

    #[test]
    fn awkward_names_are_quoted_as_git_does() {
        for (name, row) in [
            (&b"a\tb\n"[..], &br#""a\tb\n""#[..]),
            (br#"say "hi""#, br#""say \"hi\"""#),
            (b"back\\slash", br#""back\\slash""#),
            (b"\x01\x7f", br#""\001\177""#),
            (b"\xff\n", b"\"\xff\\n\""),
        ] {
            assert_eq!(*quoted(name), *row);
        }
    }

    #[test]
    fn base64_of_the_rfc_examples() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
            assert_eq!(from_base64(encoded).unwrap(), plain.as_bytes());
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        for text in [
            "Z", "Zg=", "Zg==Zg==", "Z===", "====", "Zh==", "Z g=", "Zg=a",
        ] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }
}
