//! Sessions of directories that play groups, and of real ones where they can be made.

use super::*;
use std::path::Path;

fn sessions(dir: &Path) -> Sessions {
    Sessions::open(dir.join("sessions"))
}

fn group(dir: &Path, name: &str, path: &str) -> Located {
    let place = dir.join(name);
    fs::create_dir(&place).unwrap();
    Located::played(&place, "", path)
}

fn seen_from(sessions: &Sessions, text: &str) -> Option<String> {
    let table = sessions.table.read().clone();
    Some(
        nearest(table.get("w")?, text.as_bytes())?
            .kept
            .branch
            .clone(),
    )
}

#[test]
fn nearest_registered_group_decides() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = sessions(dir.path());
    let register = |branch, located| sessions.register("w", branch, located).unwrap();
    register("outer", group(dir.path(), "1", "/a"));
    register("inner", group(dir.path(), "2", "/a/b/c"));
    let seen = |text| seen_from(&sessions, text);
    assert_eq!(seen("0::/a/b/c/d\n").as_deref(), Some("inner"));
    assert_eq!(seen("0::/a/b/c\n").as_deref(), Some("inner"));
    assert_eq!(seen("0::/a/b\n").as_deref(), Some("outer"));
    assert_eq!(seen("0::/ab\n"), None);
    assert_eq!(seen("0::/\n"), None);
    let mut other = group(dir.path(), "3", "/x");
    other.group.hierarchy = "cpu,cpuacct".to_owned();
    register("cpu", other);
    assert_eq!(
        seen("3:cpu,cpuacct:/x/y\n0::/a/b/c\n").as_deref(),
        Some("inner")
    );
    assert_eq!(seen("3:cpu,cpuacct:/x\n0::/a/b\n").as_deref(), Some("cpu"));
}

#[test]
fn group_made_anew_at_the_same_path_is_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = sessions(dir.path());
    sessions
        .register("w", "b", group(dir.path(), "1", "/a"))
        .unwrap();
    assert_eq!(seen_from(&sessions, "0::/a\n").as_deref(), Some("b"));
    fs::rename(dir.path().join("1"), dir.path().join("old")).unwrap();
    fs::create_dir(dir.path().join("1")).unwrap();
    assert_eq!(seen_from(&sessions, "0::/a\n"), None);
    assert_eq!(sessions.list(None).unwrap(), []);
}

#[test]
fn branch_in_use_is_not_closed_and_a_closed_one_not_registered_for() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = sessions(dir.path());
    let located = group(dir.path(), "1", "/a");
    sessions.register("w", "b", located.clone()).unwrap();
    assert!(sessions.close_branch("other", "b").is_ok());
    assert_eq!(
        sessions.close_branch("w", "b").err().unwrap().kind,
        "branch-in-use"
    );
    let closing = sessions.close_branch("w", "c").unwrap();
    assert!(sessions.register("w", "c", located.clone()).is_err());
    drop(closing);
    assert_eq!(
        sessions
            .register("w", "c", located.clone())
            .unwrap()
            .as_deref(),
        Some("b")
    );
    sessions.close_branch("w", "b").unwrap();
    fs::remove_dir(&located.dir).unwrap();
    sessions.close_branch("w", "c").unwrap();
}

#[test]
fn renaming_carries_registrations_along_or_leaves_them() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = sessions(dir.path());
    sessions
        .register("w", "old", group(dir.path(), "1", "/a"))
        .unwrap();
    sessions
        .register("v", "old", group(dir.path(), "2", "/b"))
        .unwrap();
    let fails = || Err::<(), _>(Fault::failed("failed", "no"));
    sessions
        .rename_branch("w", ("old", "new"), fails)
        .unwrap_err();
    assert_eq!(sessions.list(Some("w")).unwrap()[0].branch, "old");
    let both = || {
        let stored = read(&sessions.file).unwrap().unwrap();
        let kept = &stored.sessions[0];
        assert_eq!(
            (kept.branch.as_str(), kept.renamed_from.as_deref()),
            ("new", Some("old"))
        );
        Ok(())
    };
    sessions.rename_branch("w", ("old", "new"), both).unwrap();
    assert_eq!(sessions.list(Some("w")).unwrap()[0].branch, "new");
    assert_eq!(sessions.list(Some("v")).unwrap()[0].branch, "old");
}

#[test]
fn renaming_that_was_cut_short_is_settled_by_what_exists() {
    let dir = tempfile::tempdir().unwrap();
    for (exists, becomes) in [("old", "old"), ("new", "new")] {
        let sessions = sessions(dir.path());
        let located = group(dir.path(), exists, "/a");
        sessions.register("w", "new", located).unwrap();
        {
            let mut state = sessions.changing.lock();
            let mut all = state.all.clone();
            all[0].kept.renamed_from = Some("old".to_owned());
            sessions.keep(&mut state, all).unwrap();
        }
        sessions.settle("w", |name| name == exists);
        assert_eq!(sessions.list(None).unwrap()[0].branch, becomes);
    }
}

#[test]
fn damaged_file_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let first = sessions(dir.path());
    first
        .register("w", "b", group(dir.path(), "1", "/a"))
        .unwrap();
    let whole = fs::read(&first.file).unwrap();
    assert_eq!(read(&first.file).unwrap().unwrap().sessions.len(), 1);
    for at in [0, 10, 64, 70, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&first.file, bytes).unwrap();
        let again = sessions(dir.path());
        let fault = again.list(None).unwrap_err();
        assert_eq!(fault.kind, "damaged", "byte {at}");
        assert!(
            again
                .register("w", "b", Located::played(dir.path(), "", "/x"))
                .is_err()
        );
    }
}

#[test]
fn what_was_forgotten_is_told_and_nothing_else_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let sessions = sessions(dir.path());
    let located = group(dir.path(), "1", "/a");
    sessions.register("w", "b", located.clone()).unwrap();
    sessions.register("v", "b", located.clone()).unwrap();
    let gone = sessions.unregister(&located.dir, Some("w")).unwrap();
    assert_eq!(gone[0].workspace, "w");
    let again = sessions.unregister(&located.dir, Some("w")).unwrap_err();
    assert_eq!(again.kind, "not-registered");
    sessions.forget_workspace("v").unwrap();
    assert_eq!(sessions.list(None).unwrap(), []);
}
