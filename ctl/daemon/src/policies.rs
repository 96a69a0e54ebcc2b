//! The policies that are in force: compiled, with their programs made ready, as the judges of workspaces.
//!
//! Invariants: a workspace whose kept policy cannot be read is not started, so that what it denies is not allowed by an
//! accident. [`ONE`] orders the setting of policies, so the one that is kept last is in force.
//!
//! Tests: `tests/tests/policy.rs`.

use super::faults;
use super::programs::{AskedBy, Asking, Questions};
use agentvfs_client::protocol::Fault;
use agentvfs_programs::Program;
pub use agentvfs_programs::policy::{
    Asked, Asker, Bench, Counting, FeedOp, PROGRAM_BYTES_MAX, Policy, ProgramText, Ruling, Said,
    Sentence, ToolCall, ToolVerdict, Touch, ruled, with_program,
};
use engine::judge::{self, Heard, Judge, Question};
use engine::{Engine, Workspace};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Held while a policy is set.
pub(super) static ONE: Mutex<()> = Mutex::new(());

/// The compiled policies of open workspaces.
#[derive(Default)]
pub struct Policies(Mutex<HashMap<String, InForce>>);

/// A text that was compiled, and its program, which has begun.
#[derive(Debug)]
pub struct Compiled {
    /// The rules.
    pub policy: Arc<Policy>,
    /// What some of them ask.
    pub program: Option<Program>,
}

/// What is in force in a workspace.
#[derive(Debug, Clone)]
struct InForce {
    policy: Arc<Policy>,
    asking: Option<Arc<Asking>>,
}

/// A policy in force.
#[derive(Debug)]
struct Rules {
    version: u64,
    policy: Arc<Policy>,
    asking: Option<Arc<Asking>>,
}

/// The same at work in one branch.
#[derive(Debug)]
struct RulesOfBranch {
    bench: Bench,
    asking: Option<Arc<Asking>>,
    /// Who makes the change that is judged, where there is a program.
    by: AskedBy,
}

impl Compiled {
    /// Compiles a text, and lets its program begin; says what is wrong with it.
    pub fn load(text: &str) -> Result<Compiled, String> {
        let policy = Policy::load(text).map_err(|fault| fault.to_string())?;
        let program = Program::of(&policy).map_err(|error| error.to_string())?;
        let policy = Arc::new(policy);
        Ok(Compiled { policy, program })
    }
}

impl Judge for Rules {
    fn version(&self) -> u64 {
        self.version
    }

    fn wants_names(&self) -> bool {
        self.policy.wants_commands()
    }

    fn wants_opens(&self) -> bool {
        self.policy.is_about_opens()
    }

    fn reaches_below(&self, dir: &[u8]) -> bool {
        self.policy.reaches_below(dir)
    }

    fn bench(&self) -> Box<dyn judge::Bench> {
        Box::new(RulesOfBranch {
            bench: Bench::new(self.policy.clone()),
            asking: self.asking.clone(),
            by: AskedBy::default(),
        })
    }
}

impl judge::Bench for RulesOfBranch {
    fn begin(&mut self, asker: &Asker<'_>, now: Duration) {
        self.bench.begin(asker, now);
        if self.asking.is_some() {
            self.by.keep(asker);
        }
    }

    fn hear(&mut self, heard: Heard) {
        if let Ok(said) = heard.0.downcast() {
            self.bench.hear(*said);
        }
    }

    fn question(&mut self) -> Option<Box<dyn Question>> {
        let asking = self.asking.clone()?;
        let open = self.bench.open();
        if open.is_empty() {
            return None;
        }
        Some(Box::new(Questions {
            asking,
            policy: self.bench.policy().clone(),
            by: self.by.clone(),
            open,
        }))
    }

    fn touch(&mut self, touch: Touch<'_>) {
        self.bench.touch(touch);
    }

    fn end(&mut self) -> Ruling {
        self.bench.end()
    }

    fn made(&mut self) -> Vec<Counting> {
        self.bench.made()
    }
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
        let compiled = Compiled::load(&kept.text).map_err(|fault| {
            let why = format!("the policy of workspace {name} cannot be used: {fault}");
            refused(why).hint(format!(
                "agentvfs policy set FILE -w {name} sets another one"
            ))
        })?;
        self.put_in_force(workspace, kept.version, compiled);
        Ok(())
    }

    /// Has a policy judge from now on.
    pub(super) fn put_in_force(&self, workspace: &Workspace, version: u64, compiled: Compiled) {
        let Compiled { policy, program } = compiled;
        let asking = program.map(|program| Arc::new(Asking::new(program, version)));
        let in_force = InForce {
            policy: policy.clone(),
            asking: asking.clone(),
        };
        self.0.lock().insert(workspace.name().to_owned(), in_force);
        let judge: Option<Arc<dyn Judge>> = match policy.is_empty() {
            true => None,
            false => Some(Arc::new(Rules {
                version,
                policy,
                asking,
            })),
        };
        workspace.judges().set(judge);
    }

    /// The policy in force.
    pub(super) fn of(&self, workspace: &str) -> Option<Arc<Policy>> {
        let in_force = self.0.lock().get(workspace)?.clone();
        Some(in_force.policy)
    }

    /// What is wrong with the program of a workspace.
    pub(super) fn trouble(&self, workspace: &str) -> Option<String> {
        let in_force = self.0.lock().get(workspace)?.clone();
        in_force.asking?.trouble()
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
