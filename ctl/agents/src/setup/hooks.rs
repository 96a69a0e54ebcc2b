//! Hooks in an agent's settings.

use super::edit::{Change, Edited};
use super::json::{child, is_blank, is_empty, parse, value};
use super::known::Form;
use super::record::Entry;
use super::undo::undone;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject};
use serde_json::Value;
use std::collections::BTreeSet;

/// Hooks of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    pub form: Form,
    pub events: &'static [&'static str],
    /// Its name, as `agentvfs hook` takes it.
    pub agent: &'static str,
}

impl Change for Hooks {
    /// The events that have our hook.
    fn found(&self, text: &str) -> Result<BTreeSet<String>, String> {
        if is_blank(text) {
            return Ok(BTreeSet::new());
        }
        let value = value(text)?;
        let root = value.as_object().ok_or("it is no JSON object")?;
        let Some(hooks) = root.get("hooks") else {
            return Ok(BTreeSet::new());
        };
        let hooks = hooks.as_object().ok_or("its \"hooks\" is no object")?;
        let has = |list: &Value| {
            list.as_array()
                .is_some_and(|all| all.iter().any(|e| self.has(e)))
        };
        let found = hooks.iter().filter(|(_, list)| has(list));
        Ok(found.map(|(event, _)| event.clone()).collect())
    }

    fn wanted(&self) -> BTreeSet<String> {
        self.events
            .iter()
            .map(|event| (*event).to_owned())
            .collect()
    }

    /// The text with our hook at every event.
    fn with(&self, text: &str, program: &str) -> Result<Edited, String> {
        let found = self.found(text)?;
        let base = if is_blank(text) { "{}\n" } else { text };
        let root = parse(base)?;
        let object = root.object_value().ok_or("it is no JSON object")?;
        let mut made = BTreeSet::new();
        if self.form == Form::Flat && object.get("version").is_none() {
            object.append("version", CstInputValue::Number("1".to_owned()));
            made.insert("version".to_owned());
        }
        let hooks = child(
            &object,
            "hooks",
            &mut made,
            "hooks",
            CstObject::object_value_or_create,
        )?;
        let mut events = BTreeSet::new();
        for event in self.events.iter().filter(|event| !found.contains(**event)) {
            let path = format!("hooks/{event}");
            let list = child(
                &hooks,
                event,
                &mut made,
                &path,
                CstObject::array_value_or_create,
            )?;
            list.append(self.element(program));
            events.insert((*event).to_owned());
        }
        let edited = Edited {
            made,
            ..Edited::added(text, root.to_string(), events)
        };
        self.check(text, &edited.text, &edited.made)?;
        Ok(edited)
    }

    fn without(&self, text: &str, entry: &Entry) -> Result<Edited, String> {
        let left = self.left(text, entry)?;
        let is_empty = is_empty(&left)?;
        let whole = self.found(&left)?.is_empty();
        Ok(match entry.created && is_empty {
            true => Edited::whole(""),
            false => Edited {
                whole,
                ..Edited::whole(&left)
            },
        })
    }
}

impl Hooks {
    /// Whether an element of an event's list has our hook.
    fn has(&self, element: &Value) -> bool {
        match self.form {
            Form::Flat => self.is_ours(element),
            Form::Groups => {
                let all = element.get("hooks").and_then(Value::as_array);
                all.is_some_and(|all| all.iter().any(|hook| self.is_ours(hook)))
            }
        }
    }

    /// Whether a hook calls us, from wherever.
    fn is_ours(&self, hook: &Value) -> bool {
        let Some(command) = hook.get("command").and_then(Value::as_str) else {
            return false;
        };
        let program = command.trim().strip_suffix(self.agent);
        let program = program.and_then(|rest| rest.trim_end().strip_suffix("hook"));
        program.is_some_and(|program| {
            let program = program.trim_end().trim_matches(['\'', '"']);
            program == "agentvfs" || program.ends_with("/agentvfs")
        })
    }

    fn element(&self, program: &str) -> CstInputValue {
        let text = |text: &str| CstInputValue::String(text.to_owned());
        let command = format!("{program} hook {}", self.agent);
        let command = ("command".to_owned(), text(&command));
        match self.form {
            Form::Flat => CstInputValue::Object(vec![command]),
            Form::Groups => {
                let kind = ("type".to_owned(), text("command"));
                let hook = CstInputValue::Object(vec![kind, command]);
                let hooks = ("hooks".to_owned(), CstInputValue::Array(vec![hook]));
                CstInputValue::Object(vec![hooks])
            }
        }
    }

    fn left(&self, text: &str, entry: &Entry) -> Result<String, String> {
        let is_right = |left: &String| {
            let none_left = self.found(left).is_ok_and(|found| found.is_empty());
            none_left && self.check(left, text, &entry.made).is_ok()
        };
        if let Some(left) = undone(text, &entry.undo).filter(is_right) {
            return Ok(left);
        }
        let root = parse(text)?;
        if let Some(object) = root.object_value() {
            self.take_out(&object, entry);
        }
        let left = root.to_string();
        self.check(&left, text, &entry.made)?;
        Ok(left)
    }

    fn take_out(&self, root: &CstObject, entry: &Entry) {
        if let Some(hooks) = root.object_value("hooks") {
            for event in &entry.items {
                if let Some(list) = hooks.array_value(event) {
                    self.take_out_of(&list);
                    if list.elements().is_empty() && entry.made.contains(&format!("hooks/{event}"))
                    {
                        hooks.get(event).into_iter().for_each(|p| p.remove());
                    }
                }
            }
            if hooks.properties().is_empty() && entry.made.contains("hooks") {
                root.get("hooks").into_iter().for_each(|p| p.remove());
            }
        }
        // In a file that was made for our hooks, others' hooks need the version.
        let others = root.object_value("hooks");
        let others = others.is_some_and(|hooks| !hooks.properties().is_empty());
        if entry.made.contains("version") && !(entry.created && others) {
            root.get("version").into_iter().for_each(|p| p.remove());
        }
    }

    /// Takes our hooks out of an event's list; groups that have others stay.
    fn take_out_of(&self, list: &CstArray) {
        let is_ours = |node: &CstNode| node.to_serde_value().is_some_and(|v| self.is_ours(&v));
        for element in list.elements() {
            let inner = match self.form {
                Form::Flat => None,
                Form::Groups => element.as_object().and_then(|e| e.array_value("hooks")),
            };
            let Some(inner) = inner else {
                if self.form == Form::Flat && is_ours(&element) {
                    element.remove();
                }
                continue;
            };
            let ours: Vec<CstNode> = inner.elements().into_iter().filter(is_ours).collect();
            match ours.is_empty() || ours.len() < inner.elements().len() {
                true => ours.into_iter().for_each(CstNode::remove),
                false => element.remove(),
            }
        }
    }

    /// Both texts are equal but for our hooks and the keys that were made for them.
    fn check(&self, without: &str, with: &str, made: &BTreeSet<String>) -> Result<(), String> {
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

    fn strip(&self, root: &mut Value, made: &BTreeSet<String>) {
        let Some(root) = root.as_object_mut() else {
            return;
        };
        if let Some(hooks) = root.get_mut("hooks").and_then(Value::as_object_mut) {
            for list in hooks.values_mut().filter_map(Value::as_array_mut) {
                list.retain_mut(|element| self.strip_element(element));
            }
            hooks.retain(|event, list| {
                !made.contains(&format!("hooks/{event}"))
                    || list.as_array().is_none_or(|l| !l.is_empty())
            });
        }
        let is_empty = |v: &Value| v.as_object().is_some_and(serde_json::Map::is_empty);
        if made.contains("hooks") && root.get("hooks").is_some_and(is_empty) {
            root.remove("hooks");
        }
        if made.contains("version") {
            root.remove("version");
        }
    }

    /// Takes our hooks out of an element; false if nothing else was in it.
    fn strip_element(&self, element: &mut Value) -> bool {
        match self.form {
            Form::Flat => !self.is_ours(element),
            Form::Groups => {
                let Some(all) = element.get_mut("hooks").and_then(Value::as_array_mut) else {
                    return true;
                };
                let before = all.len();
                all.retain(|hook| !self.is_ours(hook));
                all.len() == before || !all.is_empty()
            }
        }
    }
}

#[cfg(test)]
mod tests;
