//! What README.md and the documents below `docs/` named here promise: each row names what shows it, every test that
//! is named exists, and every exception that a row names is in the list.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Documents whose promises name their tests.
const DOCS: [&str; 6] = [
    "README.md",
    "docs/guide.md",
    "docs/semantics.md",
    "docs/durability.md",
    "docs/transport.md",
    "docs/sandbox.md",
];
/// Rows with tests, and names of tests, that each of them has at least.
const ROWS_MIN: usize = 5;
/// Folders with tests, those beside the code included.
const SOURCES: [&str; 6] = ["ctl", "engine", "export", "fuse-front", "objstore", "tests"];
/// What a row says that names no test, because there is none.
const UNTESTED: &str = "no test";
/// A name in back quotes with as many underscores is a test's; functions of the system have fewer.
const UNDERSCORES_MIN: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(doc: &str) -> String {
    fs::read_to_string(root().join(doc)).unwrap()
}

/// Adds the names of the test functions in and below a directory.
fn add_tests(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_tests(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(tests_of(&fs::read_to_string(path).unwrap()));
        }
    }
}

/// Names of the functions with `#[test]` in a source text.
fn tests_of(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        match line.strip_prefix("fn ") {
            Some(rest) if is_test => {
                names.push(rest.split('(').next().unwrap().to_owned());
                is_test = false;
            }
            _ if line == "#[test]" => is_test = true,
            _ => is_test &= line.starts_with("#["),
        }
    }
    names
}

fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for dir in SOURCES {
        add_tests(&root().join(dir), &mut names);
    }
    names
}

/// Words in back quotes, those of listings left out.
fn quoted(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for prose in text.split("```").step_by(2) {
        words.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    words
}

/// The test that a word in back quotes names, after its module's path where it has one.
fn named_test(word: &str) -> Option<&str> {
    let name = word.rsplit("::").next().unwrap_or(word);
    let is_name = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    (is_name && name.matches('_').count() >= UNDERSCORES_MIN).then_some(name)
}

/// The file with tests that a word in back quotes names.
fn named_file(word: &str) -> Option<PathBuf> {
    let is_path = word.contains("/tests/") && word.ends_with(".rs");
    is_path.then(|| root().join(word))
}

/// The tables of a document: cells of each line, the head first, the ruler left out.
fn tables(text: &str) -> Vec<Vec<Vec<String>>> {
    let mut tables = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines().chain([""]) {
        match line.strip_prefix('|') {
            Some(row) if row.starts_with("---") => {}
            Some(row) => lines.push(cells(row)),
            None if !lines.is_empty() => tables.push(std::mem::take(&mut lines)),
            None => {}
        }
    }
    tables
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim_end().trim_end_matches('|');
    row.split(" |").map(|cell| cell.trim().to_owned()).collect()
}

/// Rows of the table of a section of `docs/semantics.md`.
fn rows(title: &str) -> Vec<Vec<String>> {
    let doc = read("docs/semantics.md");
    let section = doc.split(&format!("\n## {title}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    tables(section).remove(0).split_off(1)
}

#[test]
fn every_test_that_is_named_exists() {
    let tests = tests();
    let mut missing = Vec::new();
    for doc in DOCS {
        let words = quoted(&read(doc));
        let named: Vec<&str> = words.iter().filter_map(|word| named_test(word)).collect();
        assert!(named.len() >= ROWS_MIN, "{doc} names {} tests", named.len());
        let gone = named.into_iter().filter(|name| !tests.contains(*name));
        missing.extend(gone.map(|name| format!("{doc}: {name}")));
        let files = words.iter().filter_map(|word| named_file(word));
        let gone = files.filter(|file| !file.is_file());
        missing.extend(gone.map(|file| format!("{doc}: {}", file.display())));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_promise_names_what_shows_it() {
    let mut bare = Vec::new();
    for doc in DOCS {
        let mut promises = 0;
        for table in tables(&read(doc)) {
            let is_shown = |cell: &String| cell.starts_with("shown by");
            let Some(column) = table[0].iter().position(is_shown) else {
                continue;
            };
            for row in &table[1..] {
                promises += 1;
                let cell = row.get(column).map_or("", String::as_str);
                let is_named = quoted(cell)
                    .iter()
                    .any(|word| named_test(word).is_some() || named_file(word).is_some());
                if !is_named && !cell.contains("suite") && cell != UNTESTED {
                    bare.push(format!("{doc}: {}", row[0]));
                }
            }
        }
        assert!(promises >= ROWS_MIN, "{doc} has {promises} rows with tests");
    }
    assert!(bare.is_empty(), "{bare:#?}");
}

#[test]
fn every_exception_that_is_named_is_listed_and_used() {
    let listed: BTreeSet<String> = rows("Exceptions")
        .iter()
        .map(|row| row[0].clone())
        .collect();
    let mut used = BTreeSet::new();
    for row in rows("Operations") {
        for name in row[2].split('[').skip(1) {
            used.insert(name.split(']').next().unwrap().to_owned());
        }
    }
    assert_eq!(used, listed);
    assert!(rows("Exceptions").iter().all(|row| row.len() == 4));
}
