//! Appending what happens in a workspace to a file (`start --audit`).
//!
//! A follower like any other, with a thread of its own, which alone touches the file: a disk that is slow, full or away
//! delays nobody. Invariant: what the file does not have is told in it, as `lost`: what the ring did not keep while the file could
//! not be written, and that a daemon ended, of which nobody knows what it had not written.
//!
//! Tests: `tests/tests/audit.rs`.

mod file;

use super::event_lines::Lines;
use agentvfs_client::protocol::{Device, Fault};
use engine::Workspace;
use engine::feed::{Batch, Follower};
use file::{AuditFile, ROTATE_BYTES};
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// Events that are taken from the ring at once.
const BATCH: usize = 512;

/// How long a thread that has nothing to write waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(250);

/// Pause after something was written: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(20);

/// Pause before a file is tried again that could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// How long an end waits until the last events are written.
const END_WAIT: Duration = Duration::from_secs(5);

/// Events that are being appended to a file, until this is dropped: then what is left is written.
pub struct Audit {
    /// The file.
    pub path: PathBuf,
    trouble: Trouble,
    /// Dropped to say that it is to end.
    stop: Option<Sender<()>>,
    /// Disconnected once it has.
    ended: Receiver<()>,
}

/// Why the file cannot be written.
type Trouble = Arc<Mutex<Option<String>>>;

/// Events that will be appended to a file. They are kept from here on.
pub struct Begun {
    follower: Follower,
    path: PathBuf,
}

/// Whether events can be appended to a file; it is created where it does not exist.
pub fn check(path: &Path) -> Result<(), Fault> {
    let refused = |error: io::Error| {
        let why = format!("cannot append events to {}: {error}", path.display());
        Fault::failed("bad-target", why).hint("name a new file: --audit FILE")
    };
    AuditFile::open(path, ROTATE_BYTES)
        .map(drop)
        .map_err(refused)
}

/// Begins to follow a workspace: before it is mounted, so no change is missed. `goes_on` where a daemon that wrote its
/// events has ended without closing it; then nothing here touches the file, whose path may lead into the mount.
pub fn begin(workspace: &Workspace, path: &Path, goes_on: bool) -> Begun {
    let is_new = || path.metadata().map_or(true, |file| file.len() == 0);
    // Whatever the file has is of another feed.
    let since = (goes_on || !is_new()).then_some(0);
    Begun {
        follower: workspace.feed().follow(since),
        path: path.to_owned(),
    }
}

impl Begun {
    /// Appends the events from now on.
    pub fn run(self, workspace: &str, device: Option<Device>) -> io::Result<Audit> {
        let (stop, stopped) = channel();
        let (ending, ended) = channel::<()>();
        let (name, path) = (workspace.to_owned(), self.path.clone());
        let trouble = Trouble::default();
        let told = trouble.clone();
        let run = move || {
            let mut writer = Writer {
                lines: Lines::new(&name, device, true),
                workspace: &name,
                begun: self,
                file: None,
                stopped,
                trouble: told,
            };
            writer.run();
            drop(ending);
        };
        thread::Builder::new().name("audit".into()).spawn(run)?;
        Ok(Audit {
            path,
            trouble,
            stop: Some(stop),
            ended,
        })
    }
}

impl Audit {
    /// Why the events are not in the file.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.ended.recv_timeout(END_WAIT) == Err(RecvTimeoutError::Timeout) {
            tracing::error!("the last events are not in the audit file yet");
        }
    }
}

struct Writer<'a> {
    workspace: &'a str,
    begun: Begun,
    /// With lines that the file does not have yet.
    lines: Lines,
    file: Option<AuditFile>,
    stopped: Receiver<()>,
    trouble: Trouble,
}

/// What was written.
#[derive(PartialEq, Eq)]
enum Wrote {
    Nothing,
    /// All that there was.
    Something,
    /// And there is more.
    Part,
    /// The workspace was closed.
    All,
}

impl Writer<'_> {
    fn run(&mut self) {
        loop {
            let pause = match self.write_some() {
                Ok(Wrote::All) => return,
                Ok(Wrote::Nothing) if self.is_stopped() => return,
                Ok(Wrote::Nothing | Wrote::Part) => continue,
                Ok(Wrote::Something) => PAUSE,
                Err(error) => {
                    self.failed(&error);
                    if self.is_stopped() {
                        return;
                    }
                    RETRY
                }
            };
            // Ends early where it is to stop.
            let _ = self.stopped.recv_timeout(pause);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.try_recv() == Err(TryRecvError::Disconnected)
    }

    fn failed(&mut self, error: &io::Error) {
        // Whatever is wrong with it is found when it is opened again.
        self.file = None;
        let before = self.trouble.lock().replace(error.to_string());
        if before.is_none() {
            let (workspace, file) = (self.workspace, self.begun.path.display());
            tracing::error!(workspace, "cannot append events to {file}: {error}");
        }
    }

    fn write_some(&mut self) -> io::Result<Wrote> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = AuditFile::open_or_replace(&self.begun.path, ROTATE_BYTES)?;
                self.file.insert(file)
            }
        };
        let mut wrote = Wrote::Something;
        if self.lines.bytes.is_empty() {
            let batch = self.begun.follower.next(BATCH, LOOK);
            wrote = match &batch {
                Batch { is_last: true, .. } => Wrote::All,
                Batch {
                    lost: None, events, ..
                } if events.is_empty() => Wrote::Nothing,
                _ if batch.events.len() >= BATCH => Wrote::Part,
                _ => Wrote::Something,
            };
            if let Some(lost) = batch.lost {
                self.lines.add_lost(lost, &batch, &self.begun.follower);
            }
            batch.events.iter().for_each(|event| self.lines.add(&event));
        }
        if !self.lines.bytes.is_empty() {
            file.append(&self.lines.bytes)?;
            self.lines.bytes.clear();
        }
        if self.trouble.lock().take().is_some() {
            let (workspace, file) = (self.workspace, self.begun.path.display());
            tracing::info!(workspace, "events are appended to {file} again");
        }
        Ok(wrote)
    }
}
