//! Values of any size, as short as the timeline is to have them.
//!
//! Invariant: what comes out has a bounded size whatever goes in, and is JSON; what is cut says how long it was.

use serde_json::{Value, json};

/// Longest text in a recorded value, in bytes.
pub const TEXT_BYTES_MAX: usize = 1000;

/// Most members of a list in a recorded value.
const MEMBERS_MAX: usize = 32;

/// Longest recorded value, in bytes.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// A value as JSON, long parts of it cut.
pub fn recorded_json(mut value: Value) -> String {
    shorten(&mut value);
    let text = value.to_string();
    if text.len() <= RECORD_BYTES_MAX {
        return text;
    }
    json!({ "cut": cut(&text, RECORD_BYTES_MAX / 8) }).to_string()
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > TEXT_BYTES_MAX => *text = cut(text, TEXT_BYTES_MAX),
        Value::Array(members) => {
            let more = members.len().saturating_sub(MEMBERS_MAX);
            members.truncate(MEMBERS_MAX);
            members.iter_mut().for_each(shorten);
            if more > 0 {
                members.push(format!("… {more} more").into());
            }
        }
        Value::Object(members) => members.values_mut().for_each(shorten),
        _ => {}
    }
}

/// The beginning of a text, and how long it was.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    format!(
        "{}… ({} bytes)",
        &text[..text.floor_char_boundary(most)],
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_recorded_as_they_are_or_cut() {
        let kept = |value: Value| serde_json::from_str::<Value>(&recorded_json(value)).unwrap();
        let short = json!({"path": "a", "content": "b", "n": 1});
        assert_eq!(kept(short.clone()), short);
        let long = json!({"path": "a", "content": "ä".repeat(1 << 20), "list": vec![1; 5000]});
        let long = kept(long);
        let content = long["content"].as_str().unwrap();
        assert!(
            content.len() < 1100 && content.ends_with("(2097152 bytes)"),
            "{content}"
        );
        assert_eq!(long["list"].as_array().unwrap().len(), 33);
        let many: Value = (0..9000).map(|i| (i.to_string(), json!([i]))).collect();
        assert!(recorded_json(many.clone()).len() < RECORD_BYTES_MAX);
        assert!(kept(many)["cut"].is_string());
    }
}
