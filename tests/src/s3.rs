//! A small service that speaks as much of S3 as remotes need, on 127.0.0.1, and misbehaves when it is told to.
//!
//! Objects are in memory. A request is signed with some key id; only [`KEY_ID`] is let in.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// The key id that is let in.
pub const KEY_ID: &str = "AKIDOFTHETESTS";

/// How it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A status and a code instead of an answer; the request is not carried out.
    Status(u16, &'static str),
    /// The request is carried out, and the connection closed without an answer.
    Unanswered,
    /// The answer ends in the middle of the body.
    Cut,
    /// One bit of the body is another.
    Flipped,
    /// The answer says more bytes than it has, and goes on with the next one.
    Longer,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    versions: u64,
    requests: u64,
    /// What the next requests meet.
    faults: Vec<Fault>,
    ignores_conditions: bool,
    heard: Vec<String>,
}

/// The service.
#[derive(Debug, Clone)]
pub struct Service {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// A request as it came.
struct Asked {
    method: String,
    /// Decoded, with the bucket.
    path: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

/// Status, headers and body.
type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

impl Service {
    /// Starts it; it serves as long as the process lives.
    ///
    /// # Panics
    /// The system lets nobody listen.
    pub fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("{e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("{e}"));
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Service { address, state }
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Has the next requests meet these faults, one each.
    pub fn misbehave(&self, faults: &[Fault]) {
        locked(&self.state).faults = faults.iter().rev().copied().collect();
    }

    /// From now on puts have no conditions.
    pub fn ignore_conditions(&self) {
        locked(&self.state).ignores_conditions = true;
    }

    /// How many requests it has answered.
    pub fn requests(&self) -> u64 {
        locked(&self.state).requests
    }

    /// Names of its objects, with the bucket.
    pub fn names(&self) -> Vec<String> {
        locked(&self.state).objects.keys().cloned().collect()
    }

    /// All headers that came.
    pub fn heard(&self) -> Vec<String> {
        locked(&self.state).heard.clone()
    }
}

fn locked(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(asked)) = read(&mut reader) {
        let (answer, fault) = {
            let mut state = locked(state);
            state.requests += 1;
            state.heard.extend(asked.headers.values().cloned());
            let fault = state.faults.pop();
            let answer = match fault {
                Some(Fault::Status(status, code)) => failure(status, code),
                _ => state.answer(&asked),
            };
            (answer, fault)
        };
        if write(stream, answer, fault, asked.method == "HEAD").is_err() {
            return;
        }
        if matches!(fault, Some(Fault::Unanswered | Fault::Cut)) {
            // The other side sees the end.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read(from: &mut impl BufRead) -> Result<Option<Asked>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut asked = Asked {
        method: method.to_owned(),
        path: decoded(path.trim_start_matches('/')),
        query: pairs.map(|(k, v)| (k.to_owned(), decoded(v))).collect(),
        headers: HashMap::new(),
        body: Vec::new(),
    };
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => asked
                .headers
                .insert(name.to_lowercase(), value.trim().to_owned()),
            None => break,
        };
    }
    let length = asked.headers.get("content-length");
    let length = length.and_then(|text| text.parse().ok()).unwrap_or(0);
    from.take(length).read_to_end(&mut asked.body)?;
    Ok(Some(asked))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |d: Option<u8>| char::from(d.unwrap_or(b'0')).to_digit(16).unwrap_or(0) as u8;
        bytes.push(match byte {
            b'%' => digit(rest.next()) << 4 | digit(rest.next()),
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn failure(status: u16, code: &str) -> Answer {
    let text = format!("<Error><Code>{code}</Code><Message>as the test wants it</Message></Error>");
    (status, Vec::new(), text.into_bytes())
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Answer {
        let signed = asked.headers.get("authorization");
        if !signed.is_some_and(|signed| signed.contains(&format!("Credential={KEY_ID}/"))) {
            // As AWS does, it tells what it was sent.
            let (status, headers, body) = failure(403, "InvalidAccessKeyId");
            let sent = signed.map_or("", String::as_str);
            return (status, headers, [&body[..], sent.as_bytes()].concat());
        }
        match (asked.method.as_str(), asked.query.get("list-type")) {
            ("GET", Some(_)) => self.list(asked),
            ("GET", None) => self.get(asked),
            ("PUT", _) => self.put(asked),
            ("DELETE", _) => {
                self.objects.remove(&asked.path);
                (204, Vec::new(), Vec::new())
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }

    fn get(&self, asked: &Asked) -> Answer {
        let Some((bytes, version)) = self.objects.get(&asked.path) else {
            return failure(404, "NoSuchKey");
        };
        let mut headers = vec![
            ("ETag", format!("\"{version}\"")),
            ("Last-Modified", "Wed, 25 Nov 2026 12:00:00 GMT".to_owned()),
        ];
        let range = asked.headers.get("range");
        let range = range.and_then(|text| text.strip_prefix("bytes=")?.split_once('-'));
        let Some((first, last)) = range else {
            return (200, headers, bytes.clone());
        };
        let length = bytes.len();
        let first: usize = first.parse().unwrap_or(usize::MAX);
        let last = last
            .parse()
            .map_or(length, |last: usize| last + 1)
            .min(length);
        if first >= length {
            return failure(416, "InvalidRange");
        }
        let place = format!("bytes {first}-{}/{length}", last - 1);
        headers.push(("Content-Range", place));
        (206, headers, bytes[first..last].to_vec())
    }

    fn put(&mut self, asked: &Asked) -> Answer {
        let held = self.objects.get(&asked.path);
        let tag = held.map(|(_, version)| format!("\"{version}\""));
        let wanted = asked.headers.get("if-match");
        let is_refused = match (wanted, asked.headers.get("if-none-match")) {
            (Some(_), _) if held.is_none() => return failure(404, "NoSuchKey"),
            (Some(wanted), _) => tag.as_ref() != Some(wanted),
            (None, Some(_)) => held.is_some(),
            (None, None) => false,
        };
        if is_refused && !self.ignores_conditions {
            return failure(412, "PreconditionFailed");
        }
        self.versions += 1;
        let object = (asked.body.clone(), self.versions);
        self.objects.insert(asked.path.clone(), object);
        (
            200,
            vec![("ETag", format!("\"{}\"", self.versions))],
            Vec::new(),
        )
    }

    fn list(&self, asked: &Asked) -> Answer {
        let bucket = format!("{}/", asked.path.trim_end_matches('/'));
        let prefix = asked.query.get("prefix").cloned().unwrap_or_default();
        let mut text = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
        for (name, (bytes, version)) in &self.objects {
            let Some(key) = name
                .strip_prefix(&bucket)
                .filter(|key| key.starts_with(&prefix))
            else {
                continue;
            };
            text += &format!(
                "<Contents><Key>{key}</Key><Size>{}</Size><ETag>\"{version}\"</ETag>\
                 <LastModified>2026-11-25T12:00:00.000Z</LastModified></Contents>",
                bytes.len()
            );
        }
        text += "</ListBucketResult>";
        (200, Vec::new(), text.into_bytes())
    }
}

fn write(
    mut to: &TcpStream,
    (status, headers, mut body): Answer,
    fault: Option<Fault>,
    is_head: bool,
) -> Result<()> {
    let mut length = body.len();
    let mut sent = body.len();
    match fault {
        Some(Fault::Unanswered) => return Ok(()),
        Some(Fault::Cut) => sent /= 2,
        Some(Fault::Flipped) => {
            if let Some(byte) = body.last_mut() {
                *byte ^= 4;
            }
        }
        Some(Fault::Longer) => length += 7,
        _ => {}
    }
    let mut text = format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    to.write_all(text.as_bytes())?;
    match is_head {
        true => Ok(()),
        false => to.write_all(&body[..sent]),
    }
}
