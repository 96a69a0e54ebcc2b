//! The log in pages: its first rows are there before the last are known, and the daemon never holds up a branch for
//! all of a long history.

use crate::cmd::Context;
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Log, LogAnswer, LogCursor, LogRow};

/// Commits that are asked for at first, so that something is seen soon.
const FIRST: u64 = 256;

/// Commits of each further page.
const MORE: u64 = 4096;

/// Takes a page; says whether the next one is wanted.
type Take<'t> = dyn FnMut(Vec<LogRow>, &mut Context) -> Result<bool, Failure> + 't;

/// Gives `take` the commits that `ask` wants, newest first and page by page, as long as it says true.
pub fn each_page(ask: &Log, context: &mut Context, take: &mut Take<'_>) -> Result<(), Failure> {
    let what = format!("cannot show the log of {}", ask.workspace);
    let mut left = ask.limit.unwrap_or(u64::MAX);
    let mut page = ask.clone();
    let mut many = FIRST;
    loop {
        many = many.min(left);
        page.limit = Some(many);
        let answer: LogAnswer = context.look(&what, &Call::Log(page.clone()), "reading the log")?;
        let found = answer.commits.len() as u64;
        left -= found.min(left);
        let last = answer.commits.last();
        let end = last.and_then(|row| Some((row.number?, row.time)));
        let is_last = found < many || left == 0;
        if !take(answer.commits, context)? || is_last {
            return Ok(());
        }
        let (number, time) = end.ok_or_else(|| {
            Failure::new(&what, "the daemon is of an older build")
                .hint(format!("agentvfs start {} replaces it", ask.workspace))
        })?;
        page.after = Some(LogCursor { number, time });
        many = MORE;
    }
}
