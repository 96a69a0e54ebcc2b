//! The daemon's log: standard error, which whoever started the daemon opened on `<home>/daemon.log`.
//!
//! A log that has grown long is put aside as `daemon.log.1` and begun anew, so that both together are
//! bounded; what is written to standard error past the logger (a panic) goes to the new one, too.
//!
//! Invariant: whoever logs never waits for the disk and never fails. Lines go to a bounded queue; a
//! thread of its own writes them. Lines that the disk does not take are counted, and the number is
//! logged once it takes lines again.

use agentvfs_client::home::{Home, process_env};
use agentvfs_client::launch::LOG_BYTES_MAX;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Bytes of lines that wait to be written, at most. Lines beyond them are counted, not kept.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// How long an ending daemon waits for its last lines to be written.
const END_WAIT: Duration = Duration::from_secs(1);

/// Variables that set what is logged, such as `debug` or `info,engine=trace`; the first one counts.
const VARIABLES: [&str; 2] = ["AGENTVFS_LOG", "RUST_LOG"];

/// Starts logging.
pub fn start(home: &Home) -> Log {
    let wanted = VARIABLES.into_iter().find_map(process_env);
    let filter = filter(wanted.and_then(|text| text.into_string().ok()));
    let place = home.log();
    let written = place.metadata().map_or(0, |meta| meta.len());
    let mut file = File { place, written };
    let log = Log::new(move |text: &[u8]| file.write(text));
    let lines = log.clone();
    let subscriber = tracing_subscriber::fmt()
        // The filter decides.
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        // What it would say of its own errors goes to standard error, and panics where that fails.
        .log_internal_errors(false)
        .with_writer(move || lines.clone());
    // Only one logger can be set; a second attempt would mean that there is one already.
    let _ = subscriber.finish().with(filter).try_init();
    log
}

/// What is logged: level `info` where nothing is asked for that can be understood.
fn filter(wanted: Option<String>) -> Targets {
    let understood = wanted.and_then(|text| text.parse().ok());
    understood.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

/// Where lines wait for the thread that writes them. Clones share the queue.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    text: Vec<u8>,
    /// Lines that found the queue full.
    lost: u64,
    /// The thread writes what it took out.
    writing: bool,
}

impl Log {
    /// A log whose lines are given to `sink`, by a thread that lives as long as the process.
    fn new(sink: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static) -> Log {
        let log = Log::default();
        let queue = log.0.clone();
        let spawned = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || queue.write_all_to(sink));
        if let Err(error) = spawned {
            // The daemon serves all the same; there is nowhere else to say it.
            let _ = writeln!(io::stderr(), "no thread for the log: {error}");
        }
        log
    }

    /// Waits until all lines are written, [`END_WAIT`] at most.
    pub fn finish(&self) {
        let mut waiting = self.0.waiting.lock();
        let busy = |w: &mut Waiting| w.writing || !w.text.is_empty();
        self.0.changed.wait_while_for(&mut waiting, busy, END_WAIT);
    }
}

/// Takes whole lines; never waits for the disk and never fails.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting.lock();
        if waiting.text.len() + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
        } else {
            waiting.text.extend_from_slice(line);
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Queue {
    /// Gives lines to `sink` as they come.
    fn write_all_to(&self, mut sink: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut lost = 0;
        loop {
            let (text, dropped) = self.take();
            lost += dropped;
            if lost > 0 && sink(lost_lines(lost).as_bytes()).is_ok() {
                lost = 0;
            }
            if sink(&text).is_err() {
                lost += text.iter().filter(|byte| **byte == b'\n').count() as u64;
            }
            self.waiting.lock().writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits for lines and takes them out, with the number of lines that found the queue full.
    fn take(&self) -> (Vec<u8>, u64) {
        let mut waiting = self.waiting.lock();
        self.changed
            .wait_while(&mut waiting, |waiting| waiting.text.is_empty());
        waiting.writing = true;
        (
            std::mem::take(&mut waiting.text),
            std::mem::take(&mut waiting.lost),
        )
    }
}

fn lost_lines(lines: u64) -> String {
    format!("\n{lines} lines could not be written here\n")
}

/// Standard error, and how much was written to it.
struct File {
    place: PathBuf,
    written: u64,
}

impl File {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.written > LOG_BYTES_MAX {
            // A log that cannot be put aside goes on as it is, and is tried again later.
            self.written = 0;
            let _ = self.put_aside();
        }
        io::stderr().write_all(text)?;
        self.written += text.len() as u64;
        Ok(())
    }

    fn put_aside(&mut self) -> io::Result<()> {
        std::fs::rename(&self.place, self.place.with_extension("log.1"))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let new = rustix::fs::open(&self.place, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::stdio::dup2_stderr(&new)?;
        self.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink whose disk is full as long as `full` is set, and what it took.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(bool, Vec<u8>)>>);

    impl Disk {
        fn log(&self) -> Log {
            let disk = self.clone();
            Log::new(move |text| {
                let mut disk = disk.0.lock();
                if disk.0 {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                disk.1.extend_from_slice(text);
                Ok(())
            })
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().1.clone()).unwrap()
        }
    }

    #[test]
    fn what_is_logged_is_told_by_level_and_part() {
        let logs = |text: Option<&str>, target: &str, level| {
            filter(text.map(str::to_owned)).would_enable(target, &level)
        };
        for text in [None, Some("engine=loud"), Some("info")] {
            assert!(logs(text, "engine::gc", tracing::Level::INFO), "{text:?}");
            assert!(!logs(text, "engine::gc", tracing::Level::DEBUG), "{text:?}");
        }
        assert!(logs(Some("debug"), "objstore", tracing::Level::DEBUG));
        let parts = Some("warn,engine=trace");
        assert!(logs(parts, "engine::gc", tracing::Level::TRACE));
        assert!(!logs(parts, "objstore", tracing::Level::INFO));
    }

    #[test]
    fn a_full_disk_costs_lines_and_ends_nothing() {
        let disk = Disk::default();
        let mut log = disk.log();
        disk.0.lock().0 = true;
        for _ in 0..3 {
            log.write_all(b"lost\n").unwrap();
            log.finish();
        }
        disk.0.lock().0 = false;
        log.write_all(b"kept\n").unwrap();
        log.finish();
        assert_eq!(disk.text(), format!("{}kept\n", lost_lines(3)));
    }

    #[test]
    fn a_disk_that_hangs_delays_nobody_and_the_queue_is_bounded() {
        let disk = Disk::default();
        let mut log = disk.log();
        let line = vec![b'\n'; WAITING_BYTES_MAX / 4];
        let hang = disk.0.lock();
        for _ in 0..100 {
            log.write_all(&line).unwrap();
            assert!(log.0.waiting.lock().text.len() <= WAITING_BYTES_MAX);
        }
        drop(hang);
        for _ in 0..60 {
            log.finish();
        }
        log.write_all(b"kept\n").unwrap();
        for _ in 0..60 {
            log.finish();
        }
        let text = disk.text();
        assert!(text.contains("lines could not be written") && text.ends_with("kept\n"));
    }
}
