//! What rules say of changes, one after the other: of one branch, whose changes they count.
//!
//! A change touches paths: a write all names of a file, a rename both its ends and all that a directory has in it. Each
//! touch is judged by itself, and the strictest verdict counts.
//!
//! A move is judged as `rename` at both ends. What moves out of a rule's reach is gone there, and what moves into it is
//! new there: so it is judged as `unlink` (or `rmdir`) of the old path, and as `create` and `write` of the new one, by
//! rules that do not fit the other end just as well. Otherwise two moves would get round a rule.
//!
//! A rule may leave the verdict to the policy's program, which is not run here. What it must be asked is a list of
//! [`Asked`]: whoever asks runs it, and begins with the change again, with what it said ([`Bench::hear`]). So an answer
//! counts for exactly what it was given for, whatever happened meanwhile. The program is asked about a move or a link
//! once, with both paths.
//!
//! Invariant: a change that is denied is not counted, but by the rule that denied it.

use crate::errno::Errno;
use crate::paths::{Fits, Looks};
use crate::rate::Window;
use crate::rule::{ChangeRule, severity};
use crate::{ASKED_MAX, Policy};
use engine::judge::{Asker, Counting, FeedOp, Ruling, Sentence, Touch};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What the program is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The rule that leaves the verdict to it.
    pub rule: usize,
    /// Operation.
    pub op: FeedOp,
    /// Path, from the root.
    pub path: Vec<u8>,
    /// The new path of a move, an existing one of a link; otherwise empty.
    pub path2: Vec<u8>,
}

/// What the program said, or its rule where it gave no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The verdict.
    pub verdict: Sentence,
    /// Words about it, for whoever follows events.
    pub words: Arc<str>,
}

/// Rules at work in one branch.
#[derive(Debug)]
pub struct Bench {
    policy: Arc<Policy>,
    windows: Vec<Window>,
    scope: Scope,
    looks: Looks,
    fits: [Fits; 2],
    /// The paths that were looked at last, where there is a program.
    ends: [Vec<u8>; 2],
    trial: Trial,
}

/// Which rules hold for whom: most changes come from the program of the change before.
#[derive(Debug, Default)]
struct Scope {
    is_set: bool,
    uid: u32,
    command: String,
    branch: String,
    run: Option<String>,
    holds: Vec<bool>,
}

/// What was found for one change so far.
#[derive(Debug, Default)]
struct Trial {
    now: Duration,
    strictest: Option<(Sentence, usize)>,
    /// Rules with a rate that fit and are not full.
    counted: Vec<usize>,
    /// What the program says besides, where its verdict is the strictest.
    words: Option<Arc<str>>,
    /// The program decides, or would.
    is_asked: bool,
    heard: HashMap<Asked, Said>,
    open: Vec<Asked>,
}

impl Bench {
    /// That of a branch that has changed nothing yet.
    pub fn new(policy: Arc<Policy>) -> Bench {
        Bench {
            windows: vec![Window::default(); policy.changes.len()],
            scope: Scope::default(),
            looks: policy.paths.looks(),
            fits: [policy.paths.fits(), policy.paths.fits()],
            ends: Default::default(),
            trial: Trial::default(),
            policy,
        }
    }

    /// Its rules.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Begins with a change. `now` is the time since any moment, the same for all changes.
    pub fn begin(&mut self, asker: &Asker<'_>, now: Duration) {
        self.scope.set(&self.policy, asker);
        self.trial.begin(now);
    }

    /// What the program said of the change that was begun with.
    pub fn hear(&mut self, said: HashMap<Asked, Said>) {
        self.trial.heard = said;
    }

    /// What the program must be asked before [`Bench::end`] says anything that counts; empty: nothing.
    pub fn open(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.trial.open)
    }

    /// Looks at one thing that the change does.
    pub fn touch(&mut self, touch: Touch<'_>) {
        match touch {
            Touch::At(op, path) => {
                if !self.policy.rules_of(op).is_empty() {
                    self.look(0, path);
                    self.judge(op, 0);
                }
            }
            Touch::Moved { is_dir, from, to } => {
                self.look(0, from);
                self.look(1, to);
                self.judge(FeedOp::Rename, 0);
                self.judge(FeedOp::Rename, 1);
                let goes = if is_dir {
                    FeedOp::Rmdir
                } else {
                    FeedOp::Unlink
                };
                self.judge_unless(goes, 0, 1);
                self.judge_unless(FeedOp::Create, 1, 0);
                if !is_dir {
                    self.judge_unless(FeedOp::Write, 1, 0);
                }
            }
            Touch::Linked { from, to } => {
                self.look(0, from);
                self.look(1, to);
                self.judge(FeedOp::Link, 0);
                self.judge(FeedOp::Link, 1);
                self.judge_unless(FeedOp::Write, 1, 0);
            }
        }
    }

    /// What is said of the change. One that is denied ends with that.
    pub fn end(&mut self) -> Ruling {
        let (sentence, number) = match self.trial.strictest {
            Some((sentence, number)) => (sentence, Some(number)),
            None => (Sentence::Allow, None),
        };
        let rule = number.and_then(|number| Some((number, self.policy.changes.get(number)?)));
        let is_first = match (sentence, rule) {
            (
                Sentence::Deny(_),
                Some((
                    number,
                    ChangeRule {
                        rate: Some(rate), ..
                    },
                )),
            ) => self.windows[number].refuse(*rate, self.trial.now),
            _ => false,
        };
        Ruling {
            sentence,
            rule: rule.map(|(number, rule)| (number, rule.name.clone())),
            is_first,
            lasts: sentence == Sentence::Allow
                && self.trial.counted.is_empty()
                && !self.trial.is_asked,
            words: self.trial.words.take(),
        }
    }

    /// The change was made: it counts. Gives the rules with a rate whose time begins with it.
    pub fn made(&mut self) -> Vec<Counting> {
        let mut begins = Vec::new();
        for rule in self.trial.counted.drain(..) {
            let Some(rate) = self.policy.changes.get(rule).and_then(|rule| rule.rate) else {
                continue;
            };
            if self.windows[rule].count(rate, self.trial.now) {
                let period = rate.period();
                begins.push(Counting { rule, period });
            }
        }
        begins
    }

    fn look(&mut self, side: usize, path: &[u8]) {
        let paths = &self.policy.paths;
        paths.look(&mut self.looks, path, &mut self.fits[side]);
        if self.policy.program.is_some() {
            self.ends[side].clear();
            self.ends[side].extend_from_slice(path);
        }
    }

    /// What the program is asked about an operation at the path of one side.
    fn asked(&self, rule: usize, op: FeedOp, side: usize) -> Asked {
        let (path, path2) = match op {
            FeedOp::Rename => (self.ends[0].clone(), self.ends[1].clone()),
            FeedOp::Link => (self.ends[1].clone(), self.ends[0].clone()),
            _ => (self.ends[side].clone(), Vec::new()),
        };
        Asked {
            rule,
            op,
            path,
            path2,
        }
    }

    /// Judges an operation at the path of one side: the first rule decides that fits, and has no rate or is full.
    fn judge(&mut self, op: FeedOp, side: usize) {
        let trial = &mut self.trial;
        for number in self.policy.rules_at(op, &self.fits[side]) {
            let rule = &self.policy.changes[*number];
            if !self.scope.holds[*number] || !self.fits[side].fit(rule) {
                continue;
            }
            if let Some(rate) = rule.rate {
                if !trial.counted.contains(number) {
                    trial.counted.push(*number);
                }
                if !self.windows[*number].is_full(rate, trial.now) {
                    continue;
                }
            }
            if rule.asks.is_none() {
                trial.note(rule.verdict, *number);
                return;
            }
            let asked = self.asked(*number, op, side);
            return self.trial.ask(asked);
        }
    }

    /// The same, unless the rule that decides there decides at the other side, too.
    fn judge_unless(&mut self, op: FeedOp, side: usize, other: usize) {
        if self.first(op, side) != self.first(op, other) {
            self.judge(op, side);
        }
    }

    /// The first rule that fits, whether it is full or not.
    fn first(&self, op: FeedOp, side: usize) -> Option<usize> {
        let rules = self.policy.rules_at(op, &self.fits[side]);
        let mut holding = rules
            .iter()
            .copied()
            .filter(|number| self.scope.holds[*number]);
        holding.find(|number| self.fits[side].fit(&self.policy.changes[*number]))
    }
}

impl Trial {
    /// Forgets the change before. A new one would cost more: its map makes keys.
    fn begin(&mut self, now: Duration) {
        let Trial {
            now: then,
            strictest,
            counted,
            words,
            is_asked,
            heard,
            open,
        } = self;
        (*then, *strictest, *words, *is_asked) = (now, None, None, false);
        counted.clear();
        open.clear();
        if !heard.is_empty() {
            // It may have been much.
            *heard = HashMap::new();
        }
    }

    /// Takes what the program said of something, or puts it on the list of questions.
    fn ask(&mut self, asked: Asked) {
        self.is_asked = true;
        if let Some(said) = self.heard.get(&asked).cloned() {
            if self.note(said.verdict, asked.rule) {
                self.words = Some(said.words).filter(|words| !words.is_empty());
            }
        } else if self.open.len() >= ASKED_MAX {
            self.note(Sentence::Deny(Errno::DEFAULT.code), asked.rule);
        } else if self.open.last() != Some(&asked) {
            self.open.push(asked);
        }
    }

    /// A rule says this of a part of the change; true if that is the strictest so far.
    fn note(&mut self, verdict: Sentence, rule: usize) -> bool {
        let before = self.strictest.map(|(verdict, _)| severity(verdict));
        let is_stricter = before.is_none_or(|before| before < severity(verdict));
        if is_stricter {
            self.strictest = Some((verdict, rule));
            self.words = None;
        }
        is_stricter
    }
}

impl Scope {
    fn set(&mut self, policy: &Policy, asker: &Asker<'_>) {
        let is_same = self.is_set
            && self.uid == asker.uid
            && self.command == asker.comm
            && self.branch == asker.branch
            && self.run.as_deref() == asker.run;
        if is_same {
            return;
        }
        *self = Scope {
            is_set: true,
            uid: asker.uid,
            command: asker.comm.to_owned(),
            branch: asker.branch.to_owned(),
            run: asker.run.map(str::to_owned),
            holds: policy
                .changes
                .iter()
                .map(|rule| rule.holds_for(asker))
                .collect(),
        };
    }
}

impl ChangeRule {
    fn holds_for(&self, asker: &Asker<'_>) -> bool {
        let uid = self
            .uids
            .as_ref()
            .is_none_or(|uids| uids.contains(&asker.uid));
        let fits = |names: &crate::names::Names| names.fit(asker.comm);
        uid && self.commands.as_ref().is_none_or(fits) && self.place.holds(asker.branch, asker.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKER: Asker<'_> = Asker {
        pid: 0,
        uid: 1000,
        gid: 1000,
        backend: engine::feed::FeedBackend::Front,
        since: None,
        branch_number: 0,
        comm: "rm",
        branch: "main",
        run: None,
        ino: 0,
        bytes: 0,
    };

    fn bench(rules: &str) -> Bench {
        Bench::new(Arc::new(Policy::load(rules).unwrap()))
    }

    fn judged(bench: &mut Bench, asker: &Asker<'_>, at: u64, touches: &[Touch<'_>]) -> Ruling {
        bench.begin(asker, Duration::from_secs(at));
        touches.iter().for_each(|touch| bench.touch(*touch));
        bench.end()
    }

    fn number(ruling: &Ruling) -> Option<usize> {
        ruling.rule.as_ref().map(|(number, _)| *number)
    }

    /// The same, and makes the change if it may; gives the rules whose time begins with that.
    fn made(bench: &mut Bench, at: u64, path: &[u8]) -> (Ruling, Vec<usize>) {
        let ruling = judged(bench, &ASKER, at, &[Touch::At(FeedOp::Unlink, path)]);
        let is_denied = matches!(ruling.sentence, Sentence::Deny(_));
        let begins = if is_denied { Vec::new() } else { bench.made() };
        (ruling, begins.iter().map(|begun| begun.rule).collect())
    }

    fn word(rules: &str, asker: &Asker<'_>, touch: Touch<'_>) -> &'static str {
        judged(&mut bench(rules), asker, 0, &[touch])
            .sentence
            .word()
    }

    const MIGRATIONS: &str = r#"
        [[rule]]
        op = ["write", "unlink"]
        path = "migrations/**"
        verdict = "deny"
        errno = "EROFS"
    "#;

    #[test]
    fn a_move_out_of_a_rules_reach_or_into_it_is_judged_as_what_it_comes_to() {
        let moved = |from, to, is_dir| word(MIGRATIONS, &ASKER, Touch::Moved { is_dir, from, to });
        assert_eq!(moved(b"migrations/1", b"x", false), "deny", "as unlink");
        assert_eq!(moved(b"x", b"migrations/1", false), "deny", "as write");
        assert_eq!(moved(b"migrations/1", b"migrations/2", false), "allow");
        assert_eq!(moved(b"x", b"y", false), "allow");
        assert_eq!(
            moved(b"x", b"migrations/d", true),
            "allow",
            "nothing is written"
        );
        let linked = |from, to| word(MIGRATIONS, &ASKER, Touch::Linked { from, to });
        assert_eq!(linked(b"x", b"migrations/1"), "deny");
        assert_eq!(linked(b"migrations/1", b"x"), "allow");
        let at = |op, path| word(MIGRATIONS, &ASKER, Touch::At(op, path));
        assert_eq!(
            at(FeedOp::Truncate, b"migrations/1"),
            "deny",
            "write covers it"
        );
        assert_eq!(at(FeedOp::Create, b"migrations/1"), "allow");
    }

    #[test]
    fn the_strictest_verdict_of_all_names_counts() {
        let rules = r#"
            [[rule]]
            path = "open/**"
            verdict = "allow"
            [[rule]]
            name = "seen"
            path = "seen/**"
            verdict = "soft_watch"
            [[rule]]
            path = "closed/**"
            verdict = "deny"
            errno = "EPERM"
        "#;
        let write = |path| Touch::At(FeedOp::Write, path);
        let (open, seen, closed) = (write(b"open/a"), write(b"seen/a"), write(b"closed/a"));
        let mut bench = bench(rules);
        let mut word = |all: &[Touch<'_>]| judged(&mut bench, &ASKER, 0, all).sentence.word();
        assert_eq!(word(&[open]), "allow");
        assert_eq!(word(&[open, seen]), "soft_watch");
        assert_eq!(word(&[closed, seen, open]), "deny");
        assert_eq!(word(&[write(b"elsewhere")]), "allow");
    }

    #[test]
    fn users_programs_branches_and_runs_are_told_apart() {
        let rules = r#"
            [[rule]]
            uid = [0, 7]
            verdict = "deny"
            [[rule]]
            command = "py*"
            verdict = "deny"
            [[rule]]
            branch = "release/*"
            verdict = "deny"
            [[rule]]
            run = "*"
            op = "kv"
            verdict = "deny"
        "#;
        let at = |asker: Asker<'_>| word(rules, &asker, Touch::At(FeedOp::Create, b"a"));
        assert_eq!(at(ASKER), "allow");
        assert_eq!(at(Asker { uid: 7, ..ASKER }), "deny");
        let comm = "python3";
        assert_eq!(at(Asker { comm, ..ASKER }), "deny");
        let branch = "release/1";
        assert_eq!(at(Asker { branch, ..ASKER }), "deny");
        let run = Some("r1");
        assert_eq!(at(Asker { run, ..ASKER }), "allow");
        assert_eq!(
            word(rules, &Asker { run, ..ASKER }, Touch::At(FeedOp::Kv, b"")),
            "deny"
        );
    }

    const MASS: &str = r#"
        [[rule]]
        name = "mass-delete"
        op = ["unlink", "rmdir"]
        rate = "3/10s"
        verdict = "deny"
        [[rule]]
        path = "kept"
        verdict = "deny"
    "#;

    #[test]
    fn a_rate_denies_what_is_too_much_and_what_is_denied_is_not_counted() {
        let mut bench = bench(MASS);
        let mut unlink = |at, path: &[u8]| made(&mut bench, at, path);
        for _ in 0..9 {
            assert_eq!(number(&unlink(0, b"kept").0), Some(1), "by the other rule");
        }
        assert_eq!(unlink(1, b"a").1, [0]);
        assert!(unlink(2, b"b").1.is_empty());
        let last = unlink(3, b"c").0;
        assert_eq!((last.sentence, last.lasts), (Sentence::Allow, false));
        let denied = unlink(4, b"d").0;
        assert_eq!((number(&denied), denied.is_first), (Some(0), true));
        assert!(!unlink(5, b"d").0.is_first);
        assert_eq!(
            unlink(14, b"d").0.sentence.word(),
            "deny",
            "it went on trying"
        );
        assert_eq!(unlink(24, b"d").1, [0], "it rested");
    }

    #[test]
    fn what_could_not_be_made_is_not_counted() {
        let mut bench = bench(MASS);
        for _ in 0..9 {
            let ruling = judged(&mut bench, &ASKER, 0, &[Touch::At(FeedOp::Unlink, b"a")]);
            assert_eq!(ruling.sentence, Sentence::Allow);
        }
    }

    #[test]
    fn one_change_counts_once_however_many_names_it_has() {
        let mut bench = bench(MASS);
        let all: Vec<Touch<'_>> = (0..100).map(|_| Touch::At(FeedOp::Unlink, b"a")).collect();
        for _ in 0..3 {
            assert_eq!(
                judged(&mut bench, &ASKER, 0, &all).sentence,
                Sentence::Allow
            );
            bench.made();
        }
        assert_eq!(judged(&mut bench, &ASKER, 0, &all).sentence.word(), "deny");
    }
}
