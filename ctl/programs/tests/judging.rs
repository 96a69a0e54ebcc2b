//! Programs of ContextFS's shape judge events as its entry points say.
#![allow(clippy::unwrap_used)]

use agentvfs_programs::{Answer, Program, ProgramError, ProgramEvent, Verdict};

fn event(op: &'static str, path: &'static [u8]) -> ProgramEvent<'static> {
    ProgramEvent {
        op,
        path,
        pid: 12,
        backend: "fuse",
        extra: &[("comm", b"sh")],
        ..ProgramEvent::default()
    }
}

/// Exports `on_event` with this body; `op` is its argument.
fn wasm(body: &str) -> Program {
    let text = format!("(module (func (export \"on_event\") (param $op i32) (result i32) {body}))");
    Program::wasm(&wat::parse_str(text).unwrap()).unwrap()
}

fn lua(text: &str) -> Program {
    Program::lua(text.as_bytes()).unwrap()
}

#[test]
fn a_module_gets_the_operation_and_gives_a_verdict() {
    let mut program = wasm(
        "(if (i32.eq (local.get $op) (i32.const 4)) (then (return (i32.const 2))))
         (i32.eq (local.get $op) (i32.const 1))",
    );
    let ops = [
        ("unlink", Verdict::Deny),
        ("write", Verdict::SoftWatch),
        ("create", Verdict::Allow),
        ("rmdir", Verdict::Allow),
    ];
    for (op, want) in ops {
        assert_eq!(
            program.judge(&event(op, b"f")).unwrap().verdict,
            want,
            "{op}"
        );
    }
}

#[test]
fn what_is_no_verdict_is_an_error_and_the_next_event_is_judged() {
    let mut program = wasm("(i32.sub (i32.const 3) (local.get $op))");
    let refused = program.judge(&event("read", b"f")).unwrap_err();
    assert!(matches!(refused, ProgramError::NoVerdict(_)), "{refused}");
    assert_eq!(
        program.judge(&event("write", b"f")).unwrap().verdict,
        Verdict::Deny
    );
}

#[test]
fn a_table_goes_in_and_a_table_comes_out() {
    let mut program = lua(
        "local seen = 0
         function on_event(ev)
           seen = seen + 1
           if ev.op == 'write' and ev.path:match('^secrets/') then
             return { verdict = 'deny', extra = { reason = 'secret', pid = ev.pid, who = ev.extra.comm } }
           end
           if ev.op == 'read' then return { verdict = 'allow', extra = { source = ev.backend, seen = seen } } end
           if ev.op == 'unlink' then return { verdict = 'soft_watch' } end
         end",
    );
    let answer = program.judge(&event("write", b"secrets/key")).unwrap();
    let pair = |key: &str, text: &str| (key.to_owned(), text.to_owned());
    let want = Answer {
        verdict: Verdict::Deny,
        extra: vec![
            pair("pid", "12"),
            pair("reason", "secret"),
            pair("who", "sh"),
        ],
    };
    assert_eq!(answer, want);
    let answer = program.judge(&event("read", b"f")).unwrap();
    assert_eq!(answer.extra, [pair("seen", "2"), pair("source", "fuse")]);
    let watched = program.judge(&event("unlink", b"f")).unwrap();
    assert_eq!(watched.verdict, Verdict::SoftWatch);
    // Nothing returned: what was decided before.
    let before = ProgramEvent {
        verdict: Verdict::SoftWatch,
        ..event("rename", b"f")
    };
    assert_eq!(program.judge(&before).unwrap().verdict, Verdict::SoftWatch);
}

#[test]
fn paths_are_bytes_and_what_is_no_verdict_is_an_error() {
    let mut program =
        lua("function on_event(ev) return { verdict = #ev.path == 2 and 'deny' or 'maybe' } end");
    let answer = program.judge(&event("write", b"\xff\x00")).unwrap();
    assert_eq!(answer.verdict, Verdict::Deny);
    let refused = program.judge(&event("write", b"abc")).unwrap_err();
    assert!(matches!(refused, ProgramError::NoVerdict(_)), "{refused}");
    let mut program = lua("function on_event(ev) return 7 end");
    assert!(program.judge(&event("write", b"f")).is_err());
}
