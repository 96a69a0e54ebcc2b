//! Paths in a patch, quoted as git quotes them.

/// A path after `prefix`: as it is, or in double quotes with C escapes where it has control characters,
/// quotes or backslashes.
pub fn header_name(prefix: &[u8], path: &[u8]) -> Vec<u8> {
    let mut out = prefix.to_vec();
    if !path.iter().copied().any(needs_quotes) {
        out.extend_from_slice(path);
        return out;
    }
    out.insert(0, b'"');
    for &byte in path {
        match escape(byte) {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None if needs_quotes(byte) => {
                out.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            None => out.push(byte),
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

fn needs_quotes(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f || byte == b'"' || byte == b'\\'
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
