//! One hook: an agent has begun or ended something, and says so as JSON.
//!
//! Tool calls become calls of the timeline, each under a key `AGENT:SESSION:ID` that the daemon keeps while the call
//! runs, so that nothing is remembered here between a call's beginning and its end. Prompts and ends of turns become
//! automatic commits with metadata. What cannot be noted has a line in `hooks.log` of the agentvfs home.
//!
//! Tests: beside the parts; `tests/tests/agent_hooks.rs` (all events of all agents, a daemon that is gone or hangs).

mod event;
mod log;
mod note;
mod place;
mod refusal;

use agentvfs_client::home::Home;
use agentvfs_client::protocol::Bytes;
use event::Told;
use serde_json::Value;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long an agent waits at most.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Longest input that is read; of a longer one nothing is noted.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Longest name of an agent, in bytes.
const AGENT_BYTES_MAX: usize = 32;

/// Where a hook was called.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Directories that an agent may mean if its own words name none: its project, the current one.
    pub dirs: Vec<PathBuf>,
    /// In a sandbox of `agentvfs run`: the workspace and branch that this shows.
    pub run: Option<(String, String)>,
}

/// Notes what an agent says on `input`; gives what it is to be told, which may be nothing. Takes [`DEADLINE`] at most:
/// what takes longer goes on in a thread of its own, until the process ends.
pub fn hear(
    agent: &str,
    home: Home,
    surroundings: Surroundings,
    input: impl Read + Send + 'static,
) -> String {
    let deadline = Instant::now() + DEADLINE;
    let (sender, receiver) = mpsc::channel();
    let (name, at) = (agent.to_owned(), home.clone());
    let hearing = move || {
        let noted = hear_within(&name, &at, &surroundings, (input, deadline));
        // Nobody listens any more where it took too long.
        let _ = sender.send(noted);
    };
    if let Err(error) = std::thread::Builder::new().spawn(hearing) {
        log::note(&home, agent, &format!("no thread can be started: {error}"));
        return String::new();
    }
    let left = deadline.saturating_duration_since(Instant::now());
    match receiver.recv_timeout(left) {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => {
            log::note(&home, agent, &why);
            String::new()
        }
        Err(_) => {
            let why = format!("not done within {} s", DEADLINE.as_secs());
            log::note(&home, agent, &why);
            String::new()
        }
    }
}

/// The same without a limit; what goes wrong is the error.
fn hear_within(
    agent: &str,
    home: &Home,
    surroundings: &Surroundings,
    (input, deadline): (impl Read, Instant),
) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if agent.is_empty() || agent.len() > AGENT_BYTES_MAX || !agent.chars().all(is_name) {
        return Err("an agent's name has at most 32 letters, digits, - and _".to_owned());
    }
    let input = read(input)?;
    let value: Value =
        serde_json::from_slice(&input).map_err(|e| format!("the input is not JSON: {e}"))?;
    let Some(told) = Told::of(agent, value)? else {
        return Ok(String::new());
    };
    match place::find(home, surroundings, &told.dirs) {
        Some(place) => note::note(home, &place, told, deadline),
        None => Ok(String::new()),
    }
}

/// All of the input, so that the agent's own writing never fails.
fn read(input: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut input = input.take(INPUT_BYTES_MAX);
    let failed = |e: io::Error| format!("the input cannot be read: {e}");
    input.read_to_end(&mut bytes).map_err(failed)?;
    let more = io::copy(&mut input.into_inner(), &mut io::sink()).map_err(failed)?;
    match more {
        0 => Ok(bytes),
        _ => Err(format!("the input is longer than {INPUT_BYTES_MAX} bytes")),
    }
}

/// A path of the protocol.
fn path_of(bytes: &Bytes) -> PathBuf {
    bytes.path().to_owned()
}
