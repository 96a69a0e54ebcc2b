//! `agentvfs serve mcp` with clients that behave badly, and with daemons that come and go.

#![allow(clippy::unwrap_used)]

use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use tests::env::Env;
use tests::mcp::{Mcp, project, serve};

#[test]
fn wrong_arguments_are_told_in_words() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    mcp.call("read_file", json!({}))
        .fails("missing field `path`");
    mcp.call("read_file", json!({"path": "x", "ofset": 1}))
        .fails("unknown field `ofset`");
    mcp.call("read_file", json!({"path": 7}))
        .fails("read_file: ");
    mcp.call("read_file", json!({"path": "src"}))
        .fails("is a directory");
    mcp.call(
        "write_file",
        json!({"path": "x", "content": "?", "encoding": "base64"}),
    )
    .fails("not base64");
    mcp.call("checkpoint", json!({"label": "a/b"}))
        .fails("label");
    let unknown = mcp.request("tools/call", json!({"name": "format_disk"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let unknown = mcp.request("no/such/method", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let odd = mcp.request("tools/call", json!([1, 2]));
    assert!(odd["error"]["code"].is_i64(), "{odd}");
    assert_eq!(
        mcp.call("read_file", json!({"path": "README"})).ok(),
        "a project\n"
    );
}

#[test]
fn garbage_is_refused_and_the_session_goes_on() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = Mcp::silent(&env, &env.path(""), &["-w", "project"]);
    // Also before the session is open.
    mcp.raw(b"GET / HTTP/1.1\r\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n\xff\xff\n");
    assert_eq!(mcp.hear()["error"]["code"], -32700);
    assert_eq!(mcp.hear()["error"]["code"], -32700);
    mcp.raw(b"[]\n");
    assert_eq!(mcp.hear()["error"]["code"], -32600);
    assert_eq!(mcp.request("ping", json!({}))["result"], json!({}));
    let early = mcp.request("tools/call", json!({"name": "log"}));
    assert!(early["error"]["code"].is_i64(), "{early}");
    let hello = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}});
    assert_eq!(
        mcp.request("initialize", hello)["result"]["protocolVersion"],
        "2024-11-05"
    );
    mcp.raw(&[vec![b'x'; 3 << 20], b"\n".to_vec()].concat());
    let long = mcp.hear();
    assert_eq!(long["error"]["code"], -32600);
    assert!(
        long["error"]["message"]
            .as_str()
            .unwrap()
            .contains("longer"),
        "{long}"
    );
    mcp.raw(&[vec![b'['; 500_000], b"\n".to_vec()].concat());
    assert_eq!(mcp.hear()["error"]["code"], -32700);
    mcp.raw(b"{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n");
    assert_eq!(
        mcp.call("read_file", json!({"path": "README"})).ok(),
        "a project\n"
    );
    let (rest, status) = mcp.end();
    assert_eq!((rest.as_str(), status), ("", 0));
}

#[test]
fn ten_thousand_requests_at_once_are_all_answered_and_others_are_served_meanwhile() {
    const REQUESTS: usize = 10_000;
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    let mut input = mcp.take_input();
    let writer = std::thread::spawn(move || {
        for id in 0..REQUESTS {
            let (tool, arguments) = match id % 10 {
                0 => ("stat", json!({"path": "README"})),
                _ => ("read_file", json!({"path": "README"})),
            };
            let params = json!({"name": tool, "arguments": arguments});
            let message =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            writeln!(input, "{message}").unwrap();
        }
    });
    let mut other = serve(&env);
    let mut seen = BTreeSet::new();
    while seen.len() < REQUESTS {
        let heard = mcp.hear();
        let text = heard["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{heard}"));
        assert!(
            text.contains("a project") || text.contains("is_file"),
            "{heard}"
        );
        assert!(
            seen.insert(heard["id"].as_u64().unwrap()),
            "answered twice: {heard}"
        );
        if seen.len() % 1000 == 0 {
            let path = format!("other-{}", seen.len());
            other
                .call("write_file", json!({"path": path, "content": "x"}))
                .ok();
            assert!(root.join(path).exists());
        }
    }
    writer.join().unwrap();
    assert_eq!(mcp.end(), (String::new(), 0));
}

#[test]
fn changes_happen_in_the_order_in_which_they_were_asked_for() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    for id in 100..200 {
        let arguments = json!({"path": "list", "content": format!("{id}\n"), "append": true});
        let params = json!({"name": "write_file", "arguments": arguments});
        mcp.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    // What was asked before the input ends is done and answered.
    let (answers, status) = mcp.end();
    assert_eq!((answers.lines().count(), status), (100, 0), "{answers}");
    let wanted: String = (100..200).map(|id| format!("{id}\n")).collect();
    assert_eq!(fs::read_to_string(root.join("list")).unwrap(), wanted);
}

#[test]
fn server_ends_when_its_client_is_gone() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    assert_eq!(
        Mcp::silent(&env, &env.path(""), &["-w", "project"]).end(),
        (String::new(), 0)
    );
    assert_eq!(serve(&env).vanish(), 0);
    // In the middle of a message, and of answers that nobody reads.
    let mut mcp = serve(&env);
    mcp.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"met");
    assert_eq!(mcp.end(), (String::new(), 0));
    fs::write(root.join("long"), "x".repeat(200_000)).unwrap();
    let mut mcp = serve(&env);
    let params = json!({"name": "read_file", "arguments": {"path": "long", "limit": 200_000}});
    for id in 0..5 {
        mcp.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }
    mcp.vanish();
    assert_eq!(
        serve(&env)
            .call("read_file", json!({"path": "README"}))
            .ok(),
        "a project\n"
    );
}

#[test]
fn session_outlives_the_daemon() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    mcp.call("write_file", json!({"path": "kept", "content": "kept"}))
        .ok();
    env.kill_daemon();
    assert_eq!(mcp.call("read_file", json!({"path": "kept"})).ok(), "kept");
    assert_eq!(fs::read(root.join("kept")).unwrap(), b"kept");
    env.workspace(&["stop", "project"]).ok();
    // Looking works where the commands look, too.
    assert_eq!(mcp.call("read_file", json!({"path": "kept"})).ok(), "kept");
    mcp.call("write_file", json!({"path": "kept", "content": "x"}))
        .fails("not running");
    env.workspace(&["start", "project"]).ok();
    mcp.call("write_file", json!({"path": "kept", "content": "again"}))
        .ok();
    assert_eq!(fs::read(root.join("kept")).unwrap(), b"again");
}

#[test]
fn server_without_a_workspace_says_so() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let told = env.told(env.command(&env.path(""), &["serve", "mcp", "-w", "none"]));
    told.fails(1, "no workspace named none");
}
