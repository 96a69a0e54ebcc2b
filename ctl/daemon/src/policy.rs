//! The policies of workspaces: kept by the engine as texts, compiled here, and put in force as the judge of a workspace.
//!
//! Invariants: a text that does not compile is never kept; a workspace whose kept policy cannot be read is not started, so
//! that what it denies is not allowed by an accident. [`ONE`] orders the setting of policies, so the one that is kept last
//! is in force.
//!
//! Tests: `tests/tests/policy.rs`.

use super::faults;
use super::mounts::Mounts;
use super::request::on;
use agentvfs_client::protocol::{
    Fault, JudgeTool, JudgeToolAnswer, PolicyAnswer, PolicyOf, PolicySet,
};
pub use agentvfs_policy::{
    Bench, Op, Policy, Ruling, ToolCall, ToolVerdict, Touch, Verdict, Who, texts_of,
};
use engine::feed::FeedOp;
use engine::judge::{self, Asker, Counting, Judge, Sentence};
use engine::{Engine, StoredPolicy, Workspace, verbs};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Held while a policy is set.
static ONE: Mutex<()> = Mutex::new(());

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
fn refused(why: impl std::fmt::Display) -> Fault {
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

    fn put_in_force(&self, workspace: &Workspace, version: u64, policy: Arc<Policy>) {
        self.0
            .lock()
            .insert(workspace.name().to_owned(), policy.clone());
        let judge: Option<Arc<dyn Judge>> = match policy.is_empty() {
            true => None,
            false => Some(Arc::new(Rules { version, policy })),
        };
        workspace.judges().set(judge);
    }

    fn of(&self, workspace: &str) -> Option<Arc<Policy>> {
        self.0.lock().get(workspace).cloned()
    }
}

fn unreadable(error: &engine::Error, name: &str) -> Fault {
    let fault = faults::of_engine(error, name);
    match error {
        engine::Error::Damaged { .. } => fault.hint(format!(
            "agentvfs policy set FILE -w {name} sets another one"
        )),
        _ => fault,
    }
}

fn answer(kept: StoredPolicy, policy: &Policy) -> PolicyAnswer {
    PolicyAnswer {
        version: kept.version,
        rules: policy.len() as u64,
        text: kept.text,
    }
}

/// Keeps another policy, which holds for all changes from then on.
pub fn set(mounts: &Mounts, ask: &PolicySet) -> Result<PolicyAnswer, Fault> {
    let policy = Policy::load(&ask.text).map_err(refused)?;
    let name = &ask.workspace;
    let _one = ONE.lock();
    let engine = mounts.engine();
    let kept = engine
        .set_policy(name, &ask.text)
        .map_err(|e| faults::of_engine(&e, name))?;
    let answer = answer(kept, &policy);
    if let Some(workspace) = engine.opened(name) {
        let policies = mounts.policies();
        policies.put_in_force(&workspace, answer.version, Arc::new(policy));
    }
    Ok(answer)
}

/// The policy of a workspace.
pub fn show(mounts: &Mounts, ask: &PolicyOf) -> Result<PolicyAnswer, Fault> {
    let name = &ask.workspace;
    let kept = mounts
        .engine()
        .policy(name)
        .map_err(|e| unreadable(&e, name))?;
    let Some(kept) = kept else {
        return Ok(PolicyAnswer {
            version: 0,
            rules: 0,
            text: String::new(),
        });
    };
    let policy = Policy::load(&kept.text).map_err(refused)?;
    Ok(answer(kept, &policy))
}

/// Version of the policy that is in force in a running workspace, if it has rules.
pub fn version(workspace: &Workspace) -> Option<u64> {
    Some(workspace.judges().version()).filter(|version| *version > 0)
}

/// What the policy says of a tool call.
pub fn judge_tool(mounts: &Mounts, ask: &JudgeTool) -> Result<JudgeToolAnswer, Fault> {
    let allowed = JudgeToolAnswer {
        verdict: ToolVerdict::Allow.word().to_owned(),
        rule: None,
        reason: None,
    };
    on(mounts, &ask.workspace, |workspace| {
        let policy = mounts.policies().of(&ask.workspace);
        let Some(policy) = policy.filter(|policy| policy.is_about_tools()) else {
            return Ok(allowed);
        };
        let run = verbs::run_of(workspace, &ask.branch)?;
        let ruling = policy.judge_tool(&ToolCall {
            tool: &ask.tool,
            texts: &ask.texts,
            branch: &ask.branch,
            run: run.as_deref(),
        });
        let Some(ruling) = ruling else {
            return Ok(allowed);
        };
        let sentence = match ruling.verdict {
            ToolVerdict::Allow => Sentence::Allow,
            ToolVerdict::Watch => Sentence::Watch,
            ToolVerdict::Ask => Sentence::Ask,
            ToolVerdict::Deny => Sentence::Deny(0),
        };
        let detail = format!("rule={} op=tool name={}", ruling.rule, ask.tool);
        verbs::tell_verdict(workspace, &ask.branch, sentence, &detail)?;
        Ok(JudgeToolAnswer {
            verdict: ruling.verdict.word().to_owned(),
            rule: Some(ruling.rule.to_string()),
            reason: ruling.reason.map(|reason| reason.to_string()),
        })
    })
}
