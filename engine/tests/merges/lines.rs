//! Line merges are held against `git merge-file --diff3`: never another clean result, and bytes that are
//! the same but for rare cases.
//!
//! `MERGE_LINES` sets the number of cases, `MERGE_SEED` the seed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::merging::rng::Rng;
use crate::merging::{edits, git, rounds, seed};
use engine::merge::text::{LineLabels, LineMerge, MARKER_SIZE, merge_lines};
use std::sync::atomic::{AtomicU64, Ordering};

struct Case {
    base: Vec<u8>,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

fn case(seed: u64, texts: &[Vec<u8>]) -> Case {
    let mut rng = Rng(seed);
    let base = match rng.below(3) {
        0 => edits::monotonous(&mut rng),
        _ => edits::excerpt(&mut rng, texts),
    };
    let most = 1 + rng.below(8);
    let side = |rng: &mut Rng| {
        let count = rng.below(most + 1);
        edits::edited(rng, &base, count)
    };
    let mut ours = side(&mut rng);
    let theirs = side(&mut rng);
    if rng.below(4) == 0 {
        // Both have some changes in common.
        ours = edits::edited(&mut rng, &theirs, 2);
    }
    Case { base, ours, theirs }
}

const LABELS: LineLabels<'static> = LineLabels {
    base: b"base",
    ours: b"ours",
    theirs: b"theirs",
};

#[test]
fn merges_of_lines_are_those_of_git() {
    let count = rounds("MERGE_LINES", 10_000);
    let seed = seed("MERGE_SEED");
    let texts = crate::merging::real_texts();
    let (next, differ, conflicts) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let (texts, next, differ, conflicts) = (&texts, &next, &differ, &conflicts);
            scope.spawn(move || {
                let dir = git::scratch(&format!("lines-{worker}"));
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let number = seed * 1_000_000 + number;
                    let case = case(number, texts);
                    let want = git::merge_file(dir.path(), &case.base, &case.ours, &case.theirs);
                    let got =
                        merge_lines(&case.base, &case.ours, &case.theirs, &LABELS, MARKER_SIZE);
                    conflicts.fetch_add(u64::from(want.conflicts > 0), Ordering::Relaxed);
                    differ.fetch_add(u64::from(!agree(number, &got, &want)), Ordering::Relaxed);
                }
            });
        }
    });
    let (differ, conflicts) = (differ.into_inner(), conflicts.into_inner());
    println!("{count} merges, {conflicts} with conflicts, {differ} other than git's");
    assert!(
        conflicts > count / 20,
        "too few conflicts to mean anything: {conflicts}"
    );
    assert!(
        conflicts < count * 9 / 10,
        "too few clean merges: {conflicts} conflicts"
    );
    assert!(differ * 500 <= count, "{differ} of {count} differ");
}

/// Whether the bytes are the same; another clean result, or a clean one against a conflict, fails.
fn agree(number: u64, got: &LineMerge, want: &git::FileMerge) -> bool {
    let same = got.bytes == want.bytes;
    let clean = got.conflicts == 0 || want.conflicts == 0;
    assert!(
        same || !clean,
        "case {number}: {} conflicts here, {} in git\n--- here\n{}\n--- git\n{}",
        got.conflicts,
        want.conflicts,
        String::from_utf8_lossy(&got.bytes),
        String::from_utf8_lossy(&want.bytes)
    );
    same
}
