//! How a request is carried out: on the thread that read it, or, where the disk must be waited for,
//! on the pool; counted, timed and guarded against panics either way.
//!
//! A request that must wait takes its message along, and is decoded again there: so nothing is copied or
//! allocated for those that need not. Invariant: every request that [`Front`] begins ends exactly once,
//! and its reply is used exactly once. Nothing here waits, but jobs on the pool.

use crate::again::Before;
use crate::announce::Announcer;
use crate::drain::{Drain, Parity};
use crate::errno::Failure;
use crate::latency::WakeUp;
use crate::pool::Pool;
use crate::probe::{self, Probe};
use crate::stats::{Op, Stats};
use crate::transport::device::{Buffer, Device};
#[cfg(feature = "fuser")]
use crate::transport::{Build, Lists};
use crate::transport::{Duty, Reply, Room, Serve, Space};
use crate::wire::{Answer, Head, Header, Incoming, Layout, Request, decode};
use engine::feed::FeedBackend;
use engine::types::{NodeId, Wait};
use engine::{Asking, Workspace, acting_for};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// What a handler's call gives.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// What all handlers of a mount share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ws: WorkspaceRef,
    pub(crate) stats: Arc<Stats>,
    pub(crate) drain: Arc<Drain>,
    pub(crate) probe: Arc<Probe>,
    pub(crate) wake_up: Arc<WakeUp>,
    pub(crate) pool: Pool,
    pub(crate) announcer: Arc<Announcer>,
    /// Whether the kernel checks permissions.
    pub(crate) permissions: bool,
    /// Whether OPEN is answered, so that each is an event.
    pub(crate) opens: bool,
    /// Number of the connection, if its requests may come again.
    pub(crate) connection: Option<u64>,
    /// Who served the mount before.
    pub(crate) before: Before,
}

/// The workspace, in a form that needs no `Debug` of the engine.
#[derive(Clone)]
pub(crate) struct WorkspaceRef(pub(crate) Arc<Workspace>);

impl std::fmt::Debug for WorkspaceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workspace")
    }
}

/// A request in progress.
#[derive(Debug)]
struct Ticket {
    op: Op,
    since: Instant,
    parity: Parity,
}

/// The handlers of one mount.
#[derive(Clone, Debug)]
pub(crate) struct Front(pub(crate) Arc<Shared>);

impl Shared {
    /// Begins a request.
    fn begin(&self, op: Op) -> Ticket {
        let since = Instant::now();
        self.wake_up.request(since);
        Ticket {
            op,
            since,
            parity: self.drain.enter(),
        }
    }

    /// Begins a request that is answered.
    fn admit(&self, op: Op, request: &Result<Request<'_>, Errno>) -> Ticket {
        let ticket = self.begin(op);
        if matches!(request, Ok(Request::Write { flags, .. }) if flags.from_cache) {
            self.drain.count_cached_write();
        }
        ticket
    }

    /// Ends a request.
    fn end(&self, ticket: Ticket) {
        self.drain.leave(ticket.parity);
        self.stats.add(ticket.op, ticket.since.elapsed());
    }

    /// Answers and ends a request.
    fn finish(&self, ticket: Ticket, reply: impl Duty, outcome: Outcome<Answer>, room: &mut Room) {
        match outcome {
            Ok(answer) => reply.answer(answer, room),
            Err(failure) => reply.fail(failure.errno(ticket.op)),
        }
        self.end(ticket);
    }
}

/// Carries out a part of a request. A panic there costs this request alone, not the mount.
fn guarded<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        tracing::error!("a request's handler panicked");
        Err(Failure::Panicked)
    })
}

impl Serve for Front {
    fn serve(&self, device: &Arc<Device>, layout: Layout, buffer: &mut Buffer, room: &mut Room) {
        let Some(Incoming { header, request }) = decode(buffer.message(), layout) else {
            let len = buffer.message().len();
            tracing::error!(len, "what the kernel sent is no request");
            return;
        };
        if !header.is_answered() {
            return self.forget_all(&header, request);
        }
        let reply = Reply::new(device.clone(), header.unique);
        let Some(op) = Op::of(header.opcode) else {
            return about_the_mount(&header, request, reply);
        };
        let ticket = self.0.admit(op, &request);
        match self.attempt((&header, &ticket), request, room, Wait::Never) {
            Err(failure) if failure.would_block() => {
                self.later(ticket, reply, buffer.to_vec(), layout);
            }
            outcome => self.0.finish(ticket, reply, outcome, room),
        }
    }

    #[cfg(feature = "fuser")]
    fn carry_out(
        &self,
        header: &Header,
        texts: [&[u8]; 2],
        build: impl Build,
        mut reply: impl Lists,
        room: &mut Room,
    ) {
        let Some(op) = Op::of(header.opcode) else {
            return reply.fail(Errno::NOSYS);
        };
        let request = build(texts);
        let ticket = self.0.admit(op, &request);
        let of = (header, &ticket);
        let tried = self.attempt(of, request, &mut reply.space(room), Wait::Never);
        match tried {
            Err(failure) if failure.would_block() => {
                let (front, header) = (self.clone(), *header);
                let texts = texts.map(<[u8]>::to_vec);
                self.0.pool.run(move |room| {
                    let request = build([&texts[0], &texts[1]]);
                    let wait = Wait::Allowed;
                    let of = (&header, &ticket);
                    let outcome = front.attempt(of, request, &mut reply.space(room), wait);
                    front.0.finish(ticket, reply, outcome, room);
                });
            }
            outcome => self.0.finish(ticket, reply, outcome, room),
        }
    }

    #[cfg(feature = "fuser")]
    fn forget(&self, node: NodeId, lookups: u64) {
        Front::forget(self, node, lookups);
    }
}

impl Front {
    /// Tries to carry out a request.
    fn attempt(
        &self,
        (header, ticket): (&Header, &Ticket),
        request: Result<Request<'_>, Errno>,
        room: &mut impl Space,
        wait: Wait,
    ) -> Outcome<Answer> {
        guarded(|| {
            let request = request?;
            // Who brings pages of the cache did not write them.
            let is_their_own =
                !matches!(&request, Request::Write { flags, .. } if flags.from_cache);
            let asking = Asking {
                thread: if is_their_own { header.pid } else { 0 },
                uid: header.uid,
                gid: header.gid,
                since: Some(ticket.since),
                backend: FeedBackend::Front,
                waits: is_their_own && request.holds_its_thread(),
                comm: [0; 16],
            };
            acting_for(asking, || self.answer_once(header, &request, room, wait))
        })
    }

    /// Carries out a request on the pool.
    fn later(&self, ticket: Ticket, reply: Reply, message: Vec<u8>, layout: Layout) {
        let front = self.clone();
        self.0.pool.run(move |room| {
            let outcome = match decode(&message, layout) {
                Some(Incoming { header, request }) => {
                    front.attempt((&header, &ticket), request, room, Wait::Allowed)
                }
                // It could be decoded before.
                None => Err(Errno::IO.into()),
            };
            front.0.finish(ticket, reply, outcome, room);
        });
    }

    /// What the kernel forgets. Nobody waits for an answer.
    fn forget_all(&self, header: &Header, request: Result<Request<'_>, Errno>) {
        match request {
            Ok(Request::Forget { lookups }) => self.forget(header.node, lookups),
            Ok(Request::BatchForget(all)) => {
                for (node, lookups) in all.iter() {
                    self.forget(node, lookups);
                }
            }
            Ok(_) => {}
            Err(_) => {
                let opcode = header.opcode;
                tracing::error!(opcode, "the kernel sent what is no such request");
            }
        }
    }

    /// An inode that the kernel forgets, and how often it had looked it up.
    fn forget(&self, node: NodeId, lookups: u64) {
        if probe::is_made_up(node) {
            return;
        }
        let ticket = self.0.begin(Op::Forget);
        // A panic was logged.
        let _ = guarded(|| {
            self.0.ws.0.forget(node, lookups);
            Ok(())
        });
        self.0.end(ticket);
    }
}

/// Answers requests that are about the mount itself, and those that nobody knows.
fn about_the_mount(header: &Header, request: Result<Request<'_>, Errno>, reply: Reply) {
    match request {
        Ok(Request::Destroy) => reply.head(Head::default()),
        // It was said already when the mount began.
        Ok(Request::Init(_)) => reply.fail(Errno::IO),
        // So the kernel sends no further one: what is under way is brought to its end.
        Ok(_) => reply.fail(Errno::NOSYS),
        Err(errno) => {
            let opcode = header.opcode;
            tracing::debug!(opcode, %errno, "a request that is not known");
            reply.fail(errno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use crate::transport::device::Received;
    use crate::transport::device::tests::{next, pair};
    use crate::wire::abi::opcode;
    use engine::{Engine, EngineConfig};
    use proptest::prelude::*;
    use std::os::fd::OwnedFd;

    /// Handlers over a new workspace, with the test in the kernel's place.
    struct Fixture {
        front: Front,
        device: Arc<Device>,
        kernel: OwnedFd,
        buffer: Buffer,
        room: Room,
        _dir: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Fixture {
            let dir = tempfile::tempdir().unwrap();
            let [base, root] = ["base", "store"].map(|name| dir.path().join(name));
            std::fs::create_dir(&base).unwrap();
            let author = "test".into();
            let engine = Engine::open(EngineConfig { root, author }).unwrap();
            let base = base.canonicalize().unwrap();
            engine.create("w", &base, None).unwrap();
            let shared = Shared {
                ws: WorkspaceRef(engine.open_workspace("w").unwrap()),
                stats: Arc::default(),
                drain: Arc::default(),
                probe: Arc::default(),
                wake_up: WakeUp::start(Latency::Normal),
                pool: Pool::new(),
                announcer: Arc::default(),
                permissions: true,
                opens: false,
                connection: None,
                before: Before::default(),
            };
            let (device, kernel) = pair();
            Fixture {
                front: Front(Arc::new(shared)),
                device: Arc::new(device),
                kernel,
                buffer: Buffer::new(),
                room: Room::default(),
                _dir: dir,
            }
        }

        /// Has a message read and served.
        fn send(&mut self, bytes: &[u8]) {
            rustix::io::write(&self.kernel, bytes).unwrap();
            assert_eq!(self.device.receive(&mut self.buffer), Ok(Received::Message));
            let layout = Layout::default();
            self.front
                .serve(&self.device, layout, &mut self.buffer, &mut self.room);
        }

        /// The next answer: its request's number, its errno, its length.
        fn answer(&self) -> (u64, i32, usize) {
            let bytes = next(&self.kernel);
            let code = i32::from_ne_bytes(bytes[4..8].try_into().unwrap());
            let unique = u64::from_ne_bytes(bytes[8..16].try_into().unwrap());
            (unique, -code, bytes.len())
        }
    }

    /// A request about the root by root.
    fn message(code: u32, unique: u64, body: &[u8]) -> Vec<u8> {
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let longs: Vec<u8> = [unique, 1].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let first = words(&[(40 + body.len()) as u32, code]);
        [first, longs, words(&[0; 4]), body.to_vec()].concat()
    }

    #[test]
    fn an_unknown_opcode_is_enosys() {
        let mut fixture = Fixture::new();
        let known = |code: u32| Op::of(code).is_some();
        let unknown = (0..200u32).filter(|code| !known(*code));
        let about_the_mount = [
            opcode::INIT,
            opcode::DESTROY,
            opcode::INTERRUPT,
            opcode::NOTIFY_REPLY,
        ];
        let unknown = unknown.filter(|code| !about_the_mount.contains(code));
        let far = [777, 4096, 1 << 20, u32::MAX];
        let mut number = 0;
        for code in unknown.chain(far) {
            for body in [&b""[..], b"whatever", &[0xff; 200]] {
                for mark in [0, crate::wire::abi::UNIQUE_RESENT] {
                    number += 2;
                    fixture.send(&message(code, number | mark, body));
                    let expected = (number | mark, Errno::NOSYS.raw_os_error(), 16);
                    assert_eq!(fixture.answer(), expected, "opcode {code}");
                }
            }
        }
        fixture.send(&message(opcode::GETATTR, 1, &[0; 16]));
        assert_eq!(fixture.answer(), (1, 0, 120), "nothing was answered twice");
    }

    #[test]
    fn a_request_of_another_length_than_it_names_fails_with_eio() {
        let mut fixture = Fixture::new();
        let whole = message(opcode::GETATTR, 9, &[0; 16]);
        for named in [0, 39, 40, 55, 57, 1 << 20, u32::MAX] {
            let bytes = [&named.to_ne_bytes()[..], &whole[4..]].concat();
            fixture.send(&bytes);
            assert_eq!(
                fixture.answer(),
                (9, Errno::IO.raw_os_error(), 16),
                "{named}"
            );
        }
        for len in 40..whole.len() {
            fixture.send(&whole[..len]);
            assert_eq!(fixture.answer(), (9, Errno::IO.raw_os_error(), 16), "{len}");
        }
        for len in 1..40 {
            fixture.send(&whole[..len]);
        }
        fixture.send(&whole);
        assert_eq!(fixture.answer(), (9, 0, 120), "nobody else was answered");
    }

    #[test]
    fn what_is_no_request_is_refused_and_the_next_is_served() {
        let mut fixture = Fixture::new();
        fixture.send(&message(opcode::LOOKUP, 2, b"no end"));
        assert_eq!(fixture.answer(), (2, Errno::IO.raw_os_error(), 16));
        // Nobody can be answered, or wants to be.
        fixture.send(b"short");
        fixture.send(&message(opcode::FORGET, 3, b""));
        fixture.send(&message(opcode::BATCH_FORGET, 4, &[9; 8]));
        fixture.send(&message(opcode::GETATTR, 5, &[0; 16]));
        assert_eq!(fixture.answer(), (5, 0, 120));
        fixture.send(&message(opcode::INTERRUPT, 7, &[0; 8]));
        assert_eq!(fixture.answer(), (7, Errno::NOSYS.raw_os_error(), 16));
    }

    #[test]
    fn a_request_that_waits_is_answered_from_the_pool() {
        let mut fixture = Fixture::new();
        fixture.send(&message(opcode::FSYNC, 1, &[0; 16]));
        assert_eq!(fixture.answer(), (1, 0, 16));
        let stats = fixture.front.0.stats.clone();
        while stats.snapshot().is_empty() {
            std::thread::yield_now();
        }
        let all = stats.snapshot();
        assert_eq!((all.len(), all[0].0, all[0].1), (1, "fsync", 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn every_message_is_answered_once(
            messages in proptest::collection::vec(
                (
                    prop_oneof![9 => 0u32..60, 1 => any::<u32>()],
                    proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..100),
                ),
                1..100,
            )
        ) {
            let mut fixture = Fixture::new();
            for (number, (code, body)) in messages.iter().enumerate() {
                let unique = number as u64 + 1;
                fixture.send(&message(*code, unique, body));
                let silent = [opcode::FORGET, opcode::BATCH_FORGET, opcode::NOTIFY_REPLY];
                if !silent.contains(code) {
                    prop_assert_eq!(fixture.answer().0, unique);
                }
            }
            fixture.send(&message(opcode::GETATTR, 0, &[0; 16]));
            prop_assert_eq!(fixture.answer().0, 0, "nothing was answered twice");
        }
    }
}
