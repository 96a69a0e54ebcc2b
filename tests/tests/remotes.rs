//! Two homes as two machines that share a remote in a directory: what each does comes to the others, and nothing is
//! overwritten.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use tests::env::{Env, Told};
use tests::machines::{begin, first, full, head, json, other, root, rows, run, verified, write};
use tests::tree;

#[test]
fn work_of_two_machines_comes_together() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["kv", "set", "plan", "\"first\""]).ok();
    run(&a, &["checkpoint", "begun"]).ok();
    run(&a, &["tool", "exec", "edit", "--", "true"]);
    assert_eq!(rows(run(&a, &["push", "--labels"])), ["new origin/main"]);
    let b = other(&remote);
    assert_eq!(head(&a), head(&b));
    tree::same(
        "the clone",
        &tree::of(&a.mountpoint()),
        &tree::of(&b.mountpoint()),
    );
    assert!(run(&b, &["kv", "get", "plan"]).ok().contains("first"));
    verified(&b);

    // Each goes on from what both have.
    write(&b, "of-b", "b\n");
    write(&b, "both", "1\n2\n3\n4\nfive\n");
    assert_eq!(rows(run(&b, &["push"])), ["pushed origin/main"]);
    write(&a, "of-a", "a\n");
    write(&a, "both", "one\n2\n3\n4\n5\n");
    let refs = fs::read(remote.join("refs/project/main")).unwrap();
    let rejected = run(&a, &["push"]);
    assert!(rejected.err.contains("hint: agentvfs pull"), "{rejected:?}");
    rejected.fails(1, "rejected: origin/main has moved");
    assert_eq!(refs, fs::read(remote.join("refs/project/main")).unwrap());

    run(&a, &["pull"]).id();
    assert_eq!(
        fs::read_to_string(a.mountpoint().join("both")).unwrap(),
        "one\n2\n3\n4\nfive\n"
    );
    let standing = &a.status()["remotes"][0];
    assert_eq!(
        (&standing["name"], &standing["behind"]),
        (&"origin/main".into(), &0.into())
    );
    assert!(standing["ahead"].as_u64() > Some(0), "{standing}");
    assert_eq!(rows(run(&a, &["push"])), ["pushed origin/main"]);
    assert_eq!(a.status()["remotes"][0]["ahead"], 0);

    assert_eq!(rows(run(&b, &["fetch"])), ["moved origin/main"]);
    assert!(b.status()["remotes"][0]["behind"].as_u64() > Some(0));
    let changed = run(&b, &["diff", "origin/main"]).ok();
    assert!(changed.contains("of-a"), "{changed}");
    let log = run(&b, &["log", "--branch", "origin/main"]).ok();
    assert!(log.contains(&head(&a)) && log.contains("begun"), "{log}");
    run(&b, &["pull"]).id();
    let c = other(&remote);
    assert!(run(&c, &["log"]).ok().contains("begun"));
    for env in [&b, &c] {
        assert_eq!(head(env), head(&a));
        assert_eq!(root(env), root(&a));
        tree::same(
            "all",
            &tree::of(&a.mountpoint()),
            &tree::of(&env.mountpoint()),
        );
    }
    for env in [&a, &b, &c] {
        verified(env);
        run(env, &["fsck"]).ok();
        run(env, &["gc"]).ok();
        run(env, &["fsck"]).ok();
    }
}

#[test]
fn a_second_push_asks_two_things() {
    let Some((a, _)) = first() else { return };
    assert!(json(&a, &["push"])["requests"].as_u64() > Some(3));
    let again = json(&a, &["push"]);
    assert_eq!(again["branches"][0]["status"], "up-to-date");
    assert_eq!(again["requests"], 2);
    assert_eq!(again["branches"][0]["bytes"], 0);
}

#[test]
fn conflicts_of_a_pull_change_nothing_or_are_kept() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = other(&remote);
    write(&a, "both", "of a\n");
    run(&a, &["push"]).ok();
    write(&b, "both", "of b\n");
    run(&b, &["checkpoint"]).ok();
    let (before, told) = (head(&b), run(&b, &["pull"]));
    assert_eq!(
        (told.status, told.out.as_str()),
        (1, "content\tboth\n"),
        "{told:?}"
    );
    assert_eq!(head(&b), before);
    let told = run(&b, &["pull", "--conflicts", "keep"]);
    assert_eq!(told.status, 1, "{told:?}");
    let text = fs::read_to_string(b.mountpoint().join("both")).unwrap();
    assert!(text.contains("<<<<<<<") && text.contains("of a"), "{text}");
    run(
        &b,
        &["branch", "resolve", "both", "--theirs", "-w", "project"],
    )
    .ok();
    run(&b, &["push"]).ok();
    run(&a, &["pull"]).id();
    assert_eq!(root(&a), root(&b));
}

#[test]
fn labels_that_both_moved_are_named_and_stay() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["checkpoint", "mark"]).ok();
    run(&a, &["push", "--labels"]).ok();
    let b = other(&remote);
    write(&a, "new", "a\n");
    let of_a = run(&a, &["checkpoint", "mark"]).id();
    let pushed = run(&a, &["push", "--labels"]);
    assert!(
        pushed.err.contains("label mark of origin/main"),
        "{pushed:?}"
    );
    write(&b, "new-b", "b\n");
    let of_b = run(&b, &["checkpoint", "mark"]).id();
    let fetched = run(&b, &["fetch"]);
    assert!(
        fetched.err.contains("label mark of origin/main"),
        "{fetched:?}"
    );
    assert_ne!(of_a, of_b);
    let of = |env: &Env| json(env, &["log", "-n", "1"])["commits"][0]["labels"][0].clone();
    assert_eq!((of(&a), of(&b)), ("mark".into(), "mark".into()));
}

#[test]
fn a_lease_replaces_what_it_names_and_nothing_else() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = other(&remote);
    let old = head(&a);
    write(&a, "x", "a\n");
    run(&a, &["push"]).ok();
    write(&b, "x", "b\n");
    let lease = format!("--force-with-lease={old}");
    run(&b, &["push", &lease]).fails(1, "rejected: origin/main is not");
    run(&b, &["push", "--force-with-lease=nothing"]).fails(1, "neither a commit's id");
    let lease = format!("--force-with-lease={}", head(&a));
    assert_eq!(rows(run(&b, &["push", &lease])), ["pushed origin/main"]);
    run(&a, &["push"]).fails(1, "rejected");
    assert_eq!(json(&a, &["fetch"])["branches"][0]["commit"], head(&b));
}

#[test]
fn branches_are_pushed_and_cloned_by_name() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["branch", "create", "fix"]).ok();
    fs::write(a.mountpoint().join(".agentvfs/branches/fix/fixed"), "yes\n").unwrap();
    let pushed = rows(run(&a, &["push", "--all"]));
    assert_eq!(pushed, ["new origin/main", "new origin/fix"]);
    let b = Env::new().unwrap();
    let remote = remote.to_str().unwrap();
    run(
        &b,
        &["clone", remote, "project", "-w", "copy", "--branch", "fix"],
    )
    .ok();
    let mount = b.home().join("mnt/copy");
    assert!(!mount.join("fixed").exists());
    let fixed = fs::read_to_string(mount.join(".agentvfs/branches/fix/fixed"));
    assert_eq!(fixed.unwrap(), "yes\n");
    run(&b, &["merge", "origin/fix", "-w", "copy"]).id();
    assert!(mount.join("fixed").exists());
    run(
        &b,
        &[
            "branch",
            "create",
            "again",
            "--from",
            "origin/fix",
            "-w",
            "copy",
        ],
    )
    .ok();
    assert!(mount.join(".agentvfs/branches/again/fixed").exists());
}

/// Gives files and directories one time, so that trees of different machines can be equal.
fn at_one_time(at: &Path, paths: &[&str]) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for path in paths {
        let file = File::open(at.join(path)).unwrap();
        file.set_modified(time).unwrap();
    }
}

#[test]
fn a_merge_across_two_homes_is_the_merge_in_one() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = other(&remote);
    let work = |at: &Path| {
        fs::write(at.join("both"), "1\n2\n3\n4\nfive\n").unwrap();
        fs::rename(at.join("src/deep/main.rs"), at.join("src/deep/lib.rs")).unwrap();
        fs::remove_file(at.join("link")).unwrap();
        at_one_time(at, &["both", "src/deep", ""]);
    };
    run(&a, &["branch", "create", "side"]).ok();
    work(&a.mountpoint().join(".agentvfs/branches/side"));
    work(&b.mountpoint());
    write(&a, "both", "one\n2\n3\n4\n5\n");
    write(&a, "src/deep/other.rs", "\n");
    at_one_time(&a.mountpoint(), &["both", "src/deep/other.rs", "src/deep"]);
    run(&a, &["checkpoint", "before"]).ok();
    run(&b, &["push"]).ok();
    // A file that both changed has the time of the merge.
    let merged = |args: &[&str]| {
        run(&a, args).id();
        at_one_time(&a.mountpoint(), &["both"]);
        root(&a)
    };
    let in_one = merged(&["merge", "side"]);
    run(&a, &["rollback", "before"]).id();
    assert_ne!(in_one, root(&a));
    assert_eq!(in_one, merged(&["pull"]));
    run(&a, &["push"]).ok();
    run(&b, &["pull"]).id();
    assert_eq!(in_one, root(&b));
}

#[test]
fn a_log_of_a_remote_has_all_pages() {
    let Some((a, _)) = first() else { return };
    for n in 0..300 {
        run(&a, &["checkpoint", "-m", &n.to_string()]).id();
    }
    run(&a, &["push"]).ok();
    let ids = |branch: &str| {
        let log = run(&a, &["log", "--branch", branch]).ok();
        let ids = log
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    let all = ids("origin/main");
    assert!(all.len() > 300, "{} commits", all.len());
    assert_eq!(all, ids("main"));
}

#[test]
fn of_two_pushers_one_wins_and_the_other_is_told() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = other(&remote);
    for round in 0..3 {
        write(&a, &format!("a{round}"), "a\n");
        write(&b, &format!("b{round}"), "b\n");
        let children = [begin(&a, &["push"]), begin(&b, &["push"])];
        let told: Vec<Told> = children
            .into_iter()
            .zip([&a, &b])
            .map(|(child, env)| env.finish(child, "push"))
            .collect();
        let mut exits: Vec<i32> = told.iter().map(|told| told.status).collect();
        let loser = if exits[0] == 0 { &b } else { &a };
        exits.sort_unstable();
        assert_eq!(exits, [0, 1], "{told:?}");
        run(loser, &["pull"]).id();
        assert_eq!(rows(run(loser, &["push"])), ["pushed origin/main"]);
        run(&a, &["pull"]).id();
        run(&b, &["pull"]).id();
        assert_eq!((head(&a), root(&a)), (head(&b), root(&b)));
    }
}

#[test]
fn timelines_of_two_machines_stay_two() {
    let Some((a, remote)) = first() else { return };
    let call = |env: &Env, name: &str| {
        let file = env.mountpoint().join("both");
        let script = format!("echo {name} >> {}", file.display());
        run(
            env,
            &[
                "tool", "exec", name, "-w", "project", "--", "sh", "-c", &script,
            ],
        )
        .ok();
    };
    let calls = |env: &Env, args: &[&str]| {
        let args: Vec<&str> = ["timeline"].iter().chain(args).copied().collect();
        let all = json(env, &args);
        let names = all["calls"].as_array().unwrap().iter();
        let names = names.filter(|call| call["id"] != Value::Null);
        let mut names: Vec<String> = names
            .map(|call| call["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    call(&a, "of-a");
    run(&a, &["push"]).ok();
    let b = other(&remote);
    assert_eq!(calls(&b, &[]), Vec::<String>::new());
    assert_eq!(calls(&b, &["--all"]), ["of-a"]);
    assert!(
        run(&b, &["blame", "both", "-w", "project"])
            .ok()
            .contains("of-a")
    );
    call(&b, "of-b");
    run(&b, &["push"]).ok();
    run(&a, &["pull"]).id();
    assert_eq!(
        (calls(&a, &[]), calls(&b, &[])),
        (vec!["of-a".into()], vec!["of-b".into()])
    );
    assert_eq!(calls(&a, &["--all"]), ["of-a", "of-b"]);
    let blame = run(&a, &["blame", "both", "-w", "project"]).ok();
    assert!(blame.contains("of-a") && blame.contains("of-b"), "{blame}");
    for env in [&a, &b] {
        run(env, &["gc", "--grace", "0s"]).ok();
        verified(env);
        assert_eq!(calls(env, &["--all"]), ["of-a", "of-b"]);
    }
}

#[test]
fn what_was_fetched_outlives_gc() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = full(&remote);
    write(&a, "of-a", "a\n");
    run(&a, &["push"]).ok();
    run(&b, &["fetch"]).ok();
    run(&b, &["gc", "--grace", "0s"]).ok();
    run(&b, &["fsck"]).ok();
    run(&a, &["stop", "project", "--force"]).ok();
    fs::remove_dir_all(&remote).unwrap();
    run(&b, &["merge", "origin/main"]).id();
    assert!(b.mountpoint().join("of-a").exists());
}

#[test]
fn apply_asks_before_it_writes_what_another_machine_made() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let b = other(&remote);
    write(&b, ".envrc", "echo hello\n");
    run(&b, &["push"]).ok();
    run(&a, &["pull"]).id();
    let refused = run(&a, &["apply"]);
    assert!(
        refused.status == 1 && refused.err.contains("--trust"),
        "{refused:?}"
    );
    assert!(!a.project().join(".envrc").exists());
    run(&a, &["apply", "--trust"]).ok();
    assert!(a.project().join(".envrc").exists());
}

#[test]
fn what_cannot_be_a_remote_is_refused() {
    let Some((a, remote)) = first() else { return };
    let inside = a.mountpoint().join("remote");
    run(&a, &["remote", "add", "in", inside.to_str().unwrap()]).fails(1, "is in the mount");
    run(&a, &["remote", "add", "far", "file://host/dir"]).fails(1, "begins with file:///");
    let slash = run(&a, &["remote", "add", "a/b", "/tmp"]);
    assert!(
        slash.status == 2 && slash.err.contains("only letters"),
        "{slash:?}"
    );
    let region = ["remote", "add", "r", "/tmp/x", "--region", "eu"];
    run(&a, &region).fails(1, "a directory has no region");
    run(&a, &["push", "nowhere"]).fails(1, "no remote named nowhere");
    run(&a, &["fetch", "--branch", "main"]).fails(1, "has no branch main");
    let to = remote.to_str().unwrap();
    run(&a, &["clone", to, "nothing"]).fails(1, "has no project nothing");
    run(&a, &["clone", "/nonexistent", "x"]).fails(1, "/nonexistent");
    run(&a, &["push"]).ok();
    run(&a, &["clone", to, "project"]).fails(1, "already exists");
    let wrong = ["clone", to, "project", "-w", "x", "--branch", "gone"];
    run(&a, &wrong).fails(1, "has no branch gone");
    assert_eq!(
        json(&a, &["list"])["workspaces"].as_array().unwrap().len(),
        1
    );
    run(&a, &["remote", "remove", "origin"]).ok();
    run(&a, &["push"]).fails(1, "has no remote");
    run(&a, &["merge", "origin/main"]).fails(1, "origin/main");
}

#[test]
fn gc_of_a_remote_keeps_what_is_needed() {
    let Some((a, remote)) = first() else { return };
    run(&a, &["push"]).ok();
    let plan = json(&a, &["remote", "gc", "--dry-run"]);
    let done = json(&a, &["remote", "gc"]);
    assert_eq!(
        (&plan["kept"], &plan["missing"]),
        (&done["kept"], &0.into())
    );
    assert_eq!((&done["dropped"], &done["deleted"]), (&0.into(), &0.into()));
    let b = other(&remote);
    assert_eq!(root(&a), root(&b));
}
