//! The entry of our MCP server in an agent's settings that are JSON.

use super::edit::{Change, Edited};
use super::json::{child, is_blank, is_empty, parse, value};
use super::record::Entry;
use super::undo::undone;
use jsonc_parser::cst::{CstInputValue, CstObject};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Name of the entry.
pub const NAME: &str = "agentvfs";

/// Name of an entry of that name that is not as it was written.
pub const OTHER: &str = "agentvfs, changed";

/// What the server is started with.
pub const ARGUMENTS: [&str; 3] = ["serve", "mcp", "--here"];

/// How settings name servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Servers {
    /// `{"mcpServers": {NAME: {"command": …, "args": […]}}}`: most.
    Plain,
    /// The same with `"type": "stdio"`: Claude Code's.
    Typed,
    /// `{"mcp": {NAME: {"type": "local", "command": […], "enabled": true}}}`: OpenCode's.
    OpenCode,
}

impl Servers {
    /// The key that all servers are below.
    fn key(self) -> &'static str {
        match self {
            Servers::Plain | Servers::Typed => "mcpServers",
            Servers::OpenCode => "mcp",
        }
    }

    /// The entry.
    pub fn entry(self, program: &str) -> Value {
        let words: Vec<&str> = [program].into_iter().chain(ARGUMENTS).collect();
        match self {
            Servers::Plain => json!({ "command": program, "args": ARGUMENTS }),
            Servers::Typed => json!({ "type": "stdio", "command": program, "args": ARGUMENTS }),
            Servers::OpenCode => json!({ "type": "local", "command": words, "enabled": true }),
        }
    }

    /// Settings that have nothing else.
    pub fn settings(self, program: &str) -> Value {
        json!({ self.key(): { NAME: self.entry(program) } })
    }

    /// Whether an entry is as it was written, from wherever the program is.
    fn is_ours(self, entry: &Value) -> bool {
        let program = match self {
            Servers::Plain | Servers::Typed => entry.get("command"),
            Servers::OpenCode => entry.pointer("/command/0"),
        };
        let program = program.and_then(Value::as_str).unwrap_or_default();
        is_program(program) && *entry == self.entry(program)
    }

    fn left(self, text: &str, entry: &Entry) -> Result<String, String> {
        let is_right = |left: &String| {
            let none_left = self.found(left).is_ok_and(|found| found.is_empty());
            none_left && self.check(left, text, &entry.made).is_ok()
        };
        if let Some(left) = undone(text, &entry.undo).filter(is_right) {
            return Ok(left);
        }
        // An entry that the user changed is the user's.
        if self.found(text)?.contains(OTHER) {
            return Ok(text.to_owned());
        }
        let root = parse(text)?;
        if let Some(root) = root.object_value()
            && let Some(servers) = root.object_value(self.key())
        {
            servers.get(NAME).into_iter().for_each(|p| p.remove());
            if servers.properties().is_empty() && entry.made.contains(self.key()) {
                root.get(self.key()).into_iter().for_each(|p| p.remove());
            }
        }
        let left = root.to_string();
        self.check(&left, text, &entry.made)?;
        Ok(left)
    }

    /// Both texts are equal but for our entry and the key that was made for it.
    fn check(self, without: &str, with: &str, made: &BTreeSet<String>) -> Result<(), String> {
        let stripped = |text: &str| -> Result<Value, String> {
            let mut value = value(text)?;
            self.strip(&mut value, made);
            Ok(value)
        };
        match stripped(without)? == stripped(with)? {
            true => Ok(()),
            false => Err("it cannot be changed without changing more".to_owned()),
        }
    }

    fn strip(self, root: &mut Value, made: &BTreeSet<String>) {
        let Some(root) = root.as_object_mut() else {
            return;
        };
        let Some(servers) = root.get_mut(self.key()).and_then(Value::as_object_mut) else {
            return;
        };
        if servers.get(NAME).is_some_and(|entry| self.is_ours(entry)) {
            servers.remove(NAME);
        }
        if servers.is_empty() && made.contains(self.key()) {
            root.remove(self.key());
        }
    }
}

/// Whether a command is `agentvfs`, wherever that is.
pub fn is_program(command: &str) -> bool {
    command == "agentvfs" || command.ends_with("/agentvfs")
}

/// A value as what the tree takes.
fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(is) => CstInputValue::Bool(*is),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(input).collect()),
        Value::Object(all) => {
            let all = all.iter().map(|(key, value)| (key.clone(), input(value)));
            CstInputValue::Object(all.collect())
        }
    }
}

impl Change for Servers {
    fn found(&self, text: &str) -> Result<BTreeSet<String>, String> {
        if is_blank(text) {
            return Ok(BTreeSet::new());
        }
        let value = value(text)?;
        let root = value.as_object().ok_or("it is no JSON object")?;
        let Some(servers) = root.get(self.key()) else {
            return Ok(BTreeSet::new());
        };
        let of_another_kind = || format!("its \"{}\" is no object", self.key());
        let servers = servers.as_object().ok_or_else(of_another_kind)?;
        let found = servers.get(NAME).map(|entry| match self.is_ours(entry) {
            true => NAME.to_owned(),
            false => OTHER.to_owned(),
        });
        Ok(found.into_iter().collect())
    }

    fn wanted(&self) -> BTreeSet<String> {
        BTreeSet::from([NAME.to_owned()])
    }

    fn with(&self, text: &str, program: &str) -> Result<Edited, String> {
        if !self.found(text)?.is_empty() {
            return Ok(Edited::added(text, text.to_owned(), BTreeSet::new()));
        }
        let base = if is_blank(text) { "{}\n" } else { text };
        let root = parse(base)?;
        let object = root.object_value().ok_or("it is no JSON object")?;
        let mut made = BTreeSet::new();
        let key = self.key();
        let servers = child(
            &object,
            key,
            &mut made,
            key,
            CstObject::object_value_or_create,
        )?;
        servers.append(NAME, input(&self.entry(program)));
        let edited = Edited {
            made,
            ..Edited::added(text, root.to_string(), self.wanted())
        };
        self.check(text, &edited.text, &edited.made)?;
        Ok(edited)
    }

    fn without(&self, text: &str, entry: &Entry) -> Result<Edited, String> {
        let left = self.left(text, entry)?;
        let whole = self.found(&left)?.is_empty();
        Ok(match entry.created && is_empty(&left)? {
            true => Edited::whole(""),
            false => Edited {
                whole,
                ..Edited::whole(&left)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::random::{gap, json, object};
    use super::*;
    use proptest::prelude::*;

    const ALL: [Servers; 3] = [Servers::Plain, Servers::Typed, Servers::OpenCode];

    fn entry(before: &str, after: &Edited) -> Entry {
        Entry::of("a", (before, after), before.is_empty())
    }

    #[test]
    fn a_new_file_is_what_agents_read_and_goes_again() {
        for servers in ALL {
            let after = servers.with("", "/opt/agentvfs").unwrap();
            let found: Value = serde_json::from_str(&after.text).unwrap();
            assert_eq!(found, servers.settings("/opt/agentvfs"));
            let left = servers.without(&after.text, &entry("", &after)).unwrap();
            assert_eq!((left.text.as_str(), left.whole), ("", true));
        }
    }

    #[test]
    fn an_entry_that_the_user_changed_is_the_users() {
        let after = Servers::Plain.with("{\"a\": 1}", "agentvfs").unwrap();
        let changed = after.text.replace("\"--here\"", "\"-w\", \"mine\"");
        assert_eq!(
            Servers::Plain.found(&changed).unwrap(),
            BTreeSet::from([OTHER.to_owned()])
        );
        let entry = entry("{\"a\": 1}", &after);
        let left = Servers::Plain.without(&changed, &entry).unwrap();
        assert_eq!((left.text, left.whole), (changed, false));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["{", "[]", "{\"mcpServers\": 1}", "{'a': 1}"] {
            assert!(Servers::Plain.with(text, "agentvfs").is_err(), "{text}");
        }
    }

    /// Settings, some with servers of others.
    fn settings() -> impl Strategy<Value = String> {
        let others = prop_oneof![
            Just(None),
            Just(Some("{}")),
            Just(Some("{ \"x\" : {\"command\":\"x\"} , }")),
            Just(Some("{\"y\":{\"command\":[\"y\"]}\n// z\n}")),
        ];
        let named = prop::collection::btree_map("[a-g]{1,5}", (gap(), json()), 0..5);
        (named, gap(), any::<bool>(), others, gap(), gap()).prop_map(
            |(mut all, end, comma, others, first, last)| {
                if let Some(servers) = others {
                    for key in ["mcp", "mcpServers"] {
                        all.insert(key.to_owned(), (String::new(), servers.to_owned()));
                    }
                }
                first + &object((all, end, comma)) + &last
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn servers_come_and_go_and_every_other_byte_stays(before in settings(), which in 0..3_usize) {
            let servers = ALL[which];
            let after = servers.with(&before, "agentvfs").unwrap();
            prop_assert_eq!(servers.found(&after.text).unwrap(), servers.wanted());
            let entry = entry(&before, &after);
            let left = servers.without(&after.text, &entry).unwrap();
            prop_assert!(left.whole);
            prop_assert_eq!(&left.text, &before);
            // The user adds a line at the end.
            let line = "\n// mine";
            let left = servers.without(&(after.text.clone() + line), &entry).unwrap();
            prop_assert!(left.whole);
            prop_assert!(value(&left.text).unwrap() == value(&before).unwrap() && left.text.ends_with(line));
            // An agent writes the whole file again.
            let again = serde_json::to_string_pretty(&value(&after.text).unwrap()).unwrap();
            let left = servers.without(&again, &entry).unwrap();
            prop_assert!(left.whole && value(&left.text).unwrap() == value(&before).unwrap());
        }
    }
}
