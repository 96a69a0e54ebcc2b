//! State files of branches, tree files, and the pointer to the one that counts.

use crate::seal;
use crate::seeds::{chunk, counters, info, patch};
use engine::record::{Outcome, encode};
use engine::{check_state_bytes, check_tree_bytes};
use objstore::TreeId;

/// A state or tree file is understood or refused.
pub fn check(bytes: &[u8]) {
    for of_version in [
        seal::state,
        seal::state_without_blocks,
        seal::first_timeline_state,
        seal::old_state,
    ] {
        check_state_bytes(&of_version(bytes));
    }
    check_state_bytes(bytes);
    for of_version in [seal::tree, seal::first_tree] {
        check_tree_bytes(&of_version(bytes));
    }
    check_tree_bytes(bytes);
}

/// A block (docs/format.md, 9) of inodes whose number is below 256, with those that are notable.
fn block<T: bincode::Encode>(count: u32, entries: &Vec<T>, notable: &[(u8, u8)]) -> Vec<u8> {
    let head = (0u64, count, entries.len() as u32, notable.to_vec());
    [encode(&head), encode(entries)].concat()
}

/// A state file and a tree file with the inodes of [`patch`], and a pointer.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let history = (
        vec![info()],
        vec![("l".to_owned(), 2u64)],
        2u64,
        vec![(1u64, 1u64)],
        Vec::<(u64, u64)>::new(),
        vec![1u64],
        Vec::<engine::merge::Conflict>::new(),
    );
    let root = Some(Some(TreeId::from_bytes([9; 32])));
    let lists = (vec![b"changed".to_vec()], Vec::<Vec<u8>>::new());
    let patched = patch().inodes;
    let inodes = patch().inodes.into_iter();
    let inodes: Vec<_> = inodes.filter_map(|(nid, i)| Some((nid, i?))).collect();
    let files = (1u32, patched.len() as u64);
    let head = (7u64, counters(), history, root, lists, files);
    let head = encode(&head);
    let (some, rest) = (
        encode(&patched[..1].to_vec()),
        encode(&patched[1..].to_vec()),
    );
    let old = frames(&[head.clone(), some.clone(), rest.clone()]);
    let kv = encode(&Some(chunk(3)));
    let timeline = crate::timeline::frame();
    let later = encode(&Vec::<u64>::new());
    let outcomes = encode(&(
        7u64,
        vec![(2u64, Outcome::Inode(9)), (4, Outcome::Bytes(5))],
    ));
    let shown = encode(&Some(1u64));
    // Each version added a frame behind those that were there.
    let version = |own: &[&Vec<u8>]| {
        let all = [&head, &kv].into_iter().chain(own.iter().copied());
        let all: Vec<_> = all.chain([&some, &rest]).cloned().collect();
        frames(&all)
    };
    let first = version(&[&crate::timeline::first_frame()]);
    let before = version(&[&timeline, &later]);
    let without_shown = version(&[&timeline, &later, &outcomes]);
    let without_blocks = version(&[&timeline, &later, &outcomes, &shown]);
    let notable = [(2, 2), (3, 2), (5, 2)];
    let of_state = block(4, &patched, &notable);
    let state = frames(&[head, kv, timeline, later, outcomes, shown, of_state]);
    let count = encode(&(inodes.len() as u64));
    let first_tree = frames(&[
        count.clone(),
        encode(&inodes[..1].to_vec()),
        encode(&inodes[1..].to_vec()),
    ]);
    let all: Vec<_> = inodes.into_iter().map(|(nid, i)| (nid, Some(i))).collect();
    let tree = frames(&[count, block(4, &all, &notable)]);
    vec![
        seal::state(&state),
        seal::old_state(&old),
        seal::tree(&tree),
        seal::pointer(7),
        seal::first_timeline_state(&first),
        seal::state_without_outcomes(&before),
        seal::state_without_shown(&without_shown),
        seal::state_without_blocks(&without_blocks),
        seal::first_tree(&first_tree),
    ]
}

fn frames(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut b = vec![0; 12];
    for body in bodies {
        b.extend_from_slice(&(body.len() as u32).to_le_bytes());
        b.extend_from_slice(&[0; 4]);
        b.extend_from_slice(body);
    }
    b
}
