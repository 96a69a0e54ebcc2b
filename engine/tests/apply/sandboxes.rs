//! Which branches belong to a sandbox: those made in it, for as long as they and it exist, and no others.
#![allow(clippy::unwrap_used)]

use crate::common::world::{MAIN, World};
use engine::{Error, Time, verbs};

fn world() -> (tempfile::TempDir, World) {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir(&base).unwrap();
    std::fs::write(base.join("f"), "base").unwrap();
    let world = World::on_files(&base);
    (dir, world)
}

fn created(world: &World, branch: &str) -> Time {
    let all = verbs::list_branches(world.w());
    all.into_iter().find(|b| b.name == branch).unwrap().created
}

fn of(world: &World, branch: &str) -> Vec<String> {
    let mut names = verbs::branches_of_sandbox(world.w(), branch, created(world, branch)).unwrap();
    names[1..].sort();
    names
}

fn make(world: &World, name: &str, of: &str, sandbox: &str) {
    let sandbox = (sandbox, created(world, sandbox));
    verbs::create_branch_in_sandbox(world.w(), name, (of, None), sandbox).unwrap();
}

#[test]
fn only_what_was_made_in_a_sandbox_belongs_to_it_also_after_a_restart() {
    let (_dir, mut world) = world();
    verbs::create_branch(world.w(), "s", MAIN, None).unwrap();
    make(&world, "child", "s", "s");
    make(&world, "grandchild", "child", "child");
    make(&world, "in-main", MAIN, MAIN);
    verbs::create_branch(world.w(), "outside", "s", None).unwrap();
    verbs::create_branch(world.w(), "of-child", "child", None).unwrap();
    for _ in 0..2 {
        assert_eq!(of(&world, "s"), ["s", "child", "grandchild"]);
        assert_eq!(of(&world, "child"), ["child", "grandchild"]);
        assert_eq!(of(&world, MAIN), [MAIN, "in-main"]);
        assert_eq!(of(&world, "outside"), ["outside"]);
        world.kill().unwrap();
    }
}

#[test]
fn names_change_and_what_belongs_does_not() {
    let (_dir, mut world) = world();
    verbs::create_branch(world.w(), "s", MAIN, None).unwrap();
    let when = created(&world, "s");
    make(&world, "child", "s", "s");
    verbs::rename_branch(world.w(), "child", "renamed").unwrap();
    verbs::rename_branch(world.w(), "s", "t").unwrap();
    world.kill().unwrap();
    assert_eq!(of(&world, "t"), ["t", "renamed"]);
    // Another one with the old name, and with the number of one that is gone.
    verbs::create_branch(world.w(), "s", MAIN, None).unwrap();
    let told = verbs::branches_of_sandbox(world.w(), "s", when);
    assert!(matches!(told, Err(Error::NoSuchBranch(_))), "{told:?}");
    verbs::delete_branch(world.w(), "t", &|_, _| ()).unwrap();
    world.kill().unwrap();
    verbs::create_branch(world.w(), "next", MAIN, None).unwrap();
    for name in ["s", "next", MAIN] {
        assert_eq!(of(&world, name), [name]);
    }
}

#[test]
fn a_ref_of_another_branch_is_not_its_own() {
    let (_dir, world) = world();
    verbs::create_branch(world.w(), "s", MAIN, None).unwrap();
    verbs::create_branch(world.w(), "other", MAIN, None).unwrap();
    let label = |branch: &str, label: &str| {
        let request = engine::CheckpointRequest {
            label: Some(label.to_owned()),
            wait: true,
            ..engine::CheckpointRequest::default()
        };
        let made = verbs::checkpoint(world.w(), branch, request, &|_, _| ());
        made.unwrap().commit.unwrap().to_string()
    };
    let own = label("s", "mine");
    crate::applying::write(&world, ".agentvfs/branches/other/f", "other");
    let id = label("other", "theirs");
    let has = |text: &str| verbs::has_own_ref(world.w(), "s", text).unwrap();
    for text in ["mine", "s:mine", "@", "HEAD", own.as_str()] {
        assert!(has(text), "{text}");
    }
    for text in ["theirs", "other:theirs", "nothing", id.as_str()] {
        assert!(!has(text), "{text}");
    }
}

#[test]
fn a_name_that_another_branch_has_got_since_the_check_leads_nowhere() {
    let (_dir, world) = world();
    verbs::create_branch(world.w(), "s", MAIN, None).unwrap();
    let when = created(&world, "s");
    make(&world, "child", "s", "s");
    let members = verbs::sandbox_members(world.w(), "s", when).unwrap();
    verbs::delete_branch(world.w(), "child", &|_, _| ()).unwrap();
    verbs::create_branch(world.w(), "child", MAIN, None).unwrap();
    let redo = |branch: &str| verbs::redo_with(world.w(), branch, &|_, _| ());
    verbs::only_with_members(&members, || {
        assert!(matches!(redo("child"), Err(Error::NoSuchBranch(_))));
        assert!(!matches!(redo("s"), Err(Error::NoSuchBranch(_))));
        // Nor can a branch be made of it, though another thread may.
        let of =
            |of, from| verbs::create_branch_in_sandbox(world.w(), "new", (of, from), ("s", when));
        assert!(matches!(of("child", None), Err(Error::NoSuchBranch(_))));
        assert!(matches!(
            of("s", Some("child:x")),
            Err(Error::NoSuchBranch(_))
        ));
    });
    assert!(!matches!(redo("child"), Err(Error::NoSuchBranch(_))));
}
