//! The program of a policy: text of Lua, or a module of WebAssembly, in the table `[program]`.
//!
//! Data alone: nothing here runs or checks it. It is kept in the text of the policy, so both have one version.

use crate::load::At;
use crate::load::fields::Fields;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toml_edit::Table;

/// Longest program, in bytes.
pub const PROGRAM_BYTES_MAX: usize = 256 << 10;

/// A program, as the policy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramText {
    /// Text of Lua.
    Lua(String),
    /// A module of WebAssembly.
    Wasm(Vec<u8>),
}

impl ProgramText {
    fn len(&self) -> usize {
        match self {
            ProgramText::Lua(text) => text.len(),
            ProgramText::Wasm(module) => module.len(),
        }
    }
}

/// The table `program` of a policy.
pub(crate) fn program(table: &Table) -> Result<Option<ProgramText>, At> {
    let Some(item) = table.get("program") else {
        return Ok(None);
    };
    let Some(like) = item.as_table_like() else {
        let why = "program must be a table: [program]";
        return Err((item.span().unwrap_or_default(), why.into()));
    };
    let fields = Fields::of(like, item.span());
    fields.only(&["lua", "wasm"], "in a program")?;
    let (program, span) = match (fields.text("lua")?, fields.text("wasm")?) {
        (Some((text, span)), None) => (ProgramText::Lua(text), span),
        (None, Some((text, span))) => {
            let module = STANDARD.decode(text.as_bytes());
            let module = module.map_err(|e| (span.clone(), format!("wasm is no base64: {e}")))?;
            (ProgramText::Wasm(module), span)
        }
        _ => {
            let why = "a program has `lua` or `wasm`, and one of them alone";
            return Err((fields.span(), why.into()));
        }
    };
    let (bytes, max) = (program.len(), PROGRAM_BYTES_MAX);
    match bytes > max {
        true => Err((
            span,
            format!("the program has {bytes} bytes, more than {max}"),
        )),
        false => Ok(Some(program)),
    }
}

/// The text of a policy with a program added to it.
pub fn with_program(rules: &str, program: &ProgramText) -> String {
    let value = match program {
        ProgramText::Lua(text) => format!("lua = {}", literal(text)),
        ProgramText::Wasm(module) => format!("wasm = \"{}\"", STANDARD.encode(module)),
    };
    let gap = match rules.is_empty() || rules.ends_with('\n') {
        true => "",
        false => "\n",
    };
    format!("{rules}{gap}[program]\n{value}\n")
}

/// A text as TOML has it: as it is where that can be read again, with escapes otherwise.
fn literal(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if !text.contains("''") && !text.ends_with('\'') && text.chars().all(is_plain) {
        return format!("'''\n{text}'''");
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FeedOp, Policy};

    fn again(rules: &str, program: ProgramText) -> Policy {
        let policy = Policy::load(&with_program(rules, &program)).unwrap();
        assert_eq!(policy.program(), Some(&program));
        policy
    }

    #[test]
    fn any_program_is_read_back_as_it_was() {
        for text in [
            "",
            "return 1",
            "\n\n",
            "'''",
            "a'",
            "\"\\\u{7f}\u{0}\r\n\u{85}",
            "\\u0041",
        ] {
            again("", ProgramText::Lua(text.into()));
        }
        again("version = 1", ProgramText::Wasm((0..=255).collect()));
    }

    #[test]
    fn a_program_that_no_rule_names_is_asked_about_what_no_rule_decides() {
        let rules = "[[rule]]\nop = \"unlink\"\nverdict = \"deny\"";
        let policy = again(rules, ProgramText::Lua("x".into()));
        assert_eq!(policy.len(), 2);
        assert_eq!(policy.rules_of(FeedOp::Unlink), [0, 1]);
        assert_eq!(policy.changes[1].name.as_ref(), "program");
        assert!(policy.denies_with(1).is_some() && policy.denies_with(0).is_none());
    }

    #[test]
    fn what_is_wrong_with_a_program_is_said() {
        let rule = |more: &str| format!("[[rule]]\n{more}\n[program]\nlua = ''");
        let long = "x".repeat(PROGRAM_BYTES_MAX + 1);
        for (text, said) in [
            ("program = 1".to_owned(), "[program]"),
            ("[program]".into(), "`lua` or `wasm`"),
            ("[program]\nlua = ''\nwasm = ''".into(), "one of them alone"),
            (
                "[program]\nwasm = '?'".into(),
                "line 2, column 8: wasm is no base64",
            ),
            ("[program]\njs = ''".into(), "no key in a program"),
            (format!("[program]\nlua = '{long}'"), "more than"),
            ("[[rule]]\nverdict = 'program'".into(), "has no [program]"),
            (rule("verdict = 'program'\nrate = '1/1s'"), "`rate`"),
            (rule("verdict = 'deny'\non_error = 'allow'"), "`on_error`"),
            (rule("verdict = 'program'\non_error = 'ask'"), "on_error"),
        ] {
            let fault = Policy::load(&text).unwrap_err().to_string();
            assert!(fault.contains(said), "{fault}");
            assert!(!fault.contains('\n'), "{fault}");
        }
    }
}
