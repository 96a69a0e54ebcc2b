//! What rules say of an agent's tool call before it is made.
//!
//! An agent tells of the call by its own hook, and obeys or not: this is help against mistakes, no boundary.

use crate::names::{Names, builder, too_large};
use crate::rule::Place;
use regex_automata::meta::Regex;
use std::sync::Arc;

/// What a rule says of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolVerdict {
    /// It may be made.
    Allow,
    /// It may be made, and is told of.
    Watch,
    /// The user is to be asked.
    Ask,
    /// It may not be made.
    Deny,
}

impl ToolVerdict {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            ToolVerdict::Allow => "allow",
            ToolVerdict::Watch => "soft_watch",
            ToolVerdict::Ask => "ask",
            ToolVerdict::Deny => "deny",
        }
    }
}

/// A tool call.
#[derive(Clone, Copy, Debug)]
pub struct ToolCall<'a> {
    /// The tool.
    pub tool: &'a str,
    /// Texts of its input, as who asks has made them (`agentvfs_client::judged`).
    pub texts: &'a [String],
    /// Branch.
    pub branch: &'a str,
    /// Run that began there last.
    pub run: Option<&'a str>,
}

/// What is said of a tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRuling {
    /// The verdict.
    pub verdict: ToolVerdict,
    /// The rule that it is from.
    pub rule: Arc<str>,
    /// What the rule says to the agent.
    pub reason: Option<Arc<str>>,
}

/// A rule about tool calls.
#[derive(Debug)]
pub(crate) struct ToolRule {
    pub name: Arc<str>,
    pub tools: Option<Names>,
    pub input: Option<Input>,
    pub place: Place,
    pub verdict: ToolVerdict,
    pub reason: Option<Arc<str>>,
}

/// What an input must have in it.
#[derive(Debug)]
pub(crate) enum Input {
    Text(String),
    Regex(Box<Regex>),
}

impl Input {
    /// `regex:…`, or a text that must be in it.
    pub fn compile(text: &str) -> Result<Input, String> {
        let Some(regex) = text.strip_prefix("regex:") else {
            return Ok(Input::Text(text.to_owned()));
        };
        let regex = builder().build(regex).map_err(|e| too_large(&e))?;
        Ok(Input::Regex(Box::new(regex)))
    }

    fn is_in(&self, text: &str) -> bool {
        match self {
            Input::Text(part) => text.contains(part),
            Input::Regex(regex) => regex.is_match(text),
        }
    }
}

impl ToolRule {
    pub fn judge(&self, call: &ToolCall<'_>) -> Option<ToolRuling> {
        let tool = self.tools.as_ref().is_none_or(|names| names.fit(call.tool));
        let is_there = |input: &Input| call.texts.iter().any(|text| input.is_in(text));
        let fits = tool
            && self.place.holds(call.branch, call.run)
            && self.input.as_ref().is_none_or(is_there);
        fits.then(|| ToolRuling {
            verdict: self.verdict,
            rule: self.name.clone(),
            reason: self.reason.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use agentvfs_client::judged::texts_of;
    use serde_json::{Value, json};

    const RULES: &str = r#"
        [[rule]]
        tool = "Bash"
        input = "git push --dry-run"
        verdict = "allow"
        [[rule]]
        name = "no-push"
        tool = ["Bash", "*shell*"]
        input = 'regex:git\s+push'
        verdict = "deny"
        reason = "pushing is the user's"
        [[rule]]
        tool = "Write"
        branch = "main"
        verdict = "ask"
    "#;

    fn verdict(tool: &str, input: Value, branch: &str) -> Option<(ToolVerdict, String)> {
        let policy = Policy::load(RULES).unwrap();
        let texts = texts_of(&input);
        let ruling = policy.judge_tool(&ToolCall {
            tool,
            texts: &texts,
            branch,
            run: None,
        });
        ruling.map(|r| (r.verdict, r.rule.to_string()))
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let deny = Some((ToolVerdict::Deny, "no-push".to_owned()));
        let push = || json!({"command": "cd x && git  push"});
        assert_eq!(verdict("Bash", push(), "b"), deny);
        assert_eq!(verdict("run_shell_command", push(), "b"), deny);
        assert_eq!(verdict("Edit", push(), "b"), None);
        let list = json!({"command": ["git", "push", "origin"]});
        assert_eq!(verdict("Bash", list, "b"), deny);
        let quoted = json!({"deep": [{"command": "\"git\npush\""}]});
        assert_eq!(verdict("Bash", quoted, "b"), deny);
        let dry = json!({"command": "git push --dry-run"});
        assert_eq!(
            verdict("Bash", dry, "b"),
            Some((ToolVerdict::Allow, "rule-1".into()))
        );
        assert_eq!(verdict("Bash", json!({"command": "git pull"}), "b"), None);
        assert_eq!(
            verdict("Write", json!({}), "main"),
            Some((ToolVerdict::Ask, "rule-3".into()))
        );
        assert_eq!(verdict("Write", json!({}), "b"), None);
    }
}
