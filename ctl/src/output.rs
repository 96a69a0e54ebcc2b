//! Printing: `key=value` lines, rows, tables, JSON, talk and progress.
//!
//! Standard output is data, standard error is talk. Invariant: what a script reads never depends on
//! the terminal but for rows, which are an aligned table on one. A closed standard output is success
//! ([`Failure::broken_pipe`]).

use agentvfs_client::failure::Failure;
use agentvfs_client::quote::{self, one_line, quoted};
use agentvfs_client::render::insert_bytes;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How long something takes before a progress bar is shown for it.
const PROGRESS_AFTER: Duration = Duration::from_millis(500);

/// Whether standard error may have colours.
pub fn stderr_colour() -> bool {
    io::stderr().is_terminal() && colour_wanted()
}

/// `NO_COLOR` (no-color.org) counts when it is not empty.
pub fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes all of `text` to standard output.
pub fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()?;
    Ok(())
}

/// Prints one JSON object.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    print(quote::json(&format!("{value:#}\n")).as_bytes())
}

/// Prints JSON text that is kept as it was given: as it is, but for what a terminal would obey.
pub fn print_kept_json(text: &str) -> Result<(), Failure> {
    match io::stdout().is_terminal() {
        true => print(quote::json(text).as_bytes()),
        false => print(text.as_bytes()),
    }
}

/// Tells something to a person: only where standard error is a terminal.
pub fn talk(text: &str) {
    if io::stderr().is_terminal() {
        warn(text);
    }
}

/// Tells something that must not be missed.
pub fn warn(text: &str) {
    // Standard error may be closed; there is nobody left to tell then.
    let _ = writeln!(io::stderr(), "agentvfs: {}", one_line(text));
}

/// Facts, each printed as one line `key=value`, or together as one JSON object.
#[derive(Debug, Default)]
pub struct Facts {
    lines: Vec<u8>,
    object: Map<String, Value>,
}

impl Facts {
    /// A fact in text and JSON.
    pub fn add(&mut self, key: &str, value: &[u8]) -> &mut Facts {
        self.line(key, value);
        insert_bytes(&mut self.object, key, value);
        self
    }

    /// A fact for text alone.
    pub fn line(&mut self, key: &str, value: &[u8]) -> &mut Facts {
        self.lines.extend_from_slice(key.as_bytes());
        self.lines.push(b'=');
        self.lines.extend_from_slice(&quoted(value));
        self.lines.push(b'\n');
        self
    }

    /// A fact for JSON alone.
    pub fn json(&mut self, key: &str, value: impl Into<Value>) -> &mut Facts {
        self.object.insert(key.to_owned(), value.into());
        self
    }

    /// Prints them.
    pub fn print(self, json: bool) -> Result<(), Failure> {
        if json {
            print_json(&Value::Object(self.object))
        } else {
            print(&self.lines)
        }
    }
}

/// Rows of a list.
#[derive(Debug)]
pub struct Rows {
    header: &'static [&'static str],
    rows: Vec<Vec<Vec<u8>>>,
    /// Column of JSON, which is never quoted.
    plain: Option<usize>,
}

impl Rows {
    /// No rows yet; `header` is shown above a table.
    pub fn new(header: &'static [&'static str]) -> Rows {
        Rows {
            header,
            rows: Vec::new(),
            plain: None,
        }
    }

    /// With a column of JSON, which needs no quoting, as nothing in it can end a row.
    pub fn plain(self, column: usize) -> Rows {
        Rows {
            plain: Some(column),
            ..self
        }
    }

    /// Adds a row.
    pub fn push(&mut self, cells: Vec<Vec<u8>>) {
        self.rows.push(cells);
    }

    /// Prints them: ended by NUL and unquoted with `nul`, else as a table on a terminal, else
    /// separated by tabs.
    pub fn print(&self, nul: bool) -> Result<(), Failure> {
        if nul {
            return print(&self.separated(b'\0', false));
        }
        let out = io::stdout();
        if out.is_terminal() {
            return print(&self.table(colour_wanted()));
        }
        print(&self.separated(b'\n', true))
    }

    /// Prints them as a table, whoever looks at it.
    pub fn print_table(&self) -> Result<(), Failure> {
        print(&self.table(io::stdout().is_terminal() && colour_wanted()))
    }

    fn separated(&self, end: u8, quote: bool) -> Vec<u8> {
        let mut text = Vec::new();
        for row in &self.rows {
            let cells: Vec<Vec<u8>> = row
                .iter()
                .enumerate()
                .map(|(i, cell)| {
                    if quote && Some(i) != self.plain {
                        quoted(cell).into_owned()
                    } else {
                        cell.clone()
                    }
                })
                .collect();
            text.extend_from_slice(&cells.join(&b'\t'));
            text.push(end);
        }
        text
    }

    /// A cell as it is shown to a person: on one line, whatever is in it.
    fn shown(&self, column: usize, cell: &[u8]) -> String {
        match Some(column) == self.plain {
            true => quote::json(&String::from_utf8_lossy(cell)).into_owned(),
            false => quote::shown(cell),
        }
    }

    fn table(&self, colour: bool) -> Vec<u8> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let header: Vec<String> = self.header.iter().map(|cell| (*cell).to_owned()).collect();
        let body: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                row.iter()
                    .enumerate()
                    .map(|(i, c)| self.shown(i, c))
                    .collect()
            })
            .collect();
        let widths = widths(std::iter::once(&header).chain(&body), self.header.len());
        let mut text = String::new();
        let (bold, off) = if colour {
            ("\x1b[1m", "\x1b[0m")
        } else {
            ("", "")
        };
        text.push_str(&format!("{bold}{}{off}\n", aligned(&header, &widths)));
        for row in &body {
            text.push_str(&aligned(row, &widths));
            text.push('\n');
        }
        text.into_bytes()
    }
}

fn widths<'a>(rows: impl Iterator<Item = &'a Vec<String>>, columns: usize) -> Vec<usize> {
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (i, cell) in row.iter().enumerate() {
        let width = widths.get(i).copied().unwrap_or(0);
        if i + 1 < row.len() {
            line.push_str(&format!("{cell:<width$}  "));
        } else {
            line.push_str(cell);
        }
    }
    line.trim_end().to_owned()
}

/// A progress bar that appears when something takes long, on a terminal.
pub struct Bar {
    what: &'static str,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Nothing is shown yet.
    pub fn new(what: &'static str) -> Bar {
        Bar {
            what,
            since: Instant::now(),
            bar: None,
        }
    }

    /// Whether it would be seen at all.
    pub fn is_wanted() -> bool {
        io::stderr().is_terminal()
    }

    /// Shows how far the work is.
    pub fn set(&mut self, done: u64, total: u64) {
        if !Bar::is_wanted() || self.since.elapsed() < PROGRESS_AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| new_bar(self.what));
        bar.set_length(total);
        bar.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// `bytes` for people.
pub fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::quote::base64;

    fn rows() -> Rows {
        let mut rows = Rows::new(&["NAME", "PATH"]);
        rows.push(vec![b"long-name".to_vec(), b"a\tb".to_vec()]);
        rows.push(vec![b"x".to_vec(), b"c".to_vec()]);
        rows
    }

    #[test]
    fn rows_for_scripts_are_separated_and_quoted() {
        assert_eq!(
            rows().separated(b'\n', true),
            b"long-name\t\"a\\tb\"\nx\tc\n"
        );
        assert_eq!(rows().separated(b'\0', false), b"long-name\ta\tb\0x\tc\0");
    }

    #[test]
    fn table_is_aligned() {
        let text = String::from_utf8(rows().table(false)).unwrap();
        assert_eq!(
            text,
            "NAME       PATH\nlong-name  \"a\\tb\"\nx          c\n"
        );
        assert_eq!(Rows::new(&["A"]).table(true), b"");
    }

    #[test]
    fn facts_are_lines_or_an_object() {
        let mut facts = Facts::default();
        facts
            .add("name", b"w")
            .add("mount", b"/a\n/\xff")
            .line("only", b"text")
            .json("pid", 7);
        assert_eq!(facts.lines, b"name=w\nmount=\"/a\\n/\xff\"\nonly=text\n");
        let object = Value::Object(facts.object);
        assert_eq!(object["mount_b64"], base64(b"/a\n/\xff"));
        assert_eq!(object["pid"], 7);
        assert!(object.get("only").is_none() && object.get("name_b64").is_none());
    }
}
