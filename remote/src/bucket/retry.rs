//! Requests that are sent again: after a failure that may pass, with pauses that grow.
//!
//! A put or delete whose answer was lost may have been carried out. A delete, and a put without a condition, are the
//! same when they are done twice. Where a put with a condition is refused, it may be because of itself: an attempt
//! whose answer was lost, or one that the network or a library repeated. So the object is read: if it has our bytes,
//! the put was carried out. Invariant: two writers never put the same bytes in one place under a condition, which
//! is why what is replaced holds a number that no other has.

use super::{Bucket, Condition, Got, Listed, Put};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::limits::{ATTEMPTS_MAX, BACKOFF_FIRST_MS, BACKOFF_MAX_MS};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many requests were sent, and how many bytes went each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests, each attempt counted.
    pub requests: u64,
    /// Bytes of objects that were sent.
    pub sent: u64,
    /// Bytes of objects that were received.
    pub received: u64,
}

/// A remote whose requests are sent again.
#[derive(Debug)]
pub struct RetryBucket {
    inner: Arc<dyn Bucket>,
    clock: Arc<dyn Clock>,
    chance: Mutex<Chance>,
    requests: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl RetryBucket {
    /// Retries what `inner` does.
    pub fn new(inner: Arc<dyn Bucket>, clock: Arc<dyn Clock>) -> RetryBucket {
        RetryBucket {
            inner,
            clock,
            chance: Mutex::new(Chance::fresh()),
            requests: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// What was sent and received since it was made.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
        }
    }

    /// Does `work` until it succeeds, fails for good, or has failed often enough.
    fn often<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 0;
        loop {
            self.requests.fetch_add(1, Ordering::Relaxed);
            match work() {
                Err(e) if e.is_transient() && attempt + 1 < ATTEMPTS_MAX => {
                    tracing::debug!(attempt, "{e}");
                    self.back_off(attempt);
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// Waits between half of the pause that belongs to an attempt and all of it, so that machines that failed
    /// together do not come back together.
    fn back_off(&self, attempt: u32) {
        let whole = BACKOFF_FIRST_MS
            .saturating_mul(1 << attempt.min(16))
            .min(BACKOFF_MAX_MS);
        let part = whole / 2 + self.chance.lock().below(whole / 2 + 1);
        self.clock.pause(Duration::from_millis(part));
    }

    fn is_ours(&self, name: &str, bytes: &[u8]) -> Result<Option<Got>> {
        let got = self.get(name, bytes.len() as u64);
        match got {
            Ok(got) => Ok(got.filter(|got| got.bytes == bytes)),
            // Larger, so another's.
            Err(Error::TooLarge { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Bucket for RetryBucket {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>> {
        let got = self.often(|| self.inner.get(name, max))?;
        let bytes = got.as_ref().map_or(0, |got| got.bytes.len() as u64);
        self.received.fetch_add(bytes, Ordering::Relaxed);
        Ok(got)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        let got = self.often(|| {
            let got = self.inner.get_range(name, range.clone())?;
            match got {
                Some(bytes) if bytes.len() as u64 != range.end - range.start => {
                    Err(Error::Transient {
                        name: name.to_owned(),
                        why: "the answer has another length than was asked for".into(),
                    })
                }
                got => Ok(got),
            }
        })?;
        let bytes = got.as_ref().map_or(0, |got| got.len() as u64);
        self.received.fetch_add(bytes, Ordering::Relaxed);
        Ok(got)
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put> {
        let put = self.often(|| {
            self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.inner.put(name, bytes, condition)
        })?;
        if put == Put::Refused
            && let Some(got) = self.is_ours(name, bytes)?
        {
            return Ok(Put::Done(got.etag));
        }
        Ok(put)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.often(|| self.inner.delete(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        self.often(|| self.inner.list(prefix))
    }
}
