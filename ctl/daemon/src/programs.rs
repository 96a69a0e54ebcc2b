//! The program of a policy at work: what rules leave to it, and what becomes of its answers.
//!
//! A bench runs nothing: it gives a question, which the engine asks without any of its locks. Invariants: the lock here is
//! held while the program runs and while nothing else is waited for, so nobody waits longer for it than the limits of programs
//! say. Whatever the program does, each question has an answer: what its rule says on errors, where the program gave none.
//!
//! Tests: `tests/tests/programs.rs`.

use agentvfs_programs::policy::{Asked, Errno, Policy, Said, Sentence};
use agentvfs_programs::{self as programs, Answer, Program, ProgramEvent};
use engine::judge::{Asker, Heard, Question};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for all questions about one change; what is left then is answered as on errors.
const CHANGE_TIME_MAX: Duration = Duration::from_millis(100);
/// Longest word of a program in an event, in bytes.
const WORD_BYTES_MAX: usize = 128;

/// A program that is ready, and what it failed at.
#[derive(Debug)]
pub struct Asking {
    version: u64,
    program: Mutex<Program>,
    failures: AtomicU64,
    last: Mutex<Option<String>>,
}

/// Who changes something, kept while the program is asked.
#[derive(Debug, Clone, Default)]
pub struct AskedBy {
    pid: u32,
    uid: u32,
    gid: u32,
    backend: &'static str,
    since: Option<Instant>,
    branch_number: u16,
    comm: String,
    branch: String,
    run: Option<String>,
    ino: u64,
    bytes: u64,
}

impl AskedBy {
    /// Keeps what is known of who asks.
    pub fn keep(&mut self, asker: &Asker<'_>) {
        let keep = |kept: &mut String, text: &str| {
            if kept != text {
                text.clone_into(kept);
            }
        };
        keep(&mut self.comm, asker.comm);
        keep(&mut self.branch, asker.branch);
        if self.run.as_deref() != asker.run {
            self.run = asker.run.map(str::to_owned);
        }
        (self.pid, self.uid, self.gid) = (asker.pid, asker.uid, asker.gid);
        (self.backend, self.since) = (asker.backend.word(), asker.since);
        (self.branch_number, self.ino, self.bytes) = (asker.branch_number, asker.ino, asker.bytes);
    }

    /// The same of an event that was recorded.
    pub fn recorded(uid: u32, pid: u32, comm: &str, branch: &str) -> AskedBy {
        AskedBy {
            uid,
            pid,
            comm: comm.to_owned(),
            branch: branch.to_owned(),
            backend: "fuse",
            ..AskedBy::default()
        }
    }
}

/// Questions about one change.
#[derive(Debug)]
pub struct Questions {
    /// The program.
    pub asking: Arc<Asking>,
    /// The rules that leave verdicts to it.
    pub policy: Arc<Policy>,
    /// Who makes the change.
    pub by: AskedBy,
    /// What it is to be asked.
    pub open: Vec<Asked>,
}

impl Asking {
    /// A program that was made ready, of this version of a policy.
    pub fn new(program: Program, version: u64) -> Asking {
        Asking {
            version,
            program: Mutex::new(program),
            failures: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// What it failed at, if it did.
    pub fn trouble(&self) -> Option<String> {
        let failures = self.failures.load(Ordering::Relaxed);
        let last = self.last.lock().clone()?;
        Some(format!(
            "the program of policy version {} gave no verdict {failures} times; the last time: {last}",
            self.version
        ))
    }

    fn judge(&self, event: &ProgramEvent<'_>) -> Result<Answer, String> {
        let judged = self.program.lock().judge(event);
        judged.map_err(|error| {
            let why = error.to_string();
            if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("policy version {}: {why}", self.version);
            }
            *self.last.lock() = Some(why.clone());
            why
        })
    }
}

impl Questions {
    /// Asks them all; the time that the program may take for one change is limited.
    pub fn answers(self) -> HashMap<Asked, Said> {
        let begun = thread_time();
        let Questions {
            asking,
            policy,
            by,
            open,
        } = self;
        let judge = |asked: &Asked| {
            if thread_time().saturating_sub(begun) > CHANGE_TIME_MAX {
                return Err("too many questions about one change".to_owned());
            }
            let extra = extra(asked, &by);
            asking.judge(&event(asked, &by, asking.version, &extra))
        };
        let said = |asked: Asked| {
            let said = said(judge(&asked), asked.rule, &policy);
            (asked, said)
        };
        open.into_iter().map(said).collect()
    }
}

impl Question for Questions {
    fn ask(self: Box<Self>) -> Heard {
        Heard(Box::new(self.answers()))
    }
}

fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn extra<'a>(asked: &'a Asked, by: &'a AskedBy) -> Vec<(&'static str, &'a [u8])> {
    let mut extra = vec![("branch", by.branch.as_bytes())];
    let more = [
        ("comm", by.comm.as_bytes()),
        ("path2", &asked.path2[..]),
        ("run", by.run.as_deref().unwrap_or_default().as_bytes()),
    ];
    extra.extend(more.into_iter().filter(|(_, text)| !text.is_empty()));
    extra
}

fn event<'a>(
    asked: &'a Asked,
    by: &'a AskedBy,
    version: u64,
    extra: &'a [(&'a str, &'a [u8])],
) -> ProgramEvent<'a> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    ProgramEvent {
        ts: nanoseconds(now.unwrap_or_default()),
        session_id: by.branch_number.into(),
        branch_id: by.branch_number.into(),
        policy_version: version,
        op: asked.op.word(),
        verdict: programs::Verdict::Allow,
        ino: by.ino,
        path: &asked.path,
        pid: by.pid,
        uid: by.uid,
        gid: by.gid,
        bytes: by.bytes,
        latency_ns: by.since.map_or(0, |since| nanoseconds(since.elapsed())),
        backend: by.backend,
        extra,
        ..ProgramEvent::default()
    }
}

/// What an answer comes to.
fn said(answer: Result<Answer, String>, rule: usize, policy: &Policy) -> Said {
    match answer {
        Ok(Answer { verdict, extra }) => Said {
            verdict: match verdict {
                programs::Verdict::Allow => Sentence::Allow,
                programs::Verdict::SoftWatch => Sentence::Watch,
                programs::Verdict::Deny => {
                    Sentence::Deny(policy.denies_with(rule).unwrap_or(Errno::DEFAULT).code)
                }
            },
            words: words(extra.iter().map(|(key, text)| (&**key, &**text))),
        },
        Err(why) => Said {
            verdict: policy
                .on_error(rule)
                .unwrap_or(Sentence::Deny(Errno::DEFAULT.code)),
            words: words([("error", &*why)].into_iter()),
        },
    }
}

/// Keys and values as events have them: without spaces, and not too long.
fn words<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Arc<str> {
    let mut words = String::new();
    let word = |text: &str| -> String {
        let plain = |c: char| match c.is_whitespace() || c.is_control() || c == '=' {
            true => '_',
            false => c,
        };
        let mut word = String::new();
        for c in text.chars().map(plain) {
            if word.len() + c.len_utf8() > WORD_BYTES_MAX {
                break;
            }
            word.push(c);
        }
        word
    };
    for (key, text) in all.filter(|(_, text)| !text.is_empty()) {
        let gap = if words.is_empty() { "" } else { " " };
        // Writing to a text cannot fail.
        let _ = write!(words, "{gap}{}={}", word(key), word(text));
    }
    words.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_programs_stay_words() {
        let all = [("reason", "a b=c\nd"), ("empty", ""), ("k", "v")];
        assert_eq!(&*words(all.into_iter()), "reason=a_b_c_d k=v");
        let long = "ä".repeat(1_000);
        let cut = words([("k", &*long)].into_iter());
        assert_eq!(cut.len(), 2 + WORD_BYTES_MAX);
    }
}
