//! Events as lines of JSON (docs/events.md), for those who subscribe and for files.
//!
//! They are most of what a follower costs, so the keys are pieces of text that are there already, and what follows them is
//! written behind them, without a copy. Invariant: a line is what serde makes of an [`EventLine`], byte for byte.

use agentvfs_client::protocol::{Device, EventExtra, EventLine, LOST};
use agentvfs_client::quote::base64;
use engine::feed::{Batch, Follower, Lost, Sentence, Told};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines that were not sent yet.
pub struct Lines {
    workspace: String,
    /// Its name as a value of JSON.
    workspace_json: Vec<u8>,
    dev: u64,
    /// Whether the subscriber is in no sandbox. One in a sandbox is not told how many events it does not get, for others'
    /// are among them, nor ids of processes, which have other ones there.
    is_outside: bool,
    /// The lines.
    pub bytes: Vec<u8>,
}

impl Lines {
    /// None yet.
    pub fn new(workspace: &str, device: Option<Device>, is_outside: bool) -> Lines {
        let dev = device.map_or(0, |device| rustix::fs::makedev(device.major, device.minor));
        let mut workspace_json = Vec::new();
        push_text(&mut workspace_json, workspace.as_bytes());
        Lines {
            workspace: workspace.to_owned(),
            workspace_json,
            dev,
            is_outside,
            bytes: Vec::new(),
        }
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Told<'_>) {
        let number = u64::from(event.branch_number);
        let pid = if self.is_outside { event.who.pid } else { 0 };
        let out = &mut self.bytes;
        out.reserve(512 + event.path.len() + event.path2.len());
        push_number(out, b"{\"ts\":", event.time_ns);
        push_number(out, b",\"session_id\":", number);
        push_number(out, b",\"branch_id\":", number);
        push_number(out, b",\"policy_version\":", event.policy_version);
        push_word(out, b",\"op\":\"", event.op.word());
        push_word(out, b"\",\"verdict\":\"", event.sentence.word());
        push_number(out, b"\",\"dev\":", self.dev);
        push_number(out, b",\"ino\":", event.ino);
        out.extend_from_slice(b",\"i_generation\":0,\"path\":");
        push_text(out, event.path);
        push_number(out, b",\"pid\":", u64::from(pid));
        push_number(out, b",\"uid\":", u64::from(event.who.uid));
        push_number(out, b",\"gid\":", u64::from(event.who.gid));
        push_number(out, b",\"bytes\":", event.bytes);
        push_number(out, b",\"latency_ns\":", event.latency_ns);
        push_word(out, b",\"backend\":\"", event.who.backend.word());
        push_number(out, b"\",\"extra\":{\"seq\":\"", event.seq);
        out.push(b'"');
        if !self.workspace.is_empty() {
            out.extend_from_slice(b",\"workspace\":");
            out.extend_from_slice(&self.workspace_json);
        }
        self.add_extra(event);
        self.bytes.extend_from_slice(b"}}\n");
    }

    /// What of `extra` there may be.
    fn add_extra(&mut self, event: &Told<'_>) {
        let out = &mut self.bytes;
        push_some(out, b",\"branch\":", event.branch.as_bytes());
        if let Some(call) = event.call {
            push_number(out, b",\"call\":\"", call);
            out.push(b'"');
        }
        push_some(out, b",\"comm\":", event.who.comm.as_bytes());
        push_some(out, b",\"path2\":", event.path2);
        push_word(out, b",\"result\":\"", result(event.sentence));
        out.push(b'"');
        push_bytes(out, b",\"path_b64\":\"", event.path);
        push_bytes(out, b",\"path2_b64\":\"", event.path2);
        if event.count > 0 && self.is_outside {
            push_number(out, b",\"count\":\"", event.count);
            out.push(b'"');
        }
        let detail = &event.detail;
        match (detail.offset, detail.size) {
            (None, None) => push_some(out, b",\"detail\":", detail.words.as_bytes()),
            (offset, size) => {
                out.extend_from_slice(b",\"detail\":");
                push_text(out, detail.words.as_bytes());
                // Numbers need no escapes, so they come before the quotation mark.
                out.pop();
                let mut between: &[u8] = if detail.words.is_empty() { b"" } else { b" " };
                for (key, value) in [(&b"offset="[..], offset), (b"size=", size)] {
                    if let Some(value) = value {
                        out.extend_from_slice(between);
                        out.extend_from_slice(key);
                        push_digits(out, value);
                        between = b" ";
                    }
                }
                out.push(b'"');
            }
        }
    }

    /// Adds what says that events are missing before those of a batch.
    pub fn add_lost(&mut self, lost: Lost, batch: &Batch, follower: &Follower) {
        let next = batch.events.iter().next().map(|event| event.seq);
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
                workspace: self.workspace.clone(),
                count,
                ..EventExtra::default()
            },
            ..EventLine::default()
        };
        // Writing numbers and texts to memory cannot fail.
        if serde_json::to_writer(&mut self.bytes, &line).is_ok() {
            self.bytes.push(b'\n');
        }
    }
}

fn result(sentence: Sentence) -> &'static str {
    match sentence {
        Sentence::Deny(_) => "denied",
        _ => "ok",
    }
}

/// Adds a key and a word that needs no escapes, which the next piece ends.
#[inline]
fn push_word<const N: usize>(out: &mut Vec<u8>, key: &[u8; N], word: &str) {
    out.extend_from_slice(key);
    out.extend_from_slice(word.as_bytes());
}

/// Adds a key and a number.
#[inline]
fn push_number<const N: usize>(out: &mut Vec<u8>, key: &[u8; N], number: u64) {
    // Its length is known here, so it is copied without a call.
    out.extend_from_slice(key);
    push_digits(out, number);
}

fn push_digits(out: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        return out.push(b'0' + number as u8);
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number >= 10 {
        let two = (number % 100) as usize;
        number /= 100;
        at -= 2;
        digits[at..at + 2].copy_from_slice(&TWO_DIGITS[two]);
    }
    if number > 0 {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

/// The numbers below 100.
const TWO_DIGITS: [[u8; 2]; 100] = {
    let mut all = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        all[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    all
};

/// Adds a key and a text, unless that is empty.
fn push_some<const N: usize>(out: &mut Vec<u8>, key: &[u8; N], text: &[u8]) {
    if !text.is_empty() {
        out.extend_from_slice(key);
        push_text(out, text);
    }
}

/// Adds a key and bytes in base64, if they are no text.
fn push_bytes<const N: usize>(out: &mut Vec<u8>, key: &[u8; N], bytes: &[u8]) {
    if !is_plain(bytes) && std::str::from_utf8(bytes).is_err() {
        push_word(out, key, &base64(bytes));
        out.push(b'"');
    }
}

/// Whether they are ASCII that stands for itself in JSON.
fn is_plain(bytes: &[u8]) -> bool {
    let is_plain = |byte: &u8| (b' '..0x80).contains(byte) && *byte != b'"' && *byte != b'\\';
    // All of them are looked at: that takes no branches.
    bytes
        .iter()
        .fold(true, |so_far, byte| so_far & is_plain(byte))
}

/// Adds a value of JSON.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    if is_plain(text) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    } else {
        // Writing a text to memory cannot fail.
        let _ = serde_json::to_writer(out, &String::from_utf8_lossy(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::feed::{FeedBackend, FeedOp, FeedWho, ToldDetail};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The event as serde is given it.
    fn line(event: &Told<'_>, workspace: &str, dev: u64, is_outside: bool) -> EventLine {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let base64_of = |path: &[u8]| match std::str::from_utf8(path) {
            Ok(_) => String::new(),
            Err(_) => base64(path),
        };
        EventLine {
            ts: event.time_ns,
            session_id: event.branch_number.into(),
            branch_id: event.branch_number.into(),
            policy_version: event.policy_version,
            op: event.op.word().into(),
            verdict: event.sentence.word().into(),
            dev,
            ino: event.ino,
            i_generation: 0,
            path: text(event.path),
            pid: if is_outside { event.who.pid } else { 0 },
            uid: event.who.uid,
            gid: event.who.gid,
            bytes: event.bytes,
            latency_ns: event.latency_ns,
            backend: event.who.backend.word().into(),
            extra: EventExtra {
                seq: event.seq.to_string(),
                workspace: workspace.into(),
                branch: event.branch.into(),
                call: event.call.map_or(String::new(), |call| call.to_string()),
                comm: event.who.comm.to_string(),
                path2: text(event.path2),
                result: result(event.sentence).into(),
                path_b64: base64_of(event.path),
                path2_b64: base64_of(event.path2),
                count: match event.count {
                    count @ 1.. if is_outside => count.to_string(),
                    _ => String::new(),
                },
                detail: event.detail.to_string(),
            },
        }
    }

    /// Numbers of any length.
    fn number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
    }

    /// Paths as nobody would choose them: bytes that are no text, quotation marks, ends of lines, what terminals obey.
    fn path() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            vec(any::<u8>(), 0..20),
            "\\PC{0,9}".prop_map(String::into_bytes),
            "[a-z\"\\\\/\n\t\r\x00-\x1f\x7f\u{85}\u{2028}é]{0,20}".prop_map(String::into_bytes),
        ]
    }

    fn option() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![Just(None), number().prop_map(Some)]
    }

    proptest! {
        #[test]
        fn a_line_is_what_serde_makes_of_it(
            numbers in vec(number(), 8),
            (path, path2, words, comm) in (path(), path(), path(), path()),
            (call, offset, size) in (option(), option(), option()),
            (op, backend, sentence) in (0..FeedOp::ALL.len(), 0..5usize, 0..4usize),
            (branch, workspace, is_outside) in ("\\PC{0,5}", "\\PC{0,5}", any::<bool>()),
            (major, minor) in any::<(u32, u32)>(),
        ) {
            let backends = [FeedBackend::Own, FeedBackend::Front, FeedBackend::Control,
                FeedBackend::Fanotify, FeedBackend::Ebpf];
            let sentences = [Sentence::Allow, Sentence::Watch, Sentence::Ask, Sentence::Deny(13)];
            let who = FeedWho {
                pid: numbers[0] as u32,
                uid: numbers[1] as u32,
                gid: numbers[2] as u32,
                comm: String::from_utf8_lossy(&comm).into(),
                backend: backends[backend],
            };
            let words = String::from_utf8_lossy(&words);
            let event = Told {
                seq: numbers[3],
                time_ns: numbers[4],
                op: FeedOp::ALL[op],
                branch: &branch,
                branch_number: numbers[5] as u16,
                teller: 1,
                ino: numbers[6],
                path: &path,
                path2: &path2,
                who: &who,
                bytes: numbers[7],
                count: numbers[0],
                latency_ns: numbers[1],
                call,
                detail: ToldDetail { words: &words, offset, size },
                sentence: sentences[sentence],
                policy_version: numbers[2],
            };
            let mut lines = Lines::new(&workspace, Some(Device { major, minor }), is_outside);
            lines.add(&event);
            let mut expected = serde_json::to_vec(&line(&event, &workspace, lines.dev, is_outside)).unwrap();
            expected.push(b'\n');
            prop_assert_eq!(
                String::from_utf8(lines.bytes).unwrap(),
                String::from_utf8(expected).unwrap()
            );
        }
    }
}
