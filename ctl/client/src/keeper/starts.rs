//! The keeper's starting of daemons, and how many of them may die.
//!
//! A start has a number. Invariant: the end of a started daemon counts only while no other one was started or has joined
//! since.

use super::VARIABLE;
use crate::home::{Home, process_env};
use crate::launch::{Launch, Program, connect_or_start_in};
use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Daemons that may end unasked within [`CRASHES_WITHIN`]; after that no other one is started. The environment may
/// say another number ([`VARIABLE`]).
const CRASHES_MAX: usize = 5;

/// See [`CRASHES_MAX`].
const CRASHES_WITHIN: Duration = Duration::from_secs(60);

/// Daemons that ended unasked.
pub struct Crashes {
    at: VecDeque<Instant>,
    max: usize,
}

impl Crashes {
    /// None yet.
    pub fn new() -> Crashes {
        let said = process_env(VARIABLE);
        let said = said.and_then(|said| said.to_str()?.parse().ok());
        Crashes {
            at: VecDeque::new(),
            max: said.unwrap_or(CRASHES_MAX),
        }
    }

    /// Counts one more; gives how many there were lately, where those are too many.
    pub fn too_many(&mut self, now: Instant) -> Option<usize> {
        self.at
            .retain(|at| now.duration_since(*at) < CRASHES_WITHIN);
        self.at.push_back(now);
        (self.at.len() > self.max).then_some(self.at.len())
    }
}

/// Daemons of a home that were started.
pub struct Starts {
    home: Home,
    /// Number of the last start of a daemon that has not joined.
    last: u64,
    /// By which threads say that the daemon of a start has ended, with that number.
    ended: (UnixStream, UnixStream),
}

impl Starts {
    /// None yet.
    pub fn new(home: &Home) -> Result<Starts> {
        Ok(Starts {
            home: home.clone(),
            last: 0,
            ended: UnixStream::pair()?,
        })
    }

    /// Has something to read when a daemon that was started has ended ([`Starts::take_end`]).
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.0.as_fd()
    }

    /// A daemon has joined: the end of those that were started before does not count.
    pub fn joined(&mut self) {
        self.last += 1;
    }

    /// Takes the end of a daemon; true where it is the last one and has not joined.
    pub fn take_end(&mut self) -> Result<bool> {
        let mut number = [0; 8];
        self.ended.0.read_exact(&mut number)?;
        Ok(u64::from_ne_bytes(number) == self.last)
    }

    /// Starts a daemon, in a thread that says when it has ended: it may have to wait for one that a command starts.
    pub fn start(&mut self, program: &Path) {
        self.last += 1;
        let (home, program) = (self.home.clone(), Program::At(program.to_owned()));
        let (number, ended) = (self.last, self.ended.1.try_clone());
        let start = move || {
            let (mut started, verbose) = (Vec::new(), false);
            let launch = Launch { program, verbose };
            if let Err(failure) = connect_or_start_in(&home, &launch, &mut started) {
                tracing::error!("the daemon cannot be started: {}", failure.why);
            }
            let is_some = !started.is_empty();
            for mut process in started {
                // It is a child that nobody else waits for.
                let _ = process.wait();
            }
            // Another process's daemon joins, or is missed after a time.
            if let (true, Ok(mut ended)) = (is_some, ended) {
                // If it cannot be told, the daemon is not waited for for ever.
                let _ = ended.write_all(&number.to_ne_bytes());
            }
        };
        let spawned = std::thread::Builder::new()
            .name("start".into())
            .spawn(start);
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread can be started");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashes_count_for_a_minute() {
        let mut crashes = Crashes {
            at: VecDeque::new(),
            max: 2,
        };
        let now = Instant::now();
        let mut at = |seconds| crashes.too_many(now + Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(2)], [None, None, Some(3)]);
        assert_eq!([at(61), at(63)], [None, None]);
        assert_eq!(at(64), Some(3));
    }
}
