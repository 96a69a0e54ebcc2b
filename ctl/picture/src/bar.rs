//! A progress bar that appears when something takes long, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// How long something takes before a progress bar is shown for it.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// A progress bar that appears when something takes long, on a terminal.
pub struct Bar {
    what: &'static str,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Nothing is shown yet.
    pub fn new(what: &'static str) -> Bar {
        Bar {
            what,
            since: Instant::now(),
            bar: None,
        }
    }

    /// Whether it would be seen at all.
    pub fn is_wanted() -> bool {
        io::stderr().is_terminal()
    }

    /// Shows how far the work is.
    pub fn set(&mut self, done: u64, total: u64) {
        if !Bar::is_wanted() || self.since.elapsed() < PROGRESS_AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| new_bar(self.what));
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// `bytes` for people.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// `number` for people, its digits in groups of three.
pub fn human_count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}
