//! The entry of our MCP server in Codex's `config.toml`.
//!
//! It is a table of its own, so it is put at the end and taken out as text; the file is parsed to see that all else means
//! what it meant. Invariant: no byte of anything else is written anew.

use super::edit::{Change, Edited};
use super::json::is_blank;
use super::record::Entry;
use super::servers::{ARGUMENTS, NAME, OTHER, is_program};
use super::undo::undone;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use toml_edit::{DocumentMut, Item, Table, TableLike};

/// The table of servers.
const SERVERS: &str = "mcp_servers";

/// Codex's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config;

/// Lines of the entry.
fn lines(program: &str) -> [String; 3] {
    let quoted = |text: &str| Value::from(text).to_string();
    let arguments: Vec<String> = ARGUMENTS.iter().map(|word| quoted(word)).collect();
    [
        format!("[{SERVERS}.{NAME}]"),
        format!("command = {}", quoted(program)),
        format!("args = [{}]", arguments.join(", ")),
    ]
}

/// The entry as options of one call: keys with values.
pub fn options(program: &str) -> Vec<String> {
    let lines = lines(program);
    let values = lines.iter().skip(1);
    values
        .map(|line| format!("{SERVERS}.{NAME}.{}", line.replacen(" = ", "=", 1)))
        .collect()
}

fn value(text: &str) -> Result<Value, String> {
    let parsed: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| {
        let why = e.to_string();
        format!("it is not TOML: {}", why.lines().next().unwrap_or_default())
    })?;
    Ok(of_table(parsed.as_table()))
}

fn of_table(table: &Table) -> Value {
    of_members(table)
}

fn of_members(table: &dyn TableLike) -> Value {
    let members = table
        .iter()
        .map(|(key, item)| (key.to_owned(), of_item(item)));
    Value::Object(members.collect::<Map<_, _>>())
}

/// What an item means; what JSON has no form for is its text with its type.
fn of_item(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Table(table) => of_table(table),
        Item::ArrayOfTables(all) => all.iter().map(of_table).collect(),
        Item::Value(value) => of_value(value),
    }
}

fn of_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => json!(text.value()),
        toml_edit::Value::Integer(number) => json!(number.value()),
        toml_edit::Value::Float(number) => json!({ "float": number.value().to_string() }),
        toml_edit::Value::Boolean(is) => json!(is.value()),
        toml_edit::Value::Datetime(time) => json!({ "time": time.value().to_string() }),
        toml_edit::Value::Array(all) => all.iter().map(of_value).collect(),
        toml_edit::Value::InlineTable(table) => of_members(table),
    }
}

fn is_ours(entry: &Value) -> bool {
    let program = entry.get("command").and_then(Value::as_str);
    let program = program.unwrap_or_default();
    is_program(program) && *entry == json!({ "command": program, "args": ARGUMENTS })
}

/// The value without our entry, and without the table that it was alone in.
fn stripped(text: &str) -> Result<Value, String> {
    let mut value = value(text)?;
    let servers = value.get_mut(SERVERS).and_then(Value::as_object_mut);
    if let Some(servers) = servers {
        if servers.get(NAME).is_some_and(is_ours) {
            servers.remove(NAME);
        }
        if servers.is_empty()
            && let Some(root) = value.as_object_mut()
        {
            root.remove(SERVERS);
        }
    }
    Ok(value)
}

fn check(without: &str, with: &str) -> Result<(), String> {
    match stripped(without)? == stripped(with)? {
        true => Ok(()),
        false => Err("it cannot be changed without changing more".to_owned()),
    }
}

/// The text without the lines of the entry, where they follow each other.
fn cut(text: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let begins = |line: &str, with: &str| line.trim().starts_with(with);
    let is_entry = |at: &usize| {
        lines[*at].trim() == format!("[{SERVERS}.{NAME}]")
            && lines
                .get(at + 1)
                .is_some_and(|line| begins(line, "command"))
            && lines.get(at + 2).is_some_and(|line| begins(line, "args"))
    };
    match (0..lines.len()).find(is_entry) {
        Some(at) => [&lines[..at], &lines[at + 3..]].concat().concat(),
        None => text.to_owned(),
    }
}

impl Change for Config {
    fn found(&self, text: &str) -> Result<BTreeSet<String>, String> {
        let value = value(text)?;
        let entry = value.get(SERVERS).and_then(|servers| servers.get(NAME));
        let found = entry.map(|entry| match is_ours(entry) {
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
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut after = text.to_owned();
        if !text.is_empty() {
            if !text.ends_with('\n') {
                after.push_str(end);
            }
            after.push_str(end);
        }
        for line in lines(program) {
            after.push_str(&line);
            after.push_str(end);
        }
        let is_there = self.found(&after).is_ok_and(|found| found == self.wanted());
        if !is_there {
            return Err(format!("its \"{SERVERS}\" takes no further table"));
        }
        check(text, &after)?;
        Ok(Edited::added(text, after, self.wanted()))
    }

    fn without(&self, text: &str, entry: &Entry) -> Result<Edited, String> {
        let is_right = |left: &String| {
            let none_left = self.found(left).is_ok_and(|found| found.is_empty());
            none_left && check(left, text).is_ok()
        };
        let left = undone(text, &entry.undo).filter(is_right);
        let left = left.or_else(|| Some(cut(text)).filter(is_right));
        let Some(left) = left else {
            return Ok(Edited {
                whole: false,
                ..Edited::whole(text)
            });
        };
        Ok(match entry.created && is_blank(&left) {
            true => Edited::whole(""),
            false => Edited::whole(&left),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(before: &str, after: &Edited) -> Entry {
        Entry::of("codex", (before, after), before.is_empty())
    }

    #[test]
    fn a_new_file_is_what_codex_reads_and_goes_again() {
        let after = Config.with("", "agentvfs").unwrap();
        assert_eq!(
            after.text,
            "[mcp_servers.agentvfs]\ncommand = \"agentvfs\"\nargs = [\"serve\", \"mcp\", \"--here\"]\n"
        );
        let left = Config.without(&after.text, &entry("", &after)).unwrap();
        assert_eq!((left.text.as_str(), left.whole), ("", true));
        assert_eq!(
            options("a b"),
            [
                "mcp_servers.agentvfs.command=\"a b\"",
                "mcp_servers.agentvfs.args=[\"serve\", \"mcp\", \"--here\"]"
            ]
        );
    }

    #[test]
    fn an_entry_that_the_user_changed_is_the_users() {
        let before = "model = \"x\"\n";
        let after = Config.with(before, "agentvfs").unwrap();
        for changed in [
            after.text.replace("--here", "--exports"),
            after.text.clone() + "env = { A = \"1\" }\n",
            after.text.clone()
                + "[mcp_servers.agentvfs.tools.read_file]\napproval_mode = \"approve\"\n",
        ] {
            let left = Config.without(&changed, &entry(before, &after)).unwrap();
            assert_eq!((left.text, left.whole), (changed.clone(), false));
            assert_eq!(
                Config.found(&changed).unwrap(),
                BTreeSet::from([OTHER.to_owned()])
            );
        }
    }

    #[test]
    fn what_is_not_understood_or_takes_no_table_is_refused() {
        for text in ["a", "[a", "mcp_servers = {}\n", "mcp_servers = 1\n"] {
            assert!(Config.with(text, "agentvfs").is_err(), "{text}");
        }
    }

    /// Settings with comments, sections, inline tables and either kind of line ends.
    fn settings() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just("# mine".to_owned()),
            Just(String::new()),
            Just("  ".to_owned()),
            "[a-z]{1,4}"
                .prop_map(|text| format!("  \"{text} é\"   =  {{ x = 1.5, y = [ 1, ] }} # {text}")),
        ];
        let section = prop_oneof![
            Just("[mcp_servers.other]\ncommand = \"x\" # c".to_owned()),
            Just("[mcp_servers]".to_owned()),
            Just("[[rows]]\nat = 1979-05-27T07:32:00Z".to_owned()),
            Just("[model_providers.mock]\nname = '''\n[mcp_servers.agentvfs]\n'''".to_owned()),
        ];
        let lines = prop::collection::vec(line, 0..5);
        let sections = prop::collection::btree_set(section, 0..4);
        (lines, sections, any::<bool>(), any::<bool>()).prop_filter_map(
            "keys must differ",
            |(lines, sections, crlf, ends)| {
                let all: Vec<String> = lines.into_iter().chain(sections).collect();
                let mut text = all.join("\n");
                if ends && !text.is_empty() {
                    text.push('\n');
                }
                let text = if crlf {
                    text.replace('\n', "\r\n")
                } else {
                    text
                };
                value(&text).is_ok().then_some(text)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_entry_comes_and_goes_and_every_other_byte_stays(before in settings()) {
            let after = Config.with(&before, "agentvfs").unwrap();
            prop_assert!(after.text.starts_with(&before));
            let entry = entry(&before, &after);
            let left = Config.without(&after.text, &entry).unwrap();
            prop_assert!(left.whole);
            prop_assert_eq!(&left.text, &before);
            // The user adds a table at the end, and a line at the beginning.
            let changed = format!("# first\n{}[zz]\nb = 2\n", after.text);
            let left = Config.without(&changed, &entry).unwrap();
            prop_assert!(left.whole && left.text.starts_with("# first\n") && left.text.ends_with("[zz]\nb = 2\n"));
            let wanted = value(&format!("{before}\n[zz]\nb = 2\n")).unwrap();
            prop_assert_eq!(stripped(&left.text).unwrap(), stripped(&changed).unwrap());
            prop_assert!(wanted.get("zz") == value(&left.text).unwrap().get("zz"));
        }
    }
}
