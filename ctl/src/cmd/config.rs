//! `agentvfs config`.

use super::Context;
use crate::cli::ConfigArgs;
use crate::output::Facts;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Config, ConfigAnswer};
use agentvfs_daemon::settings::{KEYS, set};
use engine::Settings;

/// Shows settings, and changes those that are given with a value.
pub fn run(args: &ConfigArgs, context: &mut Context) -> Result<u8, Failure> {
    let mut wanted = Vec::new();
    let mut changes = Vec::new();
    for word in &args.settings {
        let (key, value) = match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (word.as_str(), None),
        };
        check(key, value)?;
        wanted.push(key);
        changes.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    }
    let call = Call::Config(Config { set: changes });
    let answer: ConfigAnswer = context.ask("cannot change the settings", &call)?;
    let mut facts = Facts::default();
    for (key, value) in &answer.settings {
        if wanted.is_empty() || wanted.contains(&key.as_str()) {
            facts.add(key, value.as_bytes());
        }
    }
    facts.print(context.json())?;
    Ok(0)
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
