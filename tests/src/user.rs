//! Acting as another user for a while: one thread alone, which root may.

use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user: id, group, further groups.
#[derive(Debug, Clone, Copy)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// Calls `work` with the rights of `user`, on this thread. The process must be root's.
pub fn act_as<R>(user: User, work: impl FnOnce() -> R) -> R {
    let back = BackToRoot;
    let groups: Vec<Gid> = user.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    set_thread_groups(&groups).unwrap();
    set_thread_res_gid(None, Gid::from_raw(user.gid), None).unwrap();
    set_thread_res_uid(None, Uid::from_raw(user.uid), None).unwrap();
    let done = work();
    drop(back);
    done
}

/// Also where `work` panics: other tests may run on this thread.
struct BackToRoot;

impl Drop for BackToRoot {
    fn drop(&mut self) {
        set_thread_res_uid(None, Uid::ROOT, None).unwrap();
        set_thread_res_gid(None, Gid::ROOT, None).unwrap();
        set_thread_groups(&[]).unwrap();
    }
}
