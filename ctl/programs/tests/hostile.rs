//! Hostile programs are refused or cut, and the next event is judged by the program as it was.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use agentvfs_programs::{Program, ProgramError, Verdict, limits};
use common::{cpu, event};
use proptest::prelude::*;
use std::time::Duration;

/// Processor time within which each must be cut: far more than the limit, far less than it would take. What is allowed
/// for the beginning of a program, twice, and as much again for its last instruction.
const CUT: Duration = Duration::from_millis(500);

/// Loads a program and asks it, both within [`CUT`].
fn cut(what: &str, load: impl Fn() -> Result<Program, ProgramError>) -> ProgramError {
    let begun = cpu();
    let failed = load().and_then(|mut program| program.judge(&event()).map(drop));
    let took = cpu() - begun;
    assert!(took < CUT, "{what}: {took:?}");
    failed.expect_err(what)
}

fn cut_lua(body: &str) -> ProgramError {
    let text = format!("function on_event(ev) {body} end");
    let ours = cut(body, || Program::lua(text.as_bytes()));
    // The same as the program begins.
    let begins = format!("local ev = {{ path = 'p' }} {body}");
    cut(&begins, || Program::lua(begins.as_bytes()));
    ours
}

fn cut_wasm(text: &str) -> ProgramError {
    let module = wat::parse_str(text).unwrap();
    cut(text, || Program::wasm(&module))
}

#[test]
fn endless_loops_in_lua_are_cut_however_they_hide() {
    for body in [
        "while true do end",
        "local function f() return f() end return f()",
        "pcall(function() while true do end end)",
        "while true do pcall(function() while true do end end) end",
        "setmetatable({}, { __gc = function() while true do end end })",
        "coroutine.wrap(function() while true do end end)()",
        "load('while true do end')()",
        "repeat local t = {} until false",
        "for i = 1, 1e18 do end",
        "goto a ::a:: goto a",
    ] {
        cut_lua(body);
    }
    let slow = cut_lua("while true do end");
    assert!(matches!(slow, ProgramError::TooSlow), "{slow}");
}

#[test]
fn what_fills_memory_or_the_stack_in_lua_is_cut() {
    for body in [
        "local s = 'x' while true do s = s .. s end",
        "return { verdict = string.rep('x', 1 << 32) }",
        "local s = ('x'):rep(60000) while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} for i = 1, 1e9 do t[i] = {} end",
        "local function f(n) return 1 + f(n + 1) end return f(1)",
        "local function f() return (('x'):gsub('x', f)) end return f()",
        "local function f() return (('x'):gsub('x', function() while true do end end)) end return f()",
        "return { verdict = ('%99999d'):format(1) }",
        "local t = {} t[1 << 40] = 1 return table.unpack(t, 1, 1 << 30)",
        "local t = {} for i = 1, 1e5 do t[i] = 'xxxxxxxxxxxxxxxx' end while true do table.concat(t) end",
    ] {
        cut_lua(body);
    }
}

#[test]
fn patterns_that_take_too_many_steps_are_refused() {
    for call in [
        "string.find(('a'):rep(1000), ('.-'):rep(30) .. 'b')",
        "(('a'):rep(3000)):match('(.-)(.-)(.-)b')",
        "(('a'):rep(1000)):gsub(('a*'):rep(20) .. 'b', '')",
        "for _ in (('x'):rep(5000)):gmatch('.-.-.-y') do end",
        "(('('):rep(60000)):find('%b()%b()')",
    ] {
        cut_lua(call);
        cut_lua(&format!(
            "while true do local x = function() {call} end x() end"
        ));
    }
    // What programs do with paths is not refused.
    let usual = "function on_event(ev)
        if ev.path:match('^src/.*%.lock$') and ev.path:find('gyp', 1, true)
          and (ev.path:gsub('/', '_')) == 'src_my-long-name_node-gyp-build.lock' then
          return { verdict = 'deny' }
        end end";
    let mut program = Program::lua(usual.as_bytes()).unwrap();
    assert_eq!(program.judge(&event()).unwrap().verdict, Verdict::Deny);
}

#[test]
fn a_program_has_nothing_of_this_process() {
    for name in [
        "io",
        "os",
        "package",
        "require",
        "debug",
        "load",
        "loadfile",
        "dofile",
        "coroutine",
        "pcall",
        "xpcall",
        "print",
        "warn",
        "collectgarbage",
        "setmetatable",
        "getmetatable",
    ] {
        let text = format!("assert({name} == nil) function on_event(ev) end");
        let loaded = Program::lua(text.as_bytes());
        assert!(loaded.is_ok(), "{name}: {loaded:?}");
    }
    assert!(Program::lua(b"\x1bLua").is_err(), "bytecode");
    let imports = "(module (import \"env\" \"f\" (func)) (func (export \"on_event\") (param i32) (result i32) i32.const 0))";
    let refused = Program::wasm(&wat::parse_str(imports).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("env.f"), "{refused}");
}

#[test]
fn hostile_modules_are_cut() {
    let on_event = |more: &str, body: &str| {
        format!("(module {more} (func $e (export \"on_event\") (param i32) (result i32) {body}))")
    };
    let slow = cut_wasm(&on_event("", "(loop $l (br $l)) i32.const 0"));
    assert!(matches!(slow, ProgramError::TooSlow), "{slow}");
    cut_wasm(&on_event("", "(call $e (local.get 0))"));
    cut_wasm(&on_event("", "unreachable"));
    cut_wasm(&on_event("(memory 65536)", "i32.const 0"));
    cut_wasm(&on_event("(memory 1)", "(i32.load (i32.const 70000))"));
    // It may ask for more than there is, and gets -1.
    cut_wasm(&on_event("(memory 1)", "(memory.grow (i32.const 65000))"));
    cut_wasm(&on_event("(table 100000000 funcref)", "i32.const 0"));
    cut_wasm(&on_event(
        "(memory 256)",
        "(loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 16777216)) (br $l)) i32.const 0",
    ));
    cut_wasm(
        "(module (func $s (loop $l (br $l))) (start $s) (func (export \"on_event\") (param i32) (result i32) i32.const 0))",
    );
    cut_wasm("(module (func (export \"on_event\") (param i64) (result i32) i32.const 0))");
    cut_wasm("(module)");
    let long = vec![0; limits::PROGRAM_BYTES_MAX + 1];
    assert!(matches!(
        Program::wasm(&long),
        Err(ProgramError::TooLong { .. })
    ));
    assert!(matches!(
        Program::lua(&long),
        Err(ProgramError::TooLong { .. })
    ));
}

#[test]
fn after_a_failure_a_program_is_as_it_was_loaded() {
    let text = "n = 0 function on_event(ev) n = n + 1 if n == 2 then error('no') end return { verdict = n == 1 and 'deny' or 'allow' } end";
    let mut program = Program::lua(text.as_bytes()).unwrap();
    for _ in 0..3 {
        assert_eq!(program.judge(&event()).unwrap().verdict, Verdict::Deny);
        let failed = program.judge(&event()).unwrap_err().to_string();
        assert!(
            failed.contains("no") && failed.lines().count() == 1,
            "{failed}"
        );
    }
}

#[test]
fn a_code_section_without_functions_is_an_error() {
    // 1,024 bytes, of which the first says that there are no functions; alone, and behind a section of another kind.
    let code = [10, 0x80, 0x08, 0];
    for sections in [&code[..], &[&[0, 2, 1, b'x'][..], &code].concat()] {
        let module = [&b"\0asm\x01\0\0\0"[..], sections, &[0; 1023]].concat();
        for module in [&module[..], &module[..module.len() - 1000]] {
            let error = Program::wasm(module).err().unwrap().to_string();
            assert!(error.contains("code section"), "{error}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_program_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let begun = cpu();
        let with_head = [&b"\0asm\x01\0\0\0"[..], &bytes].concat();
        for program in [Program::wasm(&bytes), Program::wasm(&with_head), Program::lua(&bytes)] {
            drop(program.and_then(|mut program| program.judge(&event())));
        }
        prop_assert!(cpu() - begun < CUT);
    }
}
