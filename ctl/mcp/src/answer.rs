//! What a tool answers: text, notes on how to get more, and the same facts for programs.

use super::limits::{ROWS_BYTES_MAX, ROWS_DEFAULT, ROWS_MAX};
use agentvfs_client::failure::Failure;
use agentvfs_client::quote::quoted;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value};

/// A tool's answer.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    text: String,
    note: Option<String>,
    /// For programs: goes into the result's `_meta`, each key as `agentvfs/KEY`.
    facts: Map<String, Value>,
    failed: bool,
}

impl Answer {
    /// A text.
    pub fn text(text: impl Into<String>) -> Answer {
        Answer {
            text: text.into(),
            ..Answer::default()
        }
    }

    /// A value, as JSON.
    pub fn json(value: &Value) -> Answer {
        Answer::text(format!("{value:#}"))
    }

    /// The same with a note behind the text.
    pub fn note(mut self, note: impl Into<String>) -> Answer {
        self.note = Some(note.into());
        self
    }

    /// The same with a further note behind those that there are.
    pub fn also(mut self, note: &str) -> Answer {
        self.note = Some(match self.note {
            Some(before) => format!("{before}; {note}"),
            None => note.to_owned(),
        });
        self
    }

    /// The same with a fact for programs.
    pub fn fact(mut self, key: &str, value: impl Into<Value>) -> Answer {
        self.facts.insert(format!("agentvfs/{key}"), value.into());
        self
    }

    /// The same, told as an error.
    pub fn failed(mut self) -> Answer {
        self.failed = true;
        self
    }

    /// The failure of a command, in its words.
    pub fn failure(failure: &Failure) -> Answer {
        Answer::text(failure.plain().trim_end()).failed()
    }

    /// Whether it is an error.
    pub fn is_failed(&self) -> bool {
        self.failed
    }

    /// The text that it begins with.
    pub fn words(&self) -> &str {
        &self.text
    }
}

impl From<Answer> for CallToolResult {
    fn from(answer: Answer) -> CallToolResult {
        let mut content = vec![ContentBlock::text(answer.text)];
        content.extend(
            answer
                .note
                .map(|note| ContentBlock::text(format!("[{note}]"))),
        );
        let mut result = match answer.failed {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        if !answer.facts.is_empty() {
            result.meta = Some(MetaObject(answer.facts));
        }
        result
    }
}

/// Which rows of a list are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// How many to pass over.
    pub offset: u64,
    /// How many to give at most.
    pub limit: u64,
}

impl Page {
    /// What was asked for, within bounds.
    pub fn new(offset: Option<u64>, limit: Option<u64>) -> Page {
        Page::with_default(offset, limit, ROWS_DEFAULT)
    }

    /// The same with another number of rows where none was asked for.
    pub fn with_default(offset: Option<u64>, limit: Option<u64>, default: u64) -> Page {
        Page {
            offset: offset.unwrap_or(0),
            limit: limit.unwrap_or(default).clamp(1, ROWS_MAX),
        }
    }

    /// Rows before which it ends.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.limit)
    }

    /// These rows of all, one a line.
    pub fn of<T>(self, all: &[T], row: impl Fn(&T) -> String) -> Answer {
        self.of_first(all, all.len() as u64, row)
    }

    /// These rows, one a line, where of `total` those up to the page's end are known.
    pub fn of_first<T>(self, first: &[T], total: u64, row: impl Fn(&T) -> String) -> Answer {
        let start = usize::try_from(self.offset)
            .unwrap_or(usize::MAX)
            .min(first.len());
        let some = first[start..].iter().take(self.limit as usize).map(row);
        self.shown(some, total)
    }

    /// Rows that were already chosen, out of `total`, one a line; fewer where they are very long.
    pub fn shown(self, rows: impl Iterator<Item = String>, total: u64) -> Answer {
        let mut lines: Vec<String> = Vec::new();
        let mut bytes = 0;
        for row in rows {
            bytes += row.len() + 1;
            if bytes > ROWS_BYTES_MAX && !lines.is_empty() {
                break;
            }
            lines.push(row);
        }
        let count = lines.len() as u64;
        self.noted(Answer::text(lines.join("\n")), count, total)
    }

    /// An answer that holds `count` of `total` things from this page's offset on.
    pub fn noted(self, answer: Answer, count: u64, total: u64) -> Answer {
        let end = self.offset.saturating_add(count);
        let answer = answer.fact("total", total);
        if end < total {
            let first = self.offset;
            let note = format!("{first} to {end} of {total}; to continue, use offset {end}");
            return answer.note(note).fact("next_offset", end);
        }
        match count {
            0 if total == 0 => answer.note("none"),
            0 => answer.note(format!("there are only {total}")),
            _ => answer,
        }
    }
}

/// Cells of a row, separated by tabs and quoted as in the rows that commands print.
pub fn row(cells: &[impl AsRef<[u8]>]) -> String {
    let shown = |cell: &_| String::from_utf8_lossy(&quoted(AsRef::as_ref(cell))).into_owned();
    cells.iter().map(shown).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_how_to_get_more() {
        let all: Vec<u64> = (0..250).collect();
        let show = |n: &u64| n.to_string();
        for offset in [0, 90, 240, 250, 900] {
            let page = Page::new(Some(offset), Some(20));
            let known = (page.end() as usize).min(all.len());
            let first = page.of_first(&all[..known], 250, show);
            assert_eq!(first, page.of(&all, show));
        }
        let first = Page::new(None, None).of(&all, show);
        assert!(first.text.starts_with("0\n1\n") && first.text.ends_with("\n99"));
        assert_eq!(first.facts["agentvfs/next_offset"], 100);
        assert_eq!(
            first.note.as_deref(),
            Some("0 to 100 of 250; to continue, use offset 100")
        );
        let last = Page::new(Some(200), Some(u64::MAX)).of(&all, show);
        assert!(last.text.ends_with("\n249") && last.note.is_none());
        let beyond = Page::new(Some(u64::MAX), Some(0)).of(&all, show);
        assert_eq!(
            (beyond.text.as_str(), beyond.note.as_deref()),
            ("", Some("there are only 250"))
        );
    }

    #[test]
    fn long_rows_make_a_short_page() {
        let all = vec!["x".repeat(100_000); 10];
        let page = Page::new(None, None).of(&all, Clone::clone);
        assert_eq!(page.facts["agentvfs/next_offset"], 2);
        assert!(page.text.len() < ROWS_BYTES_MAX);
    }

    #[test]
    fn failures_are_told_in_the_words_of_the_commands() {
        let failure = Failure::new("cannot write in w", "no space").hint("make room");
        let result = CallToolResult::from(Answer::failure(&failure));
        assert_eq!(result.is_error, Some(true));
        let text = serde_json::to_value(&result.content).unwrap();
        assert_eq!(
            text[0]["text"],
            "agentvfs: cannot write in w: no space\nhint: make room"
        );
    }

    #[test]
    fn rows_are_quoted() {
        assert_eq!(row(&[&b"M"[..], b"a\nb"]), "M\t\"a\\nb\"");
    }
}
