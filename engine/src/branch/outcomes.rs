//! What became of the kernel's requests, so that one that comes twice is carried out once.
//!
//! A daemon that is killed may have carried out a request without answering it. Its successor on the same connection
//! gets the request again, under the same number. So the journal has that number with each change
//! ([`Record::Requested`]), recovery collects what each gave, and a state file has what the records that it
//! replaces gave.
//!
//! Invariant: what a request that changed something gave is in `last` or `before` until it is answered. A thread answers
//! a request before it takes the next one, so its last change is enough.

use crate::record::{Mutation, Outcome, Record};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestId {
    /// The connection, by a number that no other one has; never 0.
    pub connection: u64,
    /// Number of the request on it.
    pub unique: u64,
}

thread_local! {
    static REQUEST: Cell<Option<RequestId>> = const { Cell::new(None) };
    static NUMBER: ThreadNumber = ThreadNumber::take();
}

/// Carries out a request that the kernel may send again.
pub fn within_request<R>(request: RequestId, work: impl FnOnce() -> R) -> R {
    let _back = Back(REQUEST.replace(Some(request)));
    work()
}

/// Puts back what it was before, also where the request's handler panics.
struct Back(Option<RequestId>);

impl Drop for Back {
    fn drop(&mut self) {
        REQUEST.set(self.0);
    }
}

/// Numbers that threads had which have ended.
static FREE: Mutex<(u32, Vec<u32>)> = Mutex::new((0, Vec::new()));

/// A number that no other thread has meanwhile: there are no more than threads at a time.
struct ThreadNumber(u32);

impl ThreadNumber {
    fn take() -> ThreadNumber {
        let (next, free) = &mut *FREE.lock();
        ThreadNumber(free.pop().unwrap_or_else(|| {
            *next += 1;
            *next
        }))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        FREE.lock().1.push(self.0);
    }
}

/// What became of requests, of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// 0 for none.
    connection: u64,
    /// The last request of each thread that changed something.
    last: BTreeMap<u32, (u64, Outcome)>,
    /// Those that a daemon before carried out.
    before: BTreeMap<u64, Outcome>,
}

/// The same, as a state file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct OutcomesRecord {
    /// 0 for none.
    pub connection: u64,
    /// By the number of the request.
    pub outcomes: Vec<(u64, Outcome)>,
}

impl Outcomes {
    /// What a state file had.
    pub fn of_record(record: OutcomesRecord) -> Outcomes {
        Outcomes {
            connection: record.connection,
            last: BTreeMap::new(),
            before: record.outcomes.into_iter().collect(),
        }
    }

    /// What a state file gets.
    pub fn to_record(&self) -> OutcomesRecord {
        let mut all = self.before.clone();
        all.extend(self.last.values().copied());
        OutcomesRecord {
            connection: self.connection,
            outcomes: all.into_iter().collect(),
        }
    }

    /// The record of a change that this thread makes.
    pub fn record_of(&self, mutation: Mutation) -> Record {
        match REQUEST.get() {
            None => Record::Mutation(mutation),
            Some(request) => Record::Requested {
                connection: (request.connection != self.connection).then_some(request.connection),
                unique: request.unique,
                mutation,
            },
        }
    }

    /// A record of this thread's is in the journal; its payload has so many bytes.
    pub fn note(&mut self, record: &Record, payload: u64) {
        if let Some((unique, outcome)) = self.taken(record, payload) {
            let thread = NUMBER.with(|number| number.0);
            let before = self.last.get(&thread).filter(|(last, _)| *last == unique);
            let outcome = together(before.map(|(_, outcome)| *outcome), outcome);
            self.last.insert(thread, (unique, outcome));
        }
    }

    /// The same, for a record that a daemon before wrote.
    pub fn recall(&mut self, record: &Record, payload: u64) {
        if let Some((unique, outcome)) = self.taken(record, payload) {
            let outcome = together(self.before.get(&unique).copied(), outcome);
            self.before.insert(unique, outcome);
        }
    }

    /// What the record says; with a new connection, what was known of the one before is forgotten.
    fn taken(&mut self, record: &Record, payload: u64) -> Option<(u64, Outcome)> {
        let Record::Requested {
            connection,
            unique,
            mutation,
        } = record
        else {
            return None;
        };
        if let Some(connection) = connection {
            *self = Outcomes {
                connection: *connection,
                ..Outcomes::default()
            };
        }
        Some((*unique, Outcome::of(mutation, payload)))
    }

    /// Keeps what is known of this connection alone.
    pub fn keep_of(&mut self, connection: u64) {
        if self.connection != connection {
            *self = Outcomes::default();
        }
    }

    /// What became of a request that a daemon before got.
    pub fn of(&self, request: RequestId) -> Option<Outcome> {
        let known = self.connection == request.connection;
        known.then(|| self.before.get(&request.unique).copied())?
    }

    /// No request comes any more that a daemon before got.
    pub fn forget_before(&mut self) {
        self.before = BTreeMap::new();
    }
}

/// What two changes of one request gave: a write may be in parts.
fn together(first: Option<Outcome>, then: Outcome) -> Outcome {
    match (first, then) {
        (Some(Outcome::Bytes(a)), Outcome::Bytes(b)) => Outcome::Bytes(a.saturating_add(b)),
        _ => then,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Time;

    fn unlink() -> Mutation {
        Mutation::Unlink {
            parent: 1,
            name: b"a".to_vec(),
            now: Time::default(),
        }
    }

    fn request(connection: u64, unique: u64) -> RequestId {
        RequestId { connection, unique }
    }

    /// Makes a change as a handler does, and gives its record.
    fn change(outcomes: &mut Outcomes, id: RequestId) -> Record {
        within_request(id, || {
            let record = outcomes.record_of(unlink());
            outcomes.note(&record, 0);
            record
        })
    }

    #[test]
    fn the_successor_knows_what_was_carried_out_on_its_connection() {
        let mut first = Outcomes::default();
        let records = [2, 4].map(|unique| change(&mut first, request(7, unique)));
        let mut next = Outcomes::default();
        records.iter().for_each(|record| next.recall(record, 0));
        next.keep_of(7);
        assert_eq!(next.of(request(7, 2)), Some(Outcome::Done));
        assert_eq!(next.of(request(7, 4)), Some(Outcome::Done));
        assert_eq!(next.of(request(7, 6)), None);
        assert_eq!(next.of(request(8, 2)), None);
        next.keep_of(8);
        assert_eq!(next, Outcomes::default());
    }

    #[test]
    fn requests_of_a_connection_before_are_not_taken_for_the_same() {
        let mut outcomes = Outcomes::default();
        let records = [request(7, 2), request(8, 4)].map(|id| change(&mut outcomes, id));
        let mut next = Outcomes::default();
        records.iter().for_each(|record| next.recall(record, 0));
        next.keep_of(8);
        assert_eq!(next.of(request(8, 2)), None);
        assert_eq!(next.of(request(8, 4)), Some(Outcome::Done));
    }

    #[test]
    fn a_state_file_has_the_last_change_of_each_thread_and_what_was_before() {
        let mut outcomes = Outcomes::of_record(OutcomesRecord {
            connection: 7,
            outcomes: vec![(1, Outcome::Inode(3))],
        });
        change(&mut outcomes, request(7, 2));
        change(&mut outcomes, request(7, 4));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                change(&mut outcomes, request(7, 6));
            });
            other.join().unwrap();
        });
        let numbers = |o: &Outcomes| -> Vec<u64> {
            let all = o.to_record().outcomes.into_iter();
            all.map(|(unique, _)| unique).collect()
        };
        assert_eq!(numbers(&outcomes), [1, 4, 6]);
        outcomes.forget_before();
        assert_eq!(numbers(&outcomes), [4, 6]);
    }

    #[test]
    fn parts_of_a_write_count_together() {
        let write = || Mutation::Write {
            nid: 3,
            offset: 0,
            perm: None,
            now: Time::default(),
        };
        let (mut outcomes, mut next) = (Outcomes::default(), Outcomes::default());
        for (unique, len) in [(2, 5), (4, 1), (4, 2)] {
            let record = within_request(request(7, unique), || outcomes.record_of(write()));
            within_request(request(7, unique), || outcomes.note(&record, len));
            next.recall(&record, len);
        }
        assert_eq!(next.of(request(7, 2)), Some(Outcome::Bytes(5)));
        assert_eq!(next.of(request(7, 4)), Some(Outcome::Bytes(3)));
        assert_eq!(outcomes.to_record().outcomes, [(4, Outcome::Bytes(3))]);
    }

    #[test]
    fn what_nobody_may_send_again_has_no_number() {
        let outcomes = Outcomes::default();
        assert!(matches!(outcomes.record_of(unlink()), Record::Mutation(_)));
        let panicked = std::panic::catch_unwind(|| {
            within_request(request(7, 2), || panic!("on purpose"));
        });
        assert!(panicked.is_err());
        assert!(matches!(outcomes.record_of(unlink()), Record::Mutation(_)));
    }
}
