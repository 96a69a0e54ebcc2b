//! `agentvfs workspace checkpoint`.

use super::place::{Directory, place};
use super::status::paths_json;
use super::{Context, check_name, id_or_pending, key_value, split_two};
use crate::cli::CheckpointArgs;
use crate::output::{Bar, human_bytes, print, print_json, talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Checkpoint, CheckpointAnswer};
use agentvfs_client::quote::some_paths;
use agentvfs_client::render::{count, short};
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Makes a commit and prints its id.
pub fn run(args: &CheckpointArgs, context: &mut Context) -> Result<u8, Failure> {
    let named = context.surroundings().option.is_some();
    let (workspace, label) = split_two(&args.words, named)?;
    if let Some(label) = label {
        check_name(engine::names::check_label(label))?;
    }
    let meta = metadata(&args.meta)?;
    let workspace = context.workspace_to_change(workspace)?;
    let branch = context.branch()?;
    let call = Call::Checkpoint(Checkpoint {
        workspace: workspace.clone(),
        branch: branch.clone(),
        label: label.map(str::to_owned),
        message: args.message.clone().unwrap_or_default(),
        meta,
        wait: !args.no_wait,
        automatic: false,
        unlike: None,
        joins: None,
        progress: Bar::is_wanted(),
    });
    let since = Instant::now();
    let answer: CheckpointAnswer =
        context.ask_with_bar(&format!("cannot checkpoint {workspace}"), &call, "storing")?;
    let took = since.elapsed();
    let place = place(&workspace, &branch, Directory::Mount, context);
    tell(&answer, label, context.json(), (&place, took))?;
    if let [label] = args.words.as_slice() {
        tell_of_namesake(label, &workspace, context)?;
    }
    Ok(0)
}

/// One word is a label: says so where a workspace has that name, which may have been meant.
fn tell_of_namesake(label: &str, workspace: &str, context: &mut Context) -> Result<(), Failure> {
    if context.info(label)?.is_some() {
        warn(&format!(
            "{label} is now a label of {workspace}; \
             agentvfs checkpoint -w {label} would checkpoint the workspace {label}"
        ));
    }
    Ok(())
}

/// The metadata; a key given twice would lose one of its values.
fn metadata(given: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pairs = given
        .iter()
        .map(|text| key_value(text))
        .collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    match pairs.iter().find(|(key, _)| !seen.insert(key)) {
        Some((key, _)) => Err(Failure::usage(format!("--meta {key} is given twice"))),
        None => Ok(pairs),
    }
}

fn tell(
    answer: &CheckpointAnswer,
    label: Option<&str>,
    json: bool,
    (place, took): (&str, Duration),
) -> Result<(), Failure> {
    if json {
        return print_json(&json!({
            "commit": answer.commit,
            "label": label,
            "files_changed": answer.files_changed,
            "bytes_changed": answer.bytes_changed,
            "moved_from": answer.moved_from,
            "new_commit": answer.new_commit,
            "unresolved": answer.unresolved,
            "unreadable": paths_json(&answer.unreadable),
        }));
    }
    print(format!("{}\n", id_or_pending(answer.commit.as_deref())).as_bytes())?;
    let back = match (answer.new_commit, label, &answer.commit) {
        (false, ..) => String::new(),
        (true, Some(label), _) => back_to(label),
        (true, None, Some(id)) => back_to(short(id)),
        (true, None, None) => String::new(),
    };
    talk(&format!("{place}{}{back}", summary(answer, took)));
    if !answer.unreadable.is_empty() {
        let named = some_paths(answer.unreadable.iter().map(|path| &path.0[..]));
        warn(&format!(
            "the commit leaves out {named}, which cannot be read in the project"
        ));
    }
    if answer.unresolved > 0 {
        let many = count(answer.unresolved, "conflict");
        warn(&format!(
            "{many} of the last merge not resolved; `agentvfs branch conflicts` lists them"
        ));
    }
    if let (Some(label), Some(old)) = (label, &answer.moved_from) {
        talk(&format!("label {label} moved here from {}", short(old)));
    }
    Ok(())
}

fn back_to(reference: &str) -> String {
    format!("; `agentvfs rollback {reference}` comes back to it")
}

fn summary(answer: &CheckpointAnswer, took: Duration) -> String {
    if !answer.new_commit {
        return "nothing changed since the last checkpoint".to_owned();
    }
    let files = count(answer.files_changed, "file");
    format!(
        "{files} changed ({}) in {:.1?}",
        human_bytes(answer.bytes_changed),
        took
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_keys_are_unique() {
        let given =
            |pairs: &[&str]| metadata(&pairs.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>());
        assert_eq!(given(&["a=1", "b=1"]).unwrap().len(), 2);
        assert!(given(&["a=1", "a=2"]).is_err());
    }

    #[test]
    fn summary_prints_no_whole_id() {
        let answer = CheckpointAnswer {
            commit: Some("a".repeat(64)),
            files_changed: 1,
            bytes_changed: 2048,
            moved_from: Some("b".repeat(64)),
            new_commit: true,
            unresolved: 0,
            unreadable: Vec::new(),
        };
        let text = summary(&answer, Duration::from_millis(2));
        assert!(text.starts_with("1 file changed (2.00 KiB)"), "{text}");
        assert_eq!(short(&"b".repeat(64)).len(), 12);
    }
}
