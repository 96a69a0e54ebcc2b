//! Events as lines of JSON.

use super::super::request::Watch;
use agentvfs_client::protocol::{Device, EventExtra, EventLine, Fault, LOST};
use agentvfs_client::quote::base64;
use engine::feed::{FeedEvent, Lost};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines that were not sent yet.
pub struct Lines<'a> {
    workspace: &'a str,
    dev: u64,
    /// Whether the subscriber is in no sandbox. One in a sandbox is not told how many events it does not get, for others'
    /// are among them, nor ids of processes, which have other ones there.
    is_outside: bool,
    /// The lines.
    pub bytes: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// None yet.
    pub fn new(workspace: &'a str, device: Option<Device>, is_outside: bool) -> Lines<'a> {
        let dev = device.map_or(0, |device| rustix::fs::makedev(device.major, device.minor));
        Lines {
            workspace,
            dev,
            is_outside,
            bytes: Vec::new(),
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &FeedEvent) {
        let number = u64::from(event.branch_number);
        let line = EventLine {
            ts: event.time_ns,
            session_id: number,
            branch_id: number,
            policy_version: 0,
            op: event.op.word().to_owned(),
            verdict: "allow".to_owned(),
            dev: self.dev,
            ino: event.ino,
            i_generation: 0,
            path: text(&event.path),
            pid: if self.is_outside { event.who.pid } else { 0 },
            uid: event.who.uid,
            gid: event.who.gid,
            bytes: event.bytes,
            latency_ns: event.latency_ns,
            backend: event.who.backend.word().to_owned(),
            extra: EventExtra {
                seq: event.seq.to_string(),
                workspace: self.workspace.to_owned(),
                branch: event.branch.to_string(),
                call: event.call.map(|call| call.to_string()).unwrap_or_default(),
                comm: event.who.comm.to_string(),
                path2: text(&event.path2),
                result: "ok".to_owned(),
                path_b64: in_base64(&event.path),
                path2_b64: in_base64(&event.path2),
                count: String::new(),
                detail: event.detail.clone(),
            },
        };
        self.push(&line);
    }

    /// Adds what says that events are missing, the last of which has the number `seq`.
    pub fn add_lost(&mut self, lost: Lost, seq: u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let count = match lost {
            Lost::Count(count) if self.is_outside => count.to_string(),
            Lost::Count(_) | Lost::Unknown => String::new(),
        };
        let line = EventLine {
            ts: u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX),
            op: LOST.to_owned(),
            verdict: "allow".to_owned(),
            dev: self.dev,
            backend: "engine".to_owned(),
            extra: EventExtra {
                seq: seq.to_string(),
                workspace: self.workspace.to_owned(),
                count,
                ..EventExtra::default()
            },
            ..EventLine::default()
        };
        self.push(&line);
    }

    fn push(&mut self, line: &EventLine) {
        // Writing numbers and texts to memory cannot fail.
        if serde_json::to_writer(&mut self.bytes, line).is_ok() {
            self.bytes.push(b'\n');
        }
    }

    /// Sends what there is.
    pub fn send(&mut self, watch: &Watch<'_>) -> Result<(), Fault> {
        if !self.bytes.is_empty() && !(watch.data)(&self.bytes) {
            return Err(super::unread(self.workspace));
        }
        self.bytes.clear();
        Ok(())
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Of what is no text.
fn in_base64(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(_) => String::new(),
        Err(_) => base64(path),
    }
}
