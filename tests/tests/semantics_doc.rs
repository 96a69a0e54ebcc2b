//! What `docs/semantics.md` promises: every test that it names is there, and every exception that a row
//! names is in the list.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Names of all functions in the test sources.
fn functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for dir in ["tests/tests", "engine/tests", "fuse-front/tests"] {
        for entry in fs::read_dir(root().join(dir)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines = text.lines().filter_map(|line| line.strip_prefix("fn "));
            names.extend(lines.map(|line| line.split('(').next().unwrap().to_owned()));
        }
    }
    names
}

/// Cells of the table rows of a section.
fn rows(title: &str) -> Vec<Vec<String>> {
    let doc = fs::read_to_string(root().join("docs/semantics.md")).unwrap();
    let section = doc.split(&format!("\n## {title}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = lines.map(|line| line.trim_end_matches('|').split(" | "));
    cells
        .map(|cells| cells.map(|cell| cell.trim().to_owned()).collect())
        .skip(1)
        .collect()
}

#[test]
fn every_test_that_is_named_exists() {
    let functions = functions();
    let rows = rows("Operations");
    assert!(rows.len() > 20);
    let mut missing = Vec::new();
    let mut named = 0;
    for row in &rows {
        // Between back quotes: names with underscores.
        let cell = row.last().unwrap();
        for name in cell
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.contains('/'))
        {
            named += 1;
            if !functions.contains(name) {
                missing.push(name);
            }
        }
    }
    assert!(
        missing.is_empty() && named > 30,
        "{missing:?}, {named} named"
    );
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
