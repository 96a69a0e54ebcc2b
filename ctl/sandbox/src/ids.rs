//! Which user and group ids the sandbox has: an ordinary user only its own, root all that it has outside.
//!
//! Root needs all, since a project often belongs to somebody else: a file whose owner has no id in the namespace
//! cannot be changed by anybody in it (user_namespaces(7)).

use crate::error::{Doing, Result};
use rustix::process::Pid;

/// Writes the maps of a new user namespace, of which `child` is the first process.
pub fn write_maps(child: Pid) -> Result<()> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let proc = |name: &str| format!("/proc/{}/{name}", child.as_raw_nonzero());
    let write = |name: &str, text: String| {
        std::fs::write(proc(name), text).doing(|| format!("writing {name} of the sandbox"))
    };
    if uid != 0 {
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{uid} {uid} 1"))?;
        return write("gid_map", format!("{gid} {gid} 1"));
    }
    for name in ["uid_map", "gid_map"] {
        let own = std::fs::read_to_string(format!("/proc/self/{name}"))
            .doing(|| format!("reading {name}"))?;
        write(name, identity(&own))?;
    }
    Ok(())
}

/// A map in which every id of this namespace (`own` is its map) is itself.
fn identity(own: &str) -> String {
    let mut map = String::new();
    for line in own.lines() {
        let mut fields = line.split_whitespace();
        if let (Some(first), Some(count)) = (fields.next(), fields.nth(1)) {
            map.push_str(&format!("{first} {first} {count}\n"));
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn every_id_is_itself() {
        assert_eq!(
            identity("         0          0 4294967295\n"),
            "0 0 4294967295\n"
        );
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
