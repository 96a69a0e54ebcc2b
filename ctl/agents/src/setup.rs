//! What is set up for agents' programs, so that they use agentvfs by themselves: hooks and an MCP server in their
//! settings, a Skill, and a region in their instructions.
//!
//! What was written is recorded in `agents.json` of the agentvfs home, so that it can be taken away exactly. Invariants:
//! what the user changed is never overwritten; of a file with other settings every byte that is not ours stays; a file
//! that is not understood is left alone. Changes of one home are made one after the other, under a lock.
//!
//! Tests: `hooks`, `servers`, `config`, `region` (random files); `tests/tests/agent_setup.rs`.

mod config;
mod edit;
mod file;
mod hooks;
mod json;
mod known;
mod once;
mod part;
mod record;
mod region;
mod servers;
mod undo;

pub use known::{Agent, Form, all, named};
pub use once::Once;
pub use part::{Part, Row, Scope, State, User};

use agentvfs_client::home::Home;
use edit::{Change, Edited};
use file::Files;
use record::{Entry, Record};
use std::fs::File;
use std::io;
use std::path::Path;

/// A part of an agent, and its file.
type At<'a> = (&'static Agent, Part, &'a Path);

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
    /// Does it; a row for each part of each agent that has it. A dry run gives the same rows.
    ///
    /// # Errors
    /// The record cannot be read or written. What goes wrong with an agent's own file is in its row.
    pub fn run(&self, action: Action) -> io::Result<Vec<Row>> {
        let files = match self.dry_run {
            true => Files::in_mind(),
            false => Files::on_disk(),
        };
        Work { setup: self, files }.run(action)
    }
}

/// A request that is carried out.
struct Work<'a> {
    setup: &'a Setup<'a>,
    files: Files,
}

impl Work<'_> {
    fn run(&self, action: Action) -> io::Result<Vec<Row>> {
        let is_written = action != Action::Look && !self.setup.dry_run;
        let _lock = is_written.then(|| self.lock()).transpose()?;
        let mut record = Record::load(self.setup.home.root())?;
        let mut rows = Vec::new();
        for agent in self.setup.agents {
            let mut left = self.setup.parts.to_vec();
            let mut done = Vec::new();
            while !left.is_empty() {
                let part = left.remove(self.next(action, agent, &left, &record));
                let Some(path) = agent.file(part, &self.setup.scope) else {
                    continue;
                };
                let state = match agent.change(part) {
                    Some(change) => {
                        self.change(action, (agent, part, &path), &*change, &mut record)
                    }
                    None => self.skill(action, agent, &path, &mut record),
                };
                if is_written {
                    record.save(self.setup.home.root())?;
                }
                done.push(Row {
                    agent: agent.name,
                    part,
                    file: path,
                    state: state.unwrap_or_else(State::Failed),
                });
            }
            done.sort_by_key(|row| row.part);
            rows.extend(done);
        }
        Ok(rows)
    }

    /// Which part comes next. Of several in one file the one that was written last is the first to be taken away: the
    /// file is as that left it, so it is afterwards what it was before.
    fn next(&self, action: Action, agent: &Agent, left: &[Part], record: &Record) -> usize {
        let is_as_left = |part: &Part| {
            let path = agent.file(*part, &self.setup.scope)?;
            let text = self.files.read(&path).ok()??;
            let entry = record.of(*part, &path, &text)?;
            entry.is_as_left(&text).then_some(())
        };
        match action {
            Action::Remove => {
                let last = left.iter().rposition(|part| is_as_left(part).is_some());
                last.unwrap_or(left.len() - 1)
            }
            Action::Install | Action::Look => 0,
        }
    }

    /// Held while files are changed.
    fn lock(&self) -> io::Result<File> {
        self.setup.home.prepare().map_err(io::Error::other)?;
        let file = File::create(self.setup.home.root().join("agents.lock"))?;
        file.lock()?;
        Ok(file)
    }

    /// A part that is something in a file of the agent's or the user's.
    fn change(
        &self,
        action: Action,
        at @ (agent, part, path): At<'_>,
        change: &dyn Change,
        record: &mut Record,
    ) -> Result<State, String> {
        let there = self.files.read(path)?;
        let text = there.as_deref().unwrap_or_default();
        // A file that the user removed is as if it had never been written.
        let known = there.as_ref().and_then(|_| record.of(part, path, text));
        let (found, wanted) = (change.found(text)?, change.wanted());
        let missing = wanted.iter().any(|item| !found.contains(item));
        // What was there and is not any more was removed by the user.
        let taken_out = known.is_some_and(|e| e.items.iter().any(|item| !found.contains(item)));
        let is_known = |item: &String| known.is_some_and(|entry| entry.items.contains(item));
        // Something of that name that the user has written.
        let mut others = found.iter().filter(|item| !wanted.contains(*item));
        let is_other = part != Part::Hooks && others.any(|item| !is_known(item));
        match action {
            Action::Remove => match known.cloned() {
                None if found.is_empty() => Ok(State::Absent),
                None => Ok(State::Changed),
                Some(entry) => self.remove(at, (change, text, &entry), record),
            },
            _ if !missing => {
                if action == Action::Install {
                    record.add_user(part, path, agent.name);
                }
                Ok(State::Same)
            }
            _ if taken_out || is_other => Ok(State::Changed),
            Action::Look => Ok(State::Absent),
            Action::Install => {
                let users = record.users(part, path);
                let (after, mut entry) = self.added(agent, change, there.as_deref(), known)?;
                entry.agents.extend(users);
                self.put(part, path, &after, entry, record)?;
                Ok(match agent.needs_trust(part, &self.setup.scope) {
                    true => State::NeedsTrust,
                    false => State::Written,
                })
            }
        }
    }

    /// Takes away what is recorded, unless another agent uses it.
    fn remove(
        &self,
        (agent, part, path): At<'_>,
        (change, text, entry): (&dyn Change, &str, &Entry),
        record: &mut Record,
    ) -> Result<State, String> {
        if !entry.agents.contains(agent.name) {
            return Ok(State::Shared);
        }
        if entry.agents.len() > 1 {
            record.remove_user(part, path, agent.name);
            return Ok(State::Shared);
        }
        let left = change.without(text, entry)?;
        match (left.text == text, left.whole) {
            // Nothing was taken out: it stays known.
            (true, false) => return Ok(State::Changed),
            // The user has taken it out already.
            (true, true) => {
                record.forget(part, path);
                return Ok(State::Absent);
            }
            (false, _) => {
                let text = Some(&left.text[..]).filter(|text| !text.is_empty() || !entry.created);
                self.take(part, path, text, record)?;
            }
        }
        Ok(match left.whole {
            true => State::Removed,
            false => State::Changed,
        })
    }

    /// The text with all of a part, and what is recorded of that. What an older version added is taken back first, so
    /// that there is one change to take back.
    fn added(
        &self,
        agent: &Agent,
        change: &dyn Change,
        there: Option<&str>,
        known: Option<&Entry>,
    ) -> Result<(String, Entry), String> {
        let text = there.unwrap_or_default();
        let before = match known {
            Some(entry) => change.without(text, entry)?.text,
            None => text.to_owned(),
        };
        let created = known.map_or(there.is_none(), |entry| entry.created);
        let after = change.with(&before, self.setup.program)?;
        let entry = Entry::of(agent.name, (&before, &after), created);
        Ok((after.text, entry))
    }

    fn skill(
        &self,
        action: Action,
        agent: &'static Agent,
        path: &Path,
        record: &mut Record,
    ) -> Result<State, String> {
        let there = self.files.read(path)?;
        let text = there.as_deref().unwrap_or_default();
        let users = record.users(Part::Skill, path);
        let is_left = record
            .of(Part::Skill, path, text)
            .is_some_and(|e| e.is_as_left(text));
        if action == Action::Remove {
            let left = there.as_ref().map(|_| is_left);
            return self.remove_skill(agent, (path, left), record);
        }
        match there {
            Some(_) if text == crate::SKILL => {
                if action == Action::Install {
                    record.add_user(Part::Skill, path, agent.name);
                }
                Ok(State::Same)
            }
            Some(_) if !is_left || action == Action::Look => Ok(State::Changed),
            None if action == Action::Look => Ok(State::Absent),
            _ => {
                let after = Edited::whole(crate::SKILL);
                let mut entry = Entry::of(agent.name, ("", &after), true);
                entry.agents.extend(users);
                self.put(Part::Skill, path, &after.text, entry, record)?;
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
        let users = record.users(Part::Skill, path);
        let is_user = users.contains(agent.name);
        match left {
            None => {
                self.files.remove_dirs(&record.forget(Part::Skill, path));
                Ok(State::Absent)
            }
            // Somebody else's.
            Some(_) if users.is_empty() => Ok(State::Changed),
            Some(_) if !is_user => Ok(State::Shared),
            Some(_) if users.len() > 1 => {
                record.remove_user(Part::Skill, path, agent.name);
                Ok(State::Shared)
            }
            Some(false) => Ok(State::Changed),
            Some(true) => {
                self.take(Part::Skill, path, None, record)?;
                Ok(State::Removed)
            }
        }
    }

    /// Writes a file, once it is recorded: what is recorded and was not written counts as not recorded.
    fn put(
        &self,
        part: Part,
        path: &Path,
        text: &str,
        entry: Entry,
        record: &mut Record,
    ) -> Result<(), String> {
        self.files.check(path)?;
        record.put(part, path, entry, file::missing_dirs(path));
        if !self.setup.dry_run {
            record
                .save(self.setup.home.root())
                .map_err(|e| e.to_string())?;
        }
        self.files.write(path, text)
    }

    /// Writes what is left of a file; of one of which nothing is left, removes it with the directories that were made for
    /// it.
    fn take(
        &self,
        part: Part,
        path: &Path,
        left: Option<&str>,
        record: &mut Record,
    ) -> Result<(), String> {
        self.files.check(path)?;
        match left {
            None => self.files.remove(path)?,
            Some(text) => self.files.write(path, text)?,
        }
        self.files.remove_dirs(&record.forget(part, path));
        Ok(())
    }
}
