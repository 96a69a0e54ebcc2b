//! A call of a tool, from its arguments to its answer: on a connection of its own, and recorded where it changes
//! something.

use super::answer::Answer;
use super::lines::RawValue;
use super::record::recorded;
use super::session::Session;
use super::tools::Tool;
use serde_json::{Map, Value};

/// Carries out a call of a tool; `raw` is a parameter as it was written, where that matters.
pub fn call(
    session: &Session,
    tool: &Tool,
    arguments: Map<String, Value>,
    raw: Option<RawValue>,
) -> Answer {
    let done = session.with_turn(raw, |turn| match tool.changes {
        true => recorded(turn, tool, arguments),
        false => tool.run(turn, arguments),
    });
    match done {
        Ok(Ok(answer)) => answer,
        Ok(Err(failure)) | Err(failure) => Answer::failure(&failure),
    }
}
