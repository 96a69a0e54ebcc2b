//! Each call that changes something, in the timeline: its name, its parameters and what became of it.
//!
//! Invariant: what is recorded is of a sane size whatever a client sends, and a call is carried out also
//! where it cannot be recorded (its answer then says so): on a full disk a rollback must still work. A call with what it
//! changes costs one sync, that of its end; where the end cannot be noted what was changed is synced by itself.

use super::answer::Answer;
use super::session::Turn;
use super::tools::Tool;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, CallId, Finished, Nothing, OnBranch, ToolFinish, ToolStart};
use agentvfs_client::short::{RECORD_BYTES_MAX, TEXT_BYTES_MAX, cut, recorded_json};
use serde_json::{Map, Value};

/// Carries out a call, with an entry in the timeline of the branch that it changes.
pub fn recorded(
    turn: &mut Turn<'_>,
    tool: &Tool,
    arguments: Map<String, Value>,
) -> Result<Answer, Failure> {
    let branch = turn.branch(branch_of(&arguments));
    let start = Call::ToolStart(ToolStart {
        workspace: turn.workspace(),
        branch: branch.clone(),
        name: tool.name.to_owned(),
        parameters: Some(recorded_json(Value::Object(arguments.clone()))),
        // What the call changes is in the same journal, behind it.
        unsynced: true,
        of_process: true,
        key: None,
    });
    let started: Result<CallId, Failure> = turn.ask("cannot record the call", &start);
    turn.set_unsynced(started.is_ok());
    let done = tool.run(turn, arguments);
    let is_unsynced = turn.is_unsynced();
    let finished = started.and_then(|CallId { id }| {
        let (result, error) = outcome(&done);
        let finish = Call::ToolFinish(ToolFinish {
            workspace: turn.workspace(),
            branch: branch.clone(),
            id: Some(id),
            key: None,
            result,
            error,
            unsynced: false,
        });
        let Finished { .. } = turn.ask("cannot record the call", &finish)?;
        Ok(id)
    });
    if is_unsynced && finished.is_err() {
        let (workspace, branch) = (turn.workspace(), branch);
        let sync = Call::Sync(OnBranch { workspace, branch });
        let Nothing {} = turn.ask("cannot bring the change to stable storage", &sync)?;
    }
    match (done, finished) {
        (Ok(answer), Ok(id)) => Ok(answer.fact("call", id)),
        (Ok(answer), Err(failure)) => {
            Ok(answer.note(format!("not in the timeline: {}", failure.why)))
        }
        (failed, _) => failed,
    }
}

/// The branch that a call names.
fn branch_of(arguments: &Map<String, Value>) -> Option<String> {
    let named = arguments.get("branch").or_else(|| arguments.get("into"))?;
    named.as_str().map(str::to_owned)
}

fn outcome(done: &Result<Answer, Failure>) -> (Option<String>, Option<String>) {
    match done {
        Ok(answer) if !answer.is_failed() => {
            let text = answer.words();
            let is_json = text.len() <= RECORD_BYTES_MAX
                && serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object());
            let result = match is_json {
                true => text.to_owned(),
                false => Value::from(cut(text, TEXT_BYTES_MAX)).to_string(),
            };
            (Some(result), None)
        }
        Ok(answer) => (None, Some(cut(answer.words(), TEXT_BYTES_MAX))),
        Err(failure) => (None, Some(cut(failure.plain().trim_end(), TEXT_BYTES_MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn outcomes_are_json_or_the_words_of_the_error() {
        let plain = outcome(&Ok(Answer::text("Wrote 3 bytes")));
        assert_eq!(plain, (Some("\"Wrote 3 bytes\"".into()), None));
        let (result, _) = outcome(&Ok(Answer::json(&json!({"left": 0}))));
        assert_eq!(
            serde_json::from_str::<Value>(&result.unwrap()).unwrap(),
            json!({"left": 0})
        );
        let failed = Failure::new("cannot write in w", "no space").hint("make room");
        let (_, error) = outcome(&Err(failed));
        assert_eq!(
            error.unwrap(),
            "agentvfs: cannot write in w: no space\nhint: make room"
        );
        assert!(outcome(&Ok(Answer::text("x").failed())).1.is_some());
    }

    #[test]
    fn the_branch_is_the_one_that_is_changed() {
        let branch = |value: Value| branch_of(&object(value));
        assert_eq!(branch(json!({"branch": "fix"})).as_deref(), Some("fix"));
        assert_eq!(
            branch(json!({"from": "fix", "into": "main"})).as_deref(),
            Some("main")
        );
        assert_eq!(branch(json!({"branch": null})), None);
        assert_eq!(branch(json!({})), None);
    }
}
