//! A progress bar that appears when something takes long, on a terminal.
//!
//! Until it is known how far the work is, the time that it has taken is shown. Invariant: once a [`Bar`] is dropped
//! its thread has ended and nothing of it is left on the terminal.

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long something takes before a progress bar is shown for it.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Pause between two pictures of what is not counted.
const TICK: Duration = Duration::from_millis(100);

/// What a bar says: what is done, how much of it, how much a second, and how long the rest takes.
const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len} {rate}/s {eta} left";

/// What is said while nothing is counted.
const UNCOUNTED: &str = "{spinner} {msg}, {elapsed}";

/// A progress bar that appears when something takes long, on a terminal.
pub struct Bar {
    shared: Option<Arc<Shared>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    what: &'static str,
    unicode: bool,
    since: Instant,
    shown: Mutex<Shown>,
    changed: Condvar,
}

#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    /// It is known how far the work is.
    counted: bool,
    over: bool,
}

impl Bar {
    /// Nothing is shown yet. `unicode`: with characters beyond ASCII.
    pub fn new(what: &'static str, unicode: bool) -> Bar {
        if !Bar::is_wanted() {
            return Bar::hidden();
        }
        let shared = Arc::new(Shared {
            what,
            unicode,
            since: Instant::now(),
            shown: Mutex::default(),
            changed: Condvar::new(),
        });
        let work = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("progress".into());
        Bar {
            shared: Some(shared),
            // Without a thread, only what is counted is shown.
            thread: thread.spawn(move || work.wait()).ok(),
        }
    }

    /// One that is never shown: on a terminal that cannot draw.
    pub fn hidden() -> Bar {
        Bar {
            shared: None,
            thread: None,
        }
    }

    /// Whether it would be seen at all.
    pub fn is_wanted() -> bool {
        io::stderr().is_terminal()
    }

    /// Shows how far the work is.
    pub fn set(&mut self, done: u64, total: u64) {
        if let Some(shared) = &self.shared {
            shared.set(done, total);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        let mut shown = shared.lock();
        shown.over = true;
        if let Some(bar) = shown.bar.take() {
            bar.finish_and_clear();
        }
        drop(shown);
        shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could fail.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, done: u64, total: u64) {
        if total == 0 || self.since.elapsed() < PROGRESS_AFTER {
            return;
        }
        let mut shown = self.lock();
        if !shown.counted {
            shown.counted = true;
            if let Some(bar) = shown.bar.take() {
                bar.finish_and_clear();
            }
        }
        let bar = shown
            .bar
            .get_or_insert_with(|| counted(self.what, self.unicode, self.since));
        bar.set_length(total);
        bar.set_position(done);
    }

    /// Shows the time until the work is counted or over.
    fn wait(&self) {
        let mut shown = self.lock();
        let mut pause = PROGRESS_AFTER;
        while !shown.over && !shown.counted {
            let waited = self.changed.wait_timeout(shown, pause);
            shown = waited.unwrap_or_else(PoisonError::into_inner).0;
            if shown.over || shown.counted || self.since.elapsed() < PROGRESS_AFTER {
                continue;
            }
            pause = TICK;
            let bar = shown
                .bar
                .get_or_insert_with(|| uncounted(self.what, self.unicode, self.since));
            bar.tick();
        }
    }
}

fn counted(what: &'static str, unicode: bool, since: Instant) -> ProgressBar {
    let bar = drawn(since);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        let marks = if unicode {
            "█▉▊▋▌▍▎▏ "
        } else {
            "#>-"
        };
        let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            // Where it cannot be written, there is nobody to see it.
            let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
        });
        bar.set_style(style.progress_chars(marks));
    }
    bar.set_message(what);
    bar
}

fn uncounted(what: &'static str, unicode: bool, since: Instant) -> ProgressBar {
    let bar = drawn(since);
    if let Ok(style) = ProgressStyle::with_template(UNCOUNTED) {
        let marks = if unicode {
            "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "
        } else {
            "-\\|/ "
        };
        bar.set_style(style.tick_chars(marks));
    }
    bar.set_message(what);
    bar
}

/// The rate and the time count from the beginning, not from when the bar appeared.
fn drawn(since: Instant) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.with_elapsed(since.elapsed())
}

/// `bytes` for people.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// `number` for people, its digits in groups of three.
pub fn human_count(number: u64) -> String {
    HumanCount(number).to_string()
}
