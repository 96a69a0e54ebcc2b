//! Which workspace and branch a command means.
//!
//! Pure: a function of the words, the environment, the current directory and the daemon's list.
//! Order: `--workspace`, the first of two words, `$AGENTVFS_WORKSPACE`, the workspace whose mount
//! or base holds the current directory, the only one running, else an error that lists them. A command
//! that changes something takes the only one running only where its base lies below the current
//! directory: what is changed is always something that was named, or that one stands in or before.

use crate::failure::Failure;
use crate::protocol::{Info, MAIN, WorkspaceStatus};
use crate::quote::shown;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest name of a workspace.
const NAME_BYTES_MAX: usize = 64;

/// What a command does with the workspace that it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It looks.
    Look,
    /// It changes something.
    Change,
}

/// What a command's surroundings say.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `--workspace`.
    pub option: Option<String>,
    /// `$AGENTVFS_WORKSPACE`.
    pub variable: Option<String>,
    /// The current directory; `None` where it is gone.
    pub cwd: Option<PathBuf>,
}

impl Surroundings {
    /// The workspace, where `word` is the workspace's name if there is one.
    pub fn workspace(
        &self,
        word: Option<&str>,
        all: &[Info],
        purpose: Purpose,
    ) -> Result<String, Failure> {
        match self.named(word)? {
            Some(name) => Ok(name),
            None => self.guessed(all, purpose),
        }
    }

    /// The name that option, word or variable give.
    pub fn named(&self, word: Option<&str>) -> Result<Option<String>, Failure> {
        match (&self.option, word) {
            (Some(option), Some(word)) if option != word => Err(Failure::usage(format!(
                "two workspaces are named: {option} and {word}"
            ))),
            (Some(name), _) => Ok(Some(name.clone())),
            (None, Some(word)) => Ok(Some(word.to_owned())),
            (None, None) => Ok(self.variable.clone()),
        }
    }

    /// The workspace that one stands in or right before, if any.
    pub fn here(&self, all: &[Info]) -> Result<Option<String>, Failure> {
        let holding = self.cwd.as_deref().map(|cwd| holding(cwd, all));
        let holding = holding.unwrap_or_default();
        if holding.is_empty() {
            return Ok(self.guessed(all, Purpose::Change).ok());
        }
        let why = "several workspaces hold this directory";
        only(&holding)
            .map(Some)
            .ok_or_else(|| undecided(why, &holding))
    }

    fn guessed(&self, all: &[Info], purpose: Purpose) -> Result<String, Failure> {
        let here = self
            .cwd
            .as_deref()
            .map(|cwd| holding(cwd, all))
            .unwrap_or_default();
        if !here.is_empty() {
            return only(&here)
                .ok_or_else(|| undecided("several workspaces hold this directory", &here));
        }
        let running: Vec<&Info> = all.iter().filter(|info| runs(info)).collect();
        match running.as_slice() {
            [one] if purpose == Purpose::Look || self.is_above(one) => Ok(one.name.clone()),
            [one] => Err(elsewhere(one)),
            [] => Err(none_runs(all)),
            _ => Err(undecided("several workspaces are running", &running)),
        }
    }

    /// The current directory holds the workspace's base.
    fn is_above(&self, info: &Info) -> bool {
        let cwd = self.cwd.as_deref();
        cwd.is_some_and(|cwd| info.base.path().starts_with(cwd))
    }
}

/// The branch that is meant: the one named, else that of the variable, else the one whose view holds
/// the current directory, else `main`.
pub fn branch_meant(option: Option<&str>, variable: Option<&str>, cwd: Option<&Path>) -> String {
    let named = option.or(variable).map(str::to_owned);
    let here = || cwd.and_then(read_state).map(|(branch, _)| branch);
    named.or_else(here).unwrap_or_else(|| MAIN.to_owned())
}

/// The branch in whose view (`…/.agentvfs/branches/BRANCH/…`) a path lies, and what follows.
pub fn read_state(path: &Path) -> Option<(String, PathBuf)> {
    let mut parts = path.components().map(|c| c.as_os_str());
    while let Some(part) = parts.next() {
        let mut next = parts.clone();
        if part == ".agentvfs" && next.next().is_some_and(|p| p == "branches") {
            let branch = next.next()?.to_str()?.to_owned();
            return Some((branch, next.collect()));
        }
    }
    None
}

fn runs(info: &Info) -> bool {
    matches!(
        info.status,
        WorkspaceStatus::Started | WorkspaceStatus::Stale
    )
}

/// The workspaces whose mount, else whose base, is nearest above `cwd`.
fn holding<'a>(cwd: &Path, all: &'a [Info]) -> Vec<&'a Info> {
    let mounted = nearest(cwd, all.iter().filter(|info| runs(info)), |info| {
        info.mount.path()
    });
    if mounted.is_empty() {
        nearest(cwd, all.iter(), |info| info.base.path())
    } else {
        mounted
    }
}

fn nearest<'a>(
    cwd: &Path,
    candidates: impl Iterator<Item = &'a Info>,
    place: impl Fn(&'a Info) -> &'a Path,
) -> Vec<&'a Info> {
    let depth = |info: &'a Info| place(info).components().count();
    let above: Vec<&Info> = candidates
        .filter(|info| cwd.starts_with(place(info)))
        .collect();
    let deepest = above.iter().map(|info| depth(info)).max();
    above
        .into_iter()
        .filter(|info| Some(depth(info)) == deepest)
        .collect()
}

/// The only one of `found`, or the only one of them that runs.
fn only(found: &[&Info]) -> Option<String> {
    let running: Vec<&&Info> = found.iter().filter(|info| runs(info)).collect();
    match (found, running.as_slice()) {
        ([one], _) => Some(one.name.clone()),
        (_, [one]) => Some(one.name.clone()),
        _ => None,
    }
}

fn undecided(why: &str, candidates: &[&Info]) -> Failure {
    let names: Vec<&str> = candidates.iter().map(|info| info.name.as_str()).collect();
    Failure::new(
        "cannot determine the workspace",
        format!("{why}: {}", names.join(", ")),
    )
    .kind("ambiguous-workspace")
    .hint("use --workspace NAME or $AGENTVFS_WORKSPACE")
}

fn elsewhere(only: &Info) -> Failure {
    let why = format!(
        "the only running workspace is {}, but the current directory is not in its mount or its project ({})",
        only.name,
        shown(&only.base.0)
    );
    Failure::new("cannot determine the workspace", why).hint(format!(
        "use --workspace {}, or change to its project or mount",
        only.name
    ))
}

fn none_runs(all: &[Info]) -> Failure {
    let what = "cannot determine the workspace";
    if all.is_empty() {
        return Failure::new(what, "there are no workspaces")
            .kind("no-such-workspace")
            .hint("agentvfs start --from DIR creates and starts one");
    }
    let names: Vec<&str> = all.iter().map(|info| info.name.as_str()).collect();
    Failure::new(
        what,
        format!(
            "no workspace is running; existing workspaces: {}",
            names.join(", ")
        ),
    )
    .kind("not-running")
    .hint(format!("agentvfs start {}", names[0]))
}

/// The name of a workspace that is made from `base` without being given one: the directory's, with `-` for every
/// character that a name may not have; where no letter or digit is left of it, `ws-` and eight digits of its hash,
/// so that different directories have different names.
pub fn default_name(base: &Path) -> String {
    let Some(bytes) = base.file_name().map(OsStr::as_bytes) else {
        return "root".to_owned();
    };
    let name = String::from_utf8_lossy(bytes);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let clean: String = name
        .chars()
        .map(|c| if allowed(c) { c } else { '-' })
        .collect();
    let clean = clean.trim_start_matches(['.', '-']);
    if !clean.bytes().any(|b| b.is_ascii_alphanumeric()) {
        return format!("ws-{}", &blake3::hash(bytes).to_hex()[..8]);
    }
    clean[..clean.len().min(NAME_BYTES_MAX)].to_owned()
}

/// The workspace of a project's directory, where it has one: the only one, or the only one that runs.
pub fn of_project(base: &Path, all: &[Info]) -> Result<Option<String>, Failure> {
    let found: Vec<&Info> = all.iter().filter(|info| info.base.path() == base).collect();
    if found.is_empty() {
        return Ok(None);
    }
    let one = only(&found);
    one.map(Some).ok_or_else(|| {
        undecided(
            "several workspaces have this directory as their base",
            &found,
        )
    })
}

/// The workspace that a directory given as base belongs to already: one that is mounted there.
pub fn covered_by<'a>(base: &Path, all: &'a [Info]) -> Option<&'a Info> {
    all.iter()
        .find(|info| runs(info) && info.mount.path() == base)
}

#[cfg(test)]
mod tests {
    use super::Purpose::{Change, Look};
    use super::*;
    use crate::protocol::Bytes;

    fn info(name: &str, mount: &str, base: &str, status: WorkspaceStatus) -> Info {
        let bytes = |text: &str| Bytes(text.as_bytes().to_vec());
        Info {
            name: name.into(),
            mount: bytes(mount),
            base: bytes(base),
            status,
            device: None,
            unmounted: false,
        }
    }

    fn list() -> Vec<Info> {
        vec![
            info("a", "/h/mnt/a", "/src/a", WorkspaceStatus::Started),
            info(
                "inner",
                "/h/mnt/inner",
                "/src/a/inner",
                WorkspaceStatus::Stopped,
            ),
            info("b", "/h/mnt/b", "/src/b", WorkspaceStatus::Stopped),
            info("b2", "/h/mnt/b2", "/src/b", WorkspaceStatus::Stopped),
        ]
    }

    fn at(cwd: &str) -> Surroundings {
        Surroundings {
            cwd: Some(cwd.into()),
            ..Surroundings::default()
        }
    }

    #[test]
    fn option_word_and_variable_come_first() {
        let mut here = at("/src/a");
        here.variable = Some("v".into());
        assert_eq!(here.workspace(None, &list(), Look).unwrap(), "v");
        assert_eq!(here.workspace(Some("w"), &list(), Look).unwrap(), "w");
        here.option = Some("o".into());
        assert_eq!(here.workspace(None, &list(), Look).unwrap(), "o");
        assert_eq!(
            here.workspace(Some("w"), &list(), Look).unwrap_err().exit,
            crate::failure::USAGE
        );
        assert_eq!(here.workspace(Some("o"), &list(), Look).unwrap(), "o");
    }

    #[test]
    fn directory_decides_next_and_the_deepest_wins() {
        assert_eq!(
            at("/h/mnt/a/x").workspace(None, &list(), Look).unwrap(),
            "a"
        );
        assert_eq!(at("/src/a/x").workspace(None, &list(), Look).unwrap(), "a");
        assert_eq!(
            at("/src/a/inner/x").workspace(None, &list(), Look).unwrap(),
            "inner"
        );
        assert_eq!(
            at("/src/ab").workspace(None, &list(), Look).unwrap(),
            "a",
            "only running workspace"
        );
    }

    #[test]
    fn who_changes_something_must_stand_in_or_before_it() {
        let all = list();
        let meant = |cwd: &str| at(cwd).workspace(None, &all, Change);
        for cwd in ["/h/mnt/a/x", "/src/a", "/src", "/"] {
            assert_eq!(meant(cwd).unwrap(), "a", "{cwd}");
        }
        for cwd in ["/src/ab", "/h/mnt", "/tmp"] {
            let refused = meant(cwd).unwrap_err();
            assert_eq!(refused.exit, crate::failure::FAILED);
            assert!(
                refused.why.contains("the only running workspace is a"),
                "{cwd}"
            );
            assert!(refused.hint.unwrap().contains("--workspace a"), "{cwd}");
            assert_eq!(at(cwd).workspace(None, &all, Look).unwrap(), "a", "{cwd}");
        }
        let mut named = at("/tmp");
        named.variable = Some("v".into());
        assert_eq!(named.workspace(None, &all, Change).unwrap(), "v");
        assert_eq!(named.workspace(Some("w"), &all, Change).unwrap(), "w");
        let nowhere = Surroundings::default().workspace(None, &all, Change);
        assert!(nowhere.is_err());
    }

    #[test]
    fn a_directory_in_no_workspace_means_none() {
        let mut all = list();
        let here = |cwd: &str, all: &[Info]| at(cwd).here(all);
        assert_eq!(here("/src/a/x", &all).unwrap().as_deref(), Some("a"));
        assert_eq!(here("/src", &all).unwrap().as_deref(), Some("a"));
        assert_eq!(here("/elsewhere", &all).unwrap(), None);
        assert!(here("/src/b", &all).is_err());
        all[0].status = WorkspaceStatus::Stopped;
        assert_eq!(here("/src", &all).unwrap(), None);
    }

    #[test]
    fn one_base_of_several_workspaces_needs_a_running_one() {
        let error = at("/src/b").workspace(None, &list(), Look).unwrap_err();
        assert!(error.why.contains("b, b2"), "{}", error.why);
        let mut all = list();
        all[3].status = WorkspaceStatus::Started;
        assert_eq!(at("/src/b").workspace(None, &all, Look).unwrap(), "b2");
    }

    #[test]
    fn the_error_lists_what_there_is() {
        let mut all = list();
        all[0].status = WorkspaceStatus::Stopped;
        assert!(
            at("/")
                .workspace(None, &all, Look)
                .unwrap_err()
                .why
                .contains("a, inner, b, b2")
        );
        assert_eq!(
            at("/").workspace(None, &[], Look).unwrap_err().why,
            "there are no workspaces"
        );
    }

    #[test]
    fn default_names_are_allowed_names() {
        let name = |path: &str| default_name(Path::new(path));
        assert_eq!(name("/x/project"), "project");
        assert_eq!(name("/x/my project+"), "my-project-");
        assert_eq!(name("/x/.hidden"), "hidden");
        assert_eq!(name("/x/größe"), "gr--e");
        assert_eq!(name("/"), "root");
        let hashed = |text: &str| format!("ws-{}", &blake3::hash(text.as_bytes()).to_hex()[..8]);
        for text in ["日本語", "проект", "--", "__", "..-"] {
            assert_eq!(name(&format!("/x/{text}")), hashed(text));
        }
        assert_eq!(name(&format!("/{}", "x".repeat(100))).len(), 64);
    }

    #[test]
    fn project_means_its_only_workspace() {
        let of = |base: &str| of_project(Path::new(base), &list());
        assert_eq!(of("/src/a").unwrap(), Some("a".to_owned()));
        assert_eq!(of("/src").unwrap(), None);
        assert!(of("/src/b").unwrap_err().why.contains("b, b2"));
    }

    #[test]
    fn covered_base_means_its_workspace() {
        let all = [info("a", "/src/a", "/src/a", WorkspaceStatus::Started)];
        assert_eq!(covered_by(Path::new("/src/a"), &all).unwrap().name, "a");
        assert!(covered_by(Path::new("/src"), &all).is_none());
    }
}
