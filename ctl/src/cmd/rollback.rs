//! `agentvfs workspace rollback`.

use super::changes::{change_object, print_changes};
use super::place::{Directory, place};
use super::{Context, id_or_pending, key_value, paths, split_two};
use crate::cli::RollbackArgs;
use crate::output::{print, print_json, talk, warn};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Holder, PlanAnswer, Rollback, RollbackAnswer, Target};
use agentvfs_client::quote::shown;
use agentvfs_client::render::{count, insert_bytes};
use agentvfs_client::when::moment;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Goes back and prints the commit now shown; with `--dry-run` prints what would change.
pub fn run(args: &RollbackArgs, context: &mut Context) -> Result<u8, Failure> {
    let (word, target) = word_and_target(args, context.surroundings().option.is_some())?;
    let workspace = context.workspace_to_change(word)?;
    let branch = context.branch()?;
    let request = Rollback {
        workspace: workspace.clone(),
        branch: branch.clone(),
        target,
        paths: paths(&args.path, &workspace, context)?,
        keep_kv: args.keep_kv,
    };
    let what = format!("cannot roll back {workspace}");
    let json = context.json();
    if args.dry_run {
        let plan: PlanAnswer = context.ask(&what, &Call::RollbackPlan(request))?;
        return tell_plan(&plan, args.nul, json);
    }
    let since = Instant::now();
    let answer: RollbackAnswer =
        context.ask_with_bar(&what, &Call::Rollback(request), "rolling back")?;
    tell(
        &answer,
        (&workspace, &branch),
        since.elapsed(),
        "`agentvfs undo` reverses it",
        context,
    )?;
    Ok(0)
}

/// Which word is the workspace, and what to go back to.
fn word_and_target(args: &RollbackArgs, named: bool) -> Result<(Option<&str>, Target), Failure> {
    let target = match (&args.before, &args.meta, &args.to) {
        (Some(before), ..) => Target::Before(moment(before)?),
        (None, Some(meta), _) => {
            let (key, value) = key_value(meta)?;
            Target::Meta(key, value)
        }
        (None, None, Some(name)) => Target::Ref(name.clone()),
        (None, None, None) => {
            let (word, wanted) = split_two(&args.words, named)?;
            return Ok((
                word,
                wanted.map_or(Target::Head, |name| Target::Ref(name.to_owned())),
            ));
        }
    };
    match args.words.as_slice() {
        [] => Ok((None, target)),
        [word] => Ok((Some(word), target)),
        _ => Err(Failure::usage(
            "a ref cannot be combined with --to, --before or --meta",
        )),
    }
}

/// Prints what a rollback, undo or redo of a workspace's branch shows now.
pub fn tell(
    answer: &RollbackAnswer,
    (workspace, branch): (&str, &str),
    took: Duration,
    reverse: &str,
    context: &mut Context,
) -> Result<(), Failure> {
    if context.json() {
        return print_json(&json!({
            "commit": answer.commit,
            "replaced": answer.replaced,
            "files_changed": answer.files_changed,
        }));
    }
    print(format!("{}\n", id_or_pending(answer.commit.as_deref())).as_bytes())?;
    talk(&format!(
        "{}{} changed in {took:.1?}; {reverse}",
        place(workspace, branch, Directory::Mount, context),
        count(answer.files_changed, "file")
    ));
    Ok(())
}

/// Prints what would change: rows on standard output, holders on standard error.
pub fn tell_plan(plan: &PlanAnswer, nul: bool, json: bool) -> Result<u8, Failure> {
    if json {
        print_json(&json!({
            "changes": plan.changes.iter().map(change_object).collect::<Vec<_>>(),
            "holders": plan.holders.iter().map(holder_object).collect::<Vec<_>>(),
            "keys_changed": plan.keys_changed,
        }))?;
        return Ok(0);
    }
    print_changes(&plan.changes, nul)?;
    for holder in &plan.holders {
        warn(&holder_text(holder));
    }
    if plan.keys_changed > 0 {
        let keys = count(plan.keys_changed, "key");
        warn(&format!("{keys} would change; --keep-kv keeps them"));
    }
    Ok(0)
}

fn holder_text(holder: &Holder) -> String {
    format!(
        "held open: {} by process {} ({})",
        shown(&holder.path.0),
        holder.pid,
        shown(holder.command.as_bytes())
    )
}

fn holder_object(holder: &Holder) -> Value {
    let mut object = Map::new();
    object.insert("pid".into(), holder.pid.into());
    object.insert("command".into(), holder.command.clone().into());
    insert_bytes(&mut object, "path", &holder.path.0);
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str], before: Option<&str>, meta: Option<&str>) -> RollbackArgs {
        RollbackArgs {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            to: None,
            before: before.map(str::to_owned),
            meta: meta.map(str::to_owned),
            path: Vec::new(),
            keep_kv: false,
            dry_run: false,
            nul: false,
        }
    }

    #[test]
    fn one_word_is_a_ref_but_with_before_or_meta_the_workspace() {
        let given = args(&["x"], None, None);
        assert_eq!(
            word_and_target(&given, false).unwrap(),
            (None, Target::Ref("x".into()))
        );
        let given = args(&["w", "x"], None, None);
        assert_eq!(
            word_and_target(&given, false).unwrap(),
            (Some("w"), Target::Ref("x".into()))
        );
        let given = args(&["w"], Some("5m"), None);
        assert_eq!(word_and_target(&given, false).unwrap().0, Some("w"));
        let given = args(&["w"], None, Some("turn=3"));
        let wanted = Target::Meta("turn".into(), "3".into());
        assert_eq!(word_and_target(&given, false).unwrap(), (Some("w"), wanted));
        assert_eq!(
            word_and_target(&args(&[], None, None), true).unwrap(),
            (None, Target::Head)
        );
    }

    #[test]
    fn contradictions_are_wrong_usage() {
        for given in [
            args(&["w", "x"], Some("5m"), None),
            args(&[], Some("yesterday"), None),
            args(&[], None, Some("turn")),
        ] {
            assert_eq!(
                word_and_target(&given, false).unwrap_err().exit,
                agentvfs_client::failure::USAGE
            );
        }
    }
}
