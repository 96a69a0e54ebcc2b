//! Steps of a long work, each done once however often the program is started.
//!
//! `docs/sdk-rust.md` has the contract, which all SDKs share. Invariant: a step whose result is kept is not done again; one
//! that failed, or in the middle of which the program ended, is.

use super::history::Commit;
use super::{Error, Result, Workspace};
use crate::protocol::{Call, PlanAnswer, Rollback, Target};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of what is kept of a step.
const VERSION: u64 = 1;
/// Longest name of a program, in bytes.
const PROGRAM_BYTES_MAX: usize = 100;
/// Longest name of a step, in bytes.
const NAME_BYTES_MAX: usize = 500;
/// Metadata by which the commit after a step is found.
const META: &str = "step";

/// What is kept of a step.
#[derive(Serialize, Deserialize)]
struct Kept {
    version: u64,
    #[serde(default)]
    result: Value,
}

/// Names of a step.
struct Step {
    key: String,
    /// Value of the metadata.
    id: String,
}

fn named(program: &str, name: &str) -> Result<Step> {
    let odd = |text: &str, most| {
        text.is_empty() || text.len() > most || text.chars().any(char::is_control)
    };
    if odd(program, PROGRAM_BYTES_MAX) || program.contains(':') {
        let why = "a program's name has 1 to 100 bytes, no colon and no control characters";
        return Err(Error::Usage(format!("{program:?}: {why}")));
    }
    if odd(name, NAME_BYTES_MAX) {
        let why = "a step's name has 1 to 500 bytes and no control characters";
        return Err(Error::Usage(format!("{name:?}: {why}")));
    }
    let id = format!("{program}:{name}");
    Ok(Step {
        key: format!("agentvfs:step:{id}"),
        id,
    })
}

impl Workspace {
    /// Does `work` once: keeps its result, and the commit after it. On a later run of the program it gives the kept
    /// result; the files stay as they are.
    pub fn step<T, E>(
        &mut self,
        names: (&str, &str),
        work: impl FnOnce(&mut Workspace) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        self.step_of(names, work, false)
    }

    /// The same; on a later run the files are as they were after the step, too. Keys stay, and with them the results of
    /// later steps.
    pub fn step_with_files<T, E>(
        &mut self,
        names: (&str, &str),
        work: impl FnOnce(&mut Workspace) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        self.step_of(names, work, true)
    }

    fn step_of<T, E>(
        &mut self,
        (program, name): (&str, &str),
        work: impl FnOnce(&mut Workspace) -> std::result::Result<T, E>,
        with_files: bool,
    ) -> std::result::Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        let step = named(program, name)?;
        let Some(result) = self.kept(&step)? else {
            return self.first(&step, work);
        };
        if with_files {
            self.rollback(step.target(), true)?;
        }
        Ok(typed(result)?)
    }

    /// Has a step be done again on the next run; false where nothing is kept of it.
    pub fn forget_step(&mut self, (program, name): (&str, &str)) -> Result<bool> {
        let step = named(program, name)?;
        self.delete(&step.key)
    }

    fn first<T, E>(
        &mut self,
        step: &Step,
        work: impl FnOnce(&mut Workspace) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        let result = serde_json::to_value(work(self)?);
        let result = result.map_err(|e| Error::Usage(format!("no JSON: {e}")))?;
        let version = VERSION;
        let kept = Kept { version, result };
        self.set(&step.key, &kept)?;
        self.commit_step(step)?;
        // As on later runs: what comes back from JSON.
        Ok(typed(kept.result)?)
    }

    /// What is kept of a step; its commit is made now where the program ended before that.
    fn kept(&mut self, step: &Step) -> Result<Option<Value>> {
        let Some(kept) = self.get::<Kept>(&step.key)? else {
            return Ok(None);
        };
        if kept.version != VERSION {
            let why = format!(
                "it is of version {}, this program knows {VERSION}",
                kept.version
            );
            return Err(Error::Usage(format!("step {}: {why}", step.id)));
        }
        let look = Call::RollbackPlan(Rollback {
            workspace: self.name.clone(),
            branch: self.branch.clone(),
            target: step.target(),
            paths: Vec::new(),
            keep_kv: true,
        });
        match self.ask::<PlanAnswer>(&look) {
            Ok(_) => {}
            Err(error) if error.kind() == "no-such-commit" => self.commit_step(step)?,
            Err(error) => return Err(error),
        }
        Ok(Some(kept.result))
    }

    fn commit_step(&mut self, step: &Step) -> Result<()> {
        let name = step.id.split_once(':').map_or("", |(_, name)| name);
        let commit = Commit {
            label: None,
            message: format!("step {name}"),
            meta: vec![(META.to_owned(), step.id.clone())],
        };
        self.checkpoint_with(commit).map(|_| ())
    }
}

impl Step {
    fn target(&self) -> Target {
        Target::Meta(META.to_owned(), self.id.clone())
    }
}

fn typed<T: DeserializeOwned>(result: Value) -> Result<T> {
    let value = serde_json::from_value(result);
    value.map_err(|e| Error::Usage(format!("the kept result is of another type: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_make_one_key_each_and_bad_ones_none() {
        let step = named("main", "fetch: all").map(|step| (step.key, step.id));
        let wanted = ("agentvfs:step:main:fetch: all", "main:fetch: all");
        assert_eq!(step.ok(), Some((wanted.0.to_owned(), wanted.1.to_owned())));
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for (program, name) in [
            ("", "a"),
            ("a:b", "c"),
            ("a", ""),
            ("a", "b\n"),
            ("a", &long),
        ] {
            assert!(named(program, name).is_err(), "{program:?} {name:?}");
        }
        let most = named(&"p".repeat(PROGRAM_BYTES_MAX), &"n".repeat(NAME_BYTES_MAX));
        assert!(most.is_ok_and(|step| step.key.len() <= 1024));
    }
}
