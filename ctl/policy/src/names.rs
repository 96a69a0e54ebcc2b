//! Patterns for names that are no paths: of programs, branches, runs and tools.

use crate::AUTOMATON_BYTES_MAX;
use globset::GlobBuilder;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

/// Some patterns as one automaton.
#[derive(Debug)]
pub struct Names(Regex);

impl Names {
    /// Compiles patterns: `*` stands for anything, `?` for one byte, `[…]` for one of some, `{a,b}` for either.
    pub fn compile(patterns: &[String]) -> Result<Names, String> {
        let regexes: Result<Vec<String>, String> =
            patterns.iter().map(|p| regex_of(p, false)).collect();
        let regex = builder().build_many(&regexes?);
        regex.map(Names).map_err(|e| too_large(&e))
    }

    /// Whether one of them fits the whole name.
    pub fn fit(&self, name: &str) -> bool {
        self.0.is_match(name.as_bytes())
    }
}

/// What makes all automata: over bytes, and of limited size.
pub fn builder() -> regex_automata::meta::Builder {
    let mut builder = Regex::builder();
    builder
        .syntax(syntax::Config::new().utf8(false).dot_matches_new_line(true))
        .configure(
            Regex::config()
                .utf8_empty(false)
                .nfa_size_limit(Some(AUTOMATON_BYTES_MAX)),
        );
    builder
}

/// What a builder says, in short.
pub fn too_large(error: &regex_automata::meta::BuildError) -> String {
    match error.size_limit() {
        Some(_) => format!("its patterns need more than {AUTOMATON_BYTES_MAX} bytes together"),
        None => match error.syntax_error() {
            Some(error) => one_line(&error.to_string()),
            None => one_line(&error.to_string()),
        },
    }
}

/// The last line of a message that draws what it is about.
fn one_line(text: &str) -> String {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or("it cannot be used").trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// The regular expression of a pattern.
pub fn regex_of(pattern: &str, is_path: bool) -> Result<String, String> {
    let glob = GlobBuilder::new(pattern)
        .literal_separator(is_path)
        .backslash_escape(true)
        .build();
    let glob = glob.map_err(|error| error.kind().to_string())?;
    Ok(glob.regex().to_owned())
}
