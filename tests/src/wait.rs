//! Waiting for conditions, with a deadline instead of a guess.

use std::time::{Duration, Instant};

/// How long a condition may take to come true on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Returns once `condition` holds; panics where it does not in time.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(
            since.elapsed() < DEADLINE,
            "{what}: not within {DEADLINE:?}"
        );
        std::thread::sleep(PAUSE);
    }
}

/// Lets the load under test run for a while; for nothing that could be waited for.
pub fn let_run(time: Duration) {
    std::thread::sleep(time);
}
