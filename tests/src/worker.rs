//! Processes that use a mount while something happens to it, and how a test runs them.
//!
//! The program is this package's `worker`. It ends with status 0 when it is told to, or where a mount
//! that is to die has died; with 1 and a line on standard error where it saw what must not be.

use crate::model::{self, BEGUN, DONE, NO_SPACE, Session};
use crate::pages::{self, Control};
use crate::rng::Rng;
use crate::sys::{Mapping, PAGE};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

/// What a worker is told on its command line.
pub type Outcome = Result<(), String>;

/// A running worker.
pub struct Worker {
    name: String,
    child: Child,
}

impl Worker {
    /// Starts `program` (the path of `worker`) with arguments.
    pub fn start(program: &str, args: &[&Path]) -> Worker {
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Worker {
            name: format!("worker {args:?}"),
            child,
        }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    pub fn end(mut self) {
        crate::wait::until(&format!("{} ends", self.name), || {
            self.child.try_wait().unwrap().is_some()
        });
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        let mut from = self.child.stderr.take().unwrap();
        io::Read::read_to_string(&mut from, &mut said).unwrap();
        assert!(status.success(), "{}: {status}: {said}", self.name);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tells the others to end where this one cannot go on, so that a test does not wait for it.
pub fn ended(outcome: Outcome, control: &Control) -> Outcome {
    if outcome.is_err() {
        control.stop();
    }
    outcome
}

/// Does the operations of a seed in a directory, and logs each outcome outside of the mount. Ends
/// when the mount dies, or when `control` says so.
pub fn log(root: &Path, marks: &Path, seed: u64, control: &Control) -> Outcome {
    let mut marks = OpenOptions::new()
        .create(true)
        .append(true)
        .open(marks)
        .map_err(|e| e.to_string())?;
    let mut mark = move |byte: u8| marks.write_all(&[byte]).map_err(|e| e.to_string());
    let mut session = Session::new(seed);
    while !control.is_stopped() {
        let op = session.choose();
        mark(BEGUN)?;
        match model::perform(root, &op) {
            Ok(()) => {
                session.apply(&op);
                mark(DONE)?;
            }
            Err(e) if e.kind() == io::ErrorKind::StorageFull => mark(NO_SPACE)?,
            Err(e) if is_dead(&e) => return Ok(()),
            Err(e) => return Err(format!("{op:?}: {e}").chars().take(300).collect()),
        }
    }
    Ok(())
}

/// What a mount answers whose daemon died.
fn is_dead(error: &io::Error) -> bool {
    let dead = [rustix::io::Errno::NOTCONN, rustix::io::Errno::CONNABORTED];
    rustix::io::Errno::from_io_error(error).is_some_and(|errno| dead.contains(&errno))
}

/// Adds to the counters of its share of a file's pages through a shared mapping, and sees that within
/// an epoch none is lost: the next value is one more than the last, or the epoch's first.
pub fn dirty(path: &Path, file_pages: usize, share: (usize, usize), control: &Control) -> Outcome {
    let (index, workers) = share;
    let file = OpenOptions::new().read(true).write(true).open(path);
    let mapping = file.and_then(|file| Mapping::new(&file, file_pages));
    let mapping = mapping.map_err(|e| format!("{}: {e}", path.display()))?;
    let mut rng = Rng::new(index as u64);
    let mut last: HashMap<(u32, usize), u32> = HashMap::new();
    while !control.is_stopped() {
        let page = index + workers * rng.below((file_pages / workers) as u64) as usize;
        let (epoch, count) = pages::split(mapping.word(page).fetch_add(1, Ordering::SeqCst));
        if let Some(before) = last.insert((epoch, page), count)
            && count != 0
            && count != before + 1
        {
            return Err(format!(
                "page {page}, epoch {epoch}: {count} after {before}"
            ));
        }
        control.tick(index);
    }
    Ok(())
}

/// Reads a file through an old and a new descriptor: it may be gone, but each page is of one epoch
/// as a whole.
pub fn read(path: &Path, index: usize, control: &Control) -> Outcome {
    let old = File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = vec![0; 64 * PAGE];
    while !control.is_stopped() {
        let count = old.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
        whole_pages(&bytes[..count])?;
        match File::open(path) {
            Ok(file) => {
                let count = file.read_at(&mut bytes, 0).map_err(|e| e.to_string())?;
                whole_pages(&bytes[..count])?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("open: {e}")),
        }
        control.tick(index);
    }
    Ok(())
}

/// After the first word all bytes of a page are its epoch's lowest.
fn whole_pages(bytes: &[u8]) -> Outcome {
    for page in bytes.chunks(PAGE) {
        let rest = page.get(8..).unwrap_or_default();
        if let Some(byte) = rest.iter().find(|byte| **byte != page[4]) {
            return Err(format!("a page of epoch {} has a byte {byte}", page[4]));
        }
    }
    Ok(())
}

/// Writes, appends and truncates through one descriptor; nothing may fail, whatever becomes of the
/// file's name.
pub fn write(path: &Path, index: usize, control: &Control) -> Outcome {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|e| e.to_string())?;
    let mut rng = Rng::new(index as u64);
    while !control.is_stopped() {
        let at = rng.below(16) * PAGE as u64;
        let done = match rng.below(8) {
            0 => file.set_len(at),
            1 => file.sync_data(),
            _ => file.write_all_at(&[7; PAGE], at),
        };
        done.map_err(|e| format!("{}: {e}", path.display()))?;
        control.tick(index);
    }
    Ok(())
}

/// Pages of the file that [`mixed`] maps; it must be in every state.
pub const MIXED_PAGES: usize = 16;

/// Everything that programs do, in a directory of its own that checkpoints are made of and that
/// rollbacks change under it.
pub fn mixed(root: &Path, index: usize, control: &Control) -> Outcome {
    let mapped = OpenOptions::new()
        .read(true)
        .write(true)
        .open(root.join("mapped"));
    let mapping = mapped.and_then(|file| Mapping::new(&file, MIXED_PAGES));
    let mapping = mapping.map_err(|e| format!("mapped: {e}"))?;
    let mut rng = Rng::new(index as u64);
    while !control.is_stopped() {
        let path = mixed_name(root, &mut rng);
        let other = mixed_name(root, &mut rng);
        match rng.below(12) {
            0 => {
                let page = rng.below(MIXED_PAGES as u64) as usize;
                mapping.word(page).fetch_add(1, Ordering::SeqCst);
            }
            choice => tolerate(choice, mixed_step(choice, &path, &other, &mut rng))?,
        }
        control.tick(index);
    }
    Ok(())
}

fn mixed_name(root: &Path, rng: &mut Rng) -> PathBuf {
    let dir = root.join(format!("d{}", rng.below(4)));
    match rng.below(5) {
        0 => dir,
        _ => dir.join(format!("f{}", rng.below(10))),
    }
}

fn mixed_step(choice: u64, path: &Path, other: &Path, rng: &mut Rng) -> io::Result<()> {
    let open = || OpenOptions::new().read(true).write(true).open(path);
    match choice {
        1 => std::fs::create_dir(path),
        2 => std::fs::remove_dir(path),
        3 => std::fs::remove_file(path),
        4 => std::fs::rename(path, other),
        5 => std::fs::hard_link(path, other),
        6 => std::fs::read_dir(path)?.try_for_each(|entry| entry.map(drop)),
        7 => open()?.sync_all(),
        8 => open()?.set_len(rng.below(8) * PAGE as u64),
        9 => uniform(&std::fs::read(path)?),
        10 => File::create_new(path).map(drop),
        _ => {
            let blocks = 1 + rng.below(4) as usize;
            let bytes = rng.word().to_le_bytes().repeat(blocks * PAGE / 8);
            open()?.write_all_at(&bytes, rng.below(8) * PAGE as u64)
        }
    }
}

/// Each block is one word again and again: it was written as a whole.
pub fn uniform(bytes: &[u8]) -> io::Result<()> {
    let torn = bytes.chunks(PAGE).position(|block| {
        let word = &block[..8.min(block.len())];
        block.chunks(8).any(|other| other != word)
    });
    match torn {
        None => Ok(()),
        Some(block) => Err(io::Error::other(format!("block {block} is torn"))),
    }
}

/// A name may be gone or be something else by now; nothing else may go wrong. ESTALE is the kernel's
/// own: where a rollback moved a directory that the kernel still knows under its old name, it takes
/// that name away only if no rename goes on elsewhere, and says so otherwise (`__d_unalias`).
fn tolerate(choice: u64, done: io::Result<()>) -> Outcome {
    use rustix::io::Errno;
    let tolerated = [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::NOTEMPTY,
        Errno::PERM,
        Errno::INVAL,
        Errno::STALE,
    ];
    match done {
        Err(e) if !Errno::from_io_error(&e).is_some_and(|e| tolerated.contains(&e)) => {
            Err(format!("step {choice}: {e}"))
        }
        _ => Ok(()),
    }
}
