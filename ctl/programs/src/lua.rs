//! Programs in Lua 5.4.
//!
//! `on_event` gets the event as a table and gives one with `verdict` and, if it likes, `extra`; `nil` means what was decided
//! before. What could outlast its limit is not there ([`bounds`]): nothing catches the error by which a program is cut, and nothing runs
//! where the hook does not look (coroutines, finalizers).

mod bounds;

use crate::limits::*;
use crate::{Answer, ProgramError, ProgramEvent, Verdict, one_line};
use bounds::Meter;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};
use std::sync::Arc;

pub(crate) struct LuaProgram {
    text: Vec<u8>,
    running: Option<Running>,
}

struct Running {
    lua: Lua,
    meter: Arc<Meter>,
    on_event: Function,
}

impl LuaProgram {
    pub(crate) fn load(text: &[u8]) -> Result<LuaProgram, ProgramError> {
        let running = Some(Running::begin(text)?);
        let text = text.to_vec();
        Ok(LuaProgram { text, running })
    }

    pub(crate) fn judge(&mut self, event: &ProgramEvent<'_>) -> Result<Answer, ProgramError> {
        let running = match self.running.take() {
            Some(running) => running,
            None => Running::begin(&self.text)?,
        };
        let answer = running.ask(event)?;
        // One that failed is not kept.
        self.running = Some(running);
        Ok(answer)
    }
}

impl Running {
    fn begin(text: &[u8]) -> Result<Running, ProgramError> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::UTF8;
        let invalid = |error: mlua::Error| ProgramError::Invalid(one_line(&error.to_string()));
        let lua = Lua::new_with(libraries, LuaOptions::default()).map_err(invalid)?;
        lua.set_memory_limit(LUA_BYTES_MAX).map_err(invalid)?;
        let meter = Arc::new(Meter::default());
        bounds::set(&lua, &meter).map_err(invalid)?;
        meter.begin(LUA_BEGIN_INSTRUCTIONS_MAX, BEGIN_TIME_MAX);
        let chunk = lua
            .load(text)
            .set_name("=program")
            .set_mode(ChunkMode::Text);
        let begun = chunk.exec();
        meter.check(begun).map_err(|failed| match failed {
            ProgramError::Failed(why) => ProgramError::Invalid(why),
            other => other,
        })?;
        let on_event = lua.globals().raw_get::<Value>("on_event");
        let on_event = match on_event.map_err(invalid)? {
            Value::Function(function) => function,
            other => {
                return Err(ProgramError::NoEntry(format!(
                    "it is {}",
                    other.type_name()
                )));
            }
        };
        Ok(Running {
            lua,
            meter,
            on_event,
        })
    }

    fn ask(&self, event: &ProgramEvent<'_>) -> Result<Answer, ProgramError> {
        // What the event takes counts, too, and so does a collection that it sets off.
        self.meter.begin(LUA_INSTRUCTIONS_MAX, TIME_MAX);
        let asked = table_of(&self.lua, event).and_then(|event| self.on_event.call::<Value>(event));
        match self.meter.check(asked)? {
            Value::Nil => Ok(Answer {
                verdict: event.verdict,
                extra: Vec::new(),
            }),
            Value::Table(answer) => answer_of(&answer, event.verdict),
            other => Err(ProgramError::NoVerdict(format!("a {}", other.type_name()))),
        }
    }
}

/// An event as a table.
fn table_of(lua: &Lua, event: &ProgramEvent<'_>) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 17)?;
    let numbers = [
        ("ts", event.ts),
        ("session_id", event.session_id),
        ("branch_id", event.branch_id),
        ("policy_version", event.policy_version),
        ("dev", event.dev),
        ("ino", event.ino),
        ("i_generation", event.i_generation),
        ("pid", event.pid.into()),
        ("uid", event.uid.into()),
        ("gid", event.gid.into()),
        ("bytes", event.bytes),
        ("latency_ns", event.latency_ns),
    ];
    for (key, number) in numbers {
        table.raw_set(key, i64::try_from(number).unwrap_or(i64::MAX))?;
    }
    table.raw_set("op", event.op)?;
    table.raw_set("verdict", event.verdict.word())?;
    table.raw_set("path", lua.create_string(event.path)?)?;
    table.raw_set("backend", event.backend)?;
    let extra = lua.create_table_with_capacity(0, event.extra.len())?;
    for (key, text) in event.extra {
        extra.raw_set(*key, lua.create_string(*text)?)?;
    }
    table.raw_set("extra", extra)?;
    Ok(table)
}

/// A table as an answer. What is no text or number among its extra texts is left out.
fn answer_of(table: &Table, before: Verdict) -> Result<Answer, ProgramError> {
    let get = |key| {
        let got = table.raw_get::<Value>(key);
        got.map_err(|e| ProgramError::Failed(one_line(&e.to_string())))
    };
    let verdict = match get("verdict")? {
        Value::Nil => before,
        Value::String(word) => {
            let found = Verdict::ALL.into_iter().find(|v| word == v.word());
            found.ok_or_else(|| ProgramError::NoVerdict(format!("{:?}", word.to_string_lossy())))?
        }
        other => return Err(ProgramError::NoVerdict(format!("a {}", other.type_name()))),
    };
    let Value::Table(texts) = get("extra")? else {
        let extra = Vec::new();
        return Ok(Answer { verdict, extra });
    };
    let mut extra = Vec::new();
    let mut bytes = 0;
    for pair in texts.pairs::<Value, Value>() {
        let (key, text) = pair.map_err(|e| ProgramError::Failed(one_line(&e.to_string())))?;
        let (Value::String(key), Some(text)) = (key, text_of(&text)) else {
            continue;
        };
        let key = key.to_string_lossy();
        bytes += key.len() + text.len();
        if extra.len() >= EXTRA_MAX || bytes > EXTRA_BYTES_MAX {
            return Err(ProgramError::Failed("its extra texts are too long".into()));
        }
        extra.push((key, text));
    }
    extra.sort();
    Ok(Answer { verdict, extra })
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        // A longer one exceeds the limit of all; it is not copied for that.
        Value::String(text) if text.as_bytes().len() <= EXTRA_BYTES_MAX + 1 => {
            Some(text.to_string_lossy())
        }
        Value::String(_) => Some(" ".repeat(EXTRA_BYTES_MAX + 1)),
        Value::Integer(n) => Some(n.to_string()),
        Value::Number(n) => Some(n.to_string()),
        Value::Boolean(b) => Some(b.to_string()),
        _ => None,
    }
}
