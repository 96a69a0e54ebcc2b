//! Files by the protocol, beside the mount: errors with the names of errnos, open files, and several requests of one
//! connection at once.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use tests::env::Env;
use tests::wait;

/// A client that speaks the protocol by itself.
struct Asker {
    stream: BufReader<UnixStream>,
    last_id: u64,
}

impl Asker {
    fn new(env: &Env, in_flight: u32) -> Asker {
        let stream = UnixStream::connect(env.home().join("daemon.sock")).unwrap();
        let mut asker = Asker {
            stream: BufReader::new(stream),
            last_id: 0,
        };
        let hello = json!({ "protocol": 1, "client": "test", "in_flight": in_flight });
        let answer = asker.ask("hello", hello);
        assert_eq!(answer["result"]["in_flight"], in_flight, "{answer}");
        asker
    }

    /// Sends a request about branch `main` of the workspace; gives its id.
    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let mut params = params;
        let names = params.as_object_mut().unwrap();
        if method != "hello" && !names.contains_key("handle") {
            names.insert("workspace".into(), "project".into());
            names.entry("branch").or_insert("main".into());
        }
        let line =
            json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        writeln!(self.stream.get_mut(), "{line}").unwrap();
        self.last_id
    }

    /// The next answer.
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn done(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Kind and errno of a request that must fail.
    fn fault(&mut self, method: &str, params: Value) -> (String, String) {
        let answer = self.ask(method, params);
        let text = |name: &str| {
            let text = answer["error"]["data"][name].as_str();
            text.unwrap_or_default().to_owned()
        };
        assert!(answer["error"].is_object(), "{method}: {answer}");
        (text("kind"), text("errno"))
    }

    fn open(&mut self, params: Value) -> u64 {
        self.done("fs.open", params)["handle"].as_u64().unwrap()
    }

    fn read(&mut self, handle: u64) -> String {
        let answer = self.done("fs.pread", json!({ "handle": handle, "offset": 0 }));
        text_of(answer["b64"].as_str().unwrap())
    }
}

const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text that base64 stands for.
fn text_of(b64: &str) -> String {
    let digits = b64.bytes().filter(|c| *c != b'=');
    let values: Vec<usize> = digits
        .map(|c| DIGITS.iter().position(|d| *d == c).unwrap())
        .collect();
    let mut bytes = Vec::new();
    for four in values.chunks(4) {
        let bits = four.iter().fold(0, |all, value| all << 6 | value) << (6 * (4 - four.len()));
        bytes.extend(&(bits as u32).to_be_bytes()[1..four.len()]);
    }
    String::from_utf8(bytes).unwrap()
}

fn b64(text: &str) -> String {
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let byte = |at: usize| usize::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[bits >> (18 - 6 * at) & 63] as char;
            out.push(if at > three.len() { '=' } else { digit });
        }
    }
    out
}

#[test]
fn errors_of_files_have_the_errno_of_the_same_call_in_the_mount() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::write(root.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).unwrap();
    let mut asker = Asker::new(&env, 1);
    for (method, params, wanted) in [
        ("fs.stat", json!({ "path": "no" }), "ENOENT"),
        ("fs.stat", json!({ "path": "file/x" }), "ENOTDIR"),
        ("fs.read", json!({ "path": "dir" }), "EISDIR"),
        ("fs.read", json!({ "path": "loop" }), "ELOOP"),
        ("fs.read", json!({ "path": "out" }), "EXDEV"),
        ("fs.list", json!({ "path": "file" }), "ENOTDIR"),
        ("fs.mkdir", json!({ "path": "dir" }), "EEXIST"),
        ("fs.remove", json!({ "path": "dir" }), "ENOTEMPTY"),
        (
            "fs.remove",
            json!({ "path": "dir", "expect": "file", "recursive": true }),
            "EISDIR",
        ),
        (
            "fs.remove",
            json!({ "path": "file", "expect": "directory" }),
            "ENOTDIR",
        ),
        (
            "fs.rename",
            json!({ "from": "file", "to": "dir" }),
            "EISDIR",
        ),
        ("fs.copy", json!({ "from": "file", "to": "dir" }), "EISDIR"),
        ("fs.copy", json!({ "from": "file", "to": "loop" }), "ELOOP"),
        ("fs.copy", json!({ "from": "dir", "to": "new" }), "EISDIR"),
        (
            "fs.symlink",
            json!({ "path": "file", "target": "x" }),
            "EEXIST",
        ),
        ("fs.truncate", json!({ "path": "dir", "size": 1 }), "EISDIR"),
        ("fs.chmod", json!({ "path": "no", "perm": 0o600 }), "ENOENT"),
        ("fs.open", json!({ "path": "dir" }), "EISDIR"),
        (
            "fs.open",
            json!({ "path": "file", "create": true, "exclusive": true }),
            "EEXIST",
        ),
        (
            "fs.open",
            json!({ "path": "file", "state": "base", "truncate": true }),
            "EROFS",
        ),
        ("fs.pread", json!({ "handle": 5, "offset": 0 }), "EBADF"),
        ("fs.stat", json!({ "path": "file", "branch": "no" }), ""),
    ] {
        let (kind, errno) = asker.fault(method, params.clone());
        assert_eq!(errno, wanted, "{method} {params}: {kind}");
    }
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "x");
    assert!(root.join("dir/sub").exists());
}

#[test]
fn open_files_are_what_descriptors_of_the_mount_are() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    let mut asker = Asker::new(&env, 1);
    let handle = asker.open(json!({ "path": "f", "create": true, "perm": 0o600 }));
    assert_eq!(
        root.join("f").metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    asker.done(
        "fs.pwrite",
        json!({ "handle": handle, "offset": 0, "b64": b64("one") }),
    );
    let mut descriptor = File::options()
        .read(true)
        .write(true)
        .open(root.join("f"))
        .unwrap();
    let shown = |descriptor: &mut File| {
        let mut text = String::new();
        descriptor.rewind().unwrap();
        descriptor.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!(shown(&mut descriptor), "one");
    asker.done(
        "fs.pwrite",
        json!({ "handle": handle, "b64": b64(" and more") }),
    );
    assert_eq!(shown(&mut descriptor), "one and more");
    asker.done("fs.ftruncate", json!({ "handle": handle, "size": 3 }));
    assert_eq!(shown(&mut descriptor), "one");
    env.workspace(&["checkpoint", "first"]).id();
    descriptor.write_all(b" two").unwrap();
    assert_eq!(asker.read(handle), "one two");
    let gone = asker.open(json!({ "path": "later", "create": true }));
    asker.done(
        "fs.pwrite",
        json!({ "handle": gone, "offset": 0, "b64": b64("later") }),
    );
    env.workspace(&["rollback", "first"]).ok();
    assert_eq!(
        (asker.read(handle), shown(&mut descriptor)),
        ("one".into(), "one".into())
    );
    assert_eq!(asker.read(gone), "later");
    fs::rename(root.join("f"), root.join("g")).unwrap();
    fs::remove_file(root.join("g")).unwrap();
    assert_eq!(
        asker.done("fs.fstat", json!({ "handle": handle }))["nlink"],
        0
    );
    asker.done(
        "fs.pwrite",
        json!({ "handle": handle, "offset": 0, "b64": b64("ONE") }),
    );
    assert_eq!(shown(&mut descriptor), "ONE");
    asker.done("fs.fsync", json!({ "handle": handle }));
    // What a label names may change, not what was opened.
    let kept = asker.open(json!({ "path": "f", "state": { "ref": "first" } }));
    fs::write(root.join("f"), "another").unwrap();
    env.workspace(&["checkpoint", "first"]).id();
    assert_eq!(asker.read(kept), "one");
    let write = json!({ "handle": kept, "offset": 0, "b64": b64("x") });
    assert_eq!(asker.fault("fs.pwrite", write).1, "EROFS");
    asker.done("fs.close", json!({ "handle": handle }));
    let closed = asker.fault("fs.fstat", json!({ "handle": handle }));
    assert_eq!(closed, ("no-such-handle".into(), "EBADF".into()));
}

#[test]
fn a_handle_ends_with_its_connection_its_daemon_and_its_workspace() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("f"), "text").unwrap();
    let mut one = Asker::new(&env, 1);
    let mut other = Asker::new(&env, 1);
    let handle = one.open(json!({ "path": "f" }));
    let no_handle = ("no-such-handle".to_owned(), "EBADF".to_owned());
    assert_eq!(
        other.fault("fs.fstat", json!({ "handle": handle })),
        no_handle
    );
    drop(one);
    let handle = other.open(json!({ "path": "f" }));
    env.workspace(&["stop"]).ok();
    env.workspace(&["start", "project"]).ok();
    let stale = other.fault("fs.pread", json!({ "handle": handle, "offset": 0 }));
    assert_eq!(stale, ("stale-handle".into(), "ESTALE".into()));
    let handle = other.open(json!({ "path": "f" }));
    env.kill_daemon();
    env.workspace(&["start", "project"]).ok();
    let mut after = Asker::new(&env, 1);
    assert_eq!(
        after.fault("fs.fstat", json!({ "handle": handle })),
        no_handle
    );
    assert_ne!(after.open(json!({ "path": "f" })), handle);
}

#[test]
fn copies_links_and_bits_are_seen_in_the_mount() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("f"), "text").unwrap();
    fs::set_permissions(root.join("f"), fs::Permissions::from_mode(0o750)).unwrap();
    let mut asker = Asker::new(&env, 1);
    assert!(!root.join("copy").exists());
    let copied = asker.done("fs.copy", json!({ "from": "f", "to": "copy" }));
    assert_eq!(copied["size"], 4);
    let found = root.join("copy").metadata().unwrap();
    assert_eq!((found.mode() & 0o777, found.len()), (0o750, 4));
    assert_eq!(fs::read_to_string(root.join("copy")).unwrap(), "text");
    asker.done("fs.symlink", json!({ "path": "link", "target": "copy" }));
    assert_eq!(
        fs::read_link(root.join("link")).unwrap().to_str(),
        Some("copy")
    );
    asker.done("fs.chmod", json!({ "path": "link", "perm": 0o604 }));
    asker.done("fs.truncate", json!({ "path": "link", "size": 2 }));
    let found = root.join("copy").metadata().unwrap();
    assert_eq!((found.mode() & 0o777, found.len()), (0o604, 2));
    assert_eq!(fs::read_to_string(root.join("copy")).unwrap(), "te");
    let space = asker.done("fs.statfs", json!({}));
    assert_eq!(space["bytes_used"], 6 + project_bytes(&env), "{space}");
    assert!(space["bytes_available"].as_u64() <= space["bytes_total"].as_u64());
}

/// Bytes of the files of the project.
fn project_bytes(env: &Env) -> u64 {
    let mut bytes = 0;
    let mut work = vec![env.project()];
    while let Some(dir) = work.pop() {
        for entry in dir.read_dir().unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            match meta.is_dir() {
                true => work.push(entry.path()),
                false if meta.is_file() => bytes += meta.len(),
                false => {}
            }
        }
    }
    bytes
}

#[test]
fn figures_of_tools_count_each_call_once() {
    let Some(env) = Env::new() else { return };
    env.start();
    let mut asker = Asker::new(&env, 1);
    for (name, end) in [("a", "result"), ("a", "error"), ("b", "result"), ("a", "")] {
        let id = asker.done("tool.start", json!({ "name": name }))["id"].clone();
        let mut finish = json!({ "id": id });
        if !end.is_empty() {
            finish[end] = "1".into();
            asker.done("tool.finish", finish);
        }
    }
    let tools = asker.done("timeline.stats", json!({}))["tools"].clone();
    let counts = |tool: &Value| {
        let number = |name: &str| tool[name].as_u64().unwrap();
        ["calls", "success", "error", "pending"].map(number)
    };
    assert_eq!(
        (tools[0]["name"].as_str(), counts(&tools[0])),
        (Some("a"), [3, 1, 1, 1])
    );
    assert_eq!(
        (tools[1]["name"].as_str(), counts(&tools[1])),
        (Some("b"), [1, 1, 0, 0])
    );
    assert!(tools[1]["average_ms"].is_number() && tools[1]["max_ms"].is_u64());
}

#[test]
fn a_slow_request_holds_up_none_that_looks_and_changes_keep_their_order() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.imported();
    fs::write(root.join("log"), "").unwrap();
    let mut asker = Asker::new(&env, 8);
    // A checkpoint that has much to store is overtaken; it may be fast once.
    let mut round = 0;
    wait::until("what only looks is answered before a slow change", || {
        round += 1;
        for n in 0..1000 {
            let text = format!("{round} {n}").repeat(300);
            fs::write(root.join(format!("file-{n}")), text).unwrap();
        }
        let slow = asker.send("workspace.checkpoint", json!({}));
        let looks = [0; 5].map(|_| asker.send("fs.stat", json!({ "path": "log" })));
        let order = [0; 6].map(|_| {
            let answer = asker.hear();
            assert!(answer["error"].is_null(), "{answer}");
            answer["id"].as_u64().unwrap()
        });
        let place = |id: &u64| order.iter().position(|other| other == id).unwrap();
        looks.iter().all(|id| place(id) < place(&slow))
    });
    // Changes that are sent without waiting are made in their order, and answered in it.
    let mut sent = Vec::new();
    let mut heard = Vec::new();
    for n in 0..200 {
        let data = b64(&format!("{n}\n"));
        sent.push(asker.send("fs.write", json!({ "path": "log", "b64": data })));
        if sent.len() - heard.len() == 8 {
            heard.push(asker.hear()["id"].as_u64().unwrap());
        }
    }
    while heard.len() < sent.len() {
        heard.push(asker.hear()["id"].as_u64().unwrap());
    }
    assert_eq!(heard, sent);
    let wanted: String = (0..200).map(|n| format!("{n}\n")).collect();
    assert_eq!(fs::read_to_string(root.join("log")).unwrap(), wanted);
}

#[test]
fn who_leaves_in_the_middle_leaves_nothing_open() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    fs::write(root.join("f"), "text").unwrap();
    let mut asker = Asker::new(&env, 16);
    let inodes = |asker: &mut Asker| {
        asker.done("fs.statfs", json!({}))["inodes"]
            .as_u64()
            .unwrap()
    };
    let before = inodes(&mut asker);
    let mut leaving = Asker::new(&env, 16);
    leaving.open(json!({ "path": "f" }));
    fs::remove_file(root.join("f")).unwrap();
    for _ in 0..16 {
        leaving.send("fs.list", json!({ "path": "" }));
    }
    drop(leaving);
    wait::until("the file is gone with who had it open", || {
        inodes(&mut asker) == before - 1
    });
}
