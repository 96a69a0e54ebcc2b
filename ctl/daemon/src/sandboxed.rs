//! What a command in a sandbox may ask for, through the socket of its run.
//!
//! It is named at the beginning of a connection, by `agentvfs run`, which alone has access to the daemon's socket; what
//! the command sends comes after that. Invariants: [`needs`] decides for every method, so a new one does not compile
//! before somebody has decided; branches that were not made in the sandbox, files of the machine and the store do not
//! exist for it, neither in what is done nor in what is answered.

use super::branches;
use super::dispatch::dispatch;
use super::events;
use super::faults;
use super::moments::time;
use super::mounts::Mounts;
use super::request::{Watch, on};
use super::timeline;
use agentvfs_client::protocol::*;
use engine::verbs;
use serde_json::Value;

/// Keys by which a run finds its own commits again.
const KEYS_OF_RUNS: [&str; 5] = ["run", "run-end", "command", "exit", "duration"];
/// What the keys of the commits that runs inside a run make begin with.
const NESTED: &str = "nested-";
/// Branches that one sandbox may have made.
const BRANCHES_MAX: usize = 128;

/// What a request needs.
enum Needs<'a> {
    /// Nothing that is kept from a sandbox.
    Nothing,
    /// Its workspace.
    Workspace(&'a str),
    /// Branches of its workspace, and refs that they have themselves.
    Branches(&'a str, Vec<&'a str>, Vec<&'a str>),
    /// A branch that was made in the sandbox.
    Child(&'a str, &'a str),
    /// More than a sandbox has.
    More,
}

/// What a request needs; the one place that decides.
fn needs(call: &Call) -> Needs<'_> {
    match call {
        Call::Hello(_) | Call::List(_) => Needs::Nothing,
        Call::Init(_) | Call::Start(_) | Call::Stop(_) | Call::Delete(_) => Needs::More,
        Call::Apply(_) | Call::ApplyPatch(_) | Call::Update(_) => Needs::More,
        Call::Export(_) | Call::Import(_) => Needs::More,
        Call::Fsck(_) | Call::Stats(_) | Call::Gc(_) | Call::Config(_) => Needs::More,
        Call::HandOver(_) | Call::RunWroteNothing(_) => Needs::More,
        Call::SessionRegister(_) | Call::SessionList(_) => Needs::More,
        Call::SessionUnregister(_) | Call::BranchRename(_) => Needs::More,
        // It marks a branch, for a run inside.
        Call::RunBegin(ask) => {
            let mut branches = vec![ask.branch.as_str()];
            branches.extend(ask.made_of.as_deref());
            Needs::Branches(&ask.workspace, branches, Vec::new())
        }
        Call::Status(ask) => one(&ask.workspace, &ask.branch),
        Call::Checkpoint(ask) if is_of_a_run(ask) => Needs::More,
        Call::Checkpoint(ask) => one(&ask.workspace, &ask.branch),
        Call::Rollback(ask) | Call::RollbackPlan(ask) => {
            Needs::Branches(&ask.workspace, vec![&ask.branch], ref_of(&ask.target))
        }
        Call::Undo(ask) => one(&ask.workspace, &ask.branch),
        Call::Redo(ask) => one(&ask.workspace, &ask.branch),
        Call::Log(ask) => one(&ask.workspace, &ask.branch),
        Call::Diff(ask) | Call::Patch(ask) => {
            let refs = [&ask.from, &ask.to].into_iter().filter_map(ref_in);
            Needs::Branches(&ask.workspace, vec![&ask.branch], refs.collect())
        }
        Call::HasRef(ask) => one(&ask.workspace, &ask.branch),
        Call::BranchCreate(ask) => {
            let from = ask.from.as_deref().into_iter().collect();
            Needs::Branches(&ask.workspace, vec![&ask.branch], from)
        }
        Call::BranchList(ask) => Needs::Workspace(&ask.workspace),
        Call::BranchDelete(ask) => Needs::Child(&ask.workspace, &ask.branch),
        Call::BranchMerge(ask) => {
            Needs::Branches(&ask.workspace, vec![&ask.from, &ask.into], Vec::new())
        }
        Call::BranchDiff(ask) => {
            Needs::Branches(&ask.workspace, vec![&ask.from, &ask.to], Vec::new())
        }
        Call::BranchConflicts(ask) => one(&ask.workspace, &ask.branch),
        Call::BranchResolve(ask) => one(&ask.workspace, &ask.branch),
        Call::FsStat(ask) => in_state(&ask.workspace, &ask.branch, &ask.state),
        Call::FsList(ask) => in_state(&ask.workspace, &ask.branch, &ask.state),
        Call::FsRead(ask) => in_state(&ask.workspace, &ask.branch, &ask.state),
        Call::FsWrite(ask) => one(&ask.workspace, &ask.branch),
        Call::FsMkdir(ask) => one(&ask.workspace, &ask.branch),
        Call::FsRemove(ask) => one(&ask.workspace, &ask.branch),
        Call::FsRename(ask) => one(&ask.workspace, &ask.branch),
        Call::FsCopy(ask) => one(&ask.workspace, &ask.branch),
        Call::FsSymlink(ask) => one(&ask.workspace, &ask.branch),
        Call::FsTruncate(ask) => one(&ask.workspace, &ask.branch),
        Call::FsChmod(ask) => one(&ask.workspace, &ask.branch),
        Call::FsStatfs(ask) => one(&ask.workspace, &ask.branch),
        Call::Sync(ask) => one(&ask.workspace, &ask.branch),
        Call::FsOpen(ask) => in_state(&ask.workspace, &ask.branch, &ask.state),
        // What the connection has open was opened under these rules.
        Call::FsPread(_) | Call::FsPwrite(_) | Call::FsFtruncate(_) => Needs::Nothing,
        Call::FsFstat(_) | Call::FsFsync(_) | Call::FsClose(_) => Needs::Nothing,
        Call::KvSet(ask) => one(&ask.workspace, &ask.branch),
        Call::KvGet(ask) => in_state(&ask.workspace, &ask.branch, &ask.state),
        Call::KvList(ask) => in_state(&ask.workspace, &ask.branch, &ask.state),
        Call::KvDelete(ask) => one(&ask.workspace, &ask.branch),
        // By their keys: looked for on the sandbox's branches alone.
        Call::ToolGiveUp(ask) => Needs::Workspace(&ask.workspace),
        Call::ToolStart(ask) => one(&ask.workspace, &ask.branch),
        Call::ToolFinish(ask) => one(&ask.workspace, &ask.branch),
        Call::ToolRecord(ask) => one(&ask.workspace, &ask.branch),
        Call::ToolShow(ask) => one(&ask.workspace, &ask.branch),
        Call::ToolUndo(ask) => one(&ask.workspace, &ask.branch),
        // Timelines of other branches, which may be gone.
        Call::Timeline(ask) if ask.of.is_some() => Needs::More,
        Call::Timeline(ask) => one(&ask.workspace, &ask.branch),
        Call::TimelineStats(ask) => one(&ask.workspace, &ask.branch),
        Call::TimelineVerify(ask) => one(&ask.workspace, &ask.branch),
        Call::Blame(ask) => one(&ask.workspace, &ask.branch),
        // Those of the sandbox's branches alone.
        Call::Subscribe(ask) => Needs::Workspace(&ask.workspace),
        // What a command may do is not for the command to say; it may know.
        Call::PolicySet(_) => Needs::More,
        Call::PolicyShow(ask) => Needs::Workspace(&ask.workspace),
        Call::JudgeTool(ask) => one(&ask.workspace, &ask.branch),
        // What leaves the machine, and what comes to it, is not for the command to say.
        Call::RemoteAdd(_) | Call::RemoteList(_) | Call::RemoteRemove(_) => Needs::More,
        Call::RemotePush(_) | Call::RemoteFetch(_) | Call::RemoteClone(_) => Needs::More,
        Call::RemoteGc(_) | Call::RemotePrefetch(_) => Needs::More,
    }
}

fn one<'a>(workspace: &'a str, branch: &'a str) -> Needs<'a> {
    Needs::Branches(workspace, vec![branch], Vec::new())
}

/// A state whose files are read: of the project's directory the sandbox shows nothing.
fn in_state<'a>(workspace: &'a str, branch: &'a str, state: &'a Side) -> Needs<'a> {
    match state {
        Side::Base => Needs::More,
        Side::Live | Side::Ref(_) => {
            Needs::Branches(workspace, vec![branch], ref_in(state).into_iter().collect())
        }
    }
}

fn ref_in(side: &Side) -> Option<&str> {
    match side {
        Side::Ref(text) => Some(text),
        Side::Live | Side::Base => None,
    }
}

fn ref_of(target: &Target) -> Vec<&str> {
    match target {
        Target::Ref(text) => vec![text],
        Target::Head | Target::Before(_) | Target::Meta(..) => Vec::new(),
    }
}

/// A commit that a run could take for one of its own: of the automatic ones those alone are none that an agent's
/// hooks make.
fn is_of_a_run(ask: &Checkpoint) -> bool {
    let mut keys = ask.meta.iter().map(|(key, _)| key.as_str());
    match ask.automatic {
        true => {
            let joins = ask.joins.as_deref();
            let is_of_hooks = |key| turns::ALL.contains(&key) || key.starts_with(NESTED);
            ask.meta.is_empty() || !keys.all(is_of_hooks) || !joins.is_none_or(is_of_hooks)
        }
        false => keys.any(|key| KEYS_OF_RUNS.contains(&key)),
    }
}

/// Carries out a request of a command in a sandbox.
pub fn dispatch_in(
    sandbox: &SandboxOf,
    mounts: &Mounts,
    call: &Call,
    watch: &Watch<'_>,
) -> Result<Value, Fault> {
    let (names, members) = check(sandbox, mounts, call)?;
    let answer = match call {
        Call::BranchCreate(ask) => create(sandbox, mounts, ask, names.len())?,
        Call::HasRef(ask) if !is_own(mounts, &ask.workspace, &names, &ask.name)? => {
            encoded(&HasRefAnswer { exists: false })?
        }
        Call::ToolFinish(ask) => encoded(&timeline::finish(mounts, ask, Some(&names))?)?,
        Call::ToolGiveUp(ask) => encoded(&timeline::give_up(mounts, ask, Some(&names))?)?,
        Call::Subscribe(ask) => {
            let tellers = || {
                let (_, members) = branches_of(sandbox, mounts)?;
                Ok(members.iter().map(|member| member.teller).collect())
            };
            encoded(&events::subscribe(mounts, ask, watch, Some(&tellers))?)?
        }
        // Another branch may have got a name since the check.
        _ => verbs::only_with_members(&members, || dispatch(mounts, call, watch))
            .map_err(|fault| without_processes(call, fault))?,
    };
    trimmed(sandbox, &names, call, answer)
}

/// The sandbox of a run inside this one's: all that a connection may work with from now on.
pub fn narrowed(
    sandbox: &SandboxOf,
    mounts: &Mounts,
    inner: &SandboxOf,
) -> Result<SandboxOf, Fault> {
    let inner = SandboxOf {
        process: sandbox.process,
        ..inner.clone()
    };
    let names = branches_of(sandbox, mounts)?.0;
    if inner.workspace != sandbox.workspace || !names.contains(&inner.branch) {
        let error = engine::Error::NoSuchBranch(inner.branch);
        return Err(faults::of_engine(&error, &sandbox.workspace));
    }
    branches_of(&inner, mounts)?;
    Ok(inner)
}

/// The branches of a sandbox: their names, and they themselves.
type Branches = (Vec<String>, Vec<verbs::Member>);

/// The sandbox's branches, if the request needs nothing else.
fn check(sandbox: &SandboxOf, mounts: &Mounts, call: &Call) -> Result<Branches, Fault> {
    let (workspace, branches, refs) = match needs(call) {
        Needs::More => return Err(refused()),
        Needs::Nothing => return branches_of(sandbox, mounts),
        Needs::Workspace(name) => (name, Vec::new(), Vec::new()),
        Needs::Branches(name, branches, refs) => (name, branches, refs),
        Needs::Child(_, branch) if branch == sandbox.branch => return Err(refused()),
        Needs::Child(name, branch) => (name, vec![branch], Vec::new()),
    };
    if workspace != sandbox.workspace {
        let error = engine::Error::NoSuchWorkspace(workspace.to_owned());
        return Err(faults::of_engine(&error, workspace));
    }
    let (names, members) = branches_of(sandbox, mounts)?;
    if let Some(other) = branches.into_iter().find(|b| !names.iter().any(|n| n == b)) {
        let error = engine::Error::NoSuchBranch(other.to_owned());
        return Err(faults::of_engine(&error, workspace));
    }
    for text in refs {
        if !is_own(mounts, workspace, &names, text)? {
            let error = engine::Error::NoSuchRef(text.to_owned());
            return Err(faults::of_engine(&error, workspace));
        }
    }
    Ok((names, members))
}

fn branches_of(sandbox: &SandboxOf, mounts: &Mounts) -> Result<Branches, Fault> {
    let members = on(mounts, &sandbox.workspace, |w| {
        verbs::sandbox_members(w, &sandbox.branch, time(sandbox.created))
    })?;
    let names = members.iter().map(|member| member.name.clone());
    Ok((names.collect(), members))
}

/// Whether one of these branches has what a ref names.
fn is_own(mounts: &Mounts, workspace: &str, names: &[String], text: &str) -> Result<bool, Fault> {
    on(mounts, workspace, |w| {
        for name in names {
            if verbs::has_own_ref(w, name, text)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// A refusal without numbers of processes, which the sandbox has others for.
fn without_processes(call: &Call, fault: Fault) -> Fault {
    match call {
        Call::BranchDelete(ask) if fault.kind == "branch-in-use" => {
            let why = format!("branch {} is used by a run or another process", ask.branch);
            Fault::failed("branch-in-use", why)
                .hint("wait until it ends or leaves the branch, then try again")
        }
        _ => fault,
    }
}

fn refused() -> Fault {
    Fault::failed("in-sandbox", "a command in a sandbox may not do that")
        .hint("run it outside of agentvfs run")
}

fn create(
    sandbox: &SandboxOf,
    mounts: &Mounts,
    ask: &BranchCreate,
    count: usize,
) -> Result<Value, Fault> {
    if count > BRANCHES_MAX {
        let why = format!("a sandbox has {BRANCHES_MAX} branches at most");
        return Err(Fault::failed("too-many-branches", why)
            .hint("agentvfs branch delete NAME deletes one that was created here"));
    }
    encoded(&branches::create(mounts, ask, Some(sandbox))?)
}

fn encoded(answer: &impl serde::Serialize) -> Result<Value, Fault> {
    serde_json::to_value(answer).map_err(|e| Fault::failed("failed", e.to_string()))
}

fn decoded<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, Fault> {
    serde_json::from_value(answer).map_err(|e| Fault::failed("failed", e.to_string()))
}

/// A branch's path as it is in the sandbox.
fn shown_at(sandbox: &SandboxOf, row: &mut BranchRow) {
    let Some(at) = &sandbox.at else { return };
    let at = at.to_path();
    row.path = match row.name == sandbox.branch {
        true => Bytes::from(at.as_path()),
        false => Bytes::from(branches::below(&at, &row.name).as_path()),
    };
}

/// A workspace as it is in the sandbox: its mount is not seen there, the run's branch is.
fn shown_in(sandbox: &SandboxOf, info: &mut Info) {
    info.device = None;
    if let Some(at) = &sandbox.at {
        info.mount = at.clone();
    }
}

/// An answer without what the sandbox does not have.
fn trimmed(
    sandbox: &SandboxOf,
    names: &[String],
    call: &Call,
    answer: Value,
) -> Result<Value, Fault> {
    match call {
        Call::List(_) => {
            let mut list: ListAnswer = decoded(answer)?;
            list.workspaces
                .retain(|info| info.name == sandbox.workspace);
            list.workspaces
                .iter_mut()
                .for_each(|info| shown_in(sandbox, info));
            encoded(&list)
        }
        Call::BranchList(_) => {
            let mut list: BranchListAnswer = decoded(answer)?;
            list.branches.retain(|row| names.contains(&row.name));
            let own = list
                .branches
                .iter_mut()
                .find(|row| row.name == sandbox.branch);
            if let Some(standing) = own.and_then(|row| row.standing.as_mut()) {
                standing.made_of = None;
            }
            list.branches
                .iter_mut()
                .for_each(|row| shown_at(sandbox, row));
            encoded(&list)
        }
        Call::BranchCreate(_) => {
            let mut row: BranchRow = decoded(answer)?;
            shown_at(sandbox, &mut row);
            encoded(&row)
        }
        Call::RunBegin(_) => {
            let mut begun: RunBeginAnswer = decoded(answer)?;
            begun.made_of = begun.made_of.filter(|of| names.contains(of));
            encoded(&begun)
        }
        Call::Status(_) => {
            let mut status: StatusAnswer = decoded(answer)?;
            shown_in(sandbox, &mut status.info);
            // What fails about it names its path, too.
            if let Some(audit) = status.facts.as_mut().and_then(|f| f.audit.take()) {
                let path = audit.path().display().to_string();
                status.troubles.retain(|trouble| !trouble.contains(&path));
            }
            encoded(&status)
        }
        Call::Timeline(_) => {
            let mut timeline: TimelineAnswer = decoded(answer)?;
            timeline.others.clear();
            encoded(&timeline)
        }
        Call::RollbackPlan(_) => {
            let mut plan: PlanAnswer = decoded(answer)?;
            // Processes outside.
            plan.holders.clear();
            encoded(&plan)
        }
        _ => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests with the least parameters that a method takes.
    fn requests(method: &str) -> Vec<Request> {
        let both = ["\"workspace\":\"w\"", "\"branch\":\"b\""];
        let more = [
            "",
            "\"name\":\"n\"",
            "\"path\":\"p\"",
            "\"key\":\"k\"",
            "\"id\":1",
            "\"ref\":\"r\"",
            "\"run\":\"r\"",
            "\"limit\":1",
            "\"path\":\"p\",\"limit\":1",
            "\"target\":\"head\"",
            "\"from\":\"live\",\"to\":\"live\"",
            "\"from\":\"b\",\"into\":\"c\"",
            "\"from\":\"b\",\"to\":\"c\"",
            "\"path\":\"p\",\"by\":\"ours\"",
            "\"path\":\"p\",\"b64\":\"\"",
            "\"key\":\"k\",\"value\":\"1\"",
            "\"base\":\"/p\"",
            "\"cgroup\":\"/c\"",
            "\"file\":\"/f\"",
            "\"prefix\":\"k\",\"error\":\"e\"",
            "\"path\":\"p\",\"target\":\"t\"",
            "\"path\":\"p\",\"size\":1",
            "\"path\":\"p\",\"perm\":1",
            "\"handle\":1",
            "\"text\":\"\"",
            "\"tool\":\"t\",\"texts\":[]",
            "\"name\":\"n\",\"url\":\"u\"",
            "\"url\":\"u\",\"project\":\"p\"",
            "\"handle\":1,\"offset\":0",
            "\"handle\":1,\"b64\":\"\"",
            "\"handle\":1,\"size\":1",
        ];
        let mut found = Vec::new();
        for count in 0..=2 {
            for more in more {
                let mut params = both[..count].to_vec();
                params.extend(Some(more).filter(|more| !more.is_empty()));
                let line = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{{{}}}}}",
                    params.join(",")
                );
                found.extend(parse_request(line.as_bytes()));
            }
        }
        found
    }

    /// Methods that name no workspace: what they are about is the sandbox's by itself.
    const OF_NO_BRANCH: [&str; 7] = [
        "workspace.list",
        "fs.pread",
        "fs.pwrite",
        "fs.ftruncate",
        "fs.fstat",
        "fs.fsync",
        "fs.close",
    ];

    /// Methods that a sandbox has nothing of.
    const REFUSED: [&str; 28] = [
        "policy.set",
        "remote.add",
        "remote.list",
        "remote.remove",
        "remote.push",
        "remote.fetch",
        "remote.clone",
        "remote.prefetch",
        "remote.gc",
        "workspace.init",
        "workspace.start",
        "workspace.stop",
        "workspace.delete",
        "workspace.apply",
        "workspace.apply_patch",
        "workspace.update",
        "workspace.export",
        "workspace.import",
        "branch.rename",
        "daemon.hand_over",
        "store.fsck",
        "store.stats",
        "store.gc",
        "store.config",
        "session.register",
        "session.list",
        "session.unregister",
        "run.wrote_nothing",
    ];

    #[test]
    fn every_method_is_refused_or_needs_no_more_than_the_sandbox_has() {
        for method in METHODS {
            let all = match *method {
                "hello" => continue,
                method => requests(method),
            };
            assert!(!all.is_empty(), "no parameters for {method}");
            for request in all {
                let is_bound = match needs(&request.call) {
                    Needs::More => false,
                    Needs::Nothing => OF_NO_BRANCH.contains(method),
                    Needs::Workspace(name) => name == "w",
                    Needs::Branches(name, branches, _) => name == "w" && !branches.is_empty(),
                    Needs::Child(name, branch) => name == "w" && branch == "b",
                };
                assert_eq!(is_bound, !REFUSED.contains(method), "{request:?}");
            }
        }
    }

    #[test]
    fn commits_that_a_run_would_take_for_its_own_are_refused() {
        let joining = |automatic, key: &str, joins: Option<&str>| {
            Call::Checkpoint(Checkpoint {
                workspace: "w".into(),
                branch: "b".into(),
                label: None,
                message: String::new(),
                meta: vec![(key.to_owned(), "x".to_owned())],
                wait: true,
                automatic,
                unlike: None,
                joins: joins.map(str::to_owned),
                progress: false,
            })
        };
        let checkpoint = |automatic, key: &str| joining(automatic, key, None);
        let is_refused = |call: &Call| matches!(needs(call), Needs::More);
        assert!(!is_refused(&checkpoint(false, "task")));
        assert!(is_refused(&checkpoint(true, "task")));
        assert!(!is_refused(&checkpoint(true, "nested-run")));
        for key in turns::ALL {
            assert!(!is_refused(&checkpoint(true, key)), "{key}");
            assert!(!is_refused(&joining(true, key, Some(key))), "{key}");
        }
        for key in KEYS_OF_RUNS {
            assert!(is_refused(&joining(true, turns::TURN, Some(key))), "{key}");
            assert!(is_refused(&checkpoint(false, key)), "{key}");
            assert!(is_refused(&checkpoint(true, key)), "{key}");
        }
    }

    #[test]
    fn refs_are_found_wherever_a_request_has_them() {
        let refs = |line: &str| {
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,{line}}}");
            let request = parse_request(line.as_bytes()).unwrap();
            match needs(&request.call) {
                Needs::Branches(_, _, refs) => refs.len(),
                _ => 0,
            }
        };
        let on = "\"workspace\":\"w\",\"branch\":\"b\"";
        for (method, params, count) in [
            ("workspace.rollback", "\"target\":{\"ref\":\"r\"}", 1),
            ("workspace.rollback_plan", "\"target\":{\"ref\":\"r\"}", 1),
            (
                "workspace.diff",
                "\"from\":{\"ref\":\"r\"},\"to\":{\"ref\":\"s\"}",
                2,
            ),
            (
                "workspace.patch",
                "\"from\":{\"ref\":\"r\"},\"to\":\"live\"",
                1,
            ),
            ("branch.create", "\"name\":\"n\",\"from\":\"r\"", 1),
            ("fs.read", "\"path\":\"p\",\"state\":{\"ref\":\"r\"}", 1),
            ("fs.list", "\"path\":\"p\",\"state\":{\"ref\":\"r\"}", 1),
            ("fs.stat", "\"path\":\"p\",\"state\":{\"ref\":\"r\"}", 1),
            ("fs.open", "\"path\":\"p\",\"state\":{\"ref\":\"r\"}", 1),
            ("kv.get", "\"key\":\"k\",\"state\":{\"ref\":\"r\"}", 1),
            ("kv.list", "\"state\":{\"ref\":\"r\"}", 1),
        ] {
            let line = format!("\"method\":\"{method}\",\"params\":{{{on},{params}}}");
            assert_eq!(refs(&line), count, "{line}");
        }
    }
}
