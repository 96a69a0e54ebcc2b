//! Requests about sessions.

use super::place::locate_own;
use crate::faults;
use crate::mounts::Mounts;
use crate::request::on;
use agentvfs_client::protocol::*;
use engine::verbs;

/// Has the processes of a cgroup see a branch.
pub fn register(mounts: &Mounts, ask: &SessionRegister) -> Result<SessionRegisterAnswer, Fault> {
    let all = on(mounts, &ask.workspace, |w| Ok(verbs::list_branches(w)))?;
    if !all.iter().any(|branch| branch.name == ask.branch) {
        let error = engine::Error::NoSuchBranch(ask.branch.clone());
        return Err(faults::of_engine(&error, &ask.workspace));
    }
    let located = locate_own(ask.cgroup.path())?;
    let cgroup = Bytes::from(located.dir.as_path());
    let moved_from = mounts
        .sessions()
        .register(&ask.workspace, &ask.branch, located)?;
    mounts.groups_changed(&ask.workspace);
    let mount = mounts.get(&ask.workspace)?.mount;
    let view = mount.path().join(".agentvfs/view");
    Ok(SessionRegisterAnswer {
        session: SessionRow {
            cgroup,
            branch: ask.branch.clone(),
            workspace: ask.workspace.clone(),
        },
        view: Bytes::from(view.as_path()),
        moved_from: moved_from.filter(|before| *before != ask.branch),
    })
}

/// The registered cgroups.
pub fn list(mounts: &Mounts, ask: &SessionList) -> Result<SessionListAnswer, Fault> {
    let sessions = mounts.sessions().list(ask.workspace.as_deref())?;
    Ok(SessionListAnswer { sessions })
}

/// Forgets a cgroup.
pub fn unregister(mounts: &Mounts, ask: &SessionUnregister) -> Result<SessionListAnswer, Fault> {
    let workspace = ask.workspace.as_deref();
    let sessions = mounts.sessions().unregister(ask.cgroup.path(), workspace)?;
    for gone in &sessions {
        mounts.groups_changed(&gone.workspace);
    }
    Ok(SessionListAnswer { sessions })
}
