//! `agentvfs serve mcp`: what a call did is told and taken back through the tools alone, what cannot be read is
//! answered under its id, and failures are told in the tools' words.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use tests::env::Env;
use tests::mcp::{Mcp, project, serve};

fn id_of(answer: &tests::mcp::Answer) -> u64 {
    answer.ok();
    answer.meta["agentvfs/call"].as_u64().unwrap()
}

#[test]
fn what_a_call_did_is_told_and_taken_back_by_its_id() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    mcp.call("checkpoint", json!({"label": "start"})).ok();
    let removed = mcp.call("remove", json!({"path": "src", "recursive": true}));
    let removed = id_of(&removed);
    let wrote = id_of(&mcp.call("write_file", json!({"path": "new", "content": "new\n"})));
    let told = mcp.call("tool_diff", json!({"call": removed}));
    assert!(told.ok().contains("D\tsrc/main.rs"), "{told:?}");
    assert!(!told.ok().contains("new") && told.meta["agentvfs/certain"] == true);
    let patch = mcp.call("tool_diff", json!({"call": wrote, "patch": true}));
    assert!(patch.ok().contains("+new\n"), "{patch:?}");
    let blamed = mcp.call("blame", json!({"path": "src/main.rs"}));
    let first: Vec<&str> = blamed.ok().lines().next().unwrap().split('\t').collect();
    assert_eq!(first[1..4], ["call", &removed.to_string(), "remove"]);
    let plan = mcp.call("tool_undo", json!({"call": removed, "dry_run": true}));
    assert!(plan.ok().contains("A\tsrc/main.rs") && !root.join("src").exists());
    mcp.call("tool_undo", json!({"call": removed})).ok();
    assert_eq!(
        fs::read(root.join("src/main.rs")).unwrap(),
        b"fn main() {}\n"
    );
    assert!(root.join("new").exists(), "what came later stays");
    mcp.call("undo", json!({})).ok();
    assert!(!root.join("src").exists());
    mcp.call("redo", json!({})).ok();
    assert!(root.join("src/main.rs").exists());
    // What was changed since does not fit any more.
    fs::write(root.join("new"), "other\n").unwrap();
    let refused = mcp.call("tool_undo", json!({"call": wrote}));
    assert!(
        refused.failed && refused.texts[0].contains("1 conflict"),
        "{refused:?}"
    );
    assert!(refused.note().contains("\"path\":\"new\""), "{refused:?}");
    mcp.call("tool_diff", json!({"call": 999})).fails("999");
}

#[test]
fn single_paths_come_back_and_branches_are_listed() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    mcp.call("checkpoint", json!({"label": "one"})).ok();
    for path in ["README", "src/main.rs"] {
        let write = json!({"path": path, "content": "changed"});
        mcp.call("write_file", write).ok();
    }
    let plan = json!({"paths": ["README"], "dry_run": true});
    assert_eq!(mcp.call("restore", plan).ok(), "M\tREADME");
    mcp.call("restore", json!({"paths": ["README"]})).ok();
    assert_eq!(fs::read(root.join("README")).unwrap(), b"a project\n");
    assert_eq!(fs::read(root.join("src/main.rs")).unwrap(), b"changed");
    mcp.call("restore", json!({"paths": ["src"], "ref": "one"}))
        .ok();
    assert_eq!(
        fs::read(root.join("src/main.rs")).unwrap(),
        b"fn main() {}\n"
    );
    mcp.call("restore", json!({"paths": []}))
        .fails("paths is empty");
    mcp.call("restore", json!({"paths": ["/"]}))
        .fails("the whole workspace");
    mcp.call("branch_create", json!({"name": "fix"})).ok();
    let listed = mcp.call("branch_list", json!({})).ok().to_owned();
    let rows: Vec<Vec<&str>> = listed.lines().map(|r| r.split('\t').collect()).collect();
    assert_eq!((rows[0][0], rows[1][0], rows.len()), ("main", "fix", 2));
    assert_eq!(
        rows[1][2],
        root.join(".agentvfs/branches/fix").to_str().unwrap()
    );
}

#[test]
fn hints_name_tools_and_their_parameters() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    for (tool, arguments, hint) in [
        ("read_file", json!({"path": "none"}), "readdir"),
        ("read_file", json!({"path": "src"}), "stat"),
        ("mkdir", json!({"path": "src"}), "stat"),
        ("remove", json!({"path": "src"}), "recursive"),
        ("rollback", json!({"ref": "none"}), "log"),
        ("undo", json!({}), "log"),
        ("tool_undo", json!({"call": 999}), "timeline"),
        (
            "stat",
            json!({"path": "README", "branch": "none"}),
            "branch_list",
        ),
        ("branch_create", json!({"name": "main"}), "branch_list"),
        (
            "resolve",
            json!({"path": "README", "take": "ours"}),
            "conflicts",
        ),
    ] {
        let answer = mcp.call(tool, arguments);
        answer.fails("agentvfs: ");
        let told = answer.texts[0].lines().nth(1).unwrap();
        assert!(
            told.contains(hint) && !told.contains("agentvfs "),
            "{tool}: {told}"
        );
    }
}

#[test]
fn links_that_lead_nowhere_do_not_lead_out() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    for (target, link) in [
        ("nowhere/at/all", "dangling"),
        ("loop", "loop"),
        ("back", "there"),
        ("there/x", "back"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let mut mcp = serve(&env);
    for path in [
        "dangling",
        "dangling/x",
        "README/x",
        "loop",
        "loop/x",
        "there",
    ] {
        let found = mcp.call("access", json!({"path": path})).json();
        assert_eq!(found, json!({"exists": false}), "{path}");
    }
    mcp.call("read_file", json!({"path": "dangling"}))
        .fails("no such file");
    for path in ["loop", "there"] {
        let answer = mcp.call("read_file", json!({"path": path}));
        answer.fails("leads in a loop");
        let told = answer.texts[0].lines().nth(1).unwrap();
        assert_eq!(told, "hint: stat shows the target of a symbolic link");
    }
}

#[test]
fn odd_parameters_are_errors() {
    let Some(env) = Env::new() else { return };
    let root = project(&env);
    let mut mcp = serve(&env);
    mcp.call("write_file", json!({"path": "t/", "content": "x"}))
        .fails("ends with a slash");
    assert!(!root.join("t").exists());
    for tool in ["log", "timeline", "kv_list", "branch_list"] {
        mcp.call(tool, json!({"limit": 0})).fails("limit is 0");
    }
    mcp.call("read_file", json!([]))
        .fails("arguments is not an object");
    let tools = mcp.request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    let loses = tools
        .iter()
        .filter(|t| t["annotations"]["destructiveHint"] == true);
    let loses: Vec<&Value> = loses.map(|t| &t["name"]).collect();
    assert_eq!(loses, ["export"]);
    let log = tools.iter().find(|t| t["name"] == "log").unwrap();
    assert_eq!(log["inputSchema"]["properties"]["limit"]["minimum"], 1);
    let mut mcp = Mcp::silent(&env, &env.path(""), &["-w", "project"]);
    let garbage = mcp.request("initialize", json!({"protocolVersion": {}}));
    let why = garbage["error"]["message"].as_str().unwrap();
    assert!(why.starts_with("initialize: params: "), "{garbage}");
}

/// A call, its id behind everything else, as official clients write it.
fn call(id: &str, tool: &str, arguments: &[u8]) -> Vec<u8> {
    let before =
        format!("{{\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":");
    let after = format!("}},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n");
    [before.as_bytes(), arguments, after.as_bytes()].concat()
}

#[test]
fn a_call_that_cannot_be_read_fails_under_its_id() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    let nested = ["[".repeat(200), "]".repeat(200)].concat();
    let long = format!("\"{}\"", "x".repeat(3 << 20));
    for (id, content, hint) in [
        (json!(101), &br#""\ud800""#[..], "base64"),
        (json!("a-2"), b"1e400", "as texts"),
        (json!(103), nested.as_bytes(), "127 deep"),
        (json!(104), b"\"\xff\xfe\"", "base64"),
        (json!("long"), long.as_bytes(), "with append"),
    ] {
        let arguments = [&b"{\"path\":\"odd\",\"content\":"[..], content, b"}"].concat();
        mcp.raw(&call(&id.to_string(), "write_file", &arguments));
        let heard = mcp.hear();
        let text = heard["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{heard}"));
        assert!(
            heard["id"] == id && heard["result"]["isError"] == true,
            "{heard}"
        );
        assert!(text.lines().nth(1).unwrap().contains(hint), "{text}");
    }
    mcp.raw(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"x\":1e400}}\n");
    let heard = mcp.hear();
    assert_eq!(
        (&heard["id"], &heard["error"]["code"]),
        (&json!(7), &json!(-32700))
    );
    mcp.raw(b"{\"method\":\"tools/call\",\"params\":1e400}\n");
    let heard = mcp.hear();
    assert!(
        heard.as_object().unwrap().contains_key("id") && heard["id"].is_null(),
        "{heard}"
    );
    assert_eq!(
        mcp.call("access", json!({"path": "odd"})).json(),
        json!({"exists": false})
    );
}

#[test]
fn values_are_kept_as_they_were_written() {
    let Some(env) = Env::new() else { return };
    project(&env);
    let mut mcp = serve(&env);
    let written = r#"{"n":1.50,"n":12345678901234567890123,"list":[1e2,-0]}"#;
    let arguments = format!("{{\"key\":\"k\",\"value\": {written} }}");
    mcp.raw(&call("5", "kv_set", arguments.as_bytes()));
    assert_eq!(mcp.hear()["result"]["content"][0]["text"], "Set key: k");
    let other = ["kv", "set", "-w", "project", "other", written];
    env.told(env.command(&env.path(""), &other)).ok();
    let kept = mcp.call("kv_get", json!({"key": "k"})).ok().to_owned();
    assert_eq!(kept, mcp.call("kv_get", json!({"key": "other"})).ok());
    assert_eq!(kept, written);
}
