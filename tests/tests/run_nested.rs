//! `agentvfs run`: runs inside a run, for branches that are made there, and where these branches are seen.
#![allow(clippy::unwrap_used)]

use std::fs;
use tests::binary;
use tests::env::{Env, Told};
use tests::sandbox::{self, run};

/// A shell in a run with these options and `agentvfs` on its path. It may have been built below /tmp.
fn shell(env: &Env, options: &[&str], script: &str) -> Told {
    let dir = env.path("bin");
    if !dir.exists() {
        fs::create_dir(&dir).unwrap();
        binary::same_build(&dir.join("agentvfs"));
    }
    let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", dir.display());
    let args = [options, &["--env", &path, "--", "sh", "-c", script]].concat();
    run(env, &args)
}

const IN_S: &[&str] = &["--session", "s", "--quiet"];

fn outside(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.project(), args))
}

#[test]
fn a_run_inside_a_run_is_in_a_branch_of_its_own() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "set -e; echo outer > f; mkdir d; cd d
        agentvfs run --session child -- sh -c 'pwd; cat ../f; echo inner > ../f; echo $AGENTVFS_BRANCH; exit 3' || echo $?
        cat ../f ../.agentvfs/branches/child/f
        agentvfs branch merge child --into s >/dev/null; cat ../f";
    let told = shell(&env, IN_S, script);
    let d = env.project().join("d");
    let wanted = format!("{}\nouter\nchild\n3\nouter\ninner\ninner\n", d.display());
    assert_eq!(told.out, wanted, "{told:?}");
    for words in [
        "sh ended with 3 after",
        "agentvfs branch diff s child",
        "agentvfs branch merge child --into s",
        "agentvfs branch delete child",
    ] {
        assert!(told.err.contains(words), "{words} in {told:?}");
    }
    assert!(!told.err.contains("workspace apply"), "{told:?}");
    let base = fs::read_to_string(env.project().join("f")).unwrap();
    assert_eq!(base, "base\n");
}

#[test]
fn an_agent_fans_out_and_takes_what_its_runs_made() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "for n in 1 2 3 4; do
            agentvfs run --quiet --then merge -- sh -c \"echo $n > part-$n\" &
        done; wait; cat part-*; agentvfs branch list | wc -l
        agentvfs run --quiet -- true; agentvfs branch list | wc -l";
    let told = shell(&env, IN_S, script);
    // Those that were merged stay; the one in which nothing changed does not.
    assert_eq!(told.out, "1\n2\n3\n4\n5\n5\n", "{told:?}");
}

#[test]
fn a_run_inside_a_run_has_runs_inside_itself_unless_it_is_roots() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "agentvfs run --quiet --session a -- sh -c 'echo a > a
            agentvfs run --quiet --session b -- sh -c \"echo b > b; ls a b; ls .agentvfs/branches\" || exit 7
            ls .agentvfs/branches; cat .agentvfs/branches/b/b
            agentvfs run --quiet --session b --then merge -- true; cat b' || echo $?
        ls .agentvfs/branches";
    let told = shell(&env, IN_S, script);
    match rustix::process::geteuid().is_root() {
        true => {
            assert_eq!(told.out, "7\na\n", "{told:?}");
            assert!(
                told.err
                    .contains("can have none inside itself: it has no /proc of its own"),
                "{told:?}"
            );
        }
        false => assert_eq!(told.out, "a\nb\nb\nb\nb\na\nb\n", "{told:?}"),
    }
}

#[test]
fn a_run_inside_a_run_reaches_nothing_else() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    outside(&env, &["branch", "create", "other"]).ok();
    let project = env.project();
    let script = format!(
        "agentvfs branch create sibling >/dev/null; echo precious > f
        agentvfs run --quiet --session child -- sh -c '
            echo x > /etc/agentvfs-escape; echo x > $HOME/escape; echo x > ../escape; echo y > f
            ls .agentvfs/branches; ls .agentvfs/branches/sibling; ls {0}/.agentvfs/branches
            for v in \"fs cat f --branch s\" \"fs cat f --branch sibling\" \"fs cat f --branch other\" \
                \"branch delete sibling\" \"branch merge child --into s\" \"branch delete child\" \"apply --branch child\" \
                \"checkpoint x --meta run=1\" \"run --list\" \"run --session sibling -- true\"; do
                agentvfs $v </dev/null && echo \"DONE $v\"
            done
            agentvfs branch list | cut -f1
            umount -l . || mount -o remount,bind,rw / || umount -l /tmp || true
            echo x > /etc/agentvfs-escape'
        cat f; ls .agentvfs/branches",
        project.display()
    );
    let told = shell(&env, IN_S, &script);
    assert_eq!(told.out, "child\nprecious\nchild\nsibling\n", "{told:?}");
    assert!(!told.err.contains("panicked"), "{told:?}");
    assert!(!fs::exists("/etc/agentvfs-escape").unwrap());
    assert!(!project.parent().unwrap().join("escape").exists());
}

#[test]
fn what_cannot_be_done_inside_a_run_is_said() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    for (words, status, wanted) in [
        (
            "run --session s -- true",
            2,
            "the branch of the run around this one",
        ),
        (
            "run --from /etc -- true",
            2,
            "--from cannot be used inside a run",
        ),
        (
            "run --no-sandbox -- true",
            2,
            "--no-sandbox cannot be used inside a run",
        ),
        (
            "run --show /etc -- true",
            2,
            "--show cannot be used inside a run",
        ),
        (
            "run --then apply -- true",
            2,
            "--then apply cannot be used inside a run",
        ),
        (
            "run --allow /etc -- true",
            2,
            "/etc is read-only in the run around this one",
        ),
        ("run --pids 5 -- true", 125, "cannot run true"),
        ("run --list", 1, "a command in a sandbox may not do that"),
        ("fsck", 1, "a command in a sandbox may not do that"),
    ] {
        let told = shell(&env, IN_S, &format!("agentvfs {words}"));
        assert_eq!(told.status, status, "{words}: {told:?}");
        assert!(told.err.contains(wanted), "{words}: {told:?}");
    }
    let strict = [IN_S, &["--strict"]].concat();
    let told = shell(&env, &strict, "agentvfs run -- true");
    assert!(
        told.status == 125 && told.err.contains("--strict"),
        "{told:?}"
    );
    let dotenv = env.project().join("f");
    let hides = [
        "--session",
        "s",
        "--quiet",
        "--hide",
        dotenv.to_str().unwrap(),
    ];
    let told = shell(&env, &hides, "ls .agentvfs");
    assert_eq!(told.out, "", "{told:?}");
}

#[test]
fn the_branches_that_are_seen_are_those_made_inside() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    outside(&env, &["branch", "create", "other"]).ok();
    for session in ["main", "s"] {
        let child = format!("child-of-{session}");
        let script = format!(
            "readlink .agentvfs/view; ls .agentvfs; ls .agentvfs/branches
            agentvfs branch create {child} >/dev/null; ls .agentvfs/branches
            echo x > .agentvfs/branches/{child}/new; agentvfs fs cat new --branch {child}
            agentvfs branch create gone >/dev/null; agentvfs branch delete gone >/dev/null; ls .agentvfs/branches
            agentvfs branch create gone >/dev/null; ls .agentvfs/branches/gone
            mkdir .agentvfs/branches/own 2>/dev/null && echo WRITTEN
            cat .agentvfs/view/f"
        );
        let told = shell(&env, &["--session", session, "--quiet"], &script);
        let wanted = format!("..\nbranches\nsnapshots\nview\n{child}\nx\n{child}\nf\nbase\n");
        assert_eq!(told.out, wanted, "{told:?}");
        // The next run of the session sees them, too; what is in them is there outside.
        let told = shell(
            &env,
            &["--session", session, "--quiet"],
            "cat .agentvfs/branches/*/new",
        );
        assert_eq!(told.out, "x\n", "{told:?}");
        let new = env
            .mountpoint()
            .join(".agentvfs/branches")
            .join(&child)
            .join("new");
        assert_eq!(fs::read_to_string(new).unwrap(), "x\n");
        outside(&env, &["branch", "delete", "-w", "project", "gone"]).ok();
    }
    outside(&env, &["checkpoint", "-w", "project", "mine"]).ok();
    let told = shell(
        &env,
        &["--session", "main", "--quiet"],
        "ls .agentvfs/snapshots; cat .agentvfs/snapshots/mine/f",
    );
    assert_eq!(told.out, "mine\nbase\n", "{told:?}");
}

#[test]
fn branches_are_told_where_they_are_inside() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "agentvfs branch create child | grep ^path=; agentvfs branch list | cut -f1,3
        agentvfs run --quiet --session child -- sh -c 'agentvfs branch create inner | grep ^path=; agentvfs branch list | cut -f3'";
    let told = shell(&env, IN_S, script);
    let project = env.project().display().to_string();
    let below = |name: &str| format!("{project}/.agentvfs/branches/{name}");
    let wanted = [
        format!("path={}", below("child")),
        format!("s\t{project}"),
        format!("child\t{}", below("child")),
        format!("path={}", below("inner")),
        project.clone(),
        below("inner"),
    ];
    assert_eq!(told.out.lines().collect::<Vec<_>>(), wanted, "{told:?}");
    // Outside they are in the mount.
    let told = outside(&env, &["branch", "list", "-w", "project"]);
    let mount = env.mountpoint().join(".agentvfs/branches/child");
    assert!(told.out.contains(mount.to_str().unwrap()), "{told:?}");
}

#[test]
fn a_branch_in_which_a_run_inside_goes_on_stays() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "agentvfs run --quiet --session child -- sh -c 'echo up > up; until [ -e go ]; do sleep 0.05; done' &
        until [ -e .agentvfs/branches/child/up ]; do sleep 0.05; done
        agentvfs branch delete child; echo $?
        echo > .agentvfs/branches/child/go; wait
        agentvfs branch delete child >/dev/null; echo $?";
    let told = shell(&env, IN_S, script);
    assert_eq!(told.out, "1\n0\n", "{told:?}");
    assert!(
        told.err.contains("branch child is used by a run"),
        "{told:?}"
    );
}

#[test]
fn what_is_written_inside_a_run_inside_a_run_is_not_trusted() {
    let Some(env) = sandbox::env(&[("f", "base\n")]) else {
        return;
    };
    let script = "agentvfs branch create child; echo x > .agentvfs/branches/child/plain";
    shell(&env, IN_S, script).ok();
    // From now on it is as if nobody in a sandbox had written in it.
    let apply = ["apply", "-w", "project", "--branch", "child"];
    env.workspace(&apply).ok();
    shell(
        &env,
        IN_S,
        "agentvfs run --session child -- sh -c 'echo x > .envrc'",
    )
    .ok();
    let told = env.workspace(&apply);
    assert!(told.status == 1 && told.err.contains(".envrc"), "{told:?}");
}
