//! Random rules and changes, judged by the crate and by a naive reader of the same rules: its patterns try one way after
//! the other, its rates keep every time. `AGENTVFS_SEED` makes a run happen again.
#![allow(clippy::unwrap_used)]

use agentvfs_policy::{Asker, Bench, FeedOp, Ops, Policy, Sentence, Touch, ruled};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const WORDS: [&str; 7] = [
    "create", "write", "truncate", "unlink", "rename", "setattr", "symlink",
];
const PATTERNS: [&str; 8] = ["**", "a/**", "**/b", "a/*", "?", "a/b", "**/a/**", "b*"];
const PATHS: [&str; 9] = ["", "a", "b", "a/b", "a/a", "b/a/b", "a/b/a", "bb", "b/b"];
const VERDICTS: [&str; 3] = ["allow", "soft_watch", "deny"];

/// A rule as the naive reader has it.
struct Rule {
    ops: Ops,
    pattern: Option<&'static str>,
    uid: Option<u32>,
    rate: Option<(usize, u64)>,
    verdict: &'static str,
    /// Times of changes that count, and of refused ones, since its window began.
    made: Vec<u64>,
    refused: Vec<u64>,
}

fn fits(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        // At the end it stands for something, elsewhere also for nothing.
        (["**"], path) => !path.is_empty(),
        (["**", rest @ ..], path) => (0..=path.len()).any(|n| fits(rest, &path[n..])),
        ([p, rest @ ..], [name, below @ ..]) => {
            fits_name(p.as_bytes(), name.as_bytes()) && fits(rest, below)
        }
        _ => false,
    }
}

fn fits_name(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], name) => (0..=name.len()).any(|n| fits_name(rest, &name[n..])),
        ([b'?', rest @ ..], [_, name @ ..]) => fits_name(rest, name),
        ([p, rest @ ..], [n, name @ ..]) => p == n && fits_name(rest, name),
        _ => false,
    }
}

impl Rule {
    fn fits(&self, op: FeedOp, path: &str, uid: u32) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let path = self.pattern.is_none_or(|pattern| {
            let pattern: Vec<&str> = pattern.split('/').collect();
            pattern == ["**"] || fits(&pattern, &parts)
        });
        self.ops.has(op) && path && self.uid.is_none_or(|u| u == uid)
    }

    fn is_full(&self, now: u64) -> bool {
        let Some((count, period)) = self.rate else {
            return true;
        };
        let last = self.refused.last().or(self.made.first());
        match last.is_some_and(|last| now - last < period) {
            true => !self.refused.is_empty() || self.made.len() >= count,
            false => count == 0,
        }
    }

    /// Lets go of what is over.
    fn look(&mut self, now: u64) {
        let Some((_, period)) = self.rate else { return };
        let last = self.refused.last().or(self.made.first());
        if last.is_some_and(|last| now - last >= period) {
            (self.made, self.refused) = (Vec::new(), Vec::new());
        }
    }
}

fn rules(random: &mut Random) -> (String, Vec<Rule>) {
    let (mut text, mut rules) = (String::new(), Vec::new());
    for _ in 0..random.below(8) {
        let verdict = random.one(&VERDICTS);
        writeln!(text, "[[rule]]\nverdict = {verdict:?}").unwrap();
        let mut ops = Ops::changes();
        if random.below(4) > 0 {
            let words = [random.one(&WORDS), random.one(&WORDS)];
            writeln!(text, "op = {words:?}").unwrap();
            ops = Ops::of_word(words[0])
                .unwrap()
                .and(Ops::of_word(words[1]).unwrap());
        }
        let pattern = (random.below(4) > 0).then(|| random.one(&PATTERNS));
        pattern
            .iter()
            .for_each(|p| writeln!(text, "path = {p:?}").unwrap());
        let uid = (random.below(4) == 0).then(|| random.below(2) as u32);
        uid.iter()
            .for_each(|uid| writeln!(text, "uid = {uid}").unwrap());
        let has_rate = verdict != "allow" && random.below(3) == 0;
        let rate = has_rate.then(|| (random.below(4), 1 + random.below(5) as u64));
        rate.iter()
            .for_each(|(n, t)| writeln!(text, "rate = \"{n}/{t}s\"").unwrap());
        rules.push(Rule {
            ops,
            pattern,
            uid,
            rate,
            verdict,
            made: Vec::new(),
            refused: Vec::new(),
        });
    }
    (text, rules)
}

/// What the naive reader says of operations at paths: the verdict and its rule.
fn judge(
    rules: &mut [Rule],
    touches: &[(FeedOp, &str)],
    uid: u32,
    now: u64,
) -> (&'static str, Option<usize>) {
    let mut strictest = (0, None);
    let mut counted = Vec::new();
    rules.iter_mut().for_each(|rule| rule.look(now));
    for (op, path) in touches {
        for (n, rule) in rules.iter().enumerate() {
            if !rule.fits(*op, path, uid) {
                continue;
            }
            if rule.rate.is_some() {
                counted.push(n);
            }
            if rule.is_full(now) {
                let severity = VERDICTS.iter().position(|v| *v == rule.verdict).unwrap();
                if severity > strictest.0 || strictest.1.is_none() {
                    strictest = (severity, Some(n));
                }
                break;
            }
        }
    }
    counted.sort_unstable();
    counted.dedup();
    let verdict = VERDICTS[strictest.0];
    match strictest.1 {
        Some(n) if verdict == "deny" => rules[n].refused.push(now),
        _ => counted.into_iter().for_each(|n| rules[n].made.push(now)),
    }
    (verdict, strictest.1)
}

#[test]
fn a_naive_reader_of_the_same_rules_says_the_same() {
    let given = std::env::var("AGENTVFS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let seed = given.unwrap_or(u64::from(now.subsec_nanos()) + 1);
    eprintln!("AGENTVFS_SEED={seed}");
    let mut random = Random(seed);
    let mut denied = 0;
    for _ in 0..400 {
        let (text, mut naive) = rules(&mut random);
        let mut bench = Bench::new(Arc::new(Policy::load(&text).unwrap()));
        let mut now = 0;
        for _ in 0..40 {
            now += random.below(3) as u64;
            let uid = random.below(2) as u32;
            let count = 1 + random.below(3);
            let op = ruled(random.one(&WORDS)).unwrap();
            let touches: Vec<(FeedOp, &str)> =
                (0..count).map(|_| (op, random.one(&PATHS))).collect();
            let asker = Asker {
                uid,
                branch: "main",
                ..Asker::default()
            };
            bench.begin(&asker, Duration::from_secs(now));
            for (op, path) in &touches {
                bench.touch(Touch::At(*op, path.as_bytes()));
            }
            let ruling = bench.end();
            let is_denied = matches!(ruling.sentence, Sentence::Deny(_));
            if !is_denied {
                bench.made();
            }
            denied += usize::from(is_denied);
            let said = (ruling.sentence.word(), ruling.rule.map(|(rule, _)| rule));
            assert_eq!(
                said,
                judge(&mut naive, &touches, uid, now),
                "{touches:?} at {now}\n{text}"
            );
        }
    }
    assert!(denied > 100, "only {denied} were denied");
}
