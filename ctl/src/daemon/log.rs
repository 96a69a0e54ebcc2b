//! The daemon's log: standard error, which whoever started the daemon opened on `<home>/daemon.log`.
//!
//! A log that has grown long is put aside as `daemon.log.1` and begun anew, so that both together are
//! bounded; what is written to standard error past the logger (a panic) goes to the new one, too.

use crate::home::{Home, process_env};
use rustix::fs::{Mode, OFlags};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;

/// A log longer than this is put aside.
pub const LOG_BYTES_MAX: u64 = 8 << 20;

/// Variables that set what is logged, in the syntax of tracing's `EnvFilter`; the first one counts.
const VARIABLES: [&str; 2] = ["AGENTVFS_LOG", "RUST_LOG"];

/// Starts logging.
pub fn start(home: &Home) {
    let wanted = VARIABLES.into_iter().find_map(process_env);
    let filter = wanted
        .and_then(|text| text.into_string().ok())
        .and_then(|text| tracing_subscriber::EnvFilter::try_new(text).ok());
    let filter = filter.unwrap_or_else(|| tracing_subscriber::EnvFilter::new("info"));
    let place = home.log();
    let written = place.metadata().map_or(0, |meta| meta.len());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Mutex::new(Log { place, written }));
    // Only one logger can be set; a second attempt would mean that there is one already.
    let _ = log.try_init();
}

/// Standard error, and how much was written to it.
struct Log {
    place: PathBuf,
    written: u64,
}

impl Log {
    fn put_aside(&mut self) -> io::Result<()> {
        std::fs::rename(&self.place, self.place.with_extension("log.1"))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let new = rustix::fs::open(&self.place, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::stdio::dup2_stderr(&new)?;
        self.written = 0;
        Ok(())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.written > LOG_BYTES_MAX {
            // A log that cannot be put aside goes on as it is, and is tried again later.
            self.written = 0;
            let _ = self.put_aside();
        }
        let n = io::stderr().write(bytes)?;
        self.written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
