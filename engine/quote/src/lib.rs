//! Names as rows, messages and patches show them: quoted as git quotes them.
//!
//! Depends on nothing, so that the engine and the clients of the daemon quote alike.
//! Names are bytes that anybody chose. Invariant: what is shown has no byte that a terminal takes for a
//! command, neither of C0 nor of C1 (ECMA-48, also where the bytes are no UTF-8), and no character that
//! changes the direction in which text is read (Unicode UAX #9), by which a name could be shown as another.

#![forbid(unsafe_code)]

/// A path after `prefix`: as it is, or in double quotes with C escapes where it has control characters,
/// marks of direction, quotes or backslashes.
pub fn header_name(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let mut out = prefix.to_vec();
    if !needs_quotes(path) {
        out.extend_from_slice(path);
        return out;
    }
    out.insert(0, b'"');
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut bytes = [0; 4];
            let bytes = c.encode_utf8(&mut bytes).as_bytes();
            push(&mut out, bytes, is_quoted(c));
        }
        for byte in chunk.invalid() {
            push(&mut out, &[*byte], is_c1(*byte));
        }
    }
    out.push(b'"');
    out
}

/// The path of a `---` or `+++` line: one with a space is ended by a tab, which tells `patch` where it
/// ends.
pub fn marked_name(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let mut out = header_name(prefix, path);
    if path.contains(&b' ') && out.first() != Some(&b'"') {
        out.push(b'\t');
    }
    out
}

/// A path in a message: quoted where that is needed, and what is no UTF-8 replaced.
pub fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(&header_name(b"", path)).into_owned()
}

/// True where a path is not shown as it is.
pub fn needs_quotes(path: &[u8]) -> bool {
    path.utf8_chunks().any(|chunk| {
        chunk.valid().chars().any(is_quoted) || chunk.invalid().iter().any(|b| is_c1(*b))
    })
}

/// True for what a terminal does not show but obeys: controls, ends of lines, marks of direction.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn is_quoted(c: char) -> bool {
    is_hidden(c) || c == '"' || c == '\\'
}

fn is_c1(byte: u8) -> bool {
    (0x80..0xa0).contains(&byte)
}

/// A character's bytes, as escapes if wanted.
fn push(out: &mut Vec<u8>, bytes: &[u8], escaped: bool) {
    for &byte in bytes {
        match escape(byte).filter(|_| escaped) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None if escaped => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            None => out.push(byte),
        }
    }
}

fn escape(byte: u8) -> Option<u8> {
    Some(match byte {
        0x07 => b'a',
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0b => b'v',
        0x0c => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(header_name(b"a/", b"x y"), b"a/x y");
        assert_eq!(marked_name(b"a/", b"x y"), b"a/x y\t");
        assert_eq!(header_name(b"a/", b"x\ty"), b"\"a/x\\ty\"");
        assert_eq!(marked_name(b"b/", b"q\" \x01"), b"\"b/q\\\" \\001\"");
    }
}
