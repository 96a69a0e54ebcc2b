//! A remote in memory: for tests, and for simulations with many machines.

use super::{Bucket, Condition, Etag, Got, Listed, Put, check_name, check_prefix};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::limits::LISTED_MAX;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Objects in memory. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryBucket {
    inner: Arc<Mutex<Inner>>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<String, Stored>,
    puts: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: Arc<Vec<u8>>,
    etag: Etag,
    put_at: i64,
}

impl MemoryBucket {
    /// An empty remote whose clock is this one.
    pub fn new(clock: Arc<dyn Clock>) -> MemoryBucket {
        MemoryBucket {
            inner: Arc::default(),
            clock,
        }
    }

    /// Names of all objects with their lengths, as they are at this moment.
    pub fn contents(&self) -> BTreeMap<String, u64> {
        let inner = self.inner.lock();
        let lengths = inner.objects.iter();
        lengths
            .map(|(name, o)| (name.clone(), o.bytes.len() as u64))
            .collect()
    }

    fn find(&self, name: &str) -> Result<Option<Stored>> {
        check_name(name)?;
        Ok(self.inner.lock().objects.get(name).cloned())
    }
}

impl Bucket for MemoryBucket {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>> {
        let Some(found) = self.find(name)? else {
            return Ok(None);
        };
        let bytes = found.bytes.len() as u64;
        if bytes > max {
            let name = name.to_owned();
            return Err(Error::TooLarge { name, bytes, max });
        }
        Ok(Some(Got {
            bytes: found.bytes.to_vec(),
            etag: found.etag,
        }))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let Some(found) = self.find(name)? else {
            return Ok(None);
        };
        let part = found.bytes.get(range.start as usize..range.end as usize);
        match part {
            Some(part) => Ok(Some(part.to_vec())),
            None => Err(Error::Damaged {
                name: name.to_owned(),
                what: "it is shorter than it must be",
            }),
        }
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put> {
        check_name(name)?;
        let mut inner = self.inner.lock();
        let now = inner.objects.get(name).map(|o| &o.etag);
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => now.is_none(),
            Condition::Matches(etag) => now == Some(etag),
        };
        if !holds {
            return Ok(Put::Refused);
        }
        inner.puts += 1;
        let etag = Etag(inner.puts.to_string());
        let stored = Stored {
            bytes: Arc::new(bytes.to_vec()),
            etag: etag.clone(),
            put_at: self.clock.now(),
        };
        inner.objects.insert(name.to_owned(), stored);
        Ok(Put::Done(etag))
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.inner.lock().objects.remove(name);
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        check_prefix(prefix)?;
        let inner = self.inner.lock();
        let below = inner.objects.range(prefix.to_owned()..);
        let below = below.take_while(|(name, _)| name.starts_with(prefix));
        let listed = below.map(|(name, o)| Listed {
            name: name.clone(),
            bytes: o.bytes.len() as u64,
            put_at: o.put_at,
        });
        Ok(listed.take(LISTED_MAX).collect())
    }
}
