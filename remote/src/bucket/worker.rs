//! A bucket that another process reaches: the one that has the network (crate `agentvfs-remote-worker`).
//!
//! The process is started by the first request, and again by the first one after it has ended. What it was asked for in
//! between fails as if the network had: whoever retries finds the next process. It ends with the bucket.
//!
//! Invariants: each request has one answer, or fails when the process ends or is silent for too long, in which case it is
//! killed. While a process is started and told where the bucket is, whoever else asks waits; otherwise no lock is held while
//! an answer is waited for.

use super::wire::{self, Access, Answer, Ask, Only, Request, Said};
use super::{Bucket, Condition, Etag, Got, Listed, Put, check_name, check_prefix};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// How long a request may take that carries nothing: the process gives up before.
pub const SILENCE: Duration = Duration::from_secs(60);
/// Bytes in a second that are waited for. Less is a connection that is of no use.
pub const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// Starts the process.
pub trait Start: Send + Sync + Debug {
    /// A process that serves a socket, and the other end of it.
    ///
    /// # Errors
    /// What the system says.
    fn start(&self) -> io::Result<(UnixStream, Child)>;
}

/// A bucket that another process reaches.
#[derive(Debug)]
pub struct WorkerBucket {
    start: Box<dyn Start>,
    url: String,
    access: Access,
    line: Mutex<Option<Arc<Line>>>,
}

/// An answer, and the bytes that follow.
type Heard = wire::Frame<Said>;

/// A process, and who waits for it.
#[derive(Debug)]
struct Line {
    writing: Mutex<UnixStream>,
    /// For closing it while another one writes.
    stream: UnixStream,
    /// By number of the request; `None` once the process has ended.
    waiting: Mutex<Option<HashMap<u64, Sender<Heard>>>>,
    next: AtomicU64,
}

impl WorkerBucket {
    /// The bucket at `url`. No process is started yet.
    pub fn new(start: Box<dyn Start>, url: &str, access: Access) -> WorkerBucket {
        WorkerBucket {
            start,
            url: url.to_owned(),
            access,
            line: Mutex::default(),
        }
    }

    /// Asks for something that brings or takes so many bytes at most.
    fn ask(&self, name: &str, ask: Ask, bytes: &[u8], most: u64) -> Result<Heard> {
        let line = self.line(name)?;
        answered(name, line.ask(ask, bytes, most).map_err(failed(name))?)
    }

    /// The process; it is started where there is none.
    fn line(&self, name: &str) -> Result<Arc<Line>> {
        let mut kept = self.line.lock();
        if let Some(line) = kept.as_ref().filter(|line| line.works()) {
            return Ok(line.clone());
        }
        let (stream, child) = self.start.start().map_err(|error| Error::Transient {
            name: name.to_owned(),
            why: format!("the process that has the network cannot be started: {error}"),
        })?;
        let line = Line::new(stream, child).map_err(failed(name))?;
        let opening = Ask::Open {
            url: self.url.clone(),
            access: self.access.clone(),
        };
        answered(&self.url, line.ask(opening, &[], 0).map_err(failed(name))?)?;
        Ok(kept.insert(line).clone())
    }
}

impl Drop for WorkerBucket {
    fn drop(&mut self) {
        if let Some(line) = self.line.get_mut() {
            line.end();
        }
    }
}

impl Line {
    fn new(stream: UnixStream, child: Child) -> io::Result<Arc<Line>> {
        let line = Arc::new(Line {
            writing: Mutex::new(stream.try_clone()?),
            stream: stream.try_clone()?,
            waiting: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
        });
        let hearing = line.clone();
        std::thread::Builder::new()
            .name("remote".into())
            .spawn(move || hearing.hear(stream, child))?;
        Ok(line)
    }

    fn works(&self) -> bool {
        self.waiting.lock().is_some()
    }

    /// Ends the process, and all who wait for it.
    fn end(&self) {
        self.waiting.lock().take();
        // It may have ended by itself.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Hands answers out until the process ends.
    fn hear(&self, mut stream: UnixStream, mut child: Child) {
        loop {
            match wire::read_frame(&mut stream) {
                Ok(Some((Answer { id, said }, bytes))) => {
                    let waiting = self.waiting.lock().as_mut().and_then(|all| all.remove(&id));
                    // Whoever asked may have given up.
                    waiting.map(|waiting| waiting.send((said, bytes)));
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("the process that has the network: {error}");
                    break;
                }
            }
        }
        self.end();
        // It ends with the socket, unless it hangs.
        let _ = child.kill();
        match child.wait() {
            Ok(status) => tracing::debug!("the process that has the network ended: {status}"),
            Err(error) => tracing::warn!("the process that has the network is lost: {error}"),
        }
    }

    fn ask(&self, ask: Ask, bytes: &[u8], most: u64) -> io::Result<Heard> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        let ended = || io::Error::other("the process that has the network ended");
        let waiting = &self.waiting;
        waiting
            .lock()
            .as_mut()
            .ok_or_else(ended)?
            .insert(id, sender);
        let written = wire::write_frame(&mut *self.writing.lock(), &Request { id, ask }, bytes);
        if let Err(error) = written {
            waiting.lock().as_mut().and_then(|all| all.remove(&id));
            if error.kind() == io::ErrorKind::InvalidInput {
                return Err(error);
            }
            // Whoever asks next starts another one, and need not wait until this one's end is heard of.
            self.end();
            return Err(ended());
        }
        let patience = SILENCE + Duration::from_secs(most / BYTES_PER_SECOND_MIN);
        answer.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Disconnected => ended(),
            RecvTimeoutError::Timeout => {
                self.end();
                io::Error::other("the process that has the network did not answer, and was ended")
            }
        })
    }
}

fn failed(name: &str) -> impl FnOnce(io::Error) -> Error {
    let name = name.to_owned();
    move |error| Error::Transient {
        name,
        why: error.to_string(),
    }
}

/// What a failure means here; other answers as they are.
fn answered(name: &str, (said, bytes): Heard) -> Result<Heard> {
    let name = name.to_owned();
    match said {
        Said::Transient(why) => Err(Error::Transient { name, why }),
        Said::Denied(why) => Err(Error::Denied { name, why }),
        Said::Unsupported(why) => Err(Error::Unsupported { name, why }),
        Said::Short => Err(Error::Damaged {
            name,
            what: "it is too short",
        }),
        other => Ok((other, bytes)),
    }
}

/// An answer to something else.
fn unexpected<T>(name: &str) -> Result<T> {
    Err(Error::Transient {
        name: name.to_owned(),
        why: "the process that has the network answered something else".into(),
    })
}

impl Bucket for WorkerBucket {
    fn get(&self, name: &str, max: u64) -> Result<Option<Got>> {
        check_name(name)?;
        let ask = Ask::Get {
            name: name.to_owned(),
            max,
        };
        match self.ask(name, ask, &[], max)? {
            (Said::Absent, _) => Ok(None),
            (Said::Whole(tag), bytes) if bytes.len() as u64 <= max => Ok(Some(Got {
                bytes,
                etag: Etag(tag),
            })),
            (Said::TooLarge(bytes), _) => Err(Error::TooLarge {
                name: name.to_owned(),
                bytes,
                max,
            }),
            _ => unexpected(name),
        }
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Vec<u8>>> {
        check_name(name)?;
        if range.is_empty() {
            // No header can ask for that.
            return Ok(Some(Vec::new()));
        }
        let ask = Ask::Range {
            name: name.to_owned(),
            start: range.start,
            end: range.end,
        };
        match self.ask(name, ask, &[], range.end - range.start)? {
            (Said::Absent, _) => Ok(None),
            (Said::Part, bytes) if bytes.len() as u64 == range.end - range.start => Ok(Some(bytes)),
            _ => unexpected(name),
        }
    }

    fn put(&self, name: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Put> {
        check_name(name)?;
        let ask = Ask::Put {
            name: name.to_owned(),
            only: match condition {
                Condition::Always => Only::Always,
                Condition::Absent => Only::Absent,
                Condition::Matches(Etag(tag)) => Only::Matches(tag.clone()),
            },
        };
        match self.ask(name, ask, bytes, bytes.len() as u64)? {
            (Said::Put(tag), _) => Ok(Put::Done(Etag(tag))),
            (Said::Refused, _) if condition != Condition::Always => Ok(Put::Refused),
            _ => unexpected(name),
        }
    }

    fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let ask = Ask::Delete {
            name: name.to_owned(),
        };
        match self.ask(name, ask, &[], 0)? {
            (Said::Done | Said::Absent, _) => Ok(()),
            _ => unexpected(name),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        check_prefix(prefix)?;
        let ask = Ask::List {
            prefix: prefix.to_owned(),
        };
        // A thousand names are a request; so many take a while.
        let (Said::Listed(all), _) = self.ask(prefix, ask, &[], 64 << 20)? else {
            return unexpected(prefix);
        };
        let listed = |(name, bytes, put_at): (String, u64, i64)| {
            let is_ours = check_name(&name).is_ok() && name.starts_with(prefix);
            is_ours.then_some(Listed {
                name,
                bytes,
                put_at,
            })
        };
        Ok(all.into_iter().filter_map(listed).collect())
    }
}
