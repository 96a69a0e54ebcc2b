//! How far branches are ahead and behind is what a look at all their commits says, whatever was merged or rolled back.
#![allow(clippy::unwrap_used)]

use crate::common::damaged::{checkpoint, put_in};
use crate::common::rng::{Rng, fresh_seed};
use crate::common::world::{MAIN, World};
use engine::verbs;
use engine::*;
use objstore::crash_storage::CrashStorage;
use std::collections::{BTreeMap, HashMap};

/// Branches of branches that go on, merge each other and go back, at random.
fn world(rng: &mut Rng) -> (tempfile::TempDir, World) {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("a"), "a").unwrap();
    let world = World::on_disk(CrashStorage::new(), base.path());
    let mut branches = vec![MAIN.to_owned()];
    for step in 0..40 {
        let branch = branches[rng.below(branches.len() as u64) as usize].clone();
        match rng.below(8) {
            0 | 1 if branches.len() < 6 => {
                let name = format!("b{step}");
                verbs::create_branch(world.w(), &name, &branch, None).unwrap();
                branches.push(name);
            }
            2 => {
                let other = &branches[rng.below(branches.len() as u64) as usize];
                let request = MergeRequest {
                    from: other.clone(),
                    into: branch.clone(),
                    ..MergeRequest::default()
                };
                if *other != branch {
                    verbs::merge_branch(world.w(), &request, &|_, _| ()).unwrap();
                }
            }
            3 => drop(verbs::rollback(
                world.w(),
                &branch,
                &Target::Ref("@~1".into()),
            )),
            4 => {
                put_in(&world, &branch, &format!("f{step}"), b"x");
                let request = AutomaticRequest {
                    commit: CheckpointRequest {
                        message: "nobody asked".into(),
                        wait: true,
                        ..CheckpointRequest::default()
                    },
                    ..AutomaticRequest::default()
                };
                verbs::commit_automatically(world.w(), &branch, request, &|_, _| ()).unwrap();
            }
            _ => {
                put_in(&world, &branch, &format!("f{step}"), b"x");
                checkpoint(&world, &branch, &format!("l{step}"));
            }
        }
    }
    (base, world)
}

/// The commits from which a branch's head descends, and whether somebody asked for each.
fn line(world: &World, branch: &str) -> HashMap<CommitId, bool> {
    let log = verbs::log(world.w(), branch, true).unwrap();
    let head = log.iter().find(|e| e.is_head).unwrap().commit.unwrap();
    let by_id: HashMap<CommitId, &LogEntry> = log.iter().map(|e| (e.commit.unwrap(), e)).collect();
    let (mut line, mut work) = (HashMap::new(), vec![head]);
    while let Some(id) = work.pop() {
        let Some(entry) = by_id.get(&id) else {
            continue;
        };
        let is_wanted = match entry.kind {
            "other-branch" => !entry.message.is_empty() || !entry.labels.is_empty(),
            _ => !entry.automatic,
        };
        if line.insert(id, is_wanted).is_none() {
            work.extend(&entry.parents);
        }
    }
    line
}

#[test]
fn ahead_and_behind_are_what_a_look_at_all_commits_says() {
    let seed = fresh_seed();
    eprintln!("AGENTVFS_SEED={seed}");
    let (_base, world) = world(&mut Rng(seed));
    let standings = verbs::branch_standings(world.w());
    let names = standings.iter().map(|s| s.name.clone());
    let lines: BTreeMap<String, _> = names.map(|n| (n.clone(), line(&world, &n))).collect();
    for standing in &standings {
        let Some(made_of) = &standing.made_of else {
            assert_eq!(standing.name, MAIN);
            continue;
        };
        let (own, theirs) = (&lines[&standing.name], &lines[made_of]);
        let beyond = |a: &HashMap<CommitId, bool>, b: &HashMap<CommitId, bool>| {
            a.iter()
                .filter(|(id, wanted)| **wanted && !b.contains_key(*id))
                .count() as u64
        };
        let expected = (beyond(own, theirs), beyond(theirs, own));
        assert_eq!(
            (standing.ahead, standing.behind),
            expected,
            "seed {seed}: {standing:?}"
        );
    }
}
