//! What is not ours as people and scripts read it: names quoted as git quotes them, lines without
//! anything that a terminal obeys, and base64 for JSON.
//!
//! Paths are bytes. A row must not break when a name has a newline in it, and a name that is not
//! UTF-8 must not be lost in JSON. Invariant: what leads to a terminal comes through here, but for the
//! contents of files and what programs print themselves.

use agentvfs_quote::{header_name, is_hidden, needs_quotes};
use base64::Engine;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use base64::engine::general_purpose::STANDARD as BASE64;
use std::borrow::Cow;

pub use agentvfs_quote::shown;

/// `path` for a row: as it is, or in double quotes with C escapes where it has control characters,
/// marks of direction, quotes or backslashes. Other bytes are never changed, whatever their encoding.
pub fn quoted(path: &[u8]) -> Cow<'_, [u8]> {
    if needs_quotes(path) {
        Cow::Owned(header_name(b"", path))
    } else {
        Cow::Borrowed(path)
    }
}

/// A message on one line: whatever of it a terminal would obey is shown as an escape.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, &is_hidden, &|c, out| match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c => {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                out.push_str(&format!("\\{byte:03o}"));
            }
        }
    })
}

/// The same for text of several lines.
pub fn lines(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(one_line).collect();
    lines.join("\n")
}

/// JSON text that means the same, without anything that a terminal obeys. Characters of C0 are escaped in
/// JSON anyhow; line breaks between its parts stay.
pub fn json(text: &str) -> Cow<'_, str> {
    // Nothing of ASCII but DEL is, and most texts are ASCII. All of it is looked at: that takes no branches.
    if text
        .bytes()
        .fold(true, |so_far, byte| so_far & (byte < 0x7f))
    {
        return Cow::Borrowed(text);
    }
    let unsafe_in_json = |c: char| c > '\u{1f}' && is_hidden(c);
    escaped(text, &unsafe_in_json, &|c, out| {
        out.push_str(&format!("\\u{:04x}", u32::from(c)));
    })
}

fn escaped<'a>(
    text: &'a str,
    wanted: &dyn Fn(char) -> bool,
    escape: &dyn Fn(char, &mut String),
) -> Cow<'a, str> {
    if !text.contains(wanted) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match wanted(c) {
            true => escape(c, &mut out),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// The first few of many paths, quoted, and how many more there are.
pub fn some_paths<'a>(paths: impl Iterator<Item = &'a [u8]>) -> String {
    const SHOWN: usize = 3;
    let all: Vec<&[u8]> = paths.collect();
    let shown = all.iter().take(SHOWN);
    let shown = shown.map(|path| String::from_utf8_lossy(&quoted(path)).into_owned());
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text.push_str(&format!(" and {} more", all.len() - SHOWN));
    }
    text
}

/// Base64 with the processor's vector instructions, where there are some for it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static BASE64: std::sync::LazyLock<base64::engine::Simd> = std::sync::LazyLock::new(|| {
    base64::engine::Simd::standard(base64::engine::general_purpose::PAD)
});

/// `bytes` in base64 (RFC 4648, with padding).
pub fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Adds bytes in base64.
pub fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let before = out.len();
    out.resize(before + bytes.len().div_ceil(3) * 4, 0);
    // There is as much room as it takes.
    let done = BASE64.encode_slice(bytes, &mut out[before..]);
    debug_assert!(done.is_ok());
}

/// The bytes that `text` encodes; `None` where it is not base64 as [`base64`] writes it.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
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
            ("\u{9b}2J".as_bytes(), br#""\302\2332J""#),
            (b"\x9b2J \x84", br#""\2332J \204""#),
            (
                "a\u{202e}b\u{2066}".as_bytes(),
                br#""a\342\200\256b\342\201\246""#,
            ),
        ] {
            assert_eq!(*quoted(name), *row);
        }
    }

    #[test]
    fn messages_have_one_line_and_nothing_that_a_terminal_obeys() {
        assert_eq!(one_line("größe \"x\" c:\\d"), "größe \"x\" c:\\d");
        assert_eq!(
            one_line("a\nhint: rm\x1b[2J\u{9b}2J\u{202e}\u{7f}"),
            r"a\nhint: rm\033[2J\302\2332J\342\200\256\177"
        );
        assert_eq!(lines("a\nb\x07\n"), "a\nb\\007\n");
    }

    #[test]
    fn json_means_the_same() {
        let value = serde_json::json!({ "a\u{9b}": ["\u{202e}x\u{7f}\n", "größe"] });
        let text = format!("{value:#}");
        let safe = json(&text);
        assert!(
            !safe.contains(|c: char| c != '\n' && is_hidden(c)),
            "{safe}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
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
