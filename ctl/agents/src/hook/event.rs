//! What an agent says: the forms of Claude Code, Codex, Gemini CLI, Cursor and OpenHands, as one.
//!
//! They differ in names alone, so the form is told from the fields and not from the agent's name. Fields that are
//! missing or of another type count as left out; only the event's name is needed.
//!
//! Invariant: every text that becomes a part of a key or metadata is short and has no control characters.

use agentvfs_client::judged::texts_of;
use agentvfs_client::protocol::JUDGED_BYTES_MAX;
use agentvfs_client::short::{RECORD_BYTES_MAX, cut, recorded_json};
use serde_json::Value;
use std::path::PathBuf;

/// Longest id that is used as it is, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Longest message of a commit, in characters.
const MESSAGE_CHARS_MAX: usize = 80;

/// Tools that change no files, or (agents of an agent) none by themselves; in small letters.
const LOOKING: &[&str] = &[
    "agent",
    "askuserquestion",
    "enterplanmode",
    "exitplanmode",
    "glob",
    "google_web_search",
    "grep",
    "list_directory",
    "ls",
    "notebookread",
    "read",
    "read_file",
    "read_many_files",
    "search_file_content",
    "skill",
    "task",
    "taskoutput",
    "todoread",
    "todowrite",
    "toolsearch",
    "update_plan",
    "view_image",
    "web_fetch",
    "webfetch",
    "websearch",
    "write_todos",
];

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A session begins.
    SessionStarts,
    /// A turn begins.
    Prompt,
    /// A tool call begins.
    CallBegins,
    /// A tool call has ended.
    CallEnds,
    /// A turn has ended, with these last words.
    TurnEnds(Option<String>),
    /// An agent of the agent has ended.
    SubagentEnds,
    /// A session ends.
    SessionEnds,
}

/// A tool call.
#[derive(Debug, PartialEq, Eq)]
pub struct ToldCall {
    /// The tool.
    pub name: String,
    /// The agent's id of it.
    pub id: String,
    /// Parameters as JSON, cut.
    pub parameters: String,
    /// Texts of them in which rules look; of a call that begins.
    pub texts: Vec<String>,
    /// How it ended: result as JSON, cut, or error.
    pub outcome: Result<Option<String>, String>,
}

/// What an agent says.
#[derive(Debug)]
pub struct Told {
    /// The agent.
    pub agent: String,
    /// What happened.
    pub event: Event,
    /// The event's name as the agent says it.
    pub event_name: String,
    /// Its session.
    pub session: String,
    /// Its turn.
    pub prompt: Option<String>,
    /// The turn's id is the agent's own: no other turn has it.
    pub has_own_id: bool,
    /// The agent of the agent that says it.
    pub subagent: Option<String>,
    /// The tool call that it is about.
    pub call: Option<ToldCall>,
    /// Directories that it may be about, the likeliest first.
    pub dirs: Vec<PathBuf>,
}

impl Told {
    /// Makes sense of an agent's words; `None` where they are of no concern.
    pub fn of(agent: &str, value: Value) -> Result<Option<Told>, String> {
        let name = text(&value, &["hook_event_name", "event_type", "hookEventName"]);
        let name = name.ok_or("the input names no event (hook_event_name)")?;
        let event = match name {
            "SessionStart" | "sessionStart" => Event::SessionStarts,
            "UserPromptSubmit" | "BeforeAgent" | "beforeSubmitPrompt" => Event::Prompt,
            "PreToolUse" | "preToolUse" | "BeforeTool" => Event::CallBegins,
            "PostToolUse" | "postToolUse" | "AfterTool" | "PostToolUseFailure"
            | "postToolUseFailure" => Event::CallEnds,
            "Stop" | "stop" | "AfterAgent" => Event::TurnEnds(last_words(&value)),
            "SubagentStop" | "subagentStop" => Event::SubagentEnds,
            "SessionEnd" | "sessionEnd" => Event::SessionEnds,
            _ => return Ok(None),
        };
        let name = cut(name, ID_BYTES_MAX);
        let session = text(&value, &["session_id", "conversation_id", "sessionId"]);
        let session = session.map_or_else(|| "unknown".to_owned(), id_part);
        let prompt = text(&value, &["prompt_id", "turn_id", "generation_id"]);
        // Gemini gives turns no id, and tells the prompt at both ends; OpenHands tells it as they begin.
        let said = match event {
            Event::Prompt => &["prompt", "message"][..],
            _ => &["prompt"],
        };
        let words = || Some(hashed(&[&session, text(&value, said)?]));
        let has_own_id = prompt.is_some();
        let prompt = prompt.map(id_part).or_else(words);
        let subagent = text(&value, &["agent_id", "subagent_id"]).map(id_part);
        let dirs = dirs(&value);
        let about_call = matches!(event, Event::CallBegins | Event::CallEnds);
        let call = match about_call {
            true => told_call(value, &event, name.ends_with("Failure"), &session)?,
            false => None,
        };
        if about_call && call.is_none() {
            return Ok(None);
        }
        Ok(Some(Told {
            agent: agent.to_owned(),
            event,
            event_name: name,
            session,
            prompt,
            has_own_id,
            subagent,
            call,
            dirs,
        }))
    }

    /// The turn's id, which no turn of another session has.
    pub fn turn(&self) -> Option<String> {
        let id = self.prompt.as_deref()?;
        Some(format!("{}:{id}", self.session))
    }

    /// How the keys of the calls begin that the agent itself makes in this session, or one of its agents.
    pub fn keys_of(&self, subagent: Option<&str>) -> String {
        match subagent {
            Some(subagent) => format!("{}:{}/{subagent}:", self.agent, self.session),
            None => format!("{}:{}:", self.agent, self.session),
        }
    }

    /// How the keys of the calls of all its agents in this session begin.
    pub fn keys_of_subagents(&self) -> String {
        format!("{}:{}/", self.agent, self.session)
    }
}

/// The call that is told of; `None` where it is none that is noted.
fn told_call(
    mut value: Value,
    event: &Event,
    failed: bool,
    session: &str,
) -> Result<Option<ToldCall>, String> {
    let name = text(&value, &["tool_name"]).ok_or("the input names no tool (tool_name)")?;
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let small = name.to_ascii_lowercase();
    // The tools of `agentvfs serve mcp` note their calls themselves.
    if name.is_empty() || LOOKING.contains(&small.as_str()) || small.contains("agentvfs__") {
        return Ok(None);
    }
    let id = text(&value, &["tool_use_id", "tool_call_id"]).map(id_part);
    let mut take = |names: &[&str]| {
        let found = names
            .iter()
            .find_map(|name| Some(value.get_mut(name)?.take()));
        found.unwrap_or_default()
    };
    let input = take(&["tool_input"]);
    let response = take(&["tool_response", "tool_output", "tool_result"]);
    let error = take(&["error", "error_message"]);
    // Gemini says neither of its calls which one it is.
    let id = id.unwrap_or_else(|| hashed(&[session, &name, &input.to_string()]));
    let error = match (failed, error, response.get("error")) {
        (true, Value::Null, _) => Some("no reason was given".to_owned()),
        (true, Value::String(why), _) => Some(why),
        (true, why, _) => Some(why.to_string()),
        (false, _, None | Some(Value::Null)) => None,
        (false, _, Some(Value::String(why))) => Some(why.clone()),
        (false, _, Some(why)) => Some(why.to_string()),
    };
    let outcome = match error {
        Some(why) => Err(cut(&why, RECORD_BYTES_MAX)),
        None if response.is_null() => Ok(None),
        None => Ok(Some(recorded_json(response))),
    };
    Ok(Some(ToldCall {
        name: cut(&name, ID_BYTES_MAX),
        id,
        texts: match event {
            Event::CallBegins => judged_texts(&input),
            _ => Vec::new(),
        },
        parameters: recorded_json(input),
        outcome,
    }))
}

/// Texts of an input that rules look at, as many as a request may have.
fn judged_texts(input: &Value) -> Vec<String> {
    let mut left = JUDGED_BYTES_MAX;
    let mut texts = texts_of(input);
    texts.retain_mut(|text| {
        *text = cut(text, left);
        left = left.saturating_sub(text.len());
        left > 0
    });
    texts
}

/// The first of some fields that is a text.
fn text<'a>(value: &'a Value, names: &[&str]) -> Option<&'a str> {
    let texts = names.iter().filter_map(|name| value.get(name)?.as_str());
    texts.into_iter().find(|text| !text.is_empty())
}

fn dirs(value: &Value) -> Vec<PathBuf> {
    let own = text(value, &["cwd", "working_dir"]);
    let roots = value.get("workspace_roots").and_then(Value::as_array);
    let roots = roots.into_iter().flatten().filter_map(Value::as_str);
    own.into_iter().chain(roots).map(PathBuf::from).collect()
}

/// The beginning of what an agent said last, on one line.
fn last_words(value: &Value) -> Option<String> {
    let words = text(value, &["last_assistant_message", "prompt_response"])?;
    let line = words.lines().map(str::trim).find(|line| !line.is_empty())?;
    let plain = line.chars().filter(|c| !c.is_control());
    Some(plain.take(MESSAGE_CHARS_MAX).collect())
}

/// An id as a part of keys and metadata; one that cannot be one is replaced by its hash.
fn id_part(id: &str) -> String {
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '/' | '=');
    match id.len() <= ID_BYTES_MAX && id.chars().all(fits) {
        true => id.to_owned(),
        false => hashed(&[id]),
    }
}

fn hashed(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(value: Value) -> Option<Told> {
        Told::of("claude", value).unwrap()
    }

    fn pre(more: Value) -> Value {
        let mut value = json!({
            "hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": "p", "cwd": "/m/x",
            "tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "t",
        });
        for (key, more) in more.as_object().unwrap() {
            value[key] = more.clone();
        }
        value
    }

    #[test]
    fn forms_of_all_agents_are_understood() {
        let forms = [
            pre(json!({})),
            pre(json!({"hook_event_name": "BeforeTool", "tool_use_id": null})),
            json!({"hook_event_name": "preToolUse", "conversation_id": "s", "generation_id": "p",
                "workspace_roots": ["/m/x"], "tool_name": "Shell", "tool_input": {}, "tool_use_id": "t"}),
            json!({"event_type": "PreToolUse", "session_id": "s", "working_dir": "/m/x",
                "tool_name": "terminal", "tool_input": {"command": "ls"}}),
        ];
        for form in forms {
            let told = told(form.clone()).unwrap();
            assert_eq!(told.event, Event::CallBegins, "{form}");
            assert_eq!(told.session, "s", "{form}");
            assert_eq!(told.dirs, [PathBuf::from("/m/x")], "{form}");
            let end = ["PostToolUse", "AfterTool", "postToolUse"].map(|name| {
                let mut end = form.clone();
                let field = ["hook_event_name", "event_type"];
                let field = field.iter().find(|f| form.get(**f).is_some()).unwrap();
                end[*field] = name.into();
                Told::of("claude", end).unwrap().unwrap()
            });
            for end in end {
                assert_eq!(end.call.unwrap().id, told.call.as_ref().unwrap().id);
            }
        }
    }

    #[test]
    fn failures_are_told_from_successes() {
        let outcome = |more: Value| told(pre(more)).unwrap().call.unwrap().outcome;
        let failed = json!({"hook_event_name": "PostToolUseFailure", "error": "exit 1"});
        assert_eq!(outcome(failed), Err("exit 1".into()));
        let failed = json!({"hook_event_name": "AfterTool", "tool_response": {"error": "no"}});
        assert_eq!(outcome(failed), Err("no".into()));
        let ended = json!({"hook_event_name": "PostToolUse", "tool_response": {"error": null}});
        assert_eq!(outcome(ended), Ok(Some(r#"{"error":null}"#.into())));
        assert_eq!(outcome(json!({"hook_event_name": "PostToolUse"})), Ok(None));
    }

    #[test]
    fn what_only_looks_and_what_is_of_no_concern_is_left_out() {
        for name in ["Read", "grep", "mcp__agentvfs__write_file", "\u{1}"] {
            assert!(told(pre(json!({"tool_name": name}))).is_none(), "{name:?}");
        }
        assert!(told(json!({"hook_event_name": "PreCompact"})).is_none());
        for bad in [
            json!({}),
            json!([]),
            json!(7),
            json!({"hook_event_name": "PreToolUse"}),
        ] {
            Told::of("claude", bad).unwrap_err();
        }
    }

    #[test]
    fn ids_stay_short_and_calls_of_sessions_apart() {
        let long = "x".repeat(1 << 20);
        for bad in [long.as_str(), "a:b", "a/b", "a\nb", "é", "a=b"] {
            let told = told(pre(
                json!({"session_id": bad, "agent_id": bad, "tool_use_id": bad}),
            ));
            let told = told.unwrap();
            let key = told.keys_of(told.subagent.as_deref()) + &told.call.unwrap().id;
            assert!(
                key.len() < 80 && key.chars().all(|c| c.is_ascii_graphic()),
                "{key}"
            );
        }
        let told = told(pre(json!({}))).unwrap();
        assert_eq!(told.keys_of(None), "claude:s:");
        assert_eq!(told.keys_of(Some("a")), "claude:s/a:");
        assert!(
            told.keys_of(Some("a"))
                .starts_with(&told.keys_of_subagents())
        );
    }

    #[test]
    fn a_turn_without_an_id_is_named_by_its_prompt() {
        let turn = |name: &str, prompt: &str| {
            let value = json!({"hook_event_name": name, "session_id": "s", "prompt": prompt,
                "prompt_response": "\n  Done:\tall \nmore"});
            told(value).unwrap()
        };
        let (begins, ends) = (turn("BeforeAgent", "go"), turn("AfterAgent", "go"));
        assert!(begins.prompt.is_some());
        assert_eq!(begins.prompt, ends.prompt);
        assert_ne!(begins.prompt, turn("BeforeAgent", "stop").prompt);
        assert_eq!(ends.event, Event::TurnEnds(Some("Done:all".into())));
        let hands = |name: &str| {
            told(json!({"event_type": name, "session_id": "s", "message": "go"})).unwrap()
        };
        assert_eq!(hands("UserPromptSubmit").prompt, begins.prompt);
        assert_eq!(hands("Stop").prompt, None, "nothing says which turn ends");
    }

    #[test]
    fn nothing_is_too_long_for_the_timeline() {
        let long = "x".repeat(10 << 20);
        let call = told(pre(json!({"hook_event_name": "PostToolUseFailure",
            "tool_name": "y".repeat(9999), "tool_input": {"a": long.clone()}, "error": long})));
        let call = call.unwrap().call.unwrap();
        assert!(call.name.len() < 255, "{}", call.name.len());
        assert!(call.parameters.len() < 1100);
        assert!(call.outcome.unwrap_err().len() < RECORD_BYTES_MAX + 100);
    }
}
