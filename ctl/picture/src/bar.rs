//! A progress bar that appears when something takes long, on a terminal.
//!
//! While it is not known how far the work is, the time that it has taken is shown. What is shown fits into one line and
//! leaves room at its end, where a terminal echoes an interrupt as `^C`; in the last column that would begin a new
//! line, and leave this one as it is. Invariant: once a [`Bar`] is dropped its thread has ended and nothing of it is left
//! on the terminal. Tests: `tests/tests/cli_progress.rs`, and below.

use indicatif::{
    HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle,
    TermLike,
};
use std::io::{self, IsTerminal, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long something takes before a progress bar is shown for it.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Pause between two pictures of what is not counted.
const TICK: Duration = Duration::from_millis(100);

/// Pictures in a second at most.
const HZ_MAX: u8 = 20;

/// Columns at the end of a line that nothing is drawn in: as many as `^C` takes, and one.
const COLUMNS_FREE: u16 = 3;

/// Columns of a bar that shows more than none.
const BAR_COLUMNS_MIN: usize = 4;

/// What a bar says: what is done, how much of it, and as much of the rest as there is room for.
const TEMPLATE: &str = "{msg} {wide_bar} {told}";

/// What is said while nothing is counted.
const UNCOUNTED: &str = "{spinner} {msg}, {elapsed}";

/// A progress bar that appears when something takes long, on a terminal.
pub struct Bar {
    shared: Option<Arc<Shared>>,
    thread: Option<JoinHandle<()>>,
}

/// How bars are drawn.
#[derive(Clone, Copy, Debug)]
pub struct BarStyle {
    /// With characters beyond ASCII.
    pub unicode: bool,
    /// Columns that the terminal has now.
    pub columns: fn() -> u16,
    /// What is counted is bytes.
    pub bytes: bool,
}

struct Shared {
    what: &'static str,
    style: BarStyle,
    since: Instant,
    shown: Mutex<Shown>,
    changed: Condvar,
}

/// When counting began, and how far the work was then.
#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    done: u64,
}

#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    /// It is known how far the work is.
    counted: bool,
    /// When counting began, and how far the work was then.
    begun: Option<Begun>,
    over: bool,
}

impl Bar {
    /// Nothing is shown yet.
    pub fn new(what: &'static str, style: BarStyle) -> Bar {
        if !Bar::is_wanted() {
            return Bar::hidden();
        }
        let shared = Arc::new(Shared {
            what,
            style,
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

    /// Shows how far the work is; of no `total`, that this is not known, or not any more.
    pub fn set(&mut self, done: u64, total: u64) {
        if let Some(shared) = &self.shared {
            shared.set(done, total);
        }
    }

    /// Has something printed in lines of its own; the bar is drawn again below them.
    pub fn suspend(&self, print: impl FnOnce()) {
        match &self.shared {
            Some(shared) => shared.suspend(print),
            None => print(),
        }
    }

    /// What ends the bar from another thread.
    pub fn ending(&self) -> BarEnding {
        BarEnding(self.shared.clone())
    }
}

/// Ends a bar from another thread than the one that has it.
pub struct BarEnding(Option<Arc<Shared>>);

impl BarEnding {
    /// Takes it off the terminal; it does not come again.
    pub fn end(&self) {
        if let Some(shared) = &self.0 {
            shared.end();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let Some(shared) = &self.shared else { return };
        shared.end();
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
        let mut shown = self.lock();
        if total > 0 && shown.begun.is_none_or(|begun| done < begun.done) {
            let at = Instant::now();
            shown.begun = Some(Begun { at, done });
        }
        if shown.over || self.since.elapsed() < PROGRESS_AFTER {
            return;
        }
        if shown.counted != (total > 0) {
            shown.counted = total > 0;
            if let Some(bar) = shown.bar.take() {
                bar.finish_and_clear();
            }
            self.changed.notify_all();
        }
        let Some(begun) = shown.begun.filter(|_| total > 0) else {
            shown.begun = None;
            return;
        };
        let bar = shown
            .bar
            .get_or_insert_with(|| counted(self.what, self.style, begun, total));
        bar.set_length(total);
        bar.set_position(done);
    }

    fn end(&self) {
        let mut shown = self.lock();
        shown.over = true;
        if let Some(bar) = shown.bar.take() {
            bar.finish_and_clear();
        }
        drop(shown);
        self.changed.notify_all();
    }

    fn suspend(&self, print: impl FnOnce()) {
        // Nothing is drawn while this is locked.
        let shown = self.lock();
        match &shown.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Shows the time while the work is not counted, until it is over.
    fn wait(&self) {
        let mut shown = self.lock();
        let mut pause = PROGRESS_AFTER;
        while !shown.over {
            if shown.counted {
                let waited = self.changed.wait(shown);
                shown = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(shown, pause);
            shown = waited.unwrap_or_else(PoisonError::into_inner).0;
            if shown.over || shown.counted || self.since.elapsed() < PROGRESS_AFTER {
                continue;
            }
            pause = TICK;
            let bar = shown
                .bar
                .get_or_insert_with(|| uncounted(self.what, self.style, self.since));
            bar.tick();
        }
    }
}

fn counted(what: &'static str, look: BarStyle, begun: Begun, total: u64) -> ProgressBar {
    // Nothing is drawn before all of it is known.
    let bar = drawn(look, begun.at, Some(total)).with_message(what);
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        let marks = if look.unicode {
            "█▉▊▋▌▍▎▏ "
        } else {
            "#>-"
        };
        let told = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let total = state.len().unwrap_or_default();
            let far = Far::new(begun.done, state.pos(), total, begun.at.elapsed());
            let room = usize::from(room(look)).saturating_sub(what.len() + 2);
            // Where it cannot be written, there is nobody to see it.
            let _ = out.write_str(&far.told(look.bytes, room));
        };
        let style = style.with_key("told", told);
        return bar.with_style(style.progress_chars(marks));
    }
    bar
}

/// How far work is.
struct Far {
    done: u64,
    total: u64,
    /// The rate, and the time left at that rate, once anything was done.
    rate: Option<(u64, Duration)>,
}

impl Far {
    /// At the rate that the work had since it was as far as `from`, `took` ago.
    fn new(from: u64, done: u64, total: u64, took: Duration) -> Far {
        let since = done.saturating_sub(from) as f64;
        let rate = since / took.as_secs_f64().max(1e-3);
        let left = total.saturating_sub(done) as f64 / rate;
        Far {
            done,
            total,
            rate: (since > 0.0).then(|| (rate as u64, Duration::from_secs(left as u64))),
        }
    }

    /// As much of it as there is room for beside a bar, or without one.
    fn told(&self, bytes: bool, columns: usize) -> String {
        let amount = |number: u64| match bytes {
            true => human_bytes(number),
            false => human_count(number),
        };
        let done = format!("{}/{}", amount(self.done), amount(self.total));
        let percent = 100 * u128::from(self.done) / u128::from(self.total.max(1));
        let mut all = Vec::new();
        if let Some((per_second, left)) = self.rate {
            let left = format!("{:#} left", HumanDuration(left));
            all.push(format!("{done} {}/s {left}", amount(per_second)));
            all.push(format!("{done} {left}"));
        }
        all.extend([done, format!("{percent}%")]);
        let mut shorter = all.into_iter();
        let fits = |text: &String| text.len() + BAR_COLUMNS_MIN <= columns;
        shorter.find(fits).unwrap_or_default()
    }
}

fn uncounted(what: &'static str, look: BarStyle, since: Instant) -> ProgressBar {
    let bar = drawn(look, since, None).with_message(what);
    if let Ok(style) = ProgressStyle::with_template(UNCOUNTED) {
        let marks = if look.unicode {
            "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "
        } else {
            "-\\|/ "
        };
        return bar.with_style(style.tick_chars(marks));
    }
    bar
}

/// The time counts from the beginning, not from when the bar appeared.
fn drawn(look: BarStyle, since: Instant, total: Option<u64>) -> ProgressBar {
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(Line(look)), HZ_MAX);
    ProgressBar::with_draw_target(total, target).with_elapsed(since.elapsed())
}

/// Columns that are drawn in.
fn room(look: BarStyle) -> u16 {
    (look.columns)().saturating_sub(COLUMNS_FREE).max(1)
}

/// The line of a terminal that a bar is drawn on, but for its end.
#[derive(Debug)]
struct Line(BarStyle);

impl Line {
    fn put(&self, text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    /// Moves the cursor; the terminal takes none for one.
    fn go(&self, cells: usize, way: char) -> io::Result<()> {
        match cells {
            0 => Ok(()),
            cells => self.put(&format!("\x1b[{cells}{way}")),
        }
    }
}

impl TermLike for Line {
    fn width(&self) -> u16 {
        room(self.0)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.go(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.put(&format!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.put(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// `bytes` for people.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// `number` for people, its digits in groups of three.
pub fn human_count(number: u64) -> String {
    HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_since_counting_began() {
        let far = Far::new(1000, 3000, 9000, Duration::from_secs(4));
        let all = (far.done, far.total, far.rate);
        assert_eq!(all, (3000, 9000, Some((500, Duration::from_secs(12)))));
        // Nothing was done yet, so that there is no rate; or all.
        let none = Far::new(5, 5, 9, Duration::ZERO);
        assert_eq!((none.rate, &*none.told(false, 80)), (None, "5/9"));
        let over = Far::new(0, 9, 9, Duration::from_secs(1));
        assert_eq!(over.rate, Some((9, Duration::ZERO)));
    }

    #[test]
    fn what_a_bar_says_fits_and_leaves_out_what_matters_least() {
        let far = Far {
            done: 5_842_299,
            total: 7_183_757,
            rate: Some((103_633_968, Duration::from_secs(4))),
        };
        let told = |columns| far.told(false, columns);
        assert_eq!(told(80), "5,842,299/7,183,757 103,633,968/s 4s left");
        assert_eq!(told(40), "5,842,299/7,183,757 4s left");
        assert_eq!(told(27), "5,842,299/7,183,757");
        assert_eq!((told(10), told(3)), ("81%".into(), String::new()));
        let bytes = far.told(true, 80);
        assert_eq!(bytes, "5.57 MiB/6.85 MiB 98.83 MiB/s 4s left");
        for columns in 0..100 {
            assert!(told(columns).len() <= columns);
        }
    }
}
