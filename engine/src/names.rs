//! Rules for names that users give.

use crate::error::{Error, Result};

/// The branch that every workspace has.
pub const MAIN: &str = "main";

fn bad(kind: &'static str, name: &str, rule: &'static str) -> Error {
    Error::BadName {
        kind,
        name: name.to_owned(),
        rule,
    }
}

/// Checks a workspace name.
pub fn check_workspace_name(name: &str) -> Result<()> {
    check_plain("workspace name", name)
}

/// Checks a branch name.
pub fn check_branch_name(name: &str) -> Result<()> {
    check_plain("branch name", name)
}

/// Checks the name of a remote.
pub fn check_remote_name(name: &str) -> Result<()> {
    check_plain("remote name", name)
}

fn check_plain(kind: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 64 {
        return Err(bad(kind, name, "1 to 64 characters"));
    }
    if !name
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    {
        return Err(bad(kind, name, "only letters, digits and ._-"));
    }
    if name.starts_with(['.', '-']) {
        return Err(bad(kind, name, "must not start with . or -"));
    }
    Ok(())
}

/// Checks a label.
pub fn check_label(label: &str) -> Result<()> {
    if label.is_empty() || label.len() > 128 {
        return Err(bad("label", label, "1 to 128 bytes"));
    }
    if label.chars().any(|c| c.is_control() || "/:@".contains(c)) {
        return Err(bad("label", label, "no control characters, no / : or @"));
    }
    if label.starts_with(['.', '-']) {
        return Err(bad("label", label, "must not start with . or -"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_and_refuses_by_the_rules() {
        for good in ["a", "A.b_c-9", &"x".repeat(64)] {
            assert!(check_workspace_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".a", "-a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(check_workspace_name(bad).is_err(), "{bad}");
        }
        for good in ["before refactor", "ä", "v1.0", &"x".repeat(128)] {
            assert!(check_label(good).is_ok(), "{good}");
        }
        for bad in ["", ".x", "-x", "a/b", "a:b", "@", "a\nb", &"x".repeat(129)] {
            assert!(check_label(bad).is_err(), "{bad}");
        }
    }
}
