//! `agentvfs config`.

use super::Context;
use crate::cli::ConfigArgs;
use crate::output::Facts;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Config, ConfigAnswer};
use agentvfs_daemon::settings::{KEYS, set};
use engine::Settings;
use std::borrow::Cow;

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
    let call = Call::Config(Config { set: changes });
    let answer: ConfigAnswer = context.ask("cannot change the settings", &call)?;
    let mut facts = Facts::default();
    for (key, value) in &answer.settings {
        if wanted.is_empty() || wanted.contains(key) {
            facts.add(key, value.as_bytes());
        }
    }
    facts.print(context.json())?;
    Ok(0)
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
