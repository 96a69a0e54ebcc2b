//! Settings as JSON in which comments and trailing commas may stand.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstObject, CstRootNode};
use serde_json::Value;
use std::collections::BTreeSet;

/// How JSON is read here: as the agents that take comments do.
fn options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// The text as a tree that keeps every byte.
pub fn parse(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &options()).map_err(|e| format!("it is not JSON: {e}"))
}

/// The text as a value; nothing counts as an empty object.
pub fn value(text: &str) -> Result<Value, String> {
    let root = parse(text)?;
    Ok(root
        .to_serde_value()
        .unwrap_or(Value::Object(Default::default())))
}

/// Whether a text has nothing but white space.
pub fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// A child of an object, made where it is missing.
pub fn child<T>(
    object: &CstObject,
    name: &str,
    made: &mut BTreeSet<String>,
    path: &str,
    get: impl Fn(&CstObject, &str) -> Option<T>,
) -> Result<T, String> {
    if object.get(name).is_none() {
        made.insert(path.to_owned());
    }
    get(object, name).ok_or_else(|| format!("its \"{path}\" is of another kind"))
}

/// Whether nothing but an empty object is left of a text: no comments either.
pub fn is_empty(text: &str) -> Result<bool, String> {
    let none = Value::Object(Default::default());
    Ok(is_blank(text) || (!text.contains('/') && value(text)? == none))
}

/// Random settings, for tests.
#[cfg(test)]
pub mod random {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// White space and comments between two tokens.
    pub fn gap() -> impl Strategy<Value = String> {
        let parts = prop_oneof![
            4 => Just(""), 3 => Just(" "), 3 => Just("\n  "), 1 => Just("\r\n\t"),
            1 => Just(" // {\"a\": [\n"), 1 => Just("/* , */"), 1 => Just(" /* ü\r\n */ "),
        ];
        parts.prop_map(str::to_owned)
    }

    /// A value of settings, with gaps.
    pub fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("true".to_owned()),
            Just("null".to_owned()),
            Just("-1.5e3".to_owned()),
            "[a-zü/]{0,6}".prop_map(|text| format!("\"{text}\"")),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let list = prop::collection::vec((gap(), inner.clone(), gap()), 0..4);
            let list = (list, gap(), any::<bool>()).prop_map(|(all, end, comma)| {
                let all: Vec<String> = all.into_iter().map(|(a, v, b)| a + &v + &b).collect();
                let comma = if comma && !all.is_empty() { "," } else { "" };
                format!("[{}{comma}{end}]", all.join(","))
            });
            let named = prop::collection::btree_map("[a-z]{1,5}", (gap(), inner), 0..4);
            prop_oneof![list, (named, gap(), any::<bool>()).prop_map(object)]
        })
    }

    /// An object of those members, with gaps.
    pub fn object((all, end, comma): (BTreeMap<String, (String, String)>, String, bool)) -> String {
        let all: Vec<String> = all
            .into_iter()
            .map(|(name, (gap, value))| format!("{gap}\"{name}\"{gap}:{gap}{value}"))
            .collect();
        let comma = if comma && !all.is_empty() { "," } else { "" };
        format!("{{{}{comma}{end}}}", all.join(","))
    }
}
