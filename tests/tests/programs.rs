//! Programs of a policy on a real mount: in Lua and in WebAssembly, by ContextFS's entry points.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::{EventLine, LOST};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Error;
use std::path::PathBuf;
use tests::env::{Env, Told};

/// Denies by path, watches writes, allows the rest, in the form that ContextFS's own programs have.
const LUA: &str = r#"
-- Keeps secrets, and marks writes.
local seen = 0
function on_event(ev)
    seen = seen + 1
    if ev.path:match("^secrets/") then
        return { verdict = "deny", extra = { reason = "secret file", seen = seen } }
    end
    if ev.op == "rename" and ev.extra.path2:match("^secrets/") then
        return { verdict = "deny", extra = { reason = "into secrets" } }
    end
    if ev.op == "write" then
        return { verdict = "soft_watch", extra = { reason = "write_detected", source = ev.backend } }
    end
    return { verdict = "allow" }
end
"#;

/// ContextFS's numbers: it denies `unlink` (4) and watches `write` (1).
const WASM: &str = r#"(module (func (export "on_event") (param $op i32) (result i32)
    (if (i32.eq (local.get $op) (i32.const 4)) (then (return (i32.const 2))))
    (i32.eq (local.get $op) (i32.const 1))))"#;

fn project() -> Option<Env> {
    let env = Env::new()?;
    fs::create_dir_all(env.project().join("secrets")).unwrap();
    for name in ["secrets/key", "other"] {
        fs::write(env.project().join(name), "of the base\n").unwrap();
    }
    env.start();
    env.imported();
    Some(env)
}

fn run(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

fn file(env: &Env, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path: PathBuf = env.path(name);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn set(env: &Env, args: &[&str]) -> Told {
    run(env, &[&["policy", "set", "-w", "project"], args].concat())
}

fn errno<T>(done: Result<T, Error>) -> Option<Errno> {
    Errno::from_io_error(&done.err()?)
}

/// Verdicts, their paths and details.
fn verdicts(env: &Env) -> Vec<(String, String, String)> {
    let text = run(
        env,
        &["watch", "--no-follow", "-w", "project", "--since", "0"],
    )
    .ok();
    let all = text
        .lines()
        .map(|line| serde_json::from_str::<EventLine>(line).unwrap());
    let said = all.filter(|event| event.op != LOST && event.op == "verdict");
    said.map(|event| (event.verdict, event.path, event.extra.detail))
        .collect()
}

fn follow(env: &Env) {
    run(env, &["watch", "--no-follow", "-w", "project"]).ok();
}

#[test]
fn a_lua_program_judges_changes_of_the_mount_and_of_the_protocol() {
    let Some(env) = project() else { return };
    follow(&env);
    let at = env.mountpoint();
    let program = file(&env, "judge.lua", LUA);
    assert!(set(&env, &["--lua", &program]).ok().contains("rules=1"));
    assert_eq!(
        errno(fs::write(at.join("secrets/new"), "x")),
        Some(Errno::ACCESS)
    );
    assert_eq!(
        errno(fs::remove_file(at.join("secrets/key"))),
        Some(Errno::ACCESS)
    );
    assert_eq!(
        errno(fs::rename(at.join("secrets/key"), at.join("key"))),
        Some(Errno::ACCESS)
    );
    assert_eq!(
        errno(fs::rename(at.join("other"), at.join("secrets/key2"))),
        Some(Errno::ACCESS)
    );
    run(&env, &["fs", "rm", "-w", "project", "secrets/key"]).fails(1, "denied by rule program");
    fs::write(at.join("other"), "changed\n").unwrap();
    File::open(at.join("other")).unwrap().sync_all().unwrap();
    fs::rename(at.join("other"), at.join("another")).unwrap();
    let said = verdicts(&env);
    let (verdict, path, detail) = &said[0];
    assert_eq!((&**verdict, &**path), ("deny", "secrets/new"));
    assert_eq!(
        detail,
        "rule=program op=create errno=13 reason=secret_file seen=1"
    );
    let watched = said
        .iter()
        .find(|(verdict, ..)| verdict == "soft_watch")
        .unwrap();
    assert!(
        watched.2.contains("reason=write_detected source=fuse"),
        "{watched:?}"
    );
    assert!(
        said.iter()
            .any(|(.., detail)| detail.contains("reason=into_secrets"))
    );
    assert_eq!(
        fs::read_to_string(at.join("secrets/key")).unwrap(),
        "of the base\n"
    );
}

#[test]
fn a_module_judges_by_contextfs_numbers_and_rules_say_what_it_is_asked() {
    let Some(env) = project() else { return };
    let at = env.mountpoint();
    let module = file(&env, "judge.wasm", wat::parse_str(WASM).unwrap());
    let rules = "[[rule]]\nname = \"free\"\npath = \"other\"\nverdict = \"allow\"\n\
        [[rule]]\nname = \"asks\"\nop = [\"unlink\", \"write\"]\nverdict = \"program\"\nerrno = \"EROFS\"\n";
    let rules = file(&env, "policy.toml", rules);
    set(&env, &[&rules, "--wasm", &module]).ok();
    assert_eq!(
        errno(fs::remove_file(at.join("secrets/key"))),
        Some(Errno::ROFS)
    );
    fs::write(at.join("new"), "x").unwrap();
    fs::remove_file(at.join("other")).unwrap();
    // It is kept with the policy, and judges after a restart.
    let shown = run(&env, &["policy", "show", "project"]).ok();
    assert!(shown.contains("[program]\nwasm = \""), "{shown}");
    run(&env, &["stop", "project"]).ok();
    env.start();
    assert_eq!(errno(fs::remove_file(at.join("new"))), Some(Errno::ROFS));
    set(&env, &["/dev/null"]).ok();
    fs::remove_file(at.join("new")).unwrap();
}

#[test]
fn hostile_programs_are_cut_count_as_on_error_and_are_named_by_status() {
    let Some(env) = project() else { return };
    let at = env.mountpoint();
    for (n, body) in [
        "while true do end",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local function f(n) return 1 + f(n + 1) end return f(1)",
        "return { verdict = string.rep('x', 1 << 32) }",
        "error('no')",
        "return { verdict = 'maybe' }",
    ]
    .into_iter()
    .enumerate()
    {
        let program = file(
            &env,
            "judge.lua",
            format!("function on_event(ev) {body} end"),
        );
        set(&env, &["--lua", &program]).ok();
        let new = at.join(format!("new{n}"));
        assert_eq!(errno(fs::write(&new, "x")), Some(Errno::ACCESS), "{body}");
        let status = env.status().to_string();
        let told = "gave no verdict 1 times";
        assert!(status.contains(told), "{body}: {status}");
        // What the rule says instead may be otherwise.
        let rules = "[[rule]]\nverdict = \"program\"\non_error = \"allow\"\n";
        let rules = file(&env, "policy.toml", rules);
        set(&env, &[&rules, "--lua", &program]).ok();
        fs::write(&new, "x").unwrap();
    }
    set(&env, &["/dev/null"]).ok();
    assert!(!env.status().to_string().contains("gave no verdict"));
}

#[test]
fn programs_that_cannot_be_used_are_refused_in_one_line() {
    let Some(env) = project() else { return };
    let loops = "(module (func $s (loop $l (br $l))) (start $s) \
        (func (export \"on_event\") (param i32) (result i32) i32.const 0))";
    let text = |text: &str| text.as_bytes().to_vec();
    let module = |text: &str| wat::parse_str(text).unwrap();
    for (how, program, said) in [
        ("--lua", text("functio"), "cannot be loaded"),
        ("--lua", text("x = 1"), "no function on_event"),
        ("--lua", text("while true do end"), "longer than it may"),
        ("--lua", b"\xff".to_vec(), "no UTF-8"),
        ("--lua", vec![b' '; (256 << 10) + 1], "more than"),
        ("--wasm", text("nonsense"), "cannot be loaded"),
        ("--wasm", module("(module)"), "no function on_event"),
        ("--wasm", module(loops), "longer than it may"),
        (
            "--wasm",
            module("(module (import \"e\" \"f\" (func)))"),
            "it imports e.f",
        ),
        ("--wasm", vec![0; (256 << 10) + 1], "more than"),
    ] {
        let program = file(&env, "program", program);
        for verb in ["set", "check"] {
            let args: &[&str] = match verb {
                "set" => &["policy", "set", "-w", "project", how, &program],
                _ => &["policy", "check", how, &program],
            };
            let refused = run(&env, args);
            assert_eq!(refused.status, 1, "{said}");
            assert!(refused.err.contains(said), "{said}: {}", refused.err);
            let lines = refused
                .err
                .lines()
                .filter(|line| !line.starts_with("hint: "));
            assert_eq!(lines.count(), 1, "{}", refused.err);
        }
    }
    let lua = file(&env, "judge.lua", LUA);
    let both = set(&env, &["--lua", &lua, "--wasm", &lua]);
    assert!(
        both.status == 2 && both.err.contains("cannot be used with"),
        "{both:?}"
    );
    let with = file(&env, "policy.toml", "[program]\nlua = ''\n");
    set(&env, &[&with, "--lua", &lua]).fails(1, "is another");
    assert!(run(&env, &["policy", "show", "project"]).ok().is_empty());
}

#[test]
fn recorded_events_are_judged_by_a_program() {
    let Some(env) = project() else { return };
    follow(&env);
    fs::write(env.mountpoint().join("secrets/new"), "x").unwrap();
    fs::write(env.mountpoint().join("new"), "x").unwrap();
    let lines = run(
        &env,
        &["watch", "--no-follow", "-w", "project", "--since", "0"],
    )
    .ok();
    let program = file(&env, "judge.lua", LUA);
    let mut command = env.command(&env.path(""), &["policy", "test", "--lua", &program]);
    command.stdin(File::open(file(&env, "events", lines)).unwrap());
    let said = env.told(command).ok();
    let rows: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert!(
        rows.iter()
            .any(|row| row[..2] == ["deny", "program"] && row[3..] == ["create", "secrets/new"]),
        "{said}"
    );
    assert!(
        rows.iter()
            .any(|row| row[0] == "soft_watch" && row[3..] == ["write", "new"]),
        "{said}"
    );
}
