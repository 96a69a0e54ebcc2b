//! `agentvfs workspace diff`.

use super::changes::{change_object, print_changes};
use super::{Context, patch, path_or_root, paths};
use crate::cli::DiffArgs;
use crate::output::{Rows, print_json};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    AtPath, Bytes, Call, Diff, DiffAnswer, FileNode, HasRef, HasRefAnswer, Side,
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Prints what differs.
pub fn run(args: &DiffArgs, context: &mut Context) -> Result<u8, Failure> {
    let meant = meant(args, context)?;
    let (from, to) = sides(args.base, &meant.refs);
    let given = [&args.path[..], &meant.paths, &args.paths].concat();
    let paths = paths(&given, &meant.workspace, context)?;
    let ask = Diff {
        workspace: meant.workspace.clone(),
        branch: context.branch()?,
        from,
        to,
        paths,
        stat: false,
    };
    let what = format!("cannot compare in {}", meant.workspace);
    if args.patch {
        return patch::patch(ask, &what, context);
    }
    if args.stat {
        return patch::stat(ask, &what, (args.rows.nul, args.bars), context);
    }
    let answer: DiffAnswer = context.look(&what, &Call::Diff(ask), "comparing")?;
    if context.json() {
        print_json(
            &json!({ "changes": answer.changes.iter().map(change_object).collect::<Vec<_>>() }),
        )?;
    } else {
        match args.name_only {
            true => names(&answer).print(args.rows.nul)?,
            false => print_changes(&answer.changes, args.rows.nul)?,
        }
    }
    Ok(0)
}

fn names(answer: &DiffAnswer) -> Rows {
    let mut rows = Rows::new(&["PATH"]);
    for change in &answer.changes {
        rows.push(vec![change.path.0.clone()]);
    }
    rows
}

/// What the words of the command mean.
struct Meant {
    workspace: String,
    refs: Vec<String>,
    paths: Vec<PathBuf>,
}

/// The workspace, at most two refs, then paths.
fn meant(args: &DiffArgs, context: &mut Context) -> Result<Meant, Failure> {
    let (word, rest) = workspace_word(args, context)?;
    let workspace = context.workspace(word)?;
    let refs_max = if args.base { 0 } else { 2 };
    let mut refs = Vec::new();
    for word in rest {
        if refs.len() == refs_max || is_path_alone(word, &workspace, context)? {
            break;
        }
        refs.push(word.clone());
    }
    let paths = rest[refs.len()..].iter().map(PathBuf::from).collect();
    Ok(Meant {
        workspace,
        refs,
        paths,
    })
}

/// The word that is the workspace, and the words after it.
///
/// The first one is where a workspace has that name and the workspace that would be meant otherwise has no such
/// ref. With `--base`, and of three words, it need not be the latter; and where it is no path, it need not be the
/// former, so that the error names the workspace.
fn workspace_word<'a>(
    args: &'a DiffArgs,
    context: &mut Context,
) -> Result<(Option<&'a str>, &'a [String]), Failure> {
    let all = args.words.as_slice();
    let Some((first, rest)) = all.split_first() else {
        return Ok((None, all));
    };
    if context.surroundings().option.is_some() {
        return Ok((None, all));
    }
    let cannot_be_ref = args.base || all.len() == 3;
    let is_workspace = match context.info(first)? {
        Some(_) => cannot_be_ref || !is_ref(first, context)?,
        None => cannot_be_ref && is_nothing_else(first, context)?,
    };
    Ok(match is_workspace {
        true => (Some(first), rest),
        false => (None, all),
    })
}

/// Whether a word is neither a ref nor a path in the workspace that is meant where none is named.
fn is_nothing_else(word: &str, context: &mut Context) -> Result<bool, Failure> {
    let Ok(workspace) = context.workspace(None) else {
        return Ok(true);
    };
    Ok(!has_ref(word, &workspace, context)? && !has_path(word, &workspace, context)?)
}

/// Whether a word is a path and no ref.
fn is_path_alone(word: &str, workspace: &str, context: &mut Context) -> Result<bool, Failure> {
    Ok(!has_ref(word, workspace, context)? && has_path(word, workspace, context)?)
}

/// Whether `word` is a ref of the workspace that is meant where none is named.
fn is_ref(word: &str, context: &mut Context) -> Result<bool, Failure> {
    match context.workspace(None) {
        Ok(workspace) => has_ref(word, &workspace, context),
        Err(_) => Ok(false),
    }
}

fn has_ref(word: &str, workspace: &str, context: &mut Context) -> Result<bool, Failure> {
    let call = Call::HasRef(HasRef {
        workspace: workspace.to_owned(),
        branch: context.branch()?,
        name: word.to_owned(),
    });
    let answer: HasRefAnswer = context.ask("cannot compare", &call)?;
    Ok(answer.exists)
}

/// Whether a path is in the live tree or in the head, where what was removed still is.
fn has_path(word: &str, workspace: &str, context: &mut Context) -> Result<bool, Failure> {
    let Ok(path) = path_or_root(Path::new(word), workspace, context) else {
        return Ok(false);
    };
    for state in [Side::Live, Side::Ref("@".to_owned())] {
        let call = Call::FsStat(AtPath {
            workspace: workspace.to_owned(),
            branch: context.branch()?,
            state,
            path: Bytes(path.clone()),
            follow: false,
        });
        // An error of any kind leaves the word to the comparison, which then says what is wrong with it.
        let found: Result<FileNode, _> = context.try_ask("cannot compare", &call)?;
        if found.is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
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
