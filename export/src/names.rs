//! Names and targets that are not UTF-8, as AgentFS's text columns show them.

use crate::error::Result;
use objstore::{ObjectStore, TreeId, tree_entry};

/// Longest readable part of a name that is shown otherwise, in bytes.
const READABLE_BYTES_MAX: usize = 200;
/// Digits of the hash that tells such names apart.
const DIGITS: usize = 16;

/// A name as text; true where it had to be another one. No entry of the directory `dir` has that name.
pub(crate) fn shown_name(store: &ObjectStore, dir: TreeId, name: &[u8]) -> Result<(String, bool)> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Ok((text.to_owned(), false));
    }
    let mut shown = marked(name);
    while tree_entry(store, dir, shown.as_bytes())?.is_some() {
        shown.push('~');
    }
    Ok((shown, true))
}

/// A link's target as text; true where it had to be another one.
pub(crate) fn shown_target(target: &[u8]) -> (String, bool) {
    match std::str::from_utf8(target) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (String::from_utf8_lossy(target).into_owned(), true),
    }
}

fn marked(name: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(name).into_owned();
    let end = (0..=READABLE_BYTES_MAX.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    let hash = blake3::hash(name).to_hex();
    format!("{text}~{}", &hash[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_told_apart_and_stay_short() {
        let (a, b) = (marked(b"x\xff"), marked(b"x\xfe"));
        assert!(a != b && a.starts_with("x\u{fffd}~"), "{a} {b}");
        assert!(marked(&[0xff; 255]).len() < 255);
    }
}
