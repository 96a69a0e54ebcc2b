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
const GONE: [&str; 9] = [
    "pcall",
    "xpcall",
    "load",
    "loadfile",
    "dofile",
    "collectgarbage",
    "print",
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
            check_pattern(&all)?;
            original.call::<MultiValue>(all)
        };
        string.raw_set(name, lua.create_function(bounded)?)?;
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
    let between = between
        .as_ref()
        .map(|b| b.as_bytes().to_vec())
        .unwrap_or_default();
    let bytes = (text.len() + between.len()).saturating_mul(count);
    if bytes > LUA_REP_BYTES_MAX || count > LUA_REP_BYTES_MAX {
        return Err(mlua::Error::runtime("string.rep makes too long a text"));
    }
    let parts: Vec<&[u8]> = std::iter::repeat_n(&text[..], count).collect();
    lua.create_string(parts.join(&between[..]))
}

/// Refuses a pattern that could take too many steps. Each item that repeats tries each length, and so does what follows it for
/// each of these; a pattern that is not anchored begins at each position. So n + 1 to the power of that many is an upper bound,
/// times the length of the pattern. `%b` and a class in brackets look at the text, or at themselves, once more.
fn check_pattern(all: &MultiValue) -> Result<()> {
    let text = |at: usize| match all.get(at) {
        Some(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    let (Some(subject), Some(pattern)) = (text(0), text(1)) else {
        // A number as a text is short; anything else is an error of the original.
        return Ok(());
    };
    let steps = steps_at_most(subject.len(), &pattern);
    if steps > LUA_PATTERN_STEPS_MAX {
        let why = "a pattern may take too long: use fewer of * + - or begin it with ^";
        return Err(mlua::Error::runtime(why));
    }
    Ok(())
}

fn steps_at_most(subject: usize, pattern: &[u8]) -> u64 {
    let repeats = pattern.iter().filter(|byte| b"*+-".contains(byte)).count();
    // Also what is escaped or in a class counts: the bound stays one.
    let balanced = pattern.windows(2).filter(|two| *two == b"%b").count();
    let is_anchored = pattern.first() == Some(&b'^');
    let power = repeats + balanced + usize::from(!is_anchored);
    let each = subject as u64 + 1;
    let tried = (0..power).try_fold(1u64, |all, _| all.checked_mul(each));
    tried
        .and_then(|tried| tried.checked_mul(pattern.len() as u64 + 1))
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_with_what_repeats() {
        assert_eq!(steps_at_most(9, b"^abc"), 5);
        assert_eq!(steps_at_most(9, b"abc"), 40);
        assert_eq!(steps_at_most(9, b"^a*b*"), 600);
        assert_eq!(steps_at_most(1000, &b".-".repeat(30)), u64::MAX);
    }
}
