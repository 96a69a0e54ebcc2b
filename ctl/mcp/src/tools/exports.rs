//! The tool that makes one file of everything: `export`.

use super::Tool;
use crate::answer::Answer;
use crate::session::Turn;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Bytes, Call, ExportAnswer, ExportFile};
use rmcp::schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Longest name of an export, without its ending.
const NAME_BYTES_MAX: usize = 150;

pub fn tools() -> [Tool; 1] {
    [Tool::looks(
        "export",
        "Write everything (files, key-value data, tool calls) into one SQLite file, which plain SQL and \
         AgentFS's tools can read, to hand it to somebody else. Returns the file's path: it is in a \
         directory that was chosen when this server was started.",
        export,
    )
    .writing_elsewhere()]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
struct ExportArgs {
    /// Name of the file: letters, digits, dots, dashes and underscores; .db is added. Workspace and branch
    /// without this
    name: Option<String>,
    /// A commit to export instead of how it is now: a label, an id, @, @~1
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Also every commit of the branch, and what it changed
    #[serde(default)]
    history: bool,
    /// Replace a file of that name
    #[serde(default)]
    replace: bool,
    /// The branch, where it is not the one served
    branch: Option<String>,
}

fn export(turn: &mut Turn<'_>, args: ExportArgs) -> Result<Answer, Failure> {
    let workspace = turn.workspace();
    let branch = turn.branch(args.branch);
    let name = args.name.unwrap_or_else(|| format!("{workspace}-{branch}"));
    let what = format!("cannot export {workspace}");
    let file = turn.exports()?.join(file_name(&name)?);
    let call = Call::Export(ExportFile {
        workspace,
        branch,
        reference: args.reference,
        file: Bytes::from(file.as_path()),
        force: args.replace,
        history: args.history,
        progress: false,
    });
    let answer: ExportAnswer = turn.ask(&what, &call)?;
    Ok(Answer::json(&json!({
        "file": file.to_string_lossy(),
        "commit": answer.commit,
        "names": answer.names,
        "bytes": answer.bytes,
        "file_bytes": answer.file_bytes,
        "commits": answer.commits,
    })))
}

/// The file's name: nothing that leads to another directory.
fn file_name(name: &str) -> Result<String, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let stem = name.strip_suffix(".db").unwrap_or(name);
    let fits = !stem.is_empty() && stem.len() <= NAME_BYTES_MAX && stem.chars().all(plain);
    match fits && !stem.starts_with(['.', '-']) {
        true => Ok(format!("{stem}.db")),
        false => Err(
            Failure::usage(format!("export: {name:?} is not a file name"))
                .hint("use letters, digits, dots, dashes and underscores, a letter or digit first"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_stay_in_their_directory() {
        assert_eq!(file_name("a.b-c_1").unwrap(), "a.b-c_1.db");
        assert_eq!(file_name("x.db").unwrap(), "x.db");
        for name in [
            "",
            ".db",
            "..",
            "../x",
            "/etc/x",
            "a/b",
            ".x",
            "-x",
            "a b",
            "ä",
            &"x".repeat(151),
        ] {
            assert!(file_name(name).is_err(), "{name}");
        }
    }
}
