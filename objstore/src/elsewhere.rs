//! Objects that are not here: who can bring them, and where they are not asked for.
//!
//! A store knows what it has. Whoever opened it may say where further objects are ([`ObjectStore::set_elsewhere`]): a
//! get that finds nothing asks there, and what comes is stored as any object is, so it is here from then on. What looks
//! at the store itself (gc, fsck) asks for nothing ([`only_here`]).
//!
//! Invariant: whoever may not wait is never made to: what is not here is for [`ObjectStore::try_get_chunk`] and its like
//! what would have to be waited for.
//!
//! Tests: here.

use std::cell::Cell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::error::Result;
use crate::id::CommitId;
use crate::pack::Key;
use crate::store::ObjectStore;

/// What the place from which somebody has objects holds, as it was found a moment ago.
pub trait Backing: Send + Sync + Debug {
    /// Commits that are in the store and that the place keeps: with their directories and files, and those of all
    /// their ancestors.
    fn commits(&self) -> &[CommitId];

    /// Bytes that the record of an object takes there; `None` where it does not have it.
    fn find(&self, key: &Key) -> Option<u64>;
}

/// Some branches of a project, by name.
#[derive(Clone, Debug)]
pub struct Branches {
    /// The project.
    pub project: String,
    /// The branches.
    pub names: Vec<String>,
}

/// Brings objects that are not in the store.
pub trait Elsewhere: Send + Sync + Debug {
    /// Brings an object, and perhaps others near it, into the store; false where none is known that has it.
    ///
    /// # Errors
    ///
    /// [`Error::Elsewhere`](crate::Error::Elsewhere) where it is somewhere, or may be, and cannot be had now.
    fn bring(&self, store: &ObjectStore, key: &Key) -> Result<bool>;

    /// Looks anew at the place from which the workspace `whose` has what it lacks; gives what that has now, and which
    /// commits it keeps because of these branches. An error says why that cannot be told; it is one if the place did
    /// not answer.
    fn look(&self, _whose: &str, _of: &Branches) -> std::result::Result<Box<dyn Backing>, String> {
        Err("what it has cannot be asked for".into())
    }
}

thread_local! {
    /// How many guards there are.
    static ONLY_HERE: Cell<usize> = const { Cell::new(0) };
}

/// While it lives, this thread finds in a store what is there, and nothing else.
#[derive(Debug)]
#[must_use = "it counts as long as it lives"]
pub struct OnlyHere(PhantomData<*const ()>);

/// Has this thread ask nobody for objects that are not in the store.
pub fn only_here() -> OnlyHere {
    ONLY_HERE.with(|guards| guards.set(guards.get() + 1));
    OnlyHere(PhantomData)
}

impl Drop for OnlyHere {
    fn drop(&mut self) {
        ONLY_HERE.with(|guards| guards.set(guards.get() - 1));
    }
}

impl ObjectStore {
    /// From now on what is not here is asked for there; `None`: nowhere.
    pub fn set_elsewhere(&self, elsewhere: Option<Arc<dyn Elsewhere>>) {
        *self.elsewhere.write() = elsewhere;
    }

    /// As [`Elsewhere::look`]; an error where objects come from nowhere.
    pub fn look_elsewhere(
        &self,
        whose: &str,
        of: &Branches,
    ) -> std::result::Result<Box<dyn Backing>, String> {
        // Not held while it is waited for.
        let elsewhere = self.elsewhere.read().clone();
        let elsewhere = elsewhere.ok_or("it is not open")?;
        elsewhere.look(whose, of)
    }

    /// True where what is not here may be elsewhere.
    pub(crate) fn has_elsewhere(&self) -> bool {
        self.elsewhere.read().is_some()
    }

    /// Brings an object that is not here; false where that is not possible.
    pub(crate) fn bring(&self, key: &Key) -> Result<bool> {
        if ONLY_HERE.with(Cell::get) > 0 {
            return Ok(false);
        }
        // Not held while it is waited for.
        let elsewhere = self.elsewhere.read().clone();
        elsewhere.map_or(Ok(false), |elsewhere| elsewhere.bring(self, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{FileContent, read_content, store_content, try_read_content};
    use crate::crash_storage::CrashStorage;
    use crate::error::Error;
    use crate::id::Kind;
    use crate::store::StoreConfig;
    use parking_lot::Mutex;

    fn store() -> ObjectStore {
        ObjectStore::open(Arc::new(CrashStorage::new()), StoreConfig::default()).unwrap()
    }

    /// Another store, which can be out of reach.
    #[derive(Debug)]
    struct Other {
        store: ObjectStore,
        asked: Mutex<Vec<Key>>,
        is_away: Mutex<bool>,
    }

    impl Elsewhere for Other {
        fn bring(&self, store: &ObjectStore, key: &Key) -> Result<bool> {
            self.asked.lock().push(*key);
            if *self.is_away.lock() {
                return Err(Error::Elsewhere {
                    kind: key.0,
                    id: crate::id::hex(&key.1),
                    why: "it is away".into(),
                });
            }
            if !self.store.contains(key.0, &key.1) {
                return Ok(false);
            }
            store.put_record(&self.store.get_record(key)?)?;
            Ok(true)
        }
    }

    fn two() -> (ObjectStore, Arc<Other>, FileContent, Vec<u8>) {
        let other = Arc::new(Other {
            store: store(),
            asked: Mutex::default(),
            is_away: Mutex::new(false),
        });
        let bytes: Vec<u8> = (0..1_000_000u64).map(|i| ((i * i) >> 7) as u8).collect();
        let len = bytes.len() as u64;
        let content = store_content(
            &other.store,
            None,
            &[],
            &[std::ops::Range { start: 0, end: len }],
            len,
            &bytes,
        )
        .unwrap();
        let here = store();
        here.set_elsewhere(Some(other.clone()));
        (here, other, content, bytes)
    }

    #[test]
    fn what_is_elsewhere_comes_once_and_is_here_then() {
        let (here, other, content, bytes) = two();
        let mut read = vec![0; 1000];
        assert!(!try_read_content(&here, &content, 500, &mut read).unwrap());
        assert!(
            other.asked.lock().is_empty(),
            "who may not wait asks nobody"
        );
        read_content(&here, &content, 500, &mut read).unwrap();
        assert_eq!(read, bytes[500..1500]);
        let asked = other.asked.lock().len();
        assert!((2..5).contains(&asked), "{asked}");
        *other.is_away.lock() = true;
        read_content(&here, &content, 500, &mut read).unwrap();
        assert_eq!(other.asked.lock().len(), asked);
        let far = read_content(&here, &content, 900_000, &mut read);
        assert!(matches!(far, Err(Error::Elsewhere { .. })), "{far:?}");
    }

    #[test]
    fn what_nobody_has_is_missing_and_only_here_asks_nobody() {
        let (here, other, content, _) = two();
        let none = here.get(Kind::Chunk, &[7; 32]);
        assert!(matches!(none, Err(Error::ObjectMissing { .. })));
        other.asked.lock().clear();
        let guard = only_here();
        let gone = read_content(&here, &content, 0, &mut [0; 10]);
        assert!(matches!(gone, Err(Error::ObjectMissing { .. })), "{gone:?}");
        assert!(other.asked.lock().is_empty());
        drop(guard);
        read_content(&here, &content, 0, &mut [0; 10]).unwrap();
    }
}
