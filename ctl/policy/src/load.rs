//! The text of a policy to its rules.
//!
//! Unknown keys, and values that mean nothing, are faults with their line and column: a rule that is ignored would be
//! worse than none. The text is TOML 1.0; toml_edit keeps where everything stands.

pub(crate) mod fields;
mod near;

use crate::errno::Errno;
use crate::names::Names;
use crate::op::{Ops, RULED};
use crate::paths::Paths;
use crate::rate::Rate;
use crate::rule::{ChangeRule, Place};
use crate::tools::{Input, ToolRule, ToolVerdict};
use crate::{NAME_BYTES_MAX, PATTERNS_MAX, Policy, RULES_MAX, TEXT_BYTES_MAX};
use engine::judge::{FeedOp, Sentence};
use fields::{Fields, Texts};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use toml_edit::{Document, Item, Table, TableLike};

/// Version of the form of the text.
const VERSION: i64 = 1;

/// Longest text that an agent is told as a reason, in bytes.
const REASON_BYTES_MAX: usize = 1_024;

/// Keys of a rule.
const KEYS: [&str; 14] = [
    "name", "op", "path", "uid", "command", "branch", "run", "rate", "verdict", "errno",
    "on_error", "tool", "input", "reason",
];
/// Those of a rule about changes alone.
const OF_CHANGES: [&str; 7] = ["op", "path", "uid", "command", "rate", "errno", "on_error"];
/// Those of a rule about tool calls alone.
const OF_TOOLS: [&str; 3] = ["tool", "input", "reason"];

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.why
        )
    }
}

impl std::error::Error for Fault {}

/// A table, and where it stands if that is known.
type PlacedTable<'a> = (&'a dyn TableLike, Option<Range<usize>>);

/// A fault and the bytes of the text that it is about.
pub(crate) type At = (Range<usize>, String);

/// Compiles a text.
pub fn load(text: &str) -> Result<Policy, Fault> {
    let whole = 0..0;
    if text.len() > TEXT_BYTES_MAX {
        let why = format!("it is longer than {TEXT_BYTES_MAX} bytes");
        return Err(placed(text, (whole, why)));
    }
    let parsed = Document::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(whole.clone());
        let message = error.message().lines().next().unwrap_or_default();
        placed(text, (span, format!("no TOML: {message}")))
    })?;
    compile(parsed.as_table()).map_err(|at| placed(text, at))
}

/// Where a fault stands.
fn placed(text: &str, (span, why): At) -> Fault {
    let start = span.start.min(text.len());
    let before = text.as_bytes().get(..start).unwrap_or_default();
    let line_start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let is_start_of_char = |b: &&u8| **b & 0xc0 != 0x80;
    Fault {
        line: before.iter().filter(|b| **b == b'\n').count() + 1,
        column: before[line_start..].iter().filter(is_start_of_char).count() + 1,
        why,
    }
}

fn compile(table: &Table) -> Result<Policy, At> {
    let fields = Fields::of(table, table.span());
    fields.only(&["version", "rule", "program"], "in a policy")?;
    if let Some((version, span)) = fields.integer("version")?
        && version != VERSION
    {
        return Err((
            span,
            format!("version {version} is not known; this is version {VERSION}"),
        ));
    }
    let program = crate::program::program(table)?;
    let mut loading = Loading {
        has_program: program.is_some(),
        ..Loading::default()
    };
    for (number, table) in rules(table)?.into_iter().enumerate() {
        loading.rule(number, &Fields::of(table.0, table.1))?;
    }
    loading.ask_of_the_rest();
    let paths = Paths::compile(&loading.patterns).map_err(|why| (0..0, why))?;
    Ok(Policy::new(loading.changes, loading.tools, paths, program))
}

/// The tables of `rule`, with where they stand.
fn rules(table: &Table) -> Result<Vec<PlacedTable<'_>>, At> {
    let Some(item) = table.get("rule") else {
        return Ok(Vec::new());
    };
    let span = item.span().unwrap_or_default();
    let wrong = || {
        (
            span.clone(),
            "rule must be a list of tables: [[rule]]".to_owned(),
        )
    };
    let all: Vec<(&dyn TableLike, _)> = match item {
        Item::ArrayOfTables(all) => all
            .iter()
            .map(|t| (t as &dyn TableLike, t.span()))
            .collect(),
        Item::Value(toml_edit::Value::Array(all)) => {
            let tables = all.iter().map(|value| value.as_inline_table());
            let tables: Option<Vec<_>> = tables.collect();
            let tables = tables.ok_or_else(wrong)?;
            tables
                .into_iter()
                .map(|t| (t as &dyn TableLike, t.span()))
                .collect()
        }
        _ => return Err(wrong()),
    };
    match all.len() > RULES_MAX {
        true => Err((span, format!("there are more than {RULES_MAX} rules"))),
        false => Ok(all),
    }
}

/// What was compiled so far.
#[derive(Default)]
struct Loading {
    has_program: bool,
    names: BTreeSet<String>,
    changes: Vec<ChangeRule>,
    tools: Vec<ToolRule>,
    /// Path patterns of all rules.
    patterns: Vec<String>,
    /// Patterns of all kinds.
    count: usize,
}

impl Loading {
    fn rule(&mut self, number: usize, fields: &Fields<'_>) -> Result<(), At> {
        fields.only(&KEYS, "in a rule")?;
        let name = self.name(number, fields)?;
        let place = Place {
            branches: self.names(fields, "branch")?,
            runs: self.names(fields, "run")?,
        };
        let is_about_tools = OF_TOOLS.iter().any(|key| fields.has(key));
        if is_about_tools {
            fields.none_of(
                &OF_CHANGES,
                "a rule with `tool`, `input` or `reason` is about tool calls",
            )?;
            self.tool(&name, place, fields)
        } else {
            self.change(&name, place, fields)
        }
    }

    fn name(&mut self, number: usize, fields: &Fields<'_>) -> Result<String, At> {
        let default = || (format!("rule-{}", number + 1), fields.span());
        let (name, span) = fields.text("name")?.unwrap_or_else(default);
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
            let why =
                format!("a name has 1 to {NAME_BYTES_MAX} of the characters a-z A-Z 0-9 . - _");
            return Err((span, why));
        }
        match self.names.insert(name.clone()) {
            true => Ok(name),
            false => Err((
                span,
                format!("there is a rule with the name {name} already"),
            )),
        }
    }

    /// A program that no rule asks is asked about every change that no rule decides.
    fn ask_of_the_rest(&mut self) {
        if !self.has_program || self.changes.iter().any(|rule| rule.asks.is_some()) {
            return;
        }
        let mut name = "program".to_owned();
        while !self.names.insert(name.clone()) {
            name.push('-');
        }
        self.changes.push(ChangeRule {
            name: name.into(),
            ops: Ops::changes(),
            globs: None,
            uids: None,
            commands: None,
            place: Place::default(),
            rate: None,
            verdict: Sentence::Deny(Errno::DEFAULT.code),
            asks: Some(Errno::DEFAULT),
        });
    }

    /// What a rule about changes says, and with which error the program denies if it asks that.
    fn verdict(&self, fields: &Fields<'_>) -> Result<(Sentence, Option<Errno>), At> {
        let (word, span) = fields.needed_text("verdict")?;
        let errno = errno(fields)?;
        let denied_with = errno.clone().map_or(Errno::DEFAULT, |(errno, _)| errno);
        let on_error = fields.text("on_error")?;
        if word == "program" {
            if !self.has_program {
                let why = "the policy has no [program] that the rule could ask";
                return Err((span, why.into()));
            }
            let deny = || ("deny".to_owned(), span);
            let (word, span) = on_error.unwrap_or_else(deny);
            let verdict = verdict_of("on_error", &word, denied_with).map_err(|why| (span, why))?;
            return Ok((verdict, Some(denied_with)));
        }
        if let Some((_, span)) = on_error {
            return Err((span, "`on_error` is for `verdict = \"program\"`".into()));
        }
        if word == "ask" {
            let why = "`ask` is for tool calls: a change cannot wait for an answer";
            return Err((span, why.into()));
        }
        let verdict = verdict_of("verdict", &word, denied_with).map_err(|why| (span, why))?;
        if let (Some((_, span)), false) = (errno, matches!(verdict, Sentence::Deny(_))) {
            return Err((span, "`errno` is for `verdict = \"deny\"`".into()));
        }
        Ok((verdict, None))
    }

    fn change(&mut self, name: &str, place: Place, fields: &Fields<'_>) -> Result<(), At> {
        let (verdict, asks) = self.verdict(fields)?;
        let ops = ops(fields)?;
        if let Some(span) = asks_about_opens(fields, asks, ops)? {
            return Err((
                span,
                "a program is asked about changes, and `open` is none".into(),
            ));
        }
        let rate = match fields.text("rate")? {
            Some((_, span)) if ops.has(FeedOp::Open) => {
                return Err((span, "`rate` is for changes, and `open` is none".into()));
            }
            Some((_, span)) if asks.is_some() => {
                let why = "`rate` does not go with a program, which can count by itself";
                return Err((span, why.into()));
            }
            Some((_, span)) if verdict == Sentence::Allow => {
                return Err((
                    span,
                    "`rate` says when a rule denies or watches, not when it allows".into(),
                ));
            }
            Some((text, span)) => Some(Rate::parse(&text).map_err(|why| (span, why))?),
            None => None,
        };
        let rule = ChangeRule {
            name: name.into(),
            ops,
            globs: self.globs(fields)?,
            uids: fields.uids()?,
            commands: self.names(fields, "command")?,
            place,
            rate,
            verdict,
            asks,
        };
        self.changes.push(rule);
        Ok(())
    }

    fn tool(&mut self, name: &str, place: Place, fields: &Fields<'_>) -> Result<(), At> {
        let (word, span) = fields.needed_text("verdict")?;
        let verdict = match word.as_str() {
            "allow" => ToolVerdict::Allow,
            "soft_watch" => ToolVerdict::Watch,
            "ask" => ToolVerdict::Ask,
            "deny" => ToolVerdict::Deny,
            other => {
                let all = ["allow", "soft_watch", "ask", "deny"];
                return Err((span, near::unknown("verdict", other, &all)));
            }
        };
        let input = match fields.text("input")? {
            Some((text, span)) => {
                self.count_patterns(&[(text.clone(), span.clone())])?;
                Some(Input::compile(&text).map_err(|why| (span, why))?)
            }
            None => None,
        };
        let reason = match fields.text("reason")? {
            Some((text, span)) if text.len() > REASON_BYTES_MAX => {
                return Err((
                    span,
                    format!("a reason has {REASON_BYTES_MAX} bytes at most"),
                ));
            }
            reason => reason.map(|(text, _)| text.into()),
        };
        let tools = self.names(fields, "tool")?;
        self.tools.push(ToolRule {
            name: name.into(),
            tools,
            input,
            place,
            verdict,
            reason,
        });
        Ok(())
    }

    /// Path patterns: their place among all.
    fn globs(&mut self, fields: &Fields<'_>) -> Result<Option<Range<usize>>, At> {
        let Some(texts) = fields.texts("path")? else {
            return Ok(None);
        };
        self.count_patterns(&texts)?;
        let start = self.patterns.len();
        for (text, span) in texts {
            if text.starts_with('/') {
                let why = "paths begin at the workspace's root, without a slash";
                return Err((span, why.into()));
            }
            crate::names::regex_of(&text, true).map_err(|why| (span, why))?;
            self.patterns.push(text);
        }
        Ok(Some(start..self.patterns.len()))
    }

    fn names(&mut self, fields: &Fields<'_>, key: &str) -> Result<Option<Names>, At> {
        let Some(texts) = fields.texts(key)? else {
            return Ok(None);
        };
        self.count_patterns(&texts)?;
        let span = texts.first().map_or(0..0, |(_, span)| span.clone());
        let patterns: Vec<String> = texts.into_iter().map(|(text, _)| text).collect();
        Names::compile(&patterns)
            .map(Some)
            .map_err(|why| (span, why))
    }

    fn count_patterns(&mut self, texts: &Texts) -> Result<(), At> {
        self.count += texts.len();
        let long = texts
            .iter()
            .find(|(text, _)| text.len() > crate::PATTERN_BYTES_MAX);
        if let Some((_, span)) = long {
            let why = format!("a pattern has {} bytes at most", crate::PATTERN_BYTES_MAX);
            return Err((span.clone(), why));
        }
        match texts.first() {
            Some((_, span)) if self.count > PATTERNS_MAX => Err((
                span.clone(),
                format!("there are more than {PATTERNS_MAX} patterns"),
            )),
            _ => Ok(()),
        }
    }
}

/// Where a rule leaves the verdict on opens to the program.
fn asks_about_opens(
    fields: &Fields<'_>,
    asks: Option<Errno>,
    ops: Ops,
) -> Result<Option<Range<usize>>, At> {
    let is_asked = asks.is_some() && ops.has(FeedOp::Open);
    let (_, span) = fields.needed_text("verdict")?;
    Ok(is_asked.then_some(span))
}

fn ops(fields: &Fields<'_>) -> Result<Ops, At> {
    let Some(words) = fields.texts("op")? else {
        return Ok(Ops::changes());
    };
    let mut ops = Ops::default();
    for (word, span) in words {
        let known = RULED.map(FeedOp::word);
        let some = Ops::of_word(&word);
        ops = ops.and(some.ok_or_else(|| (span, near::unknown("op", &word, &known)))?);
    }
    Ok(ops)
}

/// A verdict's word, of this key.
fn verdict_of(key: &str, word: &str, errno: Errno) -> Result<Sentence, String> {
    match word {
        "allow" => Ok(Sentence::Allow),
        "soft_watch" => Ok(Sentence::Watch),
        "deny" => Ok(Sentence::Deny(errno.code)),
        other if key == "verdict" => {
            let all = ["allow", "soft_watch", "deny", "program"];
            Err(near::unknown(key, other, &all))
        }
        other => Err(near::unknown(key, other, &["allow", "soft_watch", "deny"])),
    }
}

fn errno(fields: &Fields<'_>) -> Result<Option<(Errno, Range<usize>)>, At> {
    let Some((name, span)) = fields.text("errno")? else {
        return Ok(None);
    };
    match Errno::of(&name) {
        Some(errno) => Ok(Some((errno, span))),
        None => {
            let all = Errno::ALL.map(|errno| errno.to_string());
            let why = format!(
                "a change cannot be denied with {name}: use one of {}",
                all.join(", ")
            );
            Err((span, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        match load(text) {
            Ok(_) => panic!("{text} is no fault"),
            Err(fault) => fault.to_string(),
        }
    }

    /// The text's fault says this, on one line.
    fn found(text: &str, said: &str) {
        let fault = fault(text);
        assert!(fault.contains(said), "{text}\n{fault}\n{said}");
        assert!(!fault.contains('\n'), "{fault}");
    }

    #[test]
    fn faults_say_where_and_what_is_right() {
        for (text, said) in [
            (
                "[[rule]]\nverdict = \"deny\"\n  opp = \"write\"".to_owned(),
                "line 3, column 3: \"opp\" is no key in a rule; did you mean \"op\"?",
            ),
            ("[[rules]]".into(), "did you mean \"rule\"?"),
            ("version = 2".into(), "line 1, column 11: version 2"),
            ("rule = 1".into(), "[[rule]]"),
            ("[rule]\nverdict = \"deny\"".into(), "[[rule]]"),
            (
                "[[rule]]".into(),
                "line 1, column 1: the rule has no \"verdict\"",
            ),
            (
                "[[rule]]\nverdict = \"denny\"".into(),
                "line 2, column 11: verdict \"denny\" is not known; did you mean \"deny\"?",
            ),
            (
                "[[rule]]\nverdict = \"ask\"".into(),
                "`ask` is for tool calls",
            ),
            (
                "[[rule]]\nverdict = \"allow\"\nerrno = \"EIO\"".into(),
                "`errno` is for",
            ),
            (
                "[[rule]]\nverdict = \"allow\"\nrate = \"1/1s\"".into(),
                "`rate` says when",
            ),
            (
                "[[rule]]\nverdict = \"deny\"\nop = \"open\"\nrate = \"1/1s\"".into(),
                "line 4, column 8: `rate` is for changes",
            ),
            (
                "[program]\nlua = \"x\"\n[[rule]]\nverdict = \"program\"\nop = \"open\"".into(),
                "line 4, column 11: a program is asked about changes",
            ),
        ] {
            found(&text, said);
        }
    }

    #[test]
    fn values_that_mean_nothing_are_named() {
        let rule = |line: &str| format!("[[rule]]\nverdict = \"deny\"\n{line}\n");
        for (text, said) in [
            (
                rule("errno = \"ENOSYS\""),
                "cannot be denied with ENOSYS: use one of EACCES, EPERM",
            ),
            (
                rule("op = [\"write\", \"delete\"]"),
                "line 3, column 16: op \"delete\" is not known: use one of create, write",
            ),
            (rule("op = []"), "op must have 1 to"),
            (rule("op = 7"), "op must be a text or a list of texts"),
            (rule("path = \"/etc\""), "without a slash"),
            (rule("path = \"[a\""), "unclosed character class"),
            (rule("path = \"\""), "empty text"),
            (rule("uid = -1"), "a user's number"),
            (rule("uid = [\"root\"]"), "a user's number"),
            (rule("rate = \"many\""), "line 3, column 8: a rate is N/T"),
            (rule("name = \"a b\""), "a name has 1 to 64"),
            (
                rule("name = \"rule-2\"\n[[rule]]\nverdict = \"deny\""),
                "the name rule-2 already",
            ),
            (
                rule("tool = \"Bash\"\nop = \"write\""),
                "line 4, column 1: a rule with `tool`",
            ),
            (
                rule("input = \"regex:(\""),
                "line 3, column 9: unclosed group",
            ),
            (
                rule("input = \"regex:\\\\w{1000}{1000}\""),
                "bytes together",
            ),
            (rule("x = {"), "no TOML"),
            ("é = 1\n\u{1}".into(), "no TOML"),
        ] {
            found(&text, said);
        }
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(load("a = 1\n\"éé\" = 2").unwrap_err().line, 1);
        let fault = load("rule = []\n\"éé\".x = [ 1 ]").unwrap_err();
        assert_eq!((fault.line, fault.column), (2, 1));
        let fault = load("version = 1 # é\nrule = [{verdict = \"é\", op = 1}]").unwrap_err();
        assert_eq!((fault.line, fault.column), (2, 20));
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let long = format!("# {}", "x".repeat(TEXT_BYTES_MAX));
        assert!(fault(&long).contains("longer than"));
        let many = "[[rule]]\nverdict = \"deny\"\n".repeat(RULES_MAX + 1);
        assert!(fault(&many).contains("more than 1000 rules"));
        assert_eq!(
            load(&"[[rule]]\nverdict = \"deny\"\n".repeat(RULES_MAX))
                .unwrap()
                .len(),
            RULES_MAX
        );
        let list = vec!["\"a\""; 999].join(",");
        let patterns = format!("[[rule]]\nverdict = \"deny\"\npath = [{list}]\n").repeat(6);
        assert!(fault(&patterns).contains("more than 5000 patterns"));
        let deep = format!("rule = {}", "[".repeat(100_000));
        assert!(fault(&deep).contains("no TOML"));
        let glob = format!(
            "[[rule]]\nverdict = \"deny\"\npath = \"{}\"",
            "a".repeat(1_025)
        );
        assert!(fault(&glob).contains("1024 bytes at most"));
        let braces = format!(
            "[[rule]]\nverdict = \"deny\"\npath = \"{}\"",
            "{a,".repeat(300)
        );
        fault(&braces);
    }

    #[test]
    fn an_empty_text_has_no_rules() {
        assert!(load("").unwrap().is_empty());
        assert!(load("# nothing\nversion = 1\n").unwrap().is_empty());
        let policy = load("rule = [{verdict = \"deny\", op = \"write\"}]").unwrap();
        assert!(policy.is_about_changes() && !policy.is_about_tools());
    }
}
