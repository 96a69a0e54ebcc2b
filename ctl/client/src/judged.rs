//! What of a tool call a policy is asked about: its texts, which clients make and the daemon's rules look at.

use serde_json::Value;

/// Texts of one call's input that are looked at, at most.
const TEXTS_MAX: usize = 10_000;

/// Texts in which rules look for their `input`: all texts that the JSON has, lists of texts joined by spaces as a
/// shell's arguments are, and the JSON itself.
pub fn texts_of(input: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = vec![input];
    while let Some(value) = rest.pop() {
        if texts.len() >= TEXTS_MAX {
            break;
        }
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(all) => {
                let words: Option<Vec<&str>> = all.iter().map(Value::as_str).collect();
                texts.extend(
                    words
                        .filter(|words| words.len() > 1)
                        .map(|words| words.join(" ")),
                );
                rest.extend(all);
            }
            Value::Object(all) => rest.extend(all.values()),
            _ => {}
        }
    }
    texts.push(input.to_string());
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deep_and_long_inputs_have_an_end() {
        let many: Vec<Value> = (0..50_000).map(|n| json!(n.to_string())).collect();
        assert!(texts_of(&json!(many)).len() <= TEXTS_MAX + 1);
    }
}
