//! What is set up for agents' programs, so that they use agentvfs by themselves: hooks in their settings, and a Skill.
//!
//! What was written is recorded in `agents.json` of the agentvfs home, so that it can be taken away exactly. Invariants:
//! what the user changed is never overwritten; of a file with other settings every byte that is not ours stays; a file
//! that is not understood is left alone. Changes of one home are made one after the other, under a lock.
//!
//! Tests: `edit` (random files); `tests/tests/agent_setup.rs`.

mod edit;
mod file;
mod known;
mod record;
mod undo;

pub use known::{Agent, Form, all, named};

use agentvfs_client::home::Home;
use edit::{Edited, Hooks};
use record::{Entry, Record};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For all projects of a user.
    User(User),
    /// For the project in this directory.
    Project(PathBuf),
}

/// Where a user's settings are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The home directory.
    pub home: PathBuf,
    /// Directories of agents (by name) that are elsewhere than usual.
    pub dirs: Vec<(&'static str, PathBuf)>,
}

/// What can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Hooks in the agent's settings.
    Hooks,
    /// A Skill.
    Skill,
}

impl Part {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Part::Hooks => "hooks",
            Part::Skill => "skill",
        }
    }
}

/// How a part stands, or what was done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It was written.
    Written,
    /// It was written, and the agent does nothing with it before its user says that it may.
    NeedsTrust,
    /// It is there as it should be.
    Same,
    /// The user has changed it: it is left alone.
    Changed,
    /// It is not there.
    Absent,
    /// It was taken away.
    Removed,
    /// It stays, since another agent uses it.
    Shared,
    /// The file cannot be used; nothing was done.
    Failed(String),
}

impl State {
    /// Its name in rows.
    pub fn name(&self) -> &'static str {
        match self {
            State::Written => "written",
            State::NeedsTrust => "needs-trust",
            State::Same => "same",
            State::Changed => "changed",
            State::Absent => "absent",
            State::Removed => "removed",
            State::Shared => "shared",
            State::Failed(_) => "failed",
        }
    }
}

/// One part of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name of the agent.
    pub agent: &'static str,
    /// The part.
    pub part: Part,
    /// The file that it is in.
    pub file: PathBuf,
    /// How it stands.
    pub state: State,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Write what is missing.
    Install,
    /// Only look.
    Look,
    /// Take away what was written.
    Remove,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The agents.
    pub agents: &'a [&'static Agent],
    /// The parts.
    pub parts: &'a [Part],
    /// Where.
    pub scope: Scope,
    /// The agentvfs home, which has the record.
    pub home: &'a Home,
    /// How a shell finds `agentvfs`.
    pub program: &'a str,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

impl Setup<'_> {
    /// Does it; a row for each part of each agent that has it.
    ///
    /// # Errors
    /// The record cannot be read or written. What goes wrong with an agent's own file is in its row.
    pub fn run(&self, action: Action) -> io::Result<Vec<Row>> {
        let is_written = action != Action::Look && !self.dry_run;
        let _lock = is_written.then(|| self.lock()).transpose()?;
        let mut record = Record::load(self.home.root())?;
        let mut rows = Vec::new();
        for agent in self.agents {
            for part in self.parts {
                let Some(path) = agent.file(*part, &self.scope) else {
                    continue;
                };
                let done = match part {
                    Part::Hooks => self.hooks(action, agent, &path, &mut record),
                    Part::Skill => self.skill(action, agent, &path, &mut record),
                };
                if is_written {
                    record.save(self.home.root())?;
                }
                rows.push(Row {
                    agent: agent.name,
                    part: *part,
                    file: path,
                    state: done.unwrap_or_else(State::Failed),
                });
            }
        }
        Ok(rows)
    }

    /// Held while files are changed.
    fn lock(&self) -> io::Result<File> {
        self.home.prepare().map_err(io::Error::other)?;
        let file = File::create(self.home.root().join("agents.lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn hooks(
        &self,
        action: Action,
        agent: &'static Agent,
        path: &Path,
        record: &mut Record,
    ) -> Result<State, String> {
        let hooks = Hooks {
            form: agent.form,
            events: agent.events,
            agent: agent.name,
        };
        let there = file::read(path)?;
        let text = there.as_deref().unwrap_or_default();
        // A file that the user removed is as if it had never been written.
        let known = there.as_ref().and_then(|_| record.of(path, text));
        let found = hooks.found(text)?;
        let missing = hooks.events.iter().any(|event| !found.contains(*event));
        // What was there and is not any more was removed by the user.
        let taken_out = known.is_some_and(|e| e.events.iter().any(|e| !found.contains(e)));
        match action {
            Action::Remove => match known.cloned() {
                None if found.is_empty() => Ok(State::Absent),
                None => Ok(State::Changed),
                Some(entry) => {
                    let left = hooks.without(text, &entry)?;
                    self.take(path, &left, record)?;
                    Ok(match left.whole {
                        true => State::Removed,
                        false => State::Changed,
                    })
                }
            },
            _ if !missing => Ok(State::Same),
            _ if taken_out => Ok(State::Changed),
            Action::Look => Ok(State::Absent),
            Action::Install => {
                let (after, entry) = self.added(&hooks, there.as_deref(), known)?;
                self.put(path, &after, entry, record)?;
                Ok(match agent.needs_trust {
                    true => State::NeedsTrust,
                    false => State::Written,
                })
            }
        }
    }

    /// The text with hooks at every event, and what is recorded of that. What an older version added is taken back
    /// first, so that there is one change to take back.
    fn added(
        &self,
        hooks: &Hooks,
        there: Option<&str>,
        known: Option<&Entry>,
    ) -> Result<(String, Entry), String> {
        let text = there.unwrap_or_default();
        let before = match known {
            Some(entry) => hooks.without(text, entry)?.text,
            None => text.to_owned(),
        };
        let created = known.map_or(there.is_none(), |entry| entry.created);
        let after = hooks.with(&before, self.program)?;
        let entry = Entry::of(hooks.agent, (&before, &after), created);
        Ok((after.text, entry))
    }

    fn skill(
        &self,
        action: Action,
        agent: &'static Agent,
        path: &Path,
        record: &mut Record,
    ) -> Result<State, String> {
        let there = file::read(path)?;
        let text = there.as_deref().unwrap_or_default();
        let users = record.users(path);
        let is_left = record.of(path, text).is_some_and(|e| e.is_as_left(text));
        if action == Action::Remove {
            let left = there.as_ref().map(|_| is_left);
            return self.remove_skill(agent, (path, left), record);
        }
        match there {
            Some(_) if text == crate::SKILL => {
                if action == Action::Install {
                    self.note(|| record.add_user(path, agent.name));
                }
                Ok(State::Same)
            }
            Some(_) if !is_left || action == Action::Look => Ok(State::Changed),
            None if action == Action::Look => Ok(State::Absent),
            _ => {
                let after = Edited::whole(crate::SKILL);
                let mut entry = Entry::of(agent.name, ("", &after), true);
                entry.agents.extend(users);
                self.put(path, &after.text, entry, record)?;
                Ok(State::Written)
            }
        }
    }

    /// Takes the Skill away, unless another agent uses it. `left`: whether it is there, and as it was written.
    fn remove_skill(
        &self,
        agent: &'static Agent,
        (path, left): (&Path, Option<bool>),
        record: &mut Record,
    ) -> Result<State, String> {
        let users = record.users(path);
        let is_user = users.contains(agent.name);
        match left {
            None => {
                self.note(|| file::remove_dirs(&record.forget(path)));
                Ok(State::Absent)
            }
            // Somebody else's.
            Some(_) if users.is_empty() => Ok(State::Changed),
            Some(_) if !is_user => Ok(State::Shared),
            Some(_) if users.len() > 1 => {
                self.note(|| record.remove_user(path, agent.name));
                Ok(State::Shared)
            }
            Some(false) => Ok(State::Changed),
            Some(true) => {
                self.take(path, &Edited::whole(""), record)?;
                Ok(State::Removed)
            }
        }
    }

    /// Writes a file, once it is recorded: what is recorded and was not written counts as not recorded.
    fn put(
        &self,
        path: &Path,
        text: &str,
        entry: Entry,
        record: &mut Record,
    ) -> Result<(), String> {
        file::check(path)?;
        if self.dry_run {
            return Ok(());
        }
        record.put(path, entry, file::missing_dirs(path));
        record.save(self.home.root()).map_err(|e| e.to_string())?;
        file::write(path, text)
    }

    /// Writes what is left of a file, or removes it with the directories that were made for it.
    fn take(&self, path: &Path, left: &Edited, record: &mut Record) -> Result<(), String> {
        file::check(path)?;
        if self.dry_run {
            return Ok(());
        }
        match left.text.is_empty() {
            true => std::fs::remove_file(path).map_err(|e| e.to_string())?,
            false => file::write(path, &left.text)?,
        }
        file::remove_dirs(&record.forget(path));
        Ok(())
    }

    /// Changes the record, unless nothing is to be done.
    fn note(&self, change: impl FnOnce()) {
        if !self.dry_run {
            change();
        }
    }
}
