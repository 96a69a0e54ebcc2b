//! The groups of who asks. A request names one group alone, but a set-group-id bit without group
//! execution goes only where the caller is in none of the file's (`setattr_should_drop_sgid` in the
//! kernel's `fs/attr.c`), so the others are read from /proc where that bit is set, which is rare.

use engine::Workspace;
use engine::types::{Caller, Kind, NodeId, mode};

fn is_member(who: &Caller, gid: u32) -> bool {
    gid == who.gid || further(who.pid).contains(&gid)
}

/// True where the file has the set-group-id bit without group execution, and the caller is not in its
/// group. Root always may keep the bit.
pub(crate) fn is_outside(who: &Caller, ws: &Workspace, node: NodeId) -> bool {
    if who.uid == 0 {
        return false;
    }
    let Ok(attr) = ws.getattr(node) else {
        return false;
    };
    let perm = u32::from(attr.perm);
    let has_bit = attr.kind != Kind::Dir && perm & mode::SGID != 0 && perm & 0o010 == 0;
    has_bit && !is_member(who, attr.gid)
}

/// Supplementary groups of a task; none where it cannot be looked at.
fn further(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let groups = groups.unwrap_or_default().split_whitespace();
    groups.filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_groups_are_found() {
        let mine = rustix::process::getgroups().unwrap();
        let mut mine: Vec<u32> = mine.iter().map(|group| group.as_raw()).collect();
        let mut found = further(std::process::id());
        mine.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, mine);
        assert!(further(u32::MAX).is_empty());
    }
}
