//! `agentvfs workspace diff`.

use super::changes::{change_object, push_change};
use super::{Context, patch, paths};
use crate::cli::DiffArgs;
use crate::output::{Rows, print_json};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Diff, DiffAnswer, HasRef, HasRefAnswer, Side};
use serde_json::json;

/// Prints what differs.
pub fn run(args: &DiffArgs, context: &mut Context) -> Result<u8, Failure> {
    let (word, refs) = word_and_refs(args, context)?;
    let workspace = context.workspace(word)?;
    let (from, to) = sides(args.base, refs);
    let paths = paths(&args.path, &workspace, context)?;
    let ask = Diff {
        workspace: workspace.clone(),
        branch: context.branch()?,
        from,
        to,
        paths,
        stat: false,
    };
    let what = format!("cannot compare in {workspace}");
    if args.patch {
        return patch::patch(ask, &what, context);
    }
    if args.stat {
        return patch::stat(ask, &what, args.rows.nul, context);
    }
    let answer: DiffAnswer = context.ask(&what, &Call::Diff(ask))?;
    if context.json() {
        print_json(
            &json!({ "changes": answer.changes.iter().map(change_object).collect::<Vec<_>>() }),
        )?;
    } else {
        let mut rows = Rows::new(&["STATUS", "PATH"]);
        for change in &answer.changes {
            push_change(&mut rows, change);
        }
        rows.print(args.rows.nul)?;
    }
    Ok(0)
}

/// Which word is the workspace, and the refs.
///
/// One or two words begin with the workspace where one has that name and the workspace that would
/// be meant otherwise has no such ref; three always do.
fn word_and_refs<'a>(
    args: &'a DiffArgs,
    context: &mut Context,
) -> Result<(Option<&'a str>, &'a [String]), Failure> {
    let named = context.surroundings().option.is_some();
    let most = if named { 2 } else { 3 } - if args.base { 2 } else { 0 };
    if args.words.len() > most {
        return Err(Failure::usage("too many words"));
    }
    match args.words.as_slice() {
        [] => Ok((None, &[])),
        [first, rest @ ..] if args.base || rest.len() == 2 => Ok((Some(first), rest)),
        all if named => Ok((None, all)),
        all @ [first, rest @ ..] => {
            let is_workspace = context.info(first)?.is_some() && !is_ref(first, context)?;
            Ok(if is_workspace {
                (Some(first), rest)
            } else {
                (None, all)
            })
        }
    }
}

/// Whether `word` is a ref of the workspace that is meant where none is named.
fn is_ref(word: &str, context: &mut Context) -> Result<bool, Failure> {
    let Ok(workspace) = context.workspace(None) else {
        return Ok(false);
    };
    let call = Call::HasRef(HasRef {
        workspace,
        branch: context.branch()?,
        name: word.to_owned(),
    });
    let answer: HasRefAnswer = context.ask("cannot compare", &call)?;
    Ok(answer.exists)
}

fn sides(base: bool, refs: &[String]) -> (Side, Side) {
    let named = |name: &String| Side::Ref(name.clone());
    match refs {
        _ if base => (Side::Base, Side::Live),
        [] => (Side::Ref("@".to_owned()), Side::Live),
        [from] => (named(from), Side::Live),
        [from, to, ..] => (named(from), named(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_follow_the_number_of_refs() {
        let refs = ["a".to_owned(), "b".to_owned()];
        assert_eq!(sides(false, &[]), (Side::Ref("@".into()), Side::Live));
        assert_eq!(
            sides(false, &refs[..1]),
            (Side::Ref("a".into()), Side::Live)
        );
        assert_eq!(
            sides(false, &refs),
            (Side::Ref("a".into()), Side::Ref("b".into()))
        );
        assert_eq!(sides(true, &[]), (Side::Base, Side::Live));
    }
}
