//! Each limit is where docs/policy.md says: what is just within it judges, and what is just beyond it does not.
#![allow(clippy::unwrap_used)]

mod common;

use agentvfs_programs::{Program, ProgramError, Verdict, limits};
use common::{cpu, event};
use std::time::Duration;

/// Processor time of an event that is cut, at most. One instruction may begin something that takes longer than the limit, but
/// nothing takes many times as long.
const CUT: Duration = Duration::from_millis(30);
/// Bytes of a page of WebAssembly.
const PAGE_BYTES: usize = 64 << 10;

/// What a Lua function with this body says of an event, `before` having been executed when the program began.
fn lua(before: &str, body: &str) -> Result<Verdict, ProgramError> {
    let text = format!("{before} function on_event(ev) {body} end");
    let mut program = Program::lua(text.as_bytes())?;
    program.judge(&event()).map(|answer| answer.verdict)
}

/// What a module with these parts says of an event.
fn wasm(parts: &str) -> Result<Verdict, ProgramError> {
    let mut program = Program::wasm(&wat::parse_str(format!("(module {parts})")).unwrap())?;
    program.judge(&event()).map(|answer| answer.verdict)
}

/// A function `on_event` of WebAssembly.
fn on_event(body: &str) -> String {
    format!("(func (export \"on_event\") (param $op i32) (result i32) {body})")
}

fn refused(said: Result<Verdict, ProgramError>) -> String {
    said.unwrap_err().to_string()
}

#[test]
fn an_event_has_a_millisecond_whatever_the_program_calls() {
    for (before, call) in [
        ("s = ('x'):rep(60000)", "s:upper()"),
        ("s = ('x'):rep(60000)", "s:find('y', 1, true)"),
        (
            "t = {} for i = 1, 5000 do t[i] = i end",
            "table.insert(t, 1, 0) table.remove(t)",
        ),
        (
            "t = {} for i = 1, 5000 do t[i] = 'x' end",
            "table.concat(t)",
        ),
        ("s = ('x'):rep(200)", "s:find('.-y')"),
    ] {
        let body = format!("while true do {call} end");
        let text = format!("{before} function on_event(ev) {body} end");
        let mut program = Program::lua(text.as_bytes()).unwrap();
        let begun = cpu();
        let cut = program.judge(&event()).unwrap_err();
        let took = cpu() - begun;
        assert!(took >= limits::TIME_MAX && took < CUT, "{call}: {took:?}");
        assert!(matches!(cut, ProgramError::TooSlow), "{call}: {cut}");
    }
}

#[test]
fn lua_has_two_mebibytes() {
    let keep = |bytes: usize| {
        let parts = bytes / limits::LUA_REP_BYTES_MAX;
        let part = format!(
            "('{}'):rep({})",
            "x".repeat(64),
            limits::LUA_REP_BYTES_MAX / 64
        );
        let before = format!("t = {{}} for i = 1, {parts} do t[i] = {part} end");
        lua(&before, "return { verdict = 'deny' }")
    };
    assert_eq!(keep(3 << 19).unwrap(), Verdict::Deny);
    let why = refused(keep(2 << 20));
    assert!(why.contains("memory"), "{why}");
}

#[test]
fn string_rep_is_bounded_in_bytes_and_in_rounds() {
    let rep = |call: &str| {
        lua(
            "",
            &format!("local s = {call} return {{ verdict = 'deny' }}"),
        )
    };
    assert_eq!(rep("('x'):rep(65536)").unwrap(), Verdict::Deny);
    for call in [
        "('x'):rep(65537)",
        "('x'):rep(1 << 32)",
        "('x'):rep(1 << 62)",
        "('x'):rep(40000, 'y')",
        // It would be empty, after so many rounds.
        "(''):rep(1 << 40)",
    ] {
        let why = refused(rep(call));
        assert!(why.contains("too long a text"), "{call}: {why}");
    }
}

#[test]
fn lists_are_as_long_as_memory_lets_them_be() {
    // The length of a table is found by doubling, so few entries make one that is as long as numbers go.
    let entries: Vec<String> = (0..63).map(|n| format!("[1 << {n}] = 1")).collect();
    let before = format!("t = {{ {} }} assert(#t > 1 << 60)", entries.join(", "));
    for call in [
        "table.insert(t, 1, 1)",
        "table.remove(t, 1)",
        "table.concat(t)",
        "table.unpack(t)",
    ] {
        let begun = cpu();
        assert!(lua(&before, call).is_err(), "{call}");
        assert!(cpu() - begun < CUT, "{call}");
    }
    let usual = "local t = {} for i = 1, 100 do table.insert(t, i) end table.insert(t, 1, 0)
        return { verdict = table.remove(t, 2) == 1 and table.remove(t) == 100 and #t == 99 and 'deny' or 'allow' }";
    assert_eq!(lua("", usual).unwrap(), Verdict::Deny);
}

#[test]
fn patterns_are_bounded_by_what_repeats_in_them() {
    let ask = |call: &str| {
        let begun = cpu();
        let said = lua(
            "",
            &format!("if {call} then return {{ verdict = 'deny' }} end"),
        );
        assert!(cpu() - begun < CUT, "{call}");
        said
    };
    for usual in [
        "ev.path:find('my-long-name/node-gyp-build', 1, true)",
        "ev.path:match('node%-gyp%-build%.lock$')",
        "ev.path:match('^src/[%w_+*-]+/')",
        "ev.path:match('^src/[^]/-]+%-long')",
        "ev.path:gsub('%-', '_')",
        "ev.path:match('/?[nm]?ode')",
        "ev.path:match('%f[%w]node%f[%W]')",
    ] {
        assert_eq!(ask(usual).unwrap(), Verdict::Deny, "{usual}");
    }
    for costly in [
        // Each may be there or not.
        "(('a'):rep(30)):find('^' .. ('a?'):rep(30) .. ('a'):rep(30))",
        "(('a'):rep(40)):match(('[a]?'):rep(40) .. ('a'):rep(40))",
        // It is no anchor in gmatch.
        "(('^'):rep(3000)):gmatch('^.-b')()",
        // What was captured is compared again and again.
        "(('a'):rep(3000)):find('^(.-)%1%1b')",
        "(('a'):rep(60000)):find(('a'):rep(30000) .. 'b', 1, true)",
        "(('a'):rep(3000)):find('[]*]*[]*]*b')",
    ] {
        let why = refused(ask(costly));
        assert!(
            why.contains("a pattern may take too long"),
            "{costly}: {why}"
        );
    }
}

#[test]
fn bytecode_is_not_loaded() {
    let lua = mlua::Lua::new();
    let chunk = lua.load("function on_event(ev) return { verdict = 'deny' } end");
    let bytecode = chunk.into_function().unwrap().dump(true);
    assert!(bytecode.starts_with(b"\x1bLua"));
    // Whoever takes it finds a program.
    lua.load(&bytecode[..]).exec().unwrap();
    assert!(lua.globals().contains_key("on_event").unwrap());
    let why = Program::lua(&bytecode).unwrap_err().to_string();
    assert!(why.contains("binary chunk"), "{why}");
}

#[test]
fn a_module_has_sixteen_mebibytes() {
    let pages = limits::WASM_BYTES_MAX / PAGE_BYTES;
    let of = |pages: usize, body: &str| wasm(&format!("(memory {pages}) {}", on_event(body)));
    assert_eq!(of(pages, "i32.const 2").unwrap(), Verdict::Deny);
    let why = refused(of(pages + 1, "i32.const 2"));
    assert!(why.contains("memory"), "{why}");
    // It gets -1 for what is too much, and the old length otherwise.
    let grown = |by: usize| {
        wasm(&format!(
            "(memory 1) (global $got (mut i32) (i32.const 0))
             (func $s (global.set $got (memory.grow (i32.const {by})))) (start $s) {}",
            on_event(
                "(if (i32.eq (global.get $got) (i32.const -1)) (then (return (i32.const 2)))) i32.const 0"
            )
        ))
    };
    assert_eq!(grown(pages - 1).unwrap(), Verdict::Allow);
    assert_eq!(grown(pages).unwrap(), Verdict::Deny);
}

#[test]
fn a_modules_tables_do_not_grow_beyond_their_limit() {
    let max = limits::WASM_TABLE_MAX;
    let of = |has: usize, by: usize| {
        let grown = format!("(table.grow $t (ref.null func) (i32.const {by}))");
        let body = format!(
            "(if (i32.eq {grown} (i32.const -1)) (then (return (i32.const 2)))) i32.const 0"
        );
        wasm(&format!("(table $t {has} funcref) {}", on_event(&body)))
    };
    assert_eq!(of(1, max - 1).unwrap(), Verdict::Allow);
    assert_eq!(of(1, max).unwrap(), Verdict::Deny);
    let why = refused(of(max + 1, 0));
    assert!(why.contains("table"), "{why}");
    // As many as there may be, and one more.
    let tables = |count: usize| {
        wasm(&format!(
            "{} {}",
            "(table 1 funcref)".repeat(count),
            on_event("i32.const 2")
        ))
    };
    assert_eq!(tables(4).unwrap(), Verdict::Deny);
    assert!(tables(5).is_err());
}

#[test]
fn a_module_calls_itself_so_often_and_not_more() {
    let depth = |calls: usize, locals: &str| {
        wasm(&format!(
            "(func $f (param $n i32) (result i32) {locals}
               (if (i32.eqz (local.get $n)) (then (return (i32.const 2))))
               (call $f (i32.sub (local.get $n) (i32.const 1))))
             {}",
            on_event(&format!("(call $f (i32.const {calls}))"))
        ))
    };
    let max = limits::WASM_CALLS_MAX;
    assert_eq!(depth(max - 20, "").unwrap(), Verdict::Deny);
    let why = refused(depth(max + 1, ""));
    assert!(why.contains("stack"), "{why}");
    // Fewer calls whose values take more than there is for them.
    let locals = "(local i64)".repeat(limits::WASM_STACK_BYTES_MAX / 8 / 100);
    assert_eq!(depth(50, &locals).unwrap(), Verdict::Deny);
    let why = refused(depth(150, &locals));
    assert!(why.contains("stack"), "{why}");
}

#[test]
fn a_module_has_fuel_for_an_event_and_more_to_begin() {
    let rounds = |count: u64| {
        format!(
            "(local $n i64)
             (local.set $n (i64.const {count}))
             (loop $l (local.set $n (i64.sub (local.get $n) (i64.const 1)))
               (br_if $l (i64.ne (local.get $n) (i64.const 0))))"
        )
    };
    // A round takes some instructions.
    let asked = |count| wasm(&on_event(&format!("{} i32.const 2", rounds(count))));
    assert_eq!(asked(limits::WASM_FUEL / 20).unwrap(), Verdict::Deny);
    assert!(matches!(
        asked(limits::WASM_FUEL),
        Err(ProgramError::TooSlow)
    ));
    let begun = |count| {
        wasm(&format!(
            "(func $s {}) (start $s) {}",
            rounds(count),
            on_event("i32.const 2")
        ))
    };
    assert_eq!(begun(limits::WASM_FUEL).unwrap(), Verdict::Deny);
    assert!(matches!(
        begun(limits::WASM_BEGIN_FUEL),
        Err(ProgramError::TooSlow)
    ));
}

#[test]
fn fuel_is_taken_for_what_takes_time() {
    let loops = [
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const 16777216))",
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const 4096))",
        "(memory.copy (i32.const 0) (i32.const 4096) (i32.const 65536))",
        "(memory.init $d (i32.const 0) (i32.const 0) (i32.const 1000))",
        "(table.fill $t (i32.const 0) (ref.null func) (i32.const 10000))",
        "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 9999))",
        "(drop (memory.grow (i32.const 0)))",
        "(drop (table.grow $t (ref.null func) (i32.const 0)))",
        "(local.set $n (i32.mul (i32.add (local.get $n) (i32.const 1)) (i32.const 1103515245)))
         (drop (i32.load (i32.and (local.get $n) (i32.const 0xfffffc))))",
        "(drop (f64.sqrt (f64.div (f64.const 7) (f64.convert_i32_s (local.get $op)))))",
    ];
    for body in loops {
        let text = format!(
            "(module (memory 256) (table $t 10000 funcref) (data $d \"{}\")
             (func (export \"on_event\") (param $op i32) (result i32) (local $n i32) (loop $l {body} (br $l)) i32.const 0))",
            "x".repeat(1000)
        );
        let mut program = Program::wasm(&wat::parse_str(text).unwrap()).unwrap();
        let begun = cpu();
        let cut = program.judge(&event()).unwrap_err();
        let took = cpu() - begun;
        assert!(took < CUT, "{body}: {took:?}");
        assert!(matches!(cut, ProgramError::TooSlow), "{body}: {cut}");
    }
}

#[test]
fn numbers_beside_the_three_verdicts_are_none() {
    for number in [3, 99, -1, i32::MIN, i32::MAX] {
        let said = wasm(&on_event(&format!("i32.const {number}")));
        assert!(
            matches!(said, Err(ProgramError::NoVerdict(_))),
            "{number}: {said:?}"
        );
    }
}
