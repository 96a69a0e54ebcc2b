//! The tools: what each is called, what it takes, and whether it changes something.
//!
//! One file for each kind. A tool's parameters are a type, from which both their schema and their
//! decoding are made; the doc comments on its fields are what a model reads. Unknown parameters are
//! refused, so that a misspelt one is not passed over.

mod branches;
mod calls;
mod exports;
mod files;
mod keys;
mod reading;
mod restoring;
mod taking_back;
mod versions;

use super::answer::Answer;
use super::hints::in_tools_words;
use super::session::Turn;
use agentvfs_client::failure::Failure;
use rmcp::model::{Tool as Described, ToolAnnotations};
use rmcp::schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;

type Run = dyn Fn(&mut Turn<'_>, Map<String, Value>) -> Result<Answer, Failure> + Send + Sync;

/// A tool.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Whether it changes something.
    pub changes: bool,
    /// It leaves the workspace as it is, but makes something beside it.
    elsewhere: bool,
    about: &'static str,
    schema: Arc<Map<String, Value>>,
    run: Box<Run>,
}

impl Tool {
    /// One that only looks.
    fn looks<A: DeserializeOwned + JsonSchema + 'static>(
        name: &'static str,
        about: &'static str,
        run: fn(&mut Turn<'_>, A) -> Result<Answer, Failure>,
    ) -> Tool {
        Tool {
            name,
            changes: false,
            elsewhere: false,
            about,
            schema: Arc::new(schema::<A>()),
            run: Box::new(move |turn, arguments| run(turn, decoded(name, arguments)?)),
        }
    }

    /// One that changes something.
    fn changes<A: DeserializeOwned + JsonSchema + 'static>(
        name: &'static str,
        about: &'static str,
        run: fn(&mut Turn<'_>, A) -> Result<Answer, Failure>,
    ) -> Tool {
        Tool {
            changes: true,
            ..Tool::looks(name, about, run)
        }
    }

    /// The same, which makes something beside the workspace.
    fn writing_elsewhere(self) -> Tool {
        Tool {
            elsewhere: true,
            ..self
        }
    }

    /// As the protocol describes it.
    pub fn described(&self) -> Described {
        let hints = ToolAnnotations::new()
            .read_only(!self.changes && !self.elsewhere)
            .open_world(false);
        // What a call did in the workspace tool_undo and undo take back. A file beside it that was replaced is lost.
        let hints = match (self.changes, self.elsewhere) {
            (_, true) => hints.destructive(true),
            (true, false) => hints.destructive(false),
            (false, false) => hints,
        };
        Described::new(self.name, self.about, self.schema.clone()).with_annotations(hints)
    }

    /// Carries out a call.
    pub fn run(
        &self,
        turn: &mut Turn<'_>,
        arguments: Map<String, Value>,
    ) -> Result<Answer, Failure> {
        (self.run)(turn, arguments).map_err(in_tools_words)
    }
}

/// All tools.
pub fn all() -> Vec<Tool> {
    let mut all = Vec::new();
    all.extend(reading::tools());
    all.extend(files::tools());
    all.extend(keys::tools());
    all.extend(versions::tools());
    all.extend(branches::tools());
    all.extend(restoring::tools());
    all.extend(calls::tools());
    all.extend(taking_back::tools());
    all.extend(exports::tools());
    all
}

/// The schema of a tool's parameters. Everything stands in it where it is used: not every client follows
/// references.
fn schema<A: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<A>();
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.remove("title");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(shorten);
        if let Some(Value::Object(limit)) = properties.get_mut("limit") {
            limit.insert("minimum".into(), 1.into());
        }
    }
    schema
}

/// Leaves out of a parameter's schema what a model need not read: that an optional one may also be null,
/// the width of numbers, and line breaks in descriptions.
fn shorten(schema: &mut Value) {
    let Value::Object(schema) = schema else {
        return;
    };
    schema.remove("format");
    for key in ["type", "enum"] {
        if let Some(Value::Array(choices)) = schema.get_mut(key) {
            choices.retain(|choice| !choice.is_null() && choice != "null");
        }
    }
    if let Some(Value::Array(types)) = schema.get("type")
        && let [one] = types.as_slice()
    {
        let one = one.clone();
        schema.insert("type".into(), one);
    }
    if let Some(Value::String(about)) = schema.get_mut("description") {
        *about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    }
}

fn decoded<A: DeserializeOwned>(name: &str, arguments: Map<String, Value>) -> Result<A, Failure> {
    if arguments.get("limit").and_then(Value::as_u64) == Some(0) {
        let failure = Failure::usage(format!("{name}: limit is 0"));
        return Err(failure.hint("use 1 or more, or leave out limit"));
    }
    serde_json::from_value(Value::Object(arguments)).map_err(|e| {
        Failure::usage(format!("{name}: {e}")).hint("the tool's input schema lists its parameters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_and_parameter_is_described() {
        for tool in all() {
            assert!(tool.about.len() > 40, "{}", tool.name);
            assert_eq!(tool.schema["type"], "object", "{}", tool.name);
            assert_eq!(tool.schema["additionalProperties"], false, "{}", tool.name);
            let properties = tool.schema["properties"].as_object().unwrap();
            for (parameter, schema) in properties {
                let about = schema["description"].as_str().unwrap_or("");
                assert!(about.len() > 5, "{}: {parameter}: {schema}", tool.name);
                assert!(
                    !schema.to_string().contains("null"),
                    "{}: {schema}",
                    tool.name
                );
            }
            let text = Value::Object((*tool.schema).clone()).to_string();
            assert!(
                !text.contains("$ref") && text.len() < 2500,
                "{}: {text}",
                tool.name
            );
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = all().iter().map(|tool| tool.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
