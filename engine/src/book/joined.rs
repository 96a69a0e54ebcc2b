//! Metadata of one commit that is the end of several sessions' work.
//!
//! A key has one value in a commit. Where a commit stands for the work of several sessions, the keys of its own session
//! are plain, and those of the others are numbered from 2 on: `prompt-end`, `prompt-end.2`. Invariant: all keys of one
//! session have the same number. Tests: below; `tests/tests/agent_hooks.rs`.

use crate::limits::JOINED_MAX;

/// The metadata `own`, with the numbered metadata of a commit `of_before`: that of a session whose number would be
/// beyond [`JOINED_MAX`] is left to its own commit.
pub(crate) fn joined(
    own: Vec<(String, String)>,
    of_before: &[(String, String)],
) -> Vec<(String, String)> {
    let mut all = own;
    for (key, value) in of_before {
        let (plain, number) = numbered(key);
        if number < JOINED_MAX {
            all.push((format!("{plain}.{}", number + 1), value.clone()));
        }
    }
    all
}

/// A key without its number, and the number: 1 where it has none.
fn numbered(key: &str) -> (&str, u32) {
    let parts = key.rsplit_once('.');
    let parts = parts.and_then(|(plain, digits)| Some((plain, digits.parse::<u32>().ok()?)));
    parts
        .filter(|(_, number)| (2..=JOINED_MAX).contains(number))
        .unwrap_or((key, 1))
}

/// Whether metadata have that value for a key, plain or numbered.
pub(crate) fn has(meta: &[(String, String)], key: &str, value: &str) -> bool {
    meta.iter()
        .any(|(k, v)| v == value && (k == key || numbered(k).0 == key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn of(session: u32) -> Vec<(String, String)> {
        let pair = |key: &str| (key.to_owned(), format!("{key} of {session}"));
        vec![pair("prompt-end"), pair("session")]
    }

    #[test]
    fn each_session_is_found_and_keeps_its_keys_together() {
        let mut meta = Vec::new();
        for session in 1..=JOINED_MAX + 3 {
            meta = joined(of(session), &meta);
            let first = session.saturating_sub(JOINED_MAX - 1).max(1);
            for known in first..=session {
                assert!(has(&meta, "session", &format!("session of {known}")));
            }
            let keys: BTreeSet<&String> = meta.iter().map(|(key, _)| key).collect();
            assert_eq!(keys.len(), meta.len(), "no key is there twice");
            assert_eq!(meta.len() as u32, 2 * session.min(JOINED_MAX));
            for (key, value) in &meta {
                let with = |plain| (numbered(key).1, value.replace("session", plain));
                let (number, value) = with("prompt-end");
                assert!(
                    meta.iter()
                        .any(|(k, v)| numbered(k) == ("prompt-end", number) && *v == value)
                );
            }
        }
    }

    #[test]
    fn only_a_number_that_is_given_here_is_one() {
        for key in ["a", "a.", "a.b", "a.0", "a.1", "a.99", "2", "a.-2"] {
            assert_eq!(numbered(key), (key, 1));
        }
        assert_eq!(numbered("a.b.2"), ("a.b", 2));
        let meta = [("version.99".to_owned(), "x".to_owned())];
        assert!(has(&meta, "version.99", "x") && !has(&meta, "version", "x"));
    }
}
