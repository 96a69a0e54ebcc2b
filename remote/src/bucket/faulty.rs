//! A remote that fails as networks and stores do, by a seed: for tests.
//!
//! A request may be lost before it is carried out, or its answer after; carried out twice; carried out later,
//! perhaps after its sender gave up; its answer may be cut, longer, or have a flipped bit; a listing may be an old one.
//! After a number of requests everything may stop for good: that machine died there.

use super::{Bucket, Condition, Etag, Got, Listed, Put};
use crate::chance::Chance;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// How often what goes wrong: one request in so many; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The request never arrives.
    pub lost: u64,
    /// It is carried out, and the answer never arrives.
    pub unanswered: u64,
    /// A put or delete is carried out twice in a row.
    pub repeated: u64,
    /// A put or delete is carried out after a later request, and its sender gets an error at once.
    pub delayed: u64,
    /// An answer with bytes ends early.
    pub cut: u64,
    /// It has bytes that do not belong to it.
    pub longer: u64,
    /// It has a bit that is not what was put.
    pub flipped: u64,
    /// A listing is the one before.
    pub stale: u64,
}

impl Faults {
    /// Everything may go wrong, each thing in one of `of` requests.
    pub fn all(of: u64) -> Faults {
        Faults {
            lost: of,
            unanswered: of,
            repeated: of,
            delayed: of,
            cut: of,
            longer: of,
            flipped: of,
            stale: of,
        }
    }
}

/// A remote with faults.
#[derive(Debug)]
pub struct FaultyBucket {
    inner: Arc<dyn Bucket>,
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    chance: Chance,
    requests: u64,
    /// Number of the request before which this machine dies.
    dies_at: Option<u64>,
    late: Vec<Late>,
    listed: Option<(String, Vec<Listed>)>,
}

/// A request that is still on its way.
#[derive(Debug)]
enum Late {
    Put(String, Vec<u8>, Held),
    Delete(String),
}

/// A [`Condition`] that is kept.
#[derive(Clone, Debug)]
enum Held {
    Always,
    Absent,
    Matches(Etag),
}

impl FaultyBucket {
    /// Puts faults before `inner`, chosen by a seed.
    pub fn new(inner: Arc<dyn Bucket>, faults: Faults, seed: u64) -> FaultyBucket {
        FaultyBucket {
            inner,
            faults,
            state: Mutex::new(State {
                chance: Chance::new(seed),
                requests: 0,
                dies_at: None,
                late: Vec::new(),
                listed: None,
            }),
        }
    }

    /// Lets this machine die before its request of this number, counted from 0: every request from then on
    /// fails, without being carried out.
    pub fn die_at(&self, request: u64) {
        self.state.lock().dies_at = Some(request);
    }

    /// Requests that were sent.
    pub fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// Carries out what is still on its way.
    pub fn settle(&self) {
        let late = std::mem::take(&mut self.state.lock().late);
        for request in late {
            // Nobody waits for its outcome.
            let _ = match request {
                Late::Put(name, bytes, held) => {
                    self.inner.put(&name, &bytes, held.condition()).map(|_| ())
                }
                Late::Delete(name) => self.inner.delete(&name),
            };
        }
    }

    fn happens(&self, one_in: impl Fn(&Faults) -> u64) -> bool {
        self.state.lock().chance.one_in(one_in(&self.faults))
    }

    /// Counts a request and loses it, perhaps.
    fn send(&self, name: &str) -> Result<()> {
        let dead = {
            let mut state = self.state.lock();
            let number = state.requests;
            state.requests += 1;
            state.dies_at.is_some_and(|at| number >= at)
        };
        if dead {
            return Err(Error::Denied {
                name: name.to_owned(),
                why: "this machine is dead".into(),
            });
        }
        if self.happens(|f| f.lost) {
            return Err(lost(name));
        }
        if self.happens(|f| f.delayed) {
            self.settle();
        }
        Ok(())
    }

    fn answer<T>(&self, name: &str, answer: T) -> Result<T> {
        match self.happens(|f| f.unanswered) {
            true => Err(lost(name)),
            false => Ok(answer),
        }
    }

    fn delay(&self, name: &str, request: Late) -> Result<()> {
        self.state.lock().late.push(request);
        Err(lost(name))
    }

    fn spoil(&self, bytes: &mut Vec<u8>) {
        let mut state = self.state.lock();
        let State { chance, .. } = &mut *state;
        let len = bytes.len() as u64;
        if chance.one_in(self.faults.cut) {
            bytes.truncate(chance.below(len) as usize);
        }
        if chance.one_in(self.faults.longer) {
            bytes.extend([0x5a; 9]);
        }
        if chance.one_in(self.faults.flipped) {
            let at = chance.below(bytes.len() as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << chance.below(8);
            }
        }
    }
}

impl Held {
    fn of(condition: Condition<'_>) -> Held {
        match condition {
            Condition::Always => Held::Always,
            Condition::Absent => Held::Absent,
            Condition::Matches(etag) => Held::Matches(etag.clone()),
        }
    }

    fn condition(&self) -> Condition<'_> {
        match self {
            Held::Always => Condition::Always,
            Held::Absent => Condition::Absent,
            Held::Matches(etag) => Condition::Matches(etag),
        }
    }
}

fn lost(name: &str) -> Error {
    Error::Transient {
        name: name.to_owned(),
        why: "no answer".into(),
    }
}

impl Bucket for FaultyBucket {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>> {
        self.send(name)?;
        let mut got = self.inner.get(name, max)?;
        if let Some(got) = &mut got {
            self.spoil(&mut got.bytes);
        }
        self.answer(name, got)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        self.send(name)?;
        let mut got = self.inner.get_range(name, range)?;
        if let Some(bytes) = &mut got {
            self.spoil(bytes);
        }
        self.answer(name, got)
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put> {
        self.send(name)?;
        if self.happens(|f| f.delayed) {
            let late = Late::Put(name.to_owned(), bytes.to_vec(), Held::of(condition));
            self.delay(name, late)?;
        }
        let mut put = self.inner.put(name, bytes, condition)?;
        if self.happens(|f| f.repeated) {
            put = self.inner.put(name, bytes, condition)?;
        }
        self.answer(name, put)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.send(name)?;
        if self.happens(|f| f.delayed) {
            self.delay(name, Late::Delete(name.to_owned()))?;
        }
        self.inner.delete(name)?;
        if self.happens(|f| f.repeated) {
            self.inner.delete(name)?;
        }
        self.answer(name, ())
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        self.send(prefix)?;
        if self.happens(|f| f.stale) {
            let state = self.state.lock();
            if let Some((_, old)) = state.listed.as_ref().filter(|(of, _)| of == prefix) {
                return Ok(old.clone());
            }
        }
        let listed = self.inner.list(prefix)?;
        self.state.lock().listed = Some((prefix.to_owned(), listed.clone()));
        self.answer(prefix, listed)
    }
}
