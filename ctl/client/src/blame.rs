//! What `blame` tells, put together once for the command line and for MCP.
//!
//! Invariant: both show the same cells in the same order, and say the same of what is not certain; only how a
//! cell is quoted and where a note goes is theirs.

use crate::protocol::{BlameAnswer, BlameRow};
use crate::render::{count, short};
use crate::when::rfc3339;

/// Heads of the columns.
pub const COLUMNS: [&str; 8] = [
    "TIME", "KIND", "ID", "NAME", "COMMIT", "CHANGE", "OLD PATH", "BRANCH",
];
/// Commits that are named where no call changed a path.
const COMMITS_SHOWN: usize = 5;

/// The cells of a row.
pub fn cells(item: &BlameRow) -> Vec<Vec<u8>> {
    let time = rfc3339(item.time);
    let id = item.call.map(|id| id.to_string());
    let name = item.name.lines().next().filter(|name| !name.is_empty());
    let old_path = item.old_path.as_ref().map(|path| &path.0[..]);
    let cells = [
        time.as_bytes(),
        item.kind.as_bytes(),
        id.as_deref().unwrap_or("-").as_bytes(),
        name.unwrap_or("-").as_bytes(),
        item.after.as_bytes(),
        item.change.as_bytes(),
        old_path.unwrap_or(b"-"),
        item.branch.as_deref().unwrap_or("-").as_bytes(),
    ];
    cells.into_iter().map(<[u8]>::to_vec).collect()
}

/// Why the change of a row may not be its call's own.
pub fn doubt(item: &BlameRow) -> Option<String> {
    let call = item.call.filter(|_| item.kind == "call")?;
    let of = match &item.branch {
        Some(branch) => format!("call {call} of {branch}"),
        None => format!("call {call}"),
    };
    if !item.overlaps.is_empty() {
        let others: Vec<String> = item.overlaps.iter().map(u64::to_string).collect();
        let others = others.join(", ");
        return Some(format!(
            "{of} ran at the same time as {others}, which may have made the change"
        ));
    }
    let switched = !item.switches.is_empty();
    switched
        .then(|| format!("the branch was switched while {of} ran, which may have made the change"))
}

/// Says where `path` comes from, where no call changed it. Where not all was looked at nobody knows.
pub fn uncalled(path: &str, answer: &BlameAnswer) -> Option<String> {
    if answer.calls > 0 || answer.more {
        return None;
    }
    let none = match answer.unknown {
        0 => format!("no call changed {path}"),
        _ => format!("no known call changed {path}"),
    };
    let shown = answer.commits.iter().take(COMMITS_SHOWN);
    let shown = shown.map(|id| short(id)).collect::<Vec<_>>().join(", ");
    let more = match answer.commits.len().saturating_sub(COMMITS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(match answer.commits.len() {
        0 => format!("{none}, and it is in no commit yet"),
        1 => format!("{none}: it came with commit {shown}"),
        _ => format!("{none}: it came with commits {shown}{more}"),
    })
}

/// Says of how many calls and switches it cannot be told.
pub fn unknown(answer: &BlameAnswer) -> Option<String> {
    let entries = match answer.unknown {
        0 => return None,
        1 => count(1, "older entry"),
        many => format!("{many} older entries"),
    };
    Some(format!(
        "{entries}: unknown whether they changed it, because the state before or after is no longer kept"
    ))
}
