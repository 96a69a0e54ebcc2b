//! Key-value state: what programs keep beside the files of a branch, key by key.
//!
//! It is part of the branch's tree ([`crate::tree::Tree`]), so states, rollback, undo and branches take
//! it along, and it is in the journal like files are. A commit names it as the content of one encoded
//! list ([`stored`]). It never shows in directories, differences or patches.
//!
//! Invariants: values are JSON without white space between its parts; a branch's state counts at most
//! [`KV_BYTES_MAX`], so a commit's can always be read again.

mod map;
pub(crate) mod stored;

pub use map::{Differing, KvMap};
pub use stored::{decode_map, encode as encode_map};

use crate::error::{Error, Result};
use crate::limits::KV_BYTES_MAX;
pub use crate::limits::{KV_KEY_BYTES_MAX as KEY_BYTES_MAX, KV_VALUE_BYTES_MAX as VALUE_BYTES_MAX};
use crate::types::Time;

/// Where conflicts of keys stand among those of files: `.agentvfs/kv/KEY`.
pub const KV_CONFLICTS: &[u8] = b".agentvfs/kv/";

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct KvEntry {
    /// JSON.
    pub value: String,
    /// When the key was set first.
    pub created: Time,
    /// When it was set last.
    pub updated: Time,
}

/// Checks a key: 1 to 1024 bytes of UTF-8 without control characters.
pub fn check_key(key: &str) -> Result<()> {
    let bad = |rule| {
        let name = key.chars().take(64).collect();
        let kind = "key";
        Err(Error::BadName { kind, name, rule })
    };
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return bad("1 to 1024 bytes");
    }
    if key.chars().any(char::is_control) {
        return bad("no control characters");
    }
    Ok(())
}

/// A value as it is kept: without white space between its parts, else as it was written. It must be JSON
/// that any reader can take: numbers in the range of doubles, at most 128 levels deep, of at most 512 KiB.
pub fn checked_value(json: &str) -> Result<String> {
    if let Err(e) = serde_json::from_str::<serde_json::Value>(json) {
        return Err(Error::NotJson { why: e.to_string() });
    }
    let (mut out, mut in_text, mut escaped) = (String::with_capacity(json.len()), false, false);
    for c in json.chars() {
        let space = matches!(c, ' ' | '\t' | '\n' | '\r');
        if in_text || !space {
            out.push(c);
        }
        if c == '"' && !escaped {
            in_text = !in_text;
        }
        escaped = in_text && c == '\\' && !escaped;
    }
    if out.len() > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong { bytes: out.len() });
    }
    Ok(out)
}

/// An entry with its value as it is kept.
pub(crate) fn checked(entry: KvEntry) -> Result<KvEntry> {
    let value = checked_value(&entry.value)?;
    Ok(KvEntry { value, ..entry })
}

/// Checks that a state is not larger than it may be.
pub(crate) fn check_bytes(map: &KvMap) -> Result<()> {
    match map.bytes() > KV_BYTES_MAX {
        true => Err(Error::TooManyValues),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_as_written_but_for_white_space_between_parts() {
        for (json, kept) in [
            ("1", "1"),
            (" \"a b\\\" c \\\\\" ", "\"a b\\\" c \\\\\""),
            (
                "{ \"a\" : [ 1 , 2.50e3 ] ,\n\t\"b\": \" x \" }",
                "{\"a\":[1,2.50e3],\"b\":\" x \"}",
            ),
            ("[\"\\\\\", \" \"]", "[\"\\\\\",\" \"]"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("null", "null"),
        ] {
            assert_eq!(checked_value(json).unwrap(), kept);
        }
    }

    #[test]
    fn what_is_no_json_or_too_long_is_refused() {
        for bad in [
            "",
            " ",
            "hello",
            "{a:1}",
            "[1,]",
            "1 2",
            "\"\\ud800\"",
            "\"a\nb\"",
            "1e999",
        ] {
            assert!(
                matches!(checked_value(bad), Err(Error::NotJson { .. })),
                "{bad}"
            );
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(matches!(checked_value(&deep), Err(Error::NotJson { .. })));
        let long = |n: usize| format!("\"{}\"", "x".repeat(n - 2));
        assert!(checked_value(&(long(VALUE_BYTES_MAX) + "\n")).is_ok());
        let refused = checked_value(&long(VALUE_BYTES_MAX + 1));
        assert!(matches!(refused, Err(Error::ValueTooLong { .. })));
    }

    #[test]
    fn keys_are_1_to_1024_bytes_without_control_characters() {
        for good in ["a", "a b/c:d", "schlüssel", &"k".repeat(1024)] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a\nb",
            "a\tb",
            "\u{7f}",
            "a\u{85}",
            "\0",
            &"k".repeat(1025),
        ] {
            assert!(
                matches!(check_key(bad), Err(Error::BadName { .. })),
                "{bad}"
            );
        }
    }
}
