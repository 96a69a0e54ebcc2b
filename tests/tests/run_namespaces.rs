//! `agentvfs run`: ways out of the sandbox by a user namespace that a command makes inside. `docs/sandbox.md` names the tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use tests::attempt::{handle_of, open_handle};
use tests::env::Env;
use tests::mount;
use tests::sandbox::{self, run, shell};
use tests::skip::{Want, skip};

/// The program of attempts, where the command sees it.
fn prepared(files: &[(&str, &str)]) -> Option<Env> {
    let env = sandbox::env(files)?;
    let to = env.mountpoint().join("escape");
    tests::binary::copy(Path::new(env!("CARGO_BIN_EXE_escape")), &to);
    Some(env)
}

/// Ways to a user namespace and a mount namespace in which one has all capabilities: for oneself alone and, as root, with every
/// id, for which the run's socket is asked.
fn namespaces() -> Vec<&'static str> {
    let mut all = vec!["unshare --user --map-root-user --mount"];
    if mount::is_root() {
        all.push("./escape mapped");
    }
    all
}

#[test]
fn a_namespace_inside_is_no_way_out() {
    let Some(env) = prepared(&[]) else { return };
    let user = env.path("user");
    fs::create_dir(user.join(".ssh")).unwrap();
    fs::write(user.join(".ssh/id"), "secret").unwrap();
    fs::write(user.join("plain"), "own").unwrap();
    let attempts = format!(
        "mount -o remount,rw / ; mount -o remount,bind,rw / ; umount /run ; umount -l {user}/.ssh; umount -l {home}
        mkdir /tmp/below /tmp/all
        mount --bind {user} /tmp/below; cat /tmp/below/.ssh/id {user}/.ssh/id
        mount --rbind / /tmp/all; mount -o remount,bind,rw /tmp/all
        echo escaped > /tmp/all{user}/plain; echo escaped > {user}/plain; echo escaped > /etc/agentvfs-escaped
        cat /tmp/all{user}/.ssh/id; ls -A {home} /tmp/all{home} | grep -v :
        mkdir -p /tmp/up /tmp/work /tmp/over
        mount -t overlay none -o lowerdir={user},upperdir=/tmp/up,workdir=/tmp/work,userxattr /tmp/over; cat /tmp/over/.ssh/id
        mount -t devtmpfs none /tmp/below && ls /tmp/below/kmsg
        unshare --net mount -t sysfs none /tmp/below && echo sysfs
        unshare --pid --fork mount -t proc none /tmp/over && echo escaped > /tmp/over/sys/kernel/domainname && echo proc
        mknod /tmp/disk b 8 0 && echo disk; mount -t tmpfs none /tmp/over && mknod /tmp/over/disk b 8 0 && echo disk
        echo escaped > /proc/sys/kernel/hostname && echo hostname; echo h > /proc/sysrq-trigger && echo sysrq
        setpriv --reuid 1234 --regid 1234 --clear-groups sh -c \"echo escaped > {user}/plain\"
        nsenter --mount=/proc/1/ns/mnt true && echo entered
        true",
        user = user.display(),
        home = env.home().display()
    );
    fs::write(env.mountpoint().join("attempts"), attempts).unwrap();
    let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap();
    let all = format!("{:016x}", (2u64 << last.trim().parse::<u32>().unwrap()) - 1);
    for with in namespaces() {
        // It has what it takes.
        let found = shell(&env, &format!("{with} grep CapEff /proc/self/status"));
        assert!(found.trim_end().ends_with(&all), "{with}: {found}");
        assert_eq!(
            shell(&env, &format!("{with} sh attempts")).trim(),
            "",
            "{with}"
        );
    }
    assert_eq!(fs::read_to_string(user.join("plain")).unwrap(), "own");
    assert!(!Path::new("/etc/agentvfs-escaped").exists());
}

/// Files of a hierarchy of cgroups belong to root, who could freeze or kill other processes by them. Who has a cgroup
/// namespace sees no group above the one that he is in; in the run's own he may change what he likes.
#[test]
fn groups_of_the_machine_cannot_be_reached_by_a_namespace_inside() {
    let Some(env) = prepared(&[]) else { return };
    let attempts = "
        for kind in cgroup2 'cgroup -o freezer' 'cgroup -o pids'; do
            mkdir -p /tmp/groups; mount -t $kind none /tmp/groups || continue
            echo mounted; echo max >/tmp/groups/cgroup.max.depth && cat /proc/self/cgroup; umount /tmp/groups
        done; true";
    fs::write(env.mountpoint().join("attempts"), attempts).unwrap();
    let kinds = namespaces()
        .into_iter()
        .flat_map(|with| [(with, ""), (with, "unshare --cgroup")]);
    for (with, and) in kinds {
        let script = format!("{with} {and} sh attempts 2>/dev/null; true");
        let found = shell(&env, &script);
        let is_allowed = match mount::is_root() {
            true => found.is_empty(),
            false => !found.contains("0::") || found.contains("agentvfs-run-"),
        };
        assert!(is_allowed, "{with} {and}: {found}");
    }
}

#[test]
fn a_namespace_inside_can_make_no_attempt_either() {
    let Some(env) = prepared(&[]) else { return };
    for (kind, on) in [("typing", ""), ("kernel", ""), ("process", "1")] {
        for with in namespaces() {
            let script = format!("{with} ./escape {kind} {on}");
            let told = run(&env, &["sh", "-c", &script]);
            assert_eq!(told.status, 0, "{with}: {told:?}");
        }
    }
}

/// A file's number in its file system leads to it whatever is mounted over its name.
#[test]
fn a_hidden_file_cannot_be_opened_by_its_number() {
    let Some(env) = prepared(&[]) else { return };
    let keys = env.path("user/.ssh");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("id"), "secret").unwrap();
    let Ok(number) = handle_of(&keys.join("id")) else {
        return skip(Want::Machine, "this file system tells no numbers of files");
    };
    if mount::is_root() {
        open_handle(&fs::File::open(&keys).unwrap(), &number).unwrap();
    }
    for with in [vec![""], namespaces()].concat() {
        let script = format!("{with} ./escape handle {number}");
        let told = run(&env, &["sh", "-c", &script]);
        assert_eq!(told.status, 0, "{with}: {told:?}");
        assert!(told.out.contains("refused"), "{with}: {told:?}");
    }
}
