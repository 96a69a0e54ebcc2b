//! Words that several commands take, and facts that several print.

use crate::output::Facts;
use agentvfs_client::failure::Failure;
use agentvfs_client::home::Home;
use agentvfs_client::protocol::Info;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The facts that `init`, `start` and `status` begin with.
pub fn workspace_facts(info: &Info, branch: &str, home: &Home) -> Facts {
    let mut facts = Facts::default();
    let view = info.mount.path().join(".agentvfs/view");
    let of_run = home.socket_of_run().map(Path::to_owned);
    let socket = of_run.unwrap_or_else(|| home.socket());
    facts.add("name", info.name.as_bytes());
    if !info.unmounted {
        facts
            .add("mount", &info.mount.0)
            .add("view", view.as_os_str().as_bytes());
    }
    facts
        .add("socket", socket.as_os_str().as_bytes())
        .add("store", home.root().as_os_str().as_bytes())
        .add("base", &info.base.0)
        .add("branch", branch.as_bytes())
        .add("status", info.status.word().as_bytes());
    facts
}

/// `KEY=VALUE` as key and value.
pub fn key_value(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("{text:?} is not KEY=VALUE"))),
    }
}

/// Checks a new name by the engine's rules before anything is asked.
pub fn check_name(checked: engine::Result<()>) -> Result<(), Failure> {
    checked.map_err(|e| Failure::usage(e.to_string()))
}

/// How a commit's id is printed.
pub fn id_or_pending(commit: Option<&str>) -> &str {
    commit.unwrap_or("pending")
}

/// At most one word for the workspace, and the words after it, for verbs where a second word is
/// needed to make the first the workspace.
pub fn split_two(words: &[String], named: bool) -> Result<(Option<&str>, Option<&str>), Failure> {
    match words {
        [] => Ok((None, None)),
        [one] => Ok((None, Some(one))),
        [first, second] if !named => Ok((Some(first), Some(second))),
        _ => Err(Failure::usage(
            "too many words: the workspace is named by --workspace already",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_word_makes_the_first_the_workspace() {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(split_two(&words(""), false).unwrap(), (None, None));
        assert_eq!(split_two(&words("l"), false).unwrap(), (None, Some("l")));
        assert_eq!(
            split_two(&words("w l"), false).unwrap(),
            (Some("w"), Some("l"))
        );
        assert!(split_two(&words("w l"), true).is_err());
        assert_eq!(split_two(&words("l"), true).unwrap(), (None, Some("l")));
    }

    #[test]
    fn metadata_needs_a_key() {
        assert_eq!(key_value("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert_eq!(key_value("a=").unwrap(), ("a".into(), String::new()));
        assert!(key_value("a").is_err() && key_value("=b").is_err());
    }
}
