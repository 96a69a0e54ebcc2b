//! What commands and tools show alike: bytes and tool calls in JSON, numbers, ids.

use crate::protocol::TimelineRow;
use crate::quote::base64;
use crate::when::rfc3339;
use serde_json::{Map, Value, json};

/// Puts bytes into an object: as text, and where that loses something also as `KEY_b64`.
pub fn insert_bytes(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if text.as_bytes() != bytes {
        object.insert(format!("{key}_b64"), base64(bytes).into());
    }
    object.insert(key.to_owned(), text.into_owned().into());
}

/// JSON text as JSON.
fn value(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| {
        serde_json::from_str(text).unwrap_or_else(|_| text.clone().into())
    })
}

/// A call as JSON: what AgentFS's has, and more.
pub fn call_object(item: &TimelineRow) -> Value {
    json!({
        "id": item.id,
        "kind": item.kind,
        "entry": item.entry,
        "undoes": item.undoes,
        "name": item.name,
        "status": item.status.word(),
        "parameters": value(item.parameters.as_ref()),
        "result": value(item.result.as_ref()),
        "error": item.error,
        "started_at": item.started.sec,
        "completed_at": item.completed.map(|m| m.sec),
        "started": rfc3339(item.started),
        "completed": item.completed.map(rfc3339),
        "duration_ms": item.duration_ms,
        "before": item.before,
        "after": item.after,
        "parent": item.parent,
        "overlaps": item.overlaps,
        "switches": item.switches,
        "branch": item.branch,
        "branch_deleted": item.branch_deleted,
        "key": item.key,
    })
}

/// `1 file`, `2 files`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// The beginning of an id, for people.
pub fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_plural() {
        assert_eq!(count(1, "file"), "1 file");
        assert_eq!(count(0, "file"), "0 files");
    }
}
