//! Printing: `key=value` lines, rows, tables, JSON, talk and progress.
//!
//! Standard output is data, standard error is talk. Invariant: what a script reads never depends on
//! the terminal but for rows, which are an aligned table on one. A closed standard output is success
//! ([`Failure::broken_pipe`]).

use agentvfs_client::failure::Failure;
use agentvfs_client::quote::{self, one_line, quoted};
use agentvfs_client::render::insert_bytes;
pub use agentvfs_picture::{Bar, human_bytes};
use agentvfs_picture::{BarStyle, Style, Times, text_width};
use rustix::termios::tcgetwinsize;
use serde_json::{Map, Value};
use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Space between two columns of a table.
const COLUMN_GAP: usize = 2;

/// Width of a terminal that does not say how wide it is.
const COLUMNS_DEFAULT: usize = 80;

/// Whether standard error may have colours.
pub fn stderr_colour() -> bool {
    io::stderr().is_terminal() && colour_wanted()
}

/// `NO_COLOR` (no-color.org) counts when it is not empty.
pub fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !is_dumb()
}

/// Whether the terminal cannot draw over what it shows.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// How standard output is drawn on: on a terminal with colours, times ago and its width; elsewhere with nothing that
/// depends on who looks, or when.
pub fn stdout_style() -> Style {
    let is_terminal = io::stdout().is_terminal();
    let columns = tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Style {
        colour: is_terminal && colour_wanted(),
        unicode: is_unicode(),
        width: match (is_terminal, columns) {
            (false, _) => usize::MAX,
            (true, 0) => COLUMNS_DEFAULT,
            (true, columns) => columns.into(),
        },
        times: match is_terminal {
            // A clock before 1970 has no times ago worth showing.
            true => Times::Ago(now.map_or(0, |now| now.as_secs() as i64)),
            false => Times::Utc,
        },
    }
}

/// The same with times as they are: on a terminal in the machine's time zone.
pub fn absolute(style: Style) -> Style {
    match style.times {
        Times::Utc => style,
        Times::Ago(_) | Times::Local => Style {
            times: Times::Local,
            ..style
        },
    }
}

/// What a check of the store says that it does.
pub const CHECKING: &str = "checking";

/// What counts bytes.
const IN_BYTES: [&str; 6] = [
    CHECKING,
    "exporting",
    "importing",
    "pushing",
    "fetching",
    "cloning",
];

/// A progress bar on standard error.
pub fn bar(what: &'static str) -> Bar {
    match is_dumb() {
        true => Bar::hidden(),
        false => Bar::new(what, bar_style(what)),
    }
}

fn bar_style(what: &str) -> BarStyle {
    BarStyle {
        unicode: is_unicode(),
        columns: || match tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col) {
            0 => COLUMNS_DEFAULT as u16,
            columns => columns,
        },
        bytes: IN_BYTES.contains(&what),
    }
}

/// Whether the locale's characters are Unicode.
fn is_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
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

/// A JSON object of one list, printed while it is made. The text is that of [`print_json`] for the whole object.
#[derive(Debug)]
pub struct JsonList {
    name: &'static str,
    is_begun: bool,
}

impl JsonList {
    /// Nothing is printed yet.
    pub fn new(name: &'static str) -> JsonList {
        let is_begun = false;
        JsonList { name, is_begun }
    }

    /// Prints further values.
    pub fn print(&mut self, values: impl Iterator<Item = Value>) -> Result<(), Failure> {
        print(quote::json(&self.text_of(values)).as_bytes())
    }

    /// Prints the end.
    pub fn finish(self) -> Result<(), Failure> {
        print(self.end().as_bytes())
    }

    fn text_of(&mut self, values: impl Iterator<Item = Value>) -> String {
        let mut text = String::new();
        for value in values {
            match std::mem::replace(&mut self.is_begun, true) {
                false => text.push_str(&format!("{{\n  \"{}\": [", self.name)),
                true => text.push(','),
            }
            // No text of JSON has a line end in it.
            let value = format!("\n{value:#}").replace('\n', "\n    ");
            text.push_str(&value);
        }
        text
    }

    fn end(&self) -> String {
        match self.is_begun {
            false => format!("{{\n  \"{}\": []\n}}\n", self.name),
            true => "\n  ]\n}\n".to_owned(),
        }
    }
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
            *width = (*width).max(text_width(cell));
        }
    }
    widths
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (i, cell) in row.iter().enumerate() {
        let width = widths.get(i).copied().unwrap_or(0);
        line.push_str(cell);
        if i + 1 < row.len() {
            let space = width.saturating_sub(text_width(cell)) + COLUMN_GAP;
            line.push_str(&" ".repeat(space));
        }
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::quote::base64;
    use serde_json::json;

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
        // Wide characters take two columns, those that are combined with the one before none.
        let mut wide = Rows::new(&["NAME", "X"]);
        wide.push(vec!["後で".into(), b"1".to_vec()]);
        wide.push(vec!["e\u{301}".into(), b"2".to_vec()]);
        let text = String::from_utf8(wide.table(false)).unwrap();
        assert_eq!(text, "NAME  X\n後で  1\ne\u{301}     2\n");
    }

    #[test]
    fn a_list_in_parts_has_the_text_of_the_whole() {
        let values = [
            json!({ "a": "x\ny", "b": [1, { "c": [] }] }),
            json!({}),
            json!(2),
        ];
        for parts in [&[(0, 0)][..], &[(0, 3)], &[(0, 1), (1, 1), (1, 3)], &[]] {
            let mut list = JsonList::new("things");
            let count = parts.last().map_or(0, |(_, end)| *end);
            let mut text = String::new();
            for (from, to) in parts {
                text.push_str(&list.text_of(values[*from..*to].iter().cloned()));
            }
            text.push_str(&list.end());
            let whole = json!({ "things": values[..count] });
            assert_eq!(text, format!("{whole:#}\n"));
        }
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
