//! Tools for key-value state: `kv_get`, `kv_set`, `kv_delete`, `kv_list`.

use super::Tool;
use crate::answer::Answer;
use crate::limits::{ROWS_BYTES_MAX, ROWS_DEFAULT, ROWS_MAX};
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Call, Json, KvDelete, KvDeleteAnswer, KvGet, KvList, KvListAnswer, KvRow, KvSet,
};
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub fn tools() -> [Tool; 4] {
    [
        Tool::looks(
            "kv_get",
            "Get the JSON value of a key; null, with a note, if there is no such key. Keys are stored \
             with the files: checkpoints include them, and a rollback restores them.",
            get,
        ),
        Tool::changes(
            "kv_set",
            "Set a key to a JSON value. It is on stable storage when the call returns.",
            set,
        ),
        Tool::changes(
            "kv_delete",
            "Remove a key and its value. A missing key is no error.",
            delete,
        ),
        Tool::looks(
            "kv_list",
            "List the keys, as a sorted JSON array; with values as objects of key and value. Long lists come \
             in pages; a note shows how to get more.",
            list,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct GetArgs {
    /// The key
    key: String,
    /// A commit to look into instead of now: a label, an id, @, @~1
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn get(turn: &mut Turn<'_>, args: GetArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, args.reference);
    let what = format!("cannot get {}", args.key);
    let call = Call::KvGet(KvGet {
        workspace: state.workspace,
        branch: state.branch,
        state: state.side,
        key: args.key,
    });
    match turn.ask_unless::<KvRow>(&what, &call, "no-such-key")? {
        Some(row) => Ok(Answer::text(text_of(&row, &what)?)),
        None => Ok(Answer::text("null").note("there is no such key")),
    }
}

/// A value as it is kept.
fn text_of<'a>(row: &'a KvRow, what: &str) -> Result<&'a str, Failure> {
    let odd = || Failure::new(what, "the daemon sent no UTF-8").hint("agentvfs fsck");
    row.value.text().ok_or_else(odd)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct SetArgs {
    /// The key: 1 to 1024 bytes without control characters
    key: String,
    /// Its value: any JSON
    value: Value,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn set(turn: &mut Turn<'_>, args: SetArgs) -> Result<Answer, Failure> {
    let what = format!("cannot set {}", args.key);
    let done = format!("Set key: {}", args.key);
    let raw = turn.raw_value().map(str::to_owned);
    let value = raw.unwrap_or_else(|| args.value.to_string());
    let call = Call::KvSet(KvSet {
        workspace: turn.workspace(),
        branch: turn.branch(args.branch),
        key: args.key,
        value: Json::from(value.as_str()),
        unsynced: turn.is_unsynced(),
    });
    let _: KvRow = turn.ask(&what, &call)?;
    Ok(Answer::text(done))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct DeleteArgs {
    /// The key
    key: String,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn delete(turn: &mut Turn<'_>, args: DeleteArgs) -> Result<Answer, Failure> {
    let what = format!("cannot delete {}", args.key);
    let call = Call::KvDelete(KvDelete {
        workspace: turn.workspace(),
        branch: turn.branch(args.branch),
        key: args.key.clone(),
        unsynced: turn.is_unsynced(),
    });
    let answer: KvDeleteAnswer = turn.ask(&what, &call)?;
    let done = Answer::text(format!("Deleted key: {}", args.key));
    Ok(match answer.deleted {
        true => done,
        false => done.note("there was no such key"),
    }
    .fact("deleted", answer.deleted))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ListArgs {
    /// What the keys begin with; all without this
    #[serde(default)]
    prefix: String,
    /// Give objects with key and value instead of keys
    #[serde(default)]
    values: bool,
    /// Only keys behind this one
    after: Option<String>,
    /// How many keys to give at most; 100 without this, 1000 at most
    limit: Option<u64>,
    /// A commit to look into instead of now: a label, an id, @, @~1
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn list(turn: &mut Turn<'_>, args: ListArgs) -> Result<Answer, Failure> {
    let state = turn.state(args.branch, args.reference);
    let mut ask = KvList {
        workspace: state.workspace,
        branch: state.branch,
        state: state.side,
        prefix: args.prefix,
        after: args.after,
    };
    let what = "cannot list the keys";
    let limit = args.limit.unwrap_or(ROWS_DEFAULT).clamp(1, ROWS_MAX) as usize;
    let (mut shown, mut bytes) = (Vec::new(), 0);
    loop {
        let answer: KvListAnswer = turn.ask(what, &Call::KvList(ask.clone()))?;
        let (more, count) = (answer.more, answer.entries.len());
        for (i, row) in answer.entries.into_iter().enumerate() {
            let text = shown_entry(&row, args.values, what)?;
            bytes += text.len() + 2;
            if !shown.is_empty() && bytes > ROWS_BYTES_MAX {
                return Ok(page(&shown, ask.after));
            }
            shown.push(text);
            ask.after = Some(row.key);
            if shown.len() >= limit && (more || i + 1 < count) {
                return Ok(page(&shown, ask.after));
            }
        }
        if !more {
            return Ok(page(&shown, None));
        }
    }
}

/// A key, or with its value an object, as JSON: what a value looks like is not changed by reading it.
fn shown_entry(row: &KvRow, values: bool, what: &str) -> Result<String, Failure> {
    let key = Value::from(row.key.as_str()).to_string();
    match values {
        true => Ok(format!(
            "{{\"key\":{key},\"value\":{}}}",
            text_of(row, what)?
        )),
        false => Ok(key),
    }
}

fn page(shown: &[String], after: Option<String>) -> Answer {
    let answer = Answer::text(format!("[{}]", shown.join(",")));
    match after {
        Some(key) => answer
            .note(format!(
                "there are more; to continue, use after {}",
                Value::from(key.as_str())
            ))
            .fact("next_after", key),
        None => answer,
    }
}
