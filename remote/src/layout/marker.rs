//! `agentvfs.json`: says that this is a remote of agentvfs, and how its contents were cut.

use crate::error::{Error, Result};
use objstore::chunker;

/// Its name.
pub const NAME: &str = "agentvfs.json";
/// Longest one that is read.
pub const BYTES_MAX: u64 = 64 << 10;

const FORMAT: u64 = 1;

/// The object, as this program makes it at this moment (RFC 3339).
pub fn encode(made: &str) -> Vec<u8> {
    let value = serde_json::json!({
        "format": FORMAT,
        "chunker": chunker::fingerprint(),
        "key": null,
        "made": made,
    });
    let mut text = value.to_string();
    text.push('\n');
    text.into_bytes()
}

/// Whether this program may use a remote that has this object.
pub fn check(bytes: &[u8]) -> Result<()> {
    let damaged = |what| Error::Damaged {
        name: NAME.to_owned(),
        what,
    };
    let value: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|_| damaged("it is no JSON"))?;
    let format = value["format"]
        .as_u64()
        .ok_or_else(|| damaged("its format"))?;
    if format > FORMAT {
        return Err(Error::Newer {
            what: "remote",
            found: format,
            supported: FORMAT,
        });
    }
    if format < FORMAT {
        return Err(damaged("its format"));
    }
    if !value["key"].is_null() {
        return Err(Error::Encrypted);
    }
    match value["chunker"].as_str() {
        Some(found) if found == chunker::fingerprint() => Ok(()),
        Some(found) if found.len() == 64 => Err(Error::OtherChunker),
        _ => Err(damaged("its chunker")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_makes_it_reads_and_others_are_refused_with_the_reason() {
        check(&encode("2026-11-25T00:00:00Z")).unwrap();
        let good = String::from_utf8(encode("x")).unwrap();
        let with = |from: &str, to: &str| {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            check(bad.as_bytes())
        };
        assert!(matches!(
            with(":1", ":2"),
            Err(Error::Newer { found: 2, .. })
        ));
        assert!(matches!(with(":1", ":0"), Err(Error::Damaged { .. })));
        assert!(matches!(with("null", "\"k1\""), Err(Error::Encrypted)));
        let chunker = chunker::fingerprint();
        assert!(matches!(
            with(chunker, &"0".repeat(64)),
            Err(Error::OtherChunker)
        ));
        assert!(matches!(with(chunker, "0"), Err(Error::Damaged { .. })));
        assert!(matches!(check(b"[]"), Err(Error::Damaged { .. })));
        assert!(matches!(check(b"\xff"), Err(Error::Damaged { .. })));
    }
}
