//! The policies that are in force: compiled, as the judges of workspaces.
//!
//! Invariants: a workspace whose kept policy cannot be read is not started, so that what it denies is not allowed by an
//! accident. [`ONE`] orders the setting of policies, so the one that is kept last is in force.
//!
//! Tests: `tests/tests/policy.rs`.

use super::faults;
use agentvfs_client::protocol::Fault;
pub use agentvfs_policy::{
    Bench, Op, Policy, Ruling, ToolCall, ToolVerdict, Touch, Verdict, Who, texts_of,
};
use engine::feed::FeedOp;
use engine::judge::{self, Asker, Counting, Judge, Sentence};
use engine::{Engine, Workspace};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Held while a policy is set.
pub(super) static ONE: Mutex<()> = Mutex::new(());

/// The compiled policies of open workspaces.
#[derive(Default)]
pub struct Policies(Mutex<HashMap<String, Arc<Policy>>>);

/// A policy in force.
#[derive(Debug)]
struct Rules {
    version: u64,
    policy: Arc<Policy>,
}

/// The same at work in one branch.
#[derive(Debug)]
struct RulesOfBranch(Bench);

impl Judge for Rules {
    fn version(&self) -> u64 {
        self.version
    }

    fn wants_names(&self) -> bool {
        self.policy.wants_commands()
    }

    fn reaches_below(&self, dir: &[u8]) -> bool {
        self.policy.reaches_below(dir)
    }

    fn bench(&self) -> Box<dyn judge::Bench> {
        Box::new(RulesOfBranch(Bench::new(self.policy.clone())))
    }
}

impl judge::Bench for RulesOfBranch {
    fn begin(&mut self, asker: &Asker<'_>, now: Duration) {
        let who = Who {
            uid: asker.uid,
            command: asker.comm,
            branch: asker.branch,
            run: asker.run,
        };
        self.0.begin(&who, now);
    }

    fn touch(&mut self, touch: judge::Touch<'_>) {
        self.0.touch(match touch {
            judge::Touch::At(op, path) => match op_of(op) {
                Some(op) => Touch::At(op, path),
                None => return,
            },
            judge::Touch::Moved { is_dir, from, to } => Touch::Moved { is_dir, from, to },
            judge::Touch::Linked { from, to } => Touch::Linked { from, to },
        });
    }

    fn end(&mut self) -> judge::Ruling {
        let Ruling {
            verdict,
            rule,
            is_first,
            lasts,
        } = self.0.end();
        let name = |rule| Some((rule, self.0.policy().name(rule)?.clone()));
        judge::Ruling {
            sentence: match verdict {
                Verdict::Allow => Sentence::Allow,
                Verdict::Watch => Sentence::Watch,
                Verdict::Deny(errno) => Sentence::Deny(errno.code),
            },
            rule: rule.and_then(name),
            is_first,
            lasts,
        }
    }

    fn made(&mut self) -> Vec<Counting> {
        let begun = self.0.made();
        let policy = self.0.policy();
        let counting = |rule| {
            let period = policy.period(rule)?;
            Some(Counting { rule, period })
        };
        begun.into_iter().filter_map(counting).collect()
    }
}

/// The operation of a rule; none for what is no change.
fn op_of(op: FeedOp) -> Option<Op> {
    Op::of(op.word())
}

/// What is said of a text that does not compile.
pub(super) fn refused(why: impl std::fmt::Display) -> Fault {
    Fault::failed("bad-policy", why.to_string())
        .hint("agentvfs policy check FILE says what is wrong before it is set")
}

impl Policies {
    /// Puts the policy in force that is kept of a workspace.
    pub fn take_up(&self, engine: &Engine, workspace: &Workspace) -> Result<(), Fault> {
        let _one = ONE.lock();
        let name = workspace.name();
        let kept = engine.policy(name).map_err(|e| unreadable(&e, name))?;
        let Some(kept) = kept else {
            workspace.judges().set(None);
            self.0.lock().remove(name);
            return Ok(());
        };
        let policy = Policy::load(&kept.text).map_err(|fault| {
            let why = format!("the policy of workspace {name} cannot be used: {fault}");
            refused(why).hint(format!(
                "agentvfs policy set FILE -w {name} sets another one"
            ))
        })?;
        self.put_in_force(workspace, kept.version, Arc::new(policy));
        Ok(())
    }

    /// Has a policy judge from now on.
    pub(super) fn put_in_force(&self, workspace: &Workspace, version: u64, policy: Arc<Policy>) {
        self.0
            .lock()
            .insert(workspace.name().to_owned(), policy.clone());
        let judge: Option<Arc<dyn Judge>> = match policy.is_empty() {
            true => None,
            false => Some(Arc::new(Rules { version, policy })),
        };
        workspace.judges().set(judge);
    }

    /// The policy in force.
    pub(super) fn of(&self, workspace: &str) -> Option<Arc<Policy>> {
        self.0.lock().get(workspace).cloned()
    }
}

/// What is said of a kept policy that cannot be read.
pub(super) fn unreadable(error: &engine::Error, name: &str) -> Fault {
    let fault = faults::of_engine(error, name);
    match error {
        engine::Error::Damaged { .. } => fault.hint(format!(
            "agentvfs policy set FILE -w {name} sets another one"
        )),
        _ => fault,
    }
}
