//! `agentvfs config`.

use super::Context;
use crate::cli::ConfigArgs;
use crate::output::{Facts, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Config, ConfigAnswer};
use agentvfs_client::quote::shown;
use agentvfs_daemon::settings::{KEYS, set};
use engine::Settings;
use std::borrow::Cow;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;

/// Shows settings, and changes those that are given with a value.
pub fn run(args: &ConfigArgs, context: &mut Context) -> Result<u8, Failure> {
    let mut wanted = Vec::new();
    let mut changes = Vec::new();
    for word in &settings(&args.settings) {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (&**word, None),
        };
        check(key, value)?;
        wanted.push(key.to_owned());
        changes.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    }
    let before = match changes.is_empty() || !std::io::stderr().is_terminal() {
        true => Vec::new(),
        false => asked(Vec::new(), context)?.settings,
    };
    let changed: Vec<String> = changes.iter().map(|(key, _)| key.clone()).collect();
    let answer = asked(changes, context)?;
    let mut facts = Facts::default();
    for (key, value) in &answer.settings {
        if wanted.is_empty() || wanted.contains(key) {
            facts.add(key, value.as_bytes());
        }
    }
    facts.print(context.json())?;
    let before = before.into_iter().filter(|(key, _)| changed.contains(key));
    let before: Vec<String> = before
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !before.is_empty() {
        let home = shown(context.home().root().as_os_str().as_bytes());
        talk(&format!(
            "settings of all workspaces in {home}: changed; `agentvfs config {}` takes that back",
            before.join(" ")
        ));
    }
    Ok(0)
}

fn asked(set: Vec<(String, String)>, context: &mut Context) -> Result<ConfigAnswer, Failure> {
    context.ask("cannot change the settings", &Call::Config(Config { set }))
}

/// The settings that words name: also after `set`, with key and value apart, and after `get` or `list`, none of
/// which is a setting.
fn settings(words: &[String]) -> Vec<Cow<'_, str>> {
    match words {
        [set, key, value] if set == "set" && !key.contains('=') => {
            vec![format!("{key}={value}").into()]
        }
        [verb, rest @ ..] if ["set", "get", "list"].contains(&verb.as_str()) => as_they_are(rest),
        all => as_they_are(all),
    }
}

fn as_they_are(words: &[String]) -> Vec<Cow<'_, str>> {
    words.iter().map(Cow::from).collect()
}

fn check(key: &str, value: Option<&str>) -> Result<(), Failure> {
    let checked = match value {
        Some(value) => set(&mut Settings::default(), key, value),
        None if KEYS.contains(&key) => Ok(()),
        None => Err(format!("there is no setting {key:?}")),
    };
    checked.map_err(|why| {
        Failure::usage(why).hint("agentvfs config --help lists the settings with examples")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::SETTINGS_HELP;
    use agentvfs_daemon::settings::show;

    #[test]
    fn defaults_are_those_of_the_help() {
        for key in KEYS {
            let line = format!("  {key}={} ", show(&Settings::default(), key).unwrap());
            assert!(SETTINGS_HELP.contains(&line), "{line}");
        }
    }
}
