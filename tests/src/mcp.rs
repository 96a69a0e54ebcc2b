//! A client of `agentvfs serve mcp` that speaks JSON-RPC by hand, garbage included.

use crate::env::Env;
use crate::wait;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A small project with symbolic links, two of which lead out of it; started.
pub fn project(env: &Env) -> PathBuf {
    let project = env.project();
    fs::create_dir_all(project.join("src/deep")).unwrap();
    fs::write(project.join("README"), "a project\n").unwrap();
    fs::write(project.join("src/main.rs"), "fn main() {}\n").unwrap();
    fs::write(project.join("src/deep/lib.rs"), "pub fn x() {}\n").unwrap();
    symlink("src", project.join("current")).unwrap();
    symlink("/etc/passwd", project.join("out")).unwrap();
    symlink("../..", project.join("src/up")).unwrap();
    env.start()
}

/// A server of that project, with its session open.
pub fn serve(env: &Env) -> Mcp {
    Mcp::start(env, &env.path(""), &["-w", "project"])
}

/// A running server and both ends of its pipes.
pub struct Mcp {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: i64,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its texts: the answer, then a note.
    pub texts: Vec<String>,
    /// Whether it is an error.
    pub failed: bool,
    /// Facts for programs.
    pub meta: Value,
}

impl Answer {
    /// The text, once it is seen to be no error.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert!(!self.failed, "{self:?}");
        &self.texts[0]
    }

    /// The text as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.ok()).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Checks an error: what and why in one line, and a hint.
    #[track_caller]
    pub fn fails(&self, why: &str) {
        assert!(self.failed, "{self:?}");
        let lines: Vec<&str> = self.texts[0].lines().collect();
        assert_eq!(lines.len(), 2, "{self:?}");
        assert!(
            lines[0].starts_with("agentvfs: ") && lines[0].contains(why),
            "no {why:?}: {self:?}"
        );
        assert!(
            lines[1].starts_with("hint: ") && lines[1].len() > 10,
            "{self:?}"
        );
    }

    /// The note behind the text; empty where there is none.
    pub fn note(&self) -> &str {
        self.texts.get(1).map_or("", String::as_str)
    }
}

impl Mcp {
    /// Starts a server in a directory, with further arguments, and opens the session.
    pub fn start(env: &Env, directory: &Path, args: &[&str]) -> Mcp {
        let mut mcp = Mcp::silent(env, directory, args);
        let opened = mcp.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        assert_eq!(
            opened["result"]["serverInfo"]["name"], "agentvfs",
            "{opened}"
        );
        mcp.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        mcp
    }

    /// Starts a server without a word to it.
    pub fn silent(env: &Env, directory: &Path, args: &[&str]) -> Mcp {
        let args: Vec<&str> = ["serve", "mcp"].iter().chain(args).copied().collect();
        let mut command = env.command(directory, &args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Mcp {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            last_id: 0,
        }
    }

    /// Sends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends a message.
    pub fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    /// The next message from the server.
    #[track_caller]
    pub fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"))
    }

    /// Sends a request and gives the message with its id.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let heard = self.hear();
            if heard["id"] == id {
                return heard;
            }
        }
    }

    /// Calls a tool.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.request("tools/call", params);
        let result = &answer["result"];
        let texts = result["content"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"));
        Answer {
            texts: texts
                .iter()
                .map(|block| block["text"].as_str().unwrap().to_owned())
                .collect(),
            failed: result["isError"] == true,
            meta: result["_meta"].clone(),
        }
    }

    /// The names of all tools that are offered.
    pub fn tools(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }

    /// Takes the server's input, so that a thread can write to it.
    pub fn take_input(&mut self) -> ChildStdin {
        self.input.take().unwrap()
    }

    /// Closes the input, and gives what the server still said and its exit status.
    pub fn end(mut self) -> (String, i32) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest, self.status())
    }

    /// Closes both ends without reading, and gives the exit status.
    pub fn vanish(self) -> i32 {
        let Mcp {
            mut child,
            input,
            output,
            ..
        } = self;
        drop((input, output));
        wait_for(&mut child)
    }

    fn status(&mut self) -> i32 {
        wait_for(&mut self.child)
    }
}

fn wait_for(child: &mut Child) -> i32 {
    let mut status = None;
    wait::until("the server ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code()).unwrap_or(-1)
}
