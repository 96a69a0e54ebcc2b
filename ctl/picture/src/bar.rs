//! A progress bar that appears when something takes long, on a terminal.

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// How long something takes before a progress bar is shown for it.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// What a bar says: what is done, how much of it, how much a second, and how long the rest takes.
const TEMPLATE: &str = "{msg} {wide_bar} {human_pos}/{human_len} {rate}/s {eta} left";

/// A progress bar that appears when something takes long, on a terminal.
pub struct Bar {
    what: &'static str,
    unicode: bool,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Nothing is shown yet. `unicode`: with characters beyond ASCII.
    pub fn new(what: &'static str, unicode: bool) -> Bar {
        Bar {
            what,
            unicode,
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
        if !Bar::is_wanted() || total == 0 || self.since.elapsed() < PROGRESS_AFTER {
            return;
        }
        let bar = self
            .bar
            .get_or_insert_with(|| new_bar(self.what, self.unicode, self.since));
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

fn new_bar(what: &'static str, unicode: bool, since: Instant) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The rate counts from the beginning, not from when the bar appeared.
    let bar = bar.with_elapsed(since.elapsed());
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

/// `bytes` for people.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// `number` for people, its digits in groups of three.
pub fn human_count(number: u64) -> String {
    HumanCount(number).to_string()
}
