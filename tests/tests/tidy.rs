//! The house style, as far as a program can tell: what every source file has, what none may have.
//!
//! Reads the sources as text, so it depends on their being formatted by rustfmt (which CI checks).
#![allow(clippy::unwrap_used)]

#[path = "tidy/modules.rs"]
mod modules;

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, its inline tests left out.
const FILE_LINES_MAX: usize = 600;
/// Longest function that is not one flat match.
const FUNCTION_LINES_MAX: usize = 70;
/// Most direct dependencies of a crate, those of its tests left out.
const DEPENDENCIES_MAX: usize = 15;
/// Crates without a circle of modules.
const WITHOUT_CIRCLES: [&str; 7] = [
    "benches",
    "ctl",
    "ctl/client",
    "ctl/daemon",
    "ctl/mcp",
    "ctl/sandbox",
    "engine/quote",
];
/// Most modules in a circle of another crate.
const CIRCLE_MAX: usize = 6;
/// The floors of the engine (docs/architecture.md), the lowest first: modules with all that is below them, but for
/// what stands for itself on another floor.
const FLOORS: [&[&str]; 13] = [
    &[
        "types", "limits", "names", "clock", "cancel", "question", "error",
    ],
    &["journal", "base"],
    &["kv", "feed", "judge"],
    &["record", "settings"],
    &["tree"],
    &["stored"],
    &["merge"],
    &["change"],
    &["book"],
    &["branch"],
    &["ops"],
    &[
        "workspace",
        "workspace::branch_refs",
        "workspace::branches",
        "workspace::keeper",
        "workspace::untrusted",
        "workspace::views",
    ],
    &["verbs", "workspace::*"],
];
/// Imports upwards that there are: an error names what it is about.
const UPWARDS: [(&str, &str); 2] = [("error", "base"), ("error", "journal")];
/// Lines of a function outside its one match for it to count as flat.
const OUTSIDE_MATCH_MAX: usize = 15;

struct Source {
    /// Path below the root.
    name: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Directories of all crates of the workspace.
fn crates() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = manifest.split("members = [").nth(1).unwrap();
    let list = list.split(']').next().unwrap();
    let names = list.split('"').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

fn sources() -> Vec<Source> {
    let mut out = Vec::new();
    for name in crates() {
        collect(&root().join(name), &mut out);
    }
    assert!(out.len() > 100, "only {} sources found", out.len());
    out
}

fn collect(dir: &Path, out: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.join("Cargo.toml").exists() {
            continue; // A crate below this one.
        }
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root()).unwrap();
            out.push(Source {
                name: name.display().to_string(),
                text: fs::read_to_string(&path).unwrap(),
            });
        }
    }
}

/// Fails with all findings at once.
fn none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Lines of a file before its inline tests.
fn code(source: &Source) -> Vec<&str> {
    let lines: Vec<&str> = source.text.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod tests {"));
    lines[..tests.unwrap_or(lines.len())].to_vec()
}

fn without_comment(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[test]
fn a_module_with_parts_stands_beside_their_directory() {
    // In `tests/` itself cargo would take such a file for a test program.
    let is_shared_by_tests = |name: &str| name.rsplit('/').nth(2) == Some("tests");
    let old = sources().into_iter().map(|source| source.name);
    none(
        old.filter(|name| name.ends_with("/mod.rs") && !is_shared_by_tests(name))
            .map(|name| format!("{name}: name it after its directory, beside that"))
            .collect(),
    );
}

#[test]
fn every_part_of_a_test_program_is_named_in_it() {
    // One that is left out is not compiled, and its tests do not run.
    let sources = sources();
    let mut left_out = Vec::new();
    let mut parts = 0;
    for program in &sources {
        let Some(directory) = program.name.strip_suffix("main.rs") else {
            continue;
        };
        if !directory.contains("/tests/") {
            continue;
        }
        for source in &sources {
            let file = source.name.strip_prefix(directory);
            let Some(part) = file.and_then(|f| f.strip_suffix(".rs")) else {
                continue;
            };
            if part == "main" || part.contains('/') {
                continue;
            }
            parts += 1;
            if !program.text.contains(&format!("\nmod {part};\n")) {
                left_out.push(format!(
                    "{}: {} has no `mod {part};`",
                    source.name, program.name
                ));
            }
        }
    }
    assert!(parts > 40, "only {parts} parts found");
    none(left_out);
}

#[test]
fn every_file_says_what_it_is() {
    let bare = sources()
        .into_iter()
        .filter(|s| !s.text.starts_with("//! "));
    none(bare.map(|s| s.name).collect());
}

#[test]
fn nothing_is_left_to_do() {
    // Put together here, or this file would be found.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("to", "do!("),
        concat!("unimpl", "emented!("),
    ];
    let mut found = Vec::new();
    for s in sources() {
        for (i, line) in s.text.lines().enumerate() {
            if words.iter().any(|w| line.contains(w)) {
                found.push(format!("{}:{}: {}", s.name, i + 1, line.trim()));
            }
        }
    }
    none(found);
}

#[test]
fn files_are_short() {
    let lengths = sources().into_iter().map(|s| (code(&s).len(), s.name));
    let long = lengths.filter(|(lines, _)| *lines > FILE_LINES_MAX);
    none(long.map(|(n, name)| format!("{name}: {n} lines")).collect());
}

/// A function: its name and its lines, from signature to closing brace.
fn functions<'a>(lines: &[&'a str]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut out = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let closing = format!("{}}}", " ".repeat(indent(line)));
        let one_line = line.ends_with('}') || line.ends_with(';');
        let end = lines[i..].iter().position(|l| *l == closing);
        if let Some(end) = end.filter(|_| !one_line) {
            out.push((name, lines[i..=i + end].to_vec()));
        }
    }
    out
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = without_comment(line).split_whitespace();
    let allowed = |w: &&str| w.starts_with("pub") || ["const", "async", "unsafe"].contains(w);
    let mut next = words.next()?;
    while allowed(&next) {
        next = words.next()?;
    }
    if next != "fn" {
        return None;
    }
    words.next()?.split(['(', '<']).next()
}

/// True where almost all of the function is one match.
fn is_flat_match(function: &[&str]) -> bool {
    let longest = function.iter().enumerate().filter_map(|(i, line)| {
        let opens = line.contains("match ") && line.ends_with('{');
        let closing = format!("{}}}", " ".repeat(indent(line)));
        let end = function[i..].iter().position(|l| l.starts_with(&closing))?;
        opens.then_some(end)
    });
    let inside = longest.max().unwrap_or(0);
    inside > 0 && function.len() - inside <= OUTSIDE_MATCH_MAX
}

#[test]
fn functions_are_short() {
    let (mut long, mut seen) = (Vec::new(), 0);
    for s in sources() {
        let lines: Vec<&str> = s.text.lines().collect();
        for (name, function) in functions(&lines) {
            seen += 1;
            if function.len() > FUNCTION_LINES_MAX && !is_flat_match(&function) {
                long.push(format!("{}: {name}: {} lines", s.name, function.len()));
            }
        }
    }
    assert!(seen > 1000, "only {seen} functions found");
    none(long);
}

#[test]
fn unsafe_code_stands_in_sys_alone() {
    let word = concat!("un", "safe");
    let mut found = Vec::new();
    // Tests may need what no program does, such as an allocator that counts.
    let shipped = |s: &Source| s.name.contains("/src/") && !s.name.ends_with("/sys.rs");
    for s in sources().into_iter().filter(shipped) {
        for (i, line) in s.text.lines().enumerate() {
            let used = without_comment(line)
                .split(|c: char| !c.is_alphanumeric() && c != '_' && c != '"' && c != '`')
                .any(|w| w == word);
            if used {
                found.push(format!("{}:{}: {}", s.name, i + 1, line.trim()));
            }
        }
    }
    none(found);
}

/// Name and version of every dependency in the root manifest that is not one of our crates.
fn dependencies() -> Vec<(String, String)> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = manifest.split("[workspace.dependencies]").nth(1).unwrap();
    let table = table.split("\n[").next().unwrap();
    let lines = table.lines().filter(|l| l.contains("\"="));
    lines
        .map(|line| {
            let name = line.split([' ', '=']).next().unwrap();
            let version = line.split("\"=").nth(1).unwrap().split('"').next().unwrap();
            (name.to_owned(), version.to_owned())
        })
        .collect()
}

#[test]
fn no_crate_depends_on_too_much() {
    let mut found = Vec::new();
    for name in crates() {
        let manifest = fs::read_to_string(root().join(&name).join("Cargo.toml")).unwrap();
        let table = manifest.split("\n[dependencies]\n").nth(1).unwrap_or("");
        let table = table.split("\n[").next().unwrap();
        let direct = table.lines().filter(|line| line.contains('=')).count();
        if direct > DEPENDENCIES_MAX {
            found.push(format!("{name}: {direct} direct dependencies"));
        }
    }
    none(found);
}

/// Files of a crate below its `src/`, with their code.
fn modules_of(name: &str) -> Vec<(String, String)> {
    let (mut files, src) = (Vec::new(), format!("{name}/src/"));
    collect(&root().join(name).join("src"), &mut files);
    let bare = |s: &Source| {
        let lines = code(s).into_iter().map(without_comment);
        lines.collect::<Vec<_>>().join("\n")
    };
    let files = files.iter();
    files
        .map(|s| (s.name.replacen(&src, "", 1), bare(s)))
        .collect()
}

#[test]
fn modules_import_in_no_circle() {
    let mut found = Vec::new();
    for name in WITHOUT_CIRCLES {
        let modules = modules_of(name);
        assert!(!modules.is_empty(), "{name} has no modules");
        for circle in modules::circles(&modules) {
            found.push(format!("{name}: {}", circle.join(", ")));
        }
    }
    none(found);
}

#[test]
fn circles_of_modules_are_small() {
    let mut found = Vec::new();
    for name in crates() {
        let circles = modules::circles(&modules_of(&name));
        let large = circles.iter().filter(|circle| circle.len() > CIRCLE_MAX);
        found.extend(large.map(|circle| format!("{name}: {}", circle.join(", "))));
    }
    none(found);
}

/// The floor of a module of the engine; above all others where none is said.
fn floor(module: &str) -> usize {
    let first = module.split("::").next().unwrap();
    let on = |name: &str| FLOORS.iter().position(|floor| floor.contains(&name));
    let below = || on(&format!("{first}::*")).filter(|_| module != first);
    let of = on(module).or_else(below).or_else(|| on(first));
    of.unwrap_or(FLOORS.len())
}

#[test]
fn engine_imports_downwards() {
    let imports = modules::imports(&modules_of("engine"));
    assert!(imports.len() > 100, "{imports:?}");
    let (known, found): (Vec<_>, Vec<_>) = imports
        .into_iter()
        .filter(|(from, to)| floor(from) < floor(to))
        .partition(|(from, to)| UPWARDS.contains(&(from, to)));
    assert_eq!(known.len(), UPWARDS.len(), "{known:?} is left");
    let found = found
        .iter()
        .map(|(from, to)| format!("{from} imports {to}"));
    none(found.collect());
}

#[test]
fn a_circle_of_modules_is_found() {
    let file = |name: &str, code: &str| (name.to_owned(), code.to_owned());
    let sources = |last: &str| {
        [
            file("lib.rs", "mod a; mod b; mod c;"),
            file("a.rs", "mod inner; use crate::{b::{X as Y, Z}, c};"),
            file("a/inner.rs", "use super::W; use super::super::b::*;"),
            file("b.rs", "use super::c::V;"),
            file("c.rs", last),
        ]
    };
    let none: [Vec<String>; 0] = [];
    assert_eq!(modules::circles(&sources("use crate::T;")), none);
    let circle = modules::circles(&sources("fn f() { crate::a::inner::f() }"));
    assert_eq!(circle, [["a::inner", "b", "c"]]);
    let circle = modules::circles(&sources("use crate::a;"));
    assert_eq!(circle, [["a", "b", "c"]]);
}

#[test]
fn every_dependency_is_accounted_for() {
    let doc = fs::read_to_string(root().join("docs/dependencies.md")).unwrap();
    let dependencies = dependencies();
    assert!(dependencies.len() > 20);
    let missing = dependencies
        .iter()
        .map(|(name, version)| format!("| {name} | {version} |"))
        .filter(|row| !doc.lines().any(|line| line.starts_with(row)));
    none(missing.collect());
}

/// What is for tests must not come into the installed program by another crate that asks for it.
#[test]
fn package_tests_alone_has_the_second_way_to_the_kernel() {
    let asks = |name: &String| {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        manifest.contains(r#"features = ["fuser"]"#) || manifest.contains("fuse-front/fuser")
    };
    let asking: Vec<String> = crates().into_iter().filter(asks).collect();
    assert_eq!(asking, ["tests"]);
}

#[test]
fn dependencies_come_from_the_root() {
    let mut found = Vec::new();
    for name in crates() {
        let manifest = fs::read_to_string(root().join(&name).join("Cargo.toml")).unwrap();
        let tables = manifest
            .split("\n[")
            .filter(|t| t.contains("dependencies]\n"));
        for line in tables
            .flat_map(|t| t.lines().skip(1))
            .filter(|l| l.contains('='))
        {
            if !line.contains("workspace = true") {
                found.push(format!("{name}: {line}"));
            }
        }
    }
    none(found);
}
