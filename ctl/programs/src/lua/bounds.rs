//! What a Lua program has, and how it is cut.
//!
//! A hook counts instructions and looks at the thread's processor time. A function of the library that was called is not cut by
//! it, so each one that is left takes a time that the memory limit bounds: those that could take longer are bounded here, or gone.

use crate::ProgramError;
use crate::limits::*;
use mlua::{Function, HookTriggers, Lua, LuaString, MultiValue, Result, Table, Value, VmState};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Functions that are gone: those that catch errors, make code of texts or bytes, read files, let the program add finalizers,
/// which the hook does not see, print, or sort and move more than an instruction may.
const GONE: [&str; 10] = [
    "pcall",
    "xpcall",
    "load",
    "loadfile",
    "dofile",
    "collectgarbage",
    "print",
    "warn",
    "setmetatable",
    "getmetatable",
];
const GONE_FROM: [(&str, &[&str]); 3] = [
    ("string", &["dump", "pack", "unpack", "packsize"]),
    ("table", &["sort", "move"]),
    ("math", &["randomseed", "random"]),
];

/// Functions with patterns.
const WITH_PATTERNS: [&str; 4] = ["find", "match", "gmatch", "gsub"];

/// Functions that move all entries of a table from a place on.
const THAT_MOVE: [&str; 2] = ["insert", "remove"];

/// How much a program has left.
#[derive(Debug, Default)]
pub(super) struct Meter {
    instructions: AtomicU32,
    /// Processor time of the thread at which it is cut, in nanoseconds.
    until_ns: AtomicU64,
    is_over: AtomicBool,
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000) + u64::try_from(now.tv_nsec).unwrap_or_default()
}

impl Meter {
    /// Gives it so many instructions and so much time from now on.
    pub(super) fn begin(&self, instructions: u32, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.instructions.store(instructions, Relaxed);
        self.until_ns
            .store(thread_ns().saturating_add(time), Relaxed);
        self.is_over.store(false, Relaxed);
    }

    /// Some instructions were carried out.
    fn count(&self) -> Result<VmState> {
        let left = self
            .instructions
            .load(Relaxed)
            .saturating_sub(LUA_LOOK_EVERY);
        self.instructions.store(left, Relaxed);
        if left > 0 && thread_ns() < self.until_ns.load(Relaxed) {
            return Ok(VmState::Continue);
        }
        self.is_over.store(true, Relaxed);
        Err(mlua::Error::runtime("it took longer than it may"))
    }

    /// What became of it.
    pub(super) fn check<T>(&self, outcome: Result<T>) -> std::result::Result<T, ProgramError> {
        match outcome {
            Ok(_) | Err(_) if self.is_over.load(Relaxed) => Err(ProgramError::TooSlow),
            Ok(value) => Ok(value),
            Err(error) => Err(ProgramError::Failed(first_line(&error.to_string()))),
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Takes from a new state what a program may not have, and bounds the rest.
pub(super) fn set(lua: &Lua, meter: &Arc<Meter>) -> Result<()> {
    let globals = lua.globals();
    for name in GONE {
        globals.raw_remove(name)?;
    }
    for (library, names) in GONE_FROM {
        let library: Table = globals.raw_get(library)?;
        names
            .iter()
            .try_for_each(|name| library.raw_remove(*name))?;
    }
    let string: Table = globals.raw_get("string")?;
    string.raw_set("rep", lua.create_function(rep)?)?;
    for name in WITH_PATTERNS {
        let original: Function = string.raw_get(name)?;
        let bounded = move |_: &Lua, all: MultiValue| {
            check_pattern(name, &all)?;
            original.call::<MultiValue>(all)
        };
        string.raw_set(name, lua.create_function(bounded)?)?;
    }
    let table: Table = globals.raw_get("table")?;
    for name in THAT_MOVE {
        let original: Function = table.raw_get(name)?;
        let bounded = move |_: &Lua, all: MultiValue| {
            check_length(&all)?;
            original.call::<MultiValue>(all)
        };
        table.raw_set(name, lua.create_function(bounded)?)?;
    }
    let meter = meter.clone();
    let every = HookTriggers::new().every_nth_instruction(LUA_LOOK_EVERY);
    lua.set_hook(every, move |_, _| meter.count())
}

/// `string.rep`, whose original copies so often that a short text takes long.
fn rep(
    lua: &Lua,
    (text, count, between): (LuaString, i64, Option<LuaString>),
) -> Result<LuaString> {
    let count = usize::try_from(count).unwrap_or(0);
    let text = text.as_bytes();
    let between = between.as_ref().map(|between| between.as_bytes());
    let between = between.as_deref().unwrap_or_default();
    let bytes = (text.len() + between.len()).saturating_mul(count);
    if bytes > LUA_REP_BYTES_MAX || count > LUA_REP_BYTES_MAX {
        return Err(mlua::Error::runtime("string.rep makes too long a text"));
    }
    let mut all = [&text[..], between].concat().repeat(count);
    all.truncate(all.len().saturating_sub(between.len()));
    lua.create_string(all)
}

/// Refuses a table whose length is more than the number of entries that it can have. Lua looks for the length by doubling, so
/// few entries at the right places make it as long as numbers go.
fn check_length(all: &MultiValue) -> Result<()> {
    match all.front() {
        Some(Value::Table(table)) if table.raw_len() > LUA_LENGTH_MAX => {
            Err(mlua::Error::runtime("a table is too long"))
        }
        _ => Ok(()),
    }
}

/// Refuses a pattern that could take too many steps. Each item that repeats tries each length, and so does what follows it for
/// each of these; one that may be there or not tries both; a pattern that is not anchored begins at each position. So n + 1 to
/// the power of that many is an upper bound, times the length of the pattern. `%b`, and what was captured before, look at the text once more.
fn check_pattern(function: &str, all: &MultiValue) -> Result<()> {
    let text = |at: usize| match all.get(at) {
        Some(Value::String(text)) => Some(text.as_bytes()),
        _ => None,
    };
    let (Some(subject), Some(pattern)) = (text(0), text(1)) else {
        // A number as a text is short; anything else is an error of the original.
        return Ok(());
    };
    let is_plain = function == "find"
        && !matches!(all.get(3), None | Some(Value::Nil | Value::Boolean(false)));
    let shape = match is_plain {
        true => Shape::default(),
        false => Shape::of(&pattern),
    };
    // In gmatch, ^ is a character like others.
    let is_anchored = shape.is_anchored && function != "gmatch";
    if shape.steps_at_most(subject.len(), pattern.len(), is_anchored) > LUA_PATTERN_STEPS_MAX {
        let why = "a pattern may take too long: use fewer of * + - ? or begin it with ^";
        return Err(mlua::Error::runtime(why));
    }
    Ok(())
}

/// What in a pattern costs steps. Each number is an upper bound.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shape {
    is_anchored: bool,
    /// Items that look at the rest of the text, or at any length of it.
    repeats: usize,
    /// Items that may be there or not.
    options: usize,
}

impl Shape {
    /// As lstrlib.c reads a pattern. What is malformed there is an error, however it is read here.
    fn of(pattern: &[u8]) -> Shape {
        let mut shape = Shape {
            is_anchored: pattern.first() == Some(&b'^'),
            ..Shape::default()
        };
        let mut at = 0;
        while let Some(byte) = pattern.get(at) {
            at += match byte {
                b'%' => match pattern.get(at + 1) {
                    // Two characters follow, which stand for themselves.
                    Some(b'b') => {
                        shape.repeats += 1;
                        4
                    }
                    Some(b'0'..=b'9') => {
                        shape.repeats += 1;
                        2
                    }
                    _ => 2,
                },
                b'[' => class_bytes(&pattern[at..]),
                b'*' | b'+' | b'-' => {
                    shape.repeats += 1;
                    1
                }
                b'?' => {
                    shape.options += 1;
                    1
                }
                _ => 1,
            };
        }
        shape
    }

    fn steps_at_most(&self, subject: usize, pattern: usize, is_anchored: bool) -> u64 {
        let power = self.repeats + usize::from(!is_anchored);
        let each = subject as u64 + 1;
        let tried = (0..power).try_fold(1u64, |all, _| all.checked_mul(each));
        let tried = (0..self.options).try_fold(tried, |all, _| Some(all?.checked_mul(2)));
        tried
            .flatten()
            .and_then(|tried| tried.checked_mul(pattern as u64 + 1))
            .unwrap_or(u64::MAX)
    }
}

/// Bytes of the class in brackets that a pattern begins with. A bracket that comes first in it does not end it.
fn class_bytes(pattern: &[u8]) -> usize {
    let mut at = 1 + usize::from(pattern.get(1) == Some(&b'^'));
    loop {
        at += match pattern.get(at) {
            None => return pattern.len(),
            Some(b'%') => 2,
            Some(_) => 1,
        };
        if pattern.get(at) == Some(&b']') {
            return at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(subject: usize, pattern: &[u8]) -> u64 {
        let shape = Shape::of(pattern);
        shape.steps_at_most(subject, pattern.len(), shape.is_anchored)
    }

    #[test]
    fn steps_grow_with_what_repeats() {
        assert_eq!(steps(9, b"^abc"), 5);
        assert_eq!(steps(9, b"abc"), 40);
        assert_eq!(steps(9, b"^a*b*"), 600);
        assert_eq!(steps(9, b"^a?b?"), 24);
        assert_eq!(steps(9, b"^(a)%1"), 70);
        assert_eq!(steps(9, b"^%b()"), 60);
        assert_eq!(steps(1000, &b".-".repeat(30)), u64::MAX);
        assert_eq!(steps(1, &b"a?".repeat(64)), u64::MAX);
    }

    #[test]
    fn what_is_escaped_or_in_a_class_does_not_repeat() {
        let shape = |pattern: &[u8]| {
            let shape = Shape::of(pattern);
            (shape.repeats, shape.options)
        };
        for (pattern, want) in [
            (&b"a%-b%*%?"[..], (0, 0)),
            (b"%--", (1, 0)),
            (b"%%-", (1, 0)),
            (b"%b**-", (2, 0)),
            (b"[*+?-]", (0, 0)),
            (b"[*]*?", (1, 1)),
            (b"[]*]*", (1, 0)),
            (b"[^]*]-", (1, 0)),
            (b"[%]*]+", (1, 0)),
            (b"[%]", (0, 0)),
            (b"[", (0, 0)),
            (b"[^", (0, 0)),
            (b"%", (0, 0)),
            (b"%f[%w]*", (1, 0)),
            (b"[[]*]", (1, 0)),
        ] {
            let shown = String::from_utf8_lossy(pattern);
            assert_eq!(shape(pattern), want, "{shown}");
        }
    }

    #[test]
    fn instructions_and_time_end_by_themselves() {
        let meter = Meter::default();
        let hour = Duration::from_secs(3600);
        meter.begin(3 * LUA_LOOK_EVERY, hour);
        let looks = (0..9).take_while(|_| meter.count().is_ok()).count();
        assert_eq!(looks, 2, "the third look finds none left");
        assert!(matches!(meter.check(Ok(())), Err(ProgramError::TooSlow)));
        meter.begin(u32::MAX, Duration::ZERO);
        assert!(meter.count().is_err(), "no time is left");
        meter.begin(u32::MAX, hour);
        assert!(meter.count().is_ok() && meter.check(Ok(())).is_ok());
    }
}
