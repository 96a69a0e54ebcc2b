//! The modules of a crate as its `use crate::` and `super::` paths join them.
//!
//! Inline tests and files of tests are left out, and so is what a module has to do with its own descendants: they
//! are parts of it. What is reached through a re-export counts as the module that re-exports it.

use std::collections::BTreeMap;

/// A module's path below its crate; empty for the crate itself.
type Module = Vec<String>;

/// Modules with their code.
type Code = BTreeMap<Module, String>;

fn code_of(sources: &[(String, String)]) -> Code {
    let all = sources
        .iter()
        .map(|(path, code)| (module_of(path), code.clone()));
    all.filter(|(module, _)| !module.iter().any(|name| name == "tests"))
        .collect()
}

fn imports_of(code: &Code) -> BTreeMap<&Module, Vec<&Module>> {
    let mut imports = BTreeMap::new();
    for (module, text) in code {
        let found = paths(text)
            .into_iter()
            .map(|path| target(module, &path, code));
        let apart = found.filter(|to| !to.starts_with(module) && !module.starts_with(to));
        imports.insert(module, apart.collect());
    }
    imports
}

/// Which module imports which; `sources` are paths below `src/` with their code.
pub fn imports(sources: &[(String, String)]) -> Vec<(String, String)> {
    let code = code_of(sources);
    let mut out = Vec::new();
    for (module, imported) in imports_of(&code) {
        let pair = |to: &&Module| (module.join("::"), to.join("::"));
        out.extend(imported.iter().map(pair));
    }
    out.sort();
    out.dedup();
    out
}

/// Groups of modules that import each other in a circle; `sources` as in [`imports`].
pub fn circles(sources: &[(String, String)]) -> Vec<Vec<String>> {
    let code = code_of(sources);
    let imports = imports_of(&code);
    let mut out: Vec<Vec<String>> = Vec::new();
    for module in code.keys() {
        let circle = imports
            .keys()
            .filter(|other| reaches(module, other, &imports) && reaches(other, module, &imports));
        let names: Vec<String> = circle.map(|m| m.join("::")).collect();
        if names.len() > 1 && !out.contains(&names) {
            out.push(names);
        }
    }
    out
}

fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let names = path.split('/').map(str::to_owned);
    names
        .filter(|name| !["lib", "main", "mod"].contains(&&name[..]))
        .collect()
}

/// Whether `from` imports `to`, itself or through others; a module reaches itself.
fn reaches(from: &Module, to: &Module, imports: &BTreeMap<&Module, Vec<&Module>>) -> bool {
    let (mut seen, mut work) = (vec![from], vec![from]);
    while let Some(module) = work.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if !seen.contains(next) {
                seen.push(next);
                work.push(next);
            }
        }
    }
    seen.contains(&to)
}

/// The module that a path in `module` leads to: the longest beginning that is one.
fn target<'a>(module: &Module, path: &[String], code: &'a Code) -> &'a Module {
    let mut at = match path[0] == "crate" {
        true => Module::new(),
        false => module.clone(),
    };
    let ups = path.iter().take_while(|name| *name == "super").count();
    at.truncate(at.len().saturating_sub(ups));
    let mut best = at.clone();
    for name in path.iter().skip(ups.max(1)) {
        at.push(name.clone());
        if !code.contains_key(&at) {
            break;
        }
        best.clone_from(&at);
    }
    code.get_key_value(&best)
        .map_or_else(|| panic!("{best:?} is no file"), |(module, _)| module)
}

/// All paths of a text that begin with `crate::` or `super::`, groups in braces taken apart.
fn paths(text: &str) -> Vec<Vec<String>> {
    let tokens = tokens(text);
    let mut out = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let begins = token == "crate" || token == "super";
        let inside = i > 0 && tokens[i - 1] == "::";
        if begins && !inside && tokens.get(i + 1).is_some_and(|next| next == "::") {
            tree(&tokens, i, &[], &mut out);
        }
    }
    out
}

/// Reads a use tree from `at` on, below `prefix`; gives where it ends.
fn tree(tokens: &[String], mut at: usize, prefix: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = match &tokens[at][..] {
                        "," => at + 1,
                        _ => tree(tokens, at, &path, out),
                    };
                }
                return at + 1;
            }
            Some(name) if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(name.to_owned());
                at += 1;
            }
            Some(_) => at += 1, // A star.
            None => break,
        }
        match tokens.get(at).map(String::as_str) {
            Some("::") => at += 1,
            Some("as") => {
                at += 2;
                break;
            }
            _ => break,
        }
    }
    out.push(path);
    at
}

/// Names, `::` and single signs.
fn tokens(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            _ if is_name(first) => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            out.push(rest[..length].to_owned());
        }
        rest = &rest[length..];
    }
    out
}
