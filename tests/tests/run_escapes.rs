//! `agentvfs run`: each way out of the sandbox that is known, tried from inside. `docs/sandbox.md` names the tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Stdio;
use tests::env::Env;
use tests::sandbox::{self, command, run, shell};
use tests::skip::{Want, skip};
use tests::{binary, mount};

/// Longest path that a socket can have (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The program of attempts, where the command sees it.
fn prepared(files: &[(&str, &str)]) -> Option<Env> {
    let env = sandbox::env(files)?;
    let to = env.mountpoint().join("escape");
    tests::binary::copy(Path::new(env!("CARGO_BIN_EXE_escape")), &to);
    Some(env)
}

/// Makes the attempts of a kind inside; all must be refused.
#[track_caller]
fn refused(env: &Env, options: &[&str], kind: &str, on: &str) {
    let args = [options, &["--", "./escape", kind, on]].concat();
    let told = run(env, &args);
    assert_eq!(told.status, 0, "{told:?}");
    assert!(told.out.contains("refused"), "{told:?}");
}

/// Has a shell inside try to write to a path; the file outside must stay as it is.
#[track_caller]
fn cannot_write(env: &Env, path: &Path) {
    let before = fs::read(path).ok();
    let script = format!(
        "echo escaped > '{0}' || echo escaped >> '{0}' || rm -rf '{0}'; true",
        path.display()
    );
    shell(env, &script);
    assert_eq!(fs::read(path).ok(), before, "{}", path.display());
}

#[test]
fn nothing_of_the_machine_can_be_written() {
    let Some(env) = prepared(&[("f", "base")]) else {
        return;
    };
    let user = env.path("user");
    fs::create_dir_all(user.join(".claude")).unwrap();
    for name in [".bashrc", ".claude/settings.json"] {
        fs::write(user.join(name), "own").unwrap();
    }
    env.told(env.command(&env.project(), &["branch", "create", "other"]))
        .ok();
    let other = env.mountpoint().join(".agentvfs/branches/other/f");
    let etc = Path::new("/etc/agentvfs-escaped");
    for path in [
        &user.join(".bashrc"),
        &user.join(".claude/settings.json"),
        &env.path("tmp/new"),
        &env.home().join("escaped"),
        &env.mountpoint().join("f"),
        &other,
        etc,
        Path::new("/sys/kernel/profiling"),
        Path::new("/dev/agentvfs-escaped"),
    ] {
        cannot_write(&env, path);
    }
    assert_eq!(fs::read_to_string(env.project().join("f")).unwrap(), "base");
    assert_eq!(fs::read_to_string(&other).unwrap(), "base");
}

#[test]
fn neither_the_home_nor_mounts_nor_other_branches_are_there() {
    let Some(env) = prepared(&[]) else { return };
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    let at = env.path("other-mount");
    let args = [
        "start",
        "--from",
        other.to_str().unwrap(),
        "--mount",
        at.to_str().unwrap(),
    ];
    env.workspace(&args).ok();
    fs::write(at.join("secret"), "x").unwrap();
    let script = format!("ls -A '{}' '{}'", env.home().display(), at.display());
    let out = shell(&env, &script);
    let names: Vec<&str> = out
        .lines()
        .filter(|l| !l.is_empty() && !l.ends_with(':'))
        .collect();
    assert_eq!(names, [""; 0], "{out}");
}

#[test]
fn secrets_are_hidden_unless_they_are_shown() {
    let Some(env) = prepared(&[]) else { return };
    let user = env.path("user");
    for dir in [".ssh", ".aws", ".config/gcloud", ".docker"] {
        fs::create_dir_all(user.join(dir)).unwrap();
    }
    for name in [
        ".ssh/id",
        ".aws/credentials",
        ".config/gcloud/token",
        ".docker/config.json",
        ".netrc",
        ".config/other",
    ] {
        fs::write(user.join(name), "secret").unwrap();
    }
    let script = "cd \"$HOME\"; cat .ssh/id .aws/credentials .config/gcloud/token .docker/config.json .netrc .config/other";
    let told = run(&env, &["--session", "s", "sh", "-c", script]);
    assert_eq!(told.out, "secret", "only what is no secret: {told:?}");
    assert!(
        told.err.contains("~/.ssh") && told.err.contains("~/.netrc"),
        "{told:?}"
    );
    let (ssh, token) = (user.join(".ssh"), user.join(".config/gcloud/token"));
    let shown = [
        "--show",
        ssh.to_str().unwrap(),
        "--show",
        token.to_str().unwrap(),
    ];
    let script = "cd \"$HOME\"; cat .ssh/id .config/gcloud/token; echo x > .ssh/id; echo x > .config/gcloud/token; ls .config/gcloud; cat .aws/credentials";
    let told = run(&env, &[&shown[..], &["sh", "-c", script]].concat());
    assert_eq!(told.out, "secretsecrettoken\n", "{told:?}");
    assert_eq!(fs::read_to_string(ssh.join("id")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(&token).unwrap(), "secret");
}

#[test]
fn allowed_paths_are_writable_and_hidden_ones_empty() {
    let Some(env) = prepared(&[(".env", "KEY=1")]) else {
        return;
    };
    let (open, file, hidden) = (env.path("open"), env.path("one"), env.path("hidden"));
    fs::create_dir(&open).unwrap();
    fs::create_dir(&hidden).unwrap();
    fs::write(hidden.join("x"), "x").unwrap();
    fs::write(&file, "one").unwrap();
    fs::write(env.path("two"), "two").unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let dotenv = env.project().join(".env");
    let options = [
        "--allow".to_owned(),
        text(&open),
        "--allow".to_owned(),
        text(&file),
        "--hide".to_owned(),
        text(&hidden),
        "--hide".to_owned(),
        text(&dotenv),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let script = "cd ..; echo a > open/new; echo b > one; echo c > two; ls -A hidden; cat project/.env; echo y > hidden/y; echo y > project/.env";
    let told = run(&env, &[&options[..], &["sh", "-c", script]].concat());
    assert_eq!(told.out, "", "{told:?}");
    assert_eq!(fs::read_to_string(open.join("new")).unwrap(), "a\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "b\n");
    assert_eq!(fs::read_to_string(env.path("two")).unwrap(), "two");
    assert_eq!(fs::read_to_string(&dotenv).unwrap(), "KEY=1");
    assert!(!hidden.join("y").exists());
}

#[test]
fn an_allowed_directory_does_not_open_what_is_hidden_in_it() {
    let Some(env) = prepared(&[]) else { return };
    let user = env.path("user");
    fs::create_dir(user.join(".ssh")).unwrap();
    fs::write(user.join(".ssh/id"), "secret").unwrap();
    let script = format!(
        "cat \"$HOME/.ssh/id\"; echo x > \"$HOME/.ssh/id\"; ls -A '{}'; echo x > \"$HOME/new\"",
        env.home().display()
    );
    let (root, own) = (env.path(""), user.to_str().unwrap());
    for allowed in [own, root.to_str().unwrap()] {
        let told = run(&env, &["--allow", allowed, "sh", "-c", &script]);
        assert_eq!((told.status, told.out.as_str()), (0, ""), "{told:?}");
        assert_eq!(fs::read_to_string(user.join(".ssh/id")).unwrap(), "secret");
        fs::remove_file(user.join("new")).unwrap();
    }
}

#[test]
fn temporary_directories_are_private_and_run_is_empty() {
    let Some(env) = prepared(&[]) else { return };
    let outside = tempfile::tempdir_in("/tmp").unwrap();
    let script = "ls -A /tmp /var/tmp /dev/shm | grep -v :; echo x > /tmp/x && echo x > /dev/shm/x && cat /tmp/x";
    let out = shell(&env, script);
    assert_eq!(out.replace('\n', ""), "x", "{}", outside.path().display());
    let out = shell(
        &env,
        "ls -A /tmp; find /run -mindepth 1 -type f; find /run -mindepth 1 -type s; mkdir /run/new; true",
    );
    assert_eq!(
        out.lines()
            .filter(|line| !line.contains("resolv") && *line != "/run/agentvfs.sock")
            .count(),
        0,
        "{out}"
    );
    assert!(!Path::new("/run/new").exists());
}

#[test]
fn files_of_the_kernel_cannot_be_written() {
    let Some(env) = prepared(&[]) else { return };
    let pattern = fs::read("/proc/sys/kernel/core_pattern").unwrap();
    let script = "for f in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger /proc/irq/default_smp_affinity; do
        if (: >> $f) 2>/dev/null; then echo open: $f; fi; done
        hostname escaped; true";
    let host = fs::read("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(shell(&env, script), "");
    assert_eq!(fs::read("/proc/sys/kernel/core_pattern").unwrap(), pattern);
    assert_eq!(fs::read("/proc/sys/kernel/hostname").unwrap(), host);
}

#[test]
fn no_device_of_the_machine_is_there() {
    let Some(env) = prepared(&[]) else { return };
    let out = shell(
        &env,
        "ls /dev; find /dev -type b; ls /dev/kmsg /dev/kvm /dev/loop-control /dev/fuse /dev/mem; true",
    );
    let wanted = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero";
    assert_eq!(out.split_whitespace().collect::<Vec<_>>().join(" "), wanted);
    let script =
        "mknod n c 1 11 && (: < n) && echo made; echo x > /dev/null && head -c 4 /dev/zero | wc -c";
    assert_eq!(shell(&env, script).trim(), "4");
}

#[test]
fn device_nodes_elsewhere_cannot_be_opened() {
    if !mount::is_root() {
        return skip(Want::Root, "only root can make device nodes");
    }
    let Some(env) = prepared(&[]) else { return };
    let node = env.path("zero");
    let mut mknod = env.program("mknod");
    mknod.arg(&node).args(["c", "1", "5"]);
    env.told(mknod).ok();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).unwrap();
    let told = run(&env, &["head", "-c", "1", node.to_str().unwrap()]);
    assert_ne!(told.status, 0, "{told:?}");
}

#[test]
fn processes_outside_cannot_be_reached() {
    let Some(env) = prepared(&[]) else { return };
    refused(&env, &[], "process", &std::process::id().to_string());
    refused(
        &env,
        &[],
        "process",
        &env.daemons()[0].as_raw_nonzero().to_string(),
    );
    refused(&env, &[], "process", "1");
    let out = shell(&env, "ls /proc | grep -c '^[0-9]'");
    assert!(out.trim().parse::<u32>().unwrap() <= 6, "{out}");
}

#[test]
fn nothing_is_typed_into_the_terminal() {
    let Some(env) = prepared(&[]) else { return };
    refused(&env, &[], "typing", "");
}

#[test]
fn calls_that_reach_into_the_kernel_are_denied() {
    let Some(env) = prepared(&[]) else { return };
    refused(&env, &[], "kernel", "");
}

#[test]
fn sockets_of_the_machine_cannot_be_reached() {
    let Some(env) = prepared(&[]) else { return };
    let (stream, datagram) = (env.path("stream.sock"), env.path("user/datagram.sock"));
    if datagram.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return skip(
            Want::Machine,
            "the test's directory is too long for a socket",
        );
    }
    let _listener = UnixListener::bind(&stream).unwrap();
    refused(&env, &[], "path-socket", stream.to_str().unwrap());
    refused(
        &env,
        &["--net", "none"],
        "path-socket",
        stream.to_str().unwrap(),
    );
    let receiver = UnixDatagram::bind(&datagram).unwrap();
    refused(&env, &[], "path-socket", datagram.to_str().unwrap());
    receiver.set_nonblocking(true).unwrap();
    assert!(receiver.recv(&mut [0; 1]).is_err());
    let daemon = env.home().join("daemon.sock");
    refused(&env, &[], "path-socket", daemon.to_str().unwrap());
    let name = format!("agentvfs-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    refused(&env, &[], "abstract-socket", &name);
}

#[test]
fn without_network_there_is_only_the_loopback_device() {
    let Some(env) = prepared(&[]) else { return };
    let told = run(
        &env,
        &[
            "--no-network",
            "sh",
            "-c",
            "tail -n +3 /proc/net/dev | cut -d: -f1; cat /sys/class/net/lo/operstate >/dev/null",
        ],
    );
    assert_eq!(told.ok().trim(), "lo");
    // Its own address can be reached: the device is up.
    let told = run(
        &env,
        &[
            "--net",
            "none",
            "sh",
            "-c",
            "cat /proc/net/route | wc -l; grep -c 127.0.0.1 /proc/net/fib_trie",
        ],
    );
    let out = told.ok();
    assert!(out.lines().nth(1).is_some_and(|n| n != "0"), "{out}");
}

#[test]
fn a_directory_as_standard_input_is_no_way_out() {
    let Some(env) = prepared(&[]) else { return };
    for number in 0..3 {
        let script = "echo x > /proc/self/fd/0/escaped; echo x > /proc/self/fd/1/escaped; echo x > /proc/self/fd/2/escaped; true";
        let mut command = command(&env, &["--session", "s", "sh", "-c", script]);
        let dir = || Stdio::from(fs::File::open(env.path("")).unwrap());
        match number {
            0 => command.stdin(dir()),
            1 => command.stdout(dir()),
            _ => command.stderr(dir()),
        };
        let status = command.status().unwrap();
        assert!(status.success(), "{number}");
        assert!(!env.path("escaped").exists(), "{number}");
    }
}

#[test]
fn a_file_as_standard_input_is_no_way_out() {
    let Some(env) = prepared(&[]) else { return };
    let file = env.path("input");
    fs::write(&file, "input").unwrap();
    for number in 0..3 {
        let mut command = command(
            &env,
            &[
                "--session",
                "s",
                "sh",
                "-c",
                "for n in 0 1 2; do echo x > /proc/self/fd/$n; done; true",
            ],
        );
        let read = || Stdio::from(fs::File::open(&file).unwrap());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match number {
            0 => command.stdin(read()),
            1 => command.stdout(read()),
            _ => command.stderr(read()),
        };
        command.status().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "input", "{number}");
    }
}

#[test]
fn other_descriptors_are_closed() {
    let Some(env) = prepared(&[]) else { return };
    let file = env.path("inherited");
    let script = format!(
        "exec 7>'{}' 9<.; exec '{}' run --session s -- sh -c 'ls /proc/self/fd; echo x >&7'",
        file.display(),
        binary::agentvfs().display()
    );
    let mut shell = env.program("sh");
    shell.args(["-c", &script]).current_dir(env.project());
    let told = env.told(shell);
    // 3 is what ls has open.
    assert_eq!(
        told.out.split_whitespace().collect::<Vec<_>>(),
        ["0", "1", "2", "3"],
        "{told:?}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"");
}

#[test]
fn mounts_cannot_be_changed() {
    let Some(env) = prepared(&[]) else { return };
    let script = "mount -t tmpfs none /mnt && echo mounted
        mount -o remount,rw / && echo remounted
        mount -o remount,bind,rw / && echo remounted
        umount /run && echo unmounted
        umount -l /tmp && echo unmounted
        nsenter --mount=/proc/1/ns/mnt true && echo entered
        chroot / true && echo chroot
        true";
    assert_eq!(shell(&env, script), "");
}

#[test]
fn sudo_says_why_it_gives_no_rights() {
    let Some(env) = prepared(&[]) else { return };
    if !Path::new("/usr/bin/sudo").exists() {
        return skip(Want::Machine, "there is no sudo");
    }
    if mount::is_root() {
        return skip(Want::Machine, "root needs no sudo");
    }
    let told = run(&env, &["sudo", "-n", "true"]);
    assert!(told.status != 0 && told.err.contains("sudo: "), "{told:?}");
    let says = ["no new privileges", "nosuid", "must be owned by uid 0"];
    assert!(says.iter().any(|why| told.err.contains(why)), "{told:?}");
}

#[test]
fn capabilities_and_set_uid_programs_give_nothing() {
    let Some(env) = prepared(&[]) else { return };
    let status = shell(&env, "cat /proc/self/status");
    let field = |name: &str| {
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name));
        line.unwrap().trim_start_matches(':').trim().to_owned()
    };
    // CHOWN, DAC_OVERRIDE, FOWNER, FSETID and SETFCAP for root.
    let kept = if mount::is_root() {
        "000000008000001b"
    } else {
        "0000000000000000"
    };
    for name in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(field(name), kept, "{name}");
    }
    assert_eq!(field("CapInh"), "0000000000000000");
    assert_eq!(field("CapAmb"), "0000000000000000");
    assert_eq!(
        (field("NoNewPrivs").as_str(), field("Seccomp").as_str()),
        ("1", "2")
    );
    // Every mount but the sandbox's own devices ignores both.
    let table = shell(&env, "cat /proc/self/mountinfo");
    for line in table.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        assert!(
            fields[5].contains("nosuid") || fields[4].starts_with("/dev/"),
            "{line}"
        );
        assert!(
            fields[5].contains("nodev") || fields[4].starts_with("/dev"),
            "{line}"
        );
    }
}

#[test]
fn what_roots_command_gives_files_counts_nowhere() {
    if !mount::is_root() {
        return skip(Want::Root, "only root may give files capabilities");
    }
    if !mount::found("setcap") {
        return skip(Want::Machine, "there is no setcap");
    }
    let Some(env) = prepared(&[]) else { return };
    let script = "cp /bin/true id; chmod 4755 id; stat -c %a id
        cp /bin/true capable; setcap cap_dac_read_search+ep capable; getcap capable";
    let out = shell(&env, script);
    assert!(
        out.starts_with("4755\n") && out.contains("cap_dac_read_search"),
        "{out}"
    );
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = env.mountpoint();
    let line = table
        .lines()
        .find(|line| line.split(' ').nth(4) == place.to_str());
    let flags = line.and_then(|line| line.split(' ').nth(5)).unwrap();
    assert!(flags.contains("nosuid"), "{flags}");
    let apply = env.command(&env.project(), &["apply", "--branch", "s", "--trust"]);
    env.told(apply).fails(1, "privilege");
    for name in ["id", "capable"] {
        assert!(!env.project().join(name).exists(), "{name}");
    }
}

#[test]
fn root_can_work_on_the_project_of_another_owner() {
    if !mount::is_root() {
        return skip(Want::Root, "only root can give files away");
    }
    let Some(env) = prepared(&[("f", "base")]) else {
        return;
    };
    let f = env.mountpoint().join("f");
    std::os::unix::fs::chown(&f, Some(1234), Some(1234)).unwrap();
    let out = shell(
        &env,
        "stat -c %u f; echo mine > f; chown 4321 f; stat -c %u f; cat f",
    );
    assert_eq!(out, "1234\n4321\nmine\n");
}

#[test]
fn links_and_dots_lead_nowhere_writable() {
    let Some(env) = prepared(&[]) else { return };
    fs::write(env.path("plain"), "own").unwrap();
    let script = "ln -s / root; ln -s .. up; echo x > up/plain; echo x > ../plain; echo x > root/etc/agentvfs-escaped; echo x > /proc/self/cwd/../plain; echo x > /proc/self/root/etc/agentvfs-escaped; true";
    shell(&env, script);
    assert_eq!(fs::read_to_string(env.path("plain")).unwrap(), "own");
    assert!(!Path::new("/etc/agentvfs-escaped").exists());
}

#[test]
fn a_mount_that_is_made_later_is_not_seen() {
    let Some(env) = prepared(&[]) else { return };
    if !mount::is_root() {
        return skip(Want::Root, "only root can mount");
    }
    let script = "echo up > up; read line; ls -A ../later; echo x > ../later/x; true";
    fs::create_dir(env.path("later")).unwrap();
    fs::remove_dir(env.path("later")).unwrap();
    let mut command = command(&env, &["--session", "s", "sh", "-c", script]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let up = env.mountpoint().join(".agentvfs/branches/s/up");
    tests::wait::until("the run is up", || up.exists());
    mount::memory(&env.path("later"), 1 << 20);
    fs::write(env.path("later/secret"), "x").unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    assert_eq!(env.finish(child, "the run").ok(), "");
    assert!(!env.path("later/x").exists());
}

#[test]
fn commands_of_agentvfs_reach_no_daemon() {
    let Some(env) = prepared(&[]) else { return };
    let (program, home) = (binary::agentvfs().display(), env.home().display());
    let script = format!(
        "'{program}' --root '{home}' branch list && echo listed; '{program}' --root '{home}' workspace delete project --yes && echo deleted; '{program}' delete project --yes && echo deleted; true"
    );
    let out = shell(&env, &script);
    assert_eq!(out, "");
    assert_eq!(env.daemons().len(), 1);
}
