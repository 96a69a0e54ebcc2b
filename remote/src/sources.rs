//! The remotes that lazy workspaces need, as the place from which a store has what it lacks.
//!
//! Whoever asks for an object waits for it, [`PATIENCE`] at most; the work is done by a thread of its own, which goes on
//! then. Who asks for what is on its way already waits for the same thread. A remote is opened when it is first needed.
//! One that did not answer is not asked again for a while, so that a program that reads many files does not wait for each.
//!
//! Invariant: a fault of a remote is told with the remote's name, and never taken for a fault of the local store.
//!
//! Tests: `remote/tests/near.rs`, `tests/tests/lazy.rs`.

use crate::error::{Error, Result};
use crate::near::lacking::{Counter, Lacking};
use crate::near::{Brought, Near};
use crate::remote::Remote;
use objstore::elsewhere::{Backing, Branches, Elsewhere};
use objstore::{Key, ObjectStore};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// How long an object is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a remote stays open that nobody uses.
const KEPT_OPEN: Duration = Duration::from_secs(120);
/// How long a remote that did not answer is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// Opens a remote.
pub type Opening = Box<dyn Fn() -> Result<Remote> + Send + Sync>;

/// All remotes that are needed, by the workspace that needs them.
#[derive(Debug)]
pub struct Sources {
    me: Weak<Sources>,
    store: Weak<ObjectStore>,
    patience: Duration,
    all: RwLock<BTreeMap<String, Arc<Source>>>,
    flights: Mutex<HashMap<Key, Arc<Flight>>>,
}

/// A remote that a workspace needs.
struct Source {
    /// Its name in the workspace.
    name: String,
    opening: Opening,
    at_opening: Mutex<()>,
    near: Mutex<Option<Arc<Near>>>,
    used: Mutex<Instant>,
    standing: Mutex<Standing>,
    lacking: Arc<Counter>,
    left_alone: Mutex<Option<(Instant, String)>>,
}

/// What came from a remote for a workspace, and what did not, since it was made known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The remote's name.
    pub remote: String,
    /// Objects that came.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Objects that were wanted and did not come.
    pub failed: u64,
    /// Why the last one did not, unless one has come since.
    pub why: Option<String>,
    /// What the remote has and the store has not; `None` where that is not known yet.
    pub lacking: Option<Lacking>,
}

/// An object on its way.
#[derive(Debug, Default)]
struct Flight {
    /// What became of it; an error as its text.
    done: Mutex<Option<std::result::Result<bool, String>>>,
    ended: Condvar,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).finish()
    }
}

impl Source {
    fn near(self: &Arc<Source>) -> Result<Arc<Near>> {
        *self.used.lock() = Instant::now();
        if let Some(near) = self.near.lock().clone() {
            return Ok(near);
        }
        // One at a time: the second finds what the first has opened.
        let _one = self.at_opening.lock();
        if let Some(near) = self.near.lock().clone() {
            return Ok(near);
        }
        Ok(self.keep(Near::new((self.opening)()?)))
    }

    /// Keeps a remote open until it was not used for a while.
    fn keep(self: &Arc<Source>, open: Near) -> Arc<Near> {
        let open = Arc::new(open);
        *self.near.lock() = Some(open.clone());
        let source = Arc::downgrade(self);
        let closes = move || {
            while let Some(source) = source.upgrade() {
                let idle = source.used.lock().elapsed();
                if idle >= KEPT_OPEN {
                    return drop(source.near.lock().take());
                }
                drop(source);
                std::thread::sleep(KEPT_OPEN - idle);
            }
        };
        let thread = std::thread::Builder::new().name("remote idle".into());
        if let Err(e) = thread.spawn(closes) {
            tracing::warn!("a remote stays open: {e}");
        }
        open
    }

    fn has(&self, key: &Key) -> bool {
        let near = self.near.lock().clone();
        near.is_some_and(|near| near.has(key))
    }

    /// Brings an object; false where the remote does not have it.
    fn bring(
        self: &Arc<Source>,
        store: &ObjectStore,
        key: &Key,
    ) -> std::result::Result<bool, String> {
        let left_alone = self.left_alone.lock().clone();
        if let Some((until, why)) = left_alone
            && Instant::now() < until
        {
            return self.failed(why);
        }
        let brought = self.near().and_then(|near| near.bring(store, key));
        match brought {
            Ok(None) => Ok(false),
            Ok(Some(Brought { objects, bytes })) => {
                let mut standing = self.standing.lock();
                standing.objects += objects;
                standing.bytes += bytes;
                standing.why = None;
                *self.left_alone.lock() = None;
                Ok(true)
            }
            Err(e) => {
                if matches!(e, Error::Transient { .. }) {
                    let until = Instant::now() + LEFT_ALONE;
                    *self.left_alone.lock() = Some((until, e.to_string()));
                }
                self.failed(e.to_string())
            }
        }
    }

    /// What the remote has, and keeps of these branches.
    fn look(
        self: &Arc<Source>,
        store: &ObjectStore,
        of: &Branches,
    ) -> std::result::Result<Box<dyn Backing>, String> {
        let left_alone = self.left_alone.lock().clone();
        if let Some((_, why)) = left_alone.filter(|(until, _)| Instant::now() < *until) {
            return Err(why);
        }
        let near = self.near().map_err(|e| e.to_string())?;
        near.held(store, of).map_err(|e| e.to_string())
    }

    fn failed<T>(&self, why: String) -> std::result::Result<T, String> {
        let mut standing = self.standing.lock();
        standing.failed += 1;
        standing.why = Some(why.clone());
        Err(format!("remote {}: {why}", self.name))
    }
}

impl Sources {
    /// For a store; there are none yet.
    pub fn new(store: &Arc<ObjectStore>) -> Arc<Sources> {
        Sources::with_patience(store, PATIENCE)
    }

    /// As [`Sources::new`], waiting for another time.
    pub fn with_patience(store: &Arc<ObjectStore>, patience: Duration) -> Arc<Sources> {
        Arc::new_cyclic(|me| Sources {
            me: me.clone(),
            store: Arc::downgrade(store),
            patience,
            all: RwLock::default(),
            flights: Mutex::default(),
        })
    }

    /// A workspace needs this remote from now on, which is opened so unless it is open; one that it had before is forgotten.
    pub fn set(&self, workspace: &str, remote: &str, opening: Opening, open: Option<Near>) {
        let source = Source {
            name: remote.to_owned(),
            opening,
            at_opening: Mutex::default(),
            near: Mutex::default(),
            used: Mutex::new(Instant::now()),
            standing: Mutex::new(Standing {
                remote: remote.to_owned(),
                ..Standing::default()
            }),
            lacking: Arc::default(),
            left_alone: Mutex::default(),
        };
        let source = Arc::new(source);
        if let Some(open) = open {
            source.keep(open);
        }
        self.all.write().insert(workspace.to_owned(), source);
    }

    /// A workspace needs its remote no more.
    pub fn forget(&self, workspace: &str) {
        self.all.write().remove(workspace);
    }

    /// What came for a workspace; `None` where it needs no remote.
    pub fn standing(&self, workspace: &str) -> Option<Standing> {
        let source = self.all.read().get(workspace).cloned()?;
        let requests = source
            .near
            .lock()
            .as_ref()
            .map(|near| near.remote().traffic());
        let near = source.near.lock().clone();
        let store = self.store.upgrade();
        let lacking = store.and_then(|store| source.lacking.ask(near, &store));
        Some(Standing {
            lacking,
            requests: requests.map_or(0, |traffic| traffic.requests),
            ..source.standing.lock().clone()
        })
    }

    /// Asks one remote after the other, first those that are known to have it.
    fn search(&self, key: &Key) -> std::result::Result<bool, String> {
        let Some(store) = self.store.upgrade() else {
            return Ok(false);
        };
        let mut sources: Vec<Arc<Source>> = self.all.read().values().cloned().collect();
        sources.sort_by_key(|source| !source.has(key));
        let mut failed = None;
        for source in sources {
            match source.bring(&store, key) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    /// The object on its way, and whether this is who has to bring it.
    fn flight(&self, key: &Key) -> (Arc<Flight>, bool) {
        let mut flights = self.flights.lock();
        match flights.get(key) {
            Some(flight) => (flight.clone(), false),
            None => {
                let flight = Arc::<Flight>::default();
                flights.insert(*key, flight.clone());
                (flight, true)
            }
        }
    }

    fn land(&self, key: &Key, flight: &Flight, done: std::result::Result<bool, String>) {
        self.flights.lock().remove(key);
        *flight.done.lock() = Some(done);
        flight.ended.notify_all();
    }

    fn begin(&self, key: &Key, flight: &Arc<Flight>) {
        let (Some(me), of, key) = (self.me.upgrade(), flight.clone(), *key) else {
            return self.land(key, flight, Ok(false));
        };
        let work = move || {
            let done = me.search(&key);
            me.land(&key, &of, done);
        };
        let thread = std::thread::Builder::new().name("bring".into());
        if let Err(e) = thread.spawn(work) {
            self.land(&key, flight, Err(format!("no thread: {e}")));
        }
    }
}

impl Elsewhere for Sources {
    fn bring(&self, _: &ObjectStore, key: &Key) -> objstore::Result<bool> {
        if self.all.read().is_empty() {
            return Ok(false);
        }
        let (flight, is_first) = self.flight(key);
        if is_first {
            self.begin(key, &flight);
        }
        let until = Instant::now() + self.patience;
        let mut done = flight.done.lock();
        while done.is_none() && !flight.ended.wait_until(&mut done, until).timed_out() {}
        let failed = match done.clone() {
            Some(Ok(brought)) => return Ok(brought),
            Some(Err(why)) => why,
            None => format!("no answer for {} s", self.patience.as_secs()),
        };
        Err(objstore::Error::Elsewhere {
            kind: key.0,
            id: objstore::exchange::key_hex(&key.1),
            why: failed,
        })
    }

    fn look(&self, whose: &str, of: &Branches) -> std::result::Result<Box<dyn Backing>, String> {
        let source = self.all.read().get(whose).cloned();
        let source = source.ok_or("it is not known")?;
        let store = self.store.upgrade().ok_or("the store is closed")?;
        let (done, is_done) = mpsc::channel();
        let of = of.clone();
        // Nobody waits for the answer once it is given up.
        let work = move || drop(done.send(source.look(&store, &of)));
        let thread = std::thread::Builder::new().name("look".into());
        thread.spawn(work).map_err(|e| format!("no thread: {e}"))?;
        let looked = is_done.recv_timeout(self.patience);
        looked.unwrap_or_else(|_| Err(format!("no answer for {} s", self.patience.as_secs())))
    }
}
