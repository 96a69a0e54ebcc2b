//! Events as lines of JSON (docs/events.md), for those who subscribe and for files.

use agentvfs_client::protocol::{Device, EventExtra, EventLine, LOST};
use agentvfs_client::quote::base64;
use engine::feed::{Batch, Detail, FeedEvent, Follower, Lost, Sentence};
use serde::Serialize;
use std::borrow::Cow;
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
        // What there is is not copied: most of the time that a follower costs is that of these lines.
        let line: EventLine<Cow<'_, str>> = EventLine {
            ts: event.time_ns,
            session_id: number,
            branch_id: number,
            policy_version: event.policy_version,
            op: event.op.word().into(),
            verdict: event.sentence.word().into(),
            dev: self.dev,
            ino: event.ino,
            i_generation: 0,
            path: text(&event.path),
            pid: if self.is_outside { event.who.pid } else { 0 },
            uid: event.who.uid,
            gid: event.who.gid,
            bytes: event.bytes,
            latency_ns: event.latency_ns,
            backend: event.who.backend.word().into(),
            extra: EventExtra {
                seq: event.seq.to_string().into(),
                workspace: self.workspace.into(),
                branch: (&*event.branch).into(),
                call: event.call.map_or(Cow::default(), |c| c.to_string().into()),
                comm: (&*event.who.comm).into(),
                path2: text(&event.path2),
                result: result(event.sentence).into(),
                path_b64: in_base64(&event.path),
                path2_b64: in_base64(&event.path2),
                count: match event.count {
                    count @ 1.. if self.is_outside => count.to_string().into(),
                    _ => Cow::default(),
                },
                detail: detail(&event.detail),
            },
        };
        push(&mut self.bytes, &line);
    }

    /// Adds what says that events are missing before those of a batch.
    pub fn add_lost(&mut self, lost: Lost, batch: &Batch, follower: &Follower) {
        let next = batch.events.first().map(|event| event.seq);
        let seq = next.map_or(follower.seen(), |next| next.saturating_sub(1));
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let count = match lost {
            Lost::Count(count) if self.is_outside => count.to_string(),
            Lost::Count(_) | Lost::Unknown => String::new(),
        };
        let line: EventLine = EventLine {
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
        push(&mut self.bytes, &line);
    }
}

fn push(bytes: &mut Vec<u8>, line: &impl Serialize) {
    // Writing numbers and texts to memory cannot fail.
    if serde_json::to_writer(&mut *bytes, line).is_ok() {
        bytes.push(b'\n');
    }
}

fn result(sentence: Sentence) -> &'static str {
    match sentence {
        Sentence::Deny(_) => "denied",
        _ => "ok",
    }
}

fn text(path: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(path)
}

/// Of what is no text.
fn in_base64(path: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(path) {
        Ok(_) => Cow::default(),
        Err(_) => base64(path).into(),
    }
}

fn detail(detail: &Detail) -> Cow<'_, str> {
    match (detail.offset, detail.size) {
        (None, None) => Cow::Borrowed(&detail.words),
        _ => detail.to_string().into(),
    }
}
