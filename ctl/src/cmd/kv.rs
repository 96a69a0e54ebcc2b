//! `agentvfs kv`: key-value state of a branch.

use super::Context;
use super::place::{Directory, place};
use crate::cli::{KvDeleteArgs, KvGetArgs, KvListArgs, KvSetArgs, KvVerb};
use crate::output::{Rows, print_json, print_kept_json, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Call, Json, KvDelete, KvDeleteAnswer, KvGet, KvList, KvListAnswer, KvRow, KvSet, Side,
};
use agentvfs_client::when::rfc3339;
use engine::kv::{VALUE_BYTES_MAX, check_key, checked_value};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read};

/// What to do with a value that is too long.
const LONG: &str = "store longer data in a file, and its path as the value";

/// Runs a verb.
pub fn run(verb: KvVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        KvVerb::Set(args) => set(args, context)?,
        KvVerb::Get(args) => get(args, context)?,
        KvVerb::List(args) => list(args, context)?,
        KvVerb::Delete(args) => delete(args, context)?,
    }
    Ok(0)
}

fn checked_key(key: String) -> Result<String, Failure> {
    match check_key(&key) {
        Ok(()) => Ok(key),
        Err(e) => Err(Failure::usage(e.to_string())
            .hint("a key has 1 to 1024 bytes of UTF-8 without control characters")),
    }
}

fn set(args: KvSetArgs, context: &mut Context) -> Result<(), Failure> {
    let key = checked_key(args.key)?;
    let given = match args.value.as_str() {
        "-" => from_input()?,
        _ => args.value,
    };
    let json = match args.string {
        true => Value::from(given).to_string(),
        false => given,
    };
    let refused = |e: engine::Error| {
        let failure = Failure::usage(format!("{key}: {e}"));
        match e {
            engine::Error::NotJson { .. } => {
                failure.hint("--string stores a text as a JSON string")
            }
            _ => failure.hint(LONG),
        }
    };
    let value = Json(checked_value(&json).map_err(refused)?.into_bytes());
    let what = format!("cannot set {key}");
    let (workspace, branch) = (context.workspace_to_change(None)?, context.branch()?);
    let call = Call::KvSet(KvSet {
        workspace: workspace.clone(),
        branch: branch.clone(),
        key,
        value,
        unsynced: false,
    });
    let row: KvRow = context.ask(&what, &call)?;
    if context.json() {
        return print_kept_json(&format!("{}\n", object(&row)));
    }
    say(
        &format!("{} set", row.key),
        &row.key,
        (&workspace, &branch),
        context,
    );
    Ok(())
}

/// Says what was done to a key, and where its value before may be.
fn say(done: &str, key: &str, (workspace, branch): (&str, &str), context: &mut Context) {
    let place = place(workspace, branch, Directory::Mount, context);
    talk(&format!(
        "{place}key {done}; `agentvfs kv get {key} --ref @` prints the value that the head has"
    ));
}

/// Longest input that is read, in bytes: that of a value with as much white space between its parts.
const INPUT_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;

/// The value from standard input, no more of it than shows that it is too long.
fn from_input() -> Result<String, Failure> {
    let input = std::io::stdin();
    if input.is_terminal() {
        talk("reading standard input; end it with Ctrl-D");
    }
    let mut bytes = Vec::new();
    let most = INPUT_BYTES_MAX as u64 + 1;
    input.lock().take(most).read_to_end(&mut bytes)?;
    if bytes.len() > INPUT_BYTES_MAX {
        let why = format!("the value is too long; the maximum is {VALUE_BYTES_MAX} bytes");
        return Err(Failure::usage(why).hint(LONG));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage("the value is not UTF-8").hint("store bytes in a file, or as base64")
    })
}

fn get(args: KvGetArgs, context: &mut Context) -> Result<(), Failure> {
    let what = format!("cannot get {}", args.key);
    let call = Call::KvGet(KvGet {
        workspace: context.workspace(None)?,
        branch: context.branch()?,
        state: side(args.state.reference),
        key: checked_key(args.key)?,
    });
    let row: KvRow = context.ask(&what, &call)?;
    match context.json() {
        true => print_kept_json(&format!("{}\n", object(&row))),
        false => print_kept_json(&format!("{}\n", row.value.text().unwrap_or("null"))),
    }
}

fn list(args: KvListArgs, context: &mut Context) -> Result<(), Failure> {
    let mut ask = KvList {
        workspace: context.workspace(None)?,
        branch: context.branch()?,
        state: side(args.state.reference),
        prefix: args.prefix.unwrap_or_default(),
        after: None,
    };
    let mut all: Vec<KvRow> = Vec::new();
    loop {
        let call = Call::KvList(ask.clone());
        let answer: KvListAnswer = context.ask("cannot list the keys", &call)?;
        all.extend(answer.entries);
        if !answer.more {
            break;
        }
        ask.after = all.last().map(|row| row.key.clone());
    }
    if context.json() {
        let objects: Vec<String> = all.iter().map(object).collect();
        return print_kept_json(&format!("{{\"entries\":[{}]}}\n", objects.join(",\n")));
    }
    let mut rows = Rows::new(&["KEY", "VALUE"]).plain(1);
    for row in all {
        rows.push(vec![row.key.into_bytes(), row.value.0]);
    }
    rows.print(args.rows.nul)
}

fn delete(args: KvDeleteArgs, context: &mut Context) -> Result<(), Failure> {
    let key = checked_key(args.key)?;
    let (workspace, branch) = (context.workspace_to_change(None)?, context.branch()?);
    let what = format!("cannot delete {key}");
    let call = Call::KvDelete(KvDelete {
        workspace: workspace.clone(),
        branch: branch.clone(),
        key: key.clone(),
        unsynced: false,
    });
    let answer: KvDeleteAnswer = context.ask(&what, &call)?;
    if !answer.deleted {
        return Err(Failure::new(what, format!("there is no key {key:?}"))
            .kind("no-such-key")
            .hint(format!("agentvfs kv list -w {workspace} lists all keys")));
    }
    if context.json() {
        return print_json(&json!({ "key": key, "deleted": true }));
    }
    say(
        &format!("{key} deleted"),
        &key,
        (&workspace, &branch),
        context,
    );
    Ok(())
}

fn side(reference: Option<String>) -> Side {
    reference.map_or(Side::Live, Side::Ref)
}

/// An entry as JSON, its value as it is kept: what a number or the order of members looks like is not
/// changed by reading it.
fn object(row: &KvRow) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let value = row.value.text().unwrap_or("null");
    format!(
        "{{\"key\":{},\"value\":{value},\"created\":{},\"updated\":{}}}",
        text(&row.key),
        text(&rfc3339(row.created)),
        text(&rfc3339(row.updated))
    )
}
