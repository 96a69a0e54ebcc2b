//! The groups of who asks. A request names one group alone, but a set-group-id bit without group
//! execution goes only where the caller is in none of the file's (`setattr_should_drop_sgid` in the
//! kernel's `fs/attr.c`), so the others are read from /proc where that bit is set, which is rare.

use engine::Workspace;
use engine::types::{Kind, NodeId, SETXATTR_KILL_SGID, mode};
use fuser::Request;

/// Flag for setting attribute `name`: an access control list set by somebody outside of the file's
/// group takes the set-group-id bit away. (The kernel would say so only in a longer request, which
/// the FUSE library does not read.)
pub(crate) fn list_flag(req: &Request, ws: &Workspace, node: NodeId, name: &[u8]) -> u32 {
    if req.uid() == 0 || name != engine::acl::ACCESS {
        return 0;
    }
    match ws.getattr(node) {
        Ok(attr) if u32::from(attr.perm) & mode::SGID != 0 && !is_member(req, attr.gid) => {
            SETXATTR_KILL_SGID
        }
        _ => 0,
    }
}

fn is_member(req: &Request, gid: u32) -> bool {
    gid == req.gid() || further(req.pid()).contains(&gid)
}

/// True where the file has the set-group-id bit without group execution, and the caller is not in its
/// group. Root always may keep the bit.
pub(crate) fn is_outside(req: &Request, ws: &Workspace, node: NodeId) -> bool {
    if req.uid() == 0 {
        return false;
    }
    let Ok(attr) = ws.getattr(node) else {
        return false;
    };
    let perm = u32::from(attr.perm);
    let has_bit = attr.kind != Kind::Dir && perm & mode::SGID != 0 && perm & 0o010 == 0;
    has_bit && !is_member(req, attr.gid)
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
