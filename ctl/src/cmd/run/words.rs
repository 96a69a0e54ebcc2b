//! What a run says on standard error, before the command and after it.

use super::super::Context;
use super::home::Allowed;
use super::plan::{command, hidden};
use super::user::short;
use super::work::Work;
use crate::cli::RunArgs;
use crate::output::warn;
use agentvfs_client::protocol::Changed;
use agentvfs_client::quote::{one_line, shown};
use agentvfs_client::render::count;
use agentvfs_sandbox::copies::Outside;
use agentvfs_sandbox::{Ended, Net, OWN_PROC, Plan, Protection, Standing, What};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

/// A line that is no sentence.
fn line(text: &str) {
    // Standard error may be closed; there is nobody left to tell then.
    let _ = writeln!(std::io::stderr(), "{}", one_line(text));
}

/// What is told once the sandbox stands.
pub fn begun(
    args: &RunArgs,
    work: &Work,
    (plan, allowed): (&Plan, &Allowed),
    standing: &Standing,
    context: &Context,
) {
    let (workspace, branch) = (&work.info.name, &work.branch);
    if let Some(from) = work.started_from.as_ref().filter(|_| args.from.is_none()) {
        warn(&format!("workspace {workspace} is on {}", path(from)));
    }
    let view = plan.places.iter().find(|p| matches!(p.what, What::View(_)));
    let at = view.map_or(String::new(), |place| path(&place.at));
    warn(&format!(
        "run {} in branch {branch} of {workspace}, at {at}",
        work.run
    ));
    match plan.protection {
        Protection::ViewOnly => warn(&format!(
            "no sandbox: outside {at} the command can do whatever you can"
        )),
        _ => line(&shown_and_hidden(args, (plan, allowed), &at)),
    }
    for lacking in standing.lacking() {
        match work.around {
            Some(_) if lacking.starts_with(OWN_PROC) => {
                warn("/proc is that of the run around this one, read-only");
            }
            _ => warn(&format!("this kernel lacks {lacking}: run without it")),
        }
    }
    line(&format!(
        "join      agentvfs run{} -w {workspace} --session {branch} -- bash",
        root(context)
    ));
    for why in standing.not_copied() {
        warn(&format!("{why}: no copy can be made, it is read-only"));
    }
    for replaced in standing.replaced() {
        let name = ["standard input", "standard output", "standard error"];
        let name = name.get(replaced.0 as usize).unwrap_or(&"a descriptor");
        warn(&format!(
            "{name} is {}; the command gets /dev/null instead",
            replaced.1
        ));
    }
}

/// What of the machine is writable, a copy, open, hidden; and the network.
fn shown_and_hidden(args: &RunArgs, (plan, allowed): (&Plan, &Allowed), at: &str) -> String {
    let mut writable = vec![format!("{at} (branch)")];
    let places = plan.places.iter().filter(|p| p.what == What::Writable);
    writable.extend(places.map(|place| path(&place.at)));
    writable.extend(short(&allowed.writable));
    let writable = writable.join(", ");
    let named = |word: &str, all: Vec<String>| match all.join(" ") {
        none if none.is_empty() => none,
        some => format!("   {word}  {some}"),
    };
    let copies = named("copies", short(&allowed.copied));
    let sockets: Vec<String> = args
        .allow_socket
        .iter()
        .map(|socket| path(socket))
        .collect();
    let sockets = named("sockets", sockets);
    let hidden = named("hidden", hidden(plan));
    let network = match plan.net {
        Net::Host => "host",
        Net::None => "none",
    };
    format!("writable  {writable}{copies}{sockets}{hidden}   network  {network}")
}

/// The option that names the home, where one was given.
fn root(context: &Context) -> String {
    let root = context.options().root.as_deref();
    root.map_or(String::new(), |root| format!(" --root {}", path(root)))
}

/// What is told at the end.
pub fn ended(
    args: &RunArgs,
    work: &Work,
    ended: Ended,
    took: Duration,
    changes: &[Changed],
    is_kept: bool,
) {
    let branch = &work.branch;
    let name = command(args).swap_remove(0);
    let name = Path::new(&name).file_name().unwrap_or(&name).to_owned();
    let how = match ended {
        Ended::Exit(status) => format!("ended with {status}"),
        Ended::Signal(number) => format!("was ended by signal {number}"),
        Ended::OutOfTime => "was ended because its time had run out".to_owned(),
    };
    let what = match (changes.is_empty(), is_kept) {
        (false, _) => format!("{} in branch {branch}", counted(changes)),
        (true, true) => format!("nothing changed in branch {branch}"),
        (true, false) => format!("nothing changed; branch {branch} was deleted"),
    };
    warn(&format!(
        "{} {how} after {}: {what}",
        shown(name.as_bytes()),
        duration(took)
    ));
}

/// How to go on with a branch that is kept.
pub fn next(work: &Work, context: &Context) {
    if work.around.is_some() {
        return next_inside(work);
    }
    let (workspace, branch, root) = (&work.info.name, &work.branch, root(context));
    line(&format!(
        "review    agentvfs{root} workspace diff -w {workspace} --branch {branch} --base"
    ));
    line(&format!(
        "take      agentvfs{root} workspace apply -w {workspace} --branch {branch}"
    ));
    if branch != agentvfs_client::protocol::MAIN {
        line(&format!(
            "discard   agentvfs run{root} --discard {branch} -w {workspace}"
        ));
    }
}

/// The same in the sandbox of another run, where the branch is one of that run's.
fn next_inside(work: &Work) {
    let branch = &work.branch;
    if let Some(of) = &work.made_of {
        line(&format!("review    agentvfs branch diff {of} {branch}"));
        line(&format!(
            "take      agentvfs branch merge {branch} --into {of}"
        ));
    }
    line(&format!("discard   agentvfs branch delete {branch}"));
}

/// Files that are told by their names; of more only the number.
const NAMED_MAX: usize = 3;

/// What became of files outside the project.
pub fn outside(outside: &Outside) {
    let mut kept: BTreeMap<&PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for (dir, file) in &outside.kept {
        kept.entry(dir).or_default().push(file.clone());
    }
    let parts = kept.iter().flat_map(|(dir, files)| match files.len() {
        0..=NAMED_MAX => short(files),
        count => vec![format!(
            "{count} files in {}",
            short(&[(*dir).clone()]).concat()
        )],
    });
    let kept = parts.collect::<Vec<_>>().join(", ");
    let written = match outside.written.len() {
        0..=NAMED_MAX => short(&outside.written).join(", "),
        many => format!("{many} files"),
    };
    let parts = [(kept, "kept with the session"), (written, "written")];
    let parts = parts.iter().filter(|(files, _)| !files.is_empty());
    let parts: Vec<String> = parts
        .map(|(files, what)| format!("{files} ({what})"))
        .collect();
    if !parts.is_empty() {
        line(&format!("outside   {}", parts.join("; ")));
    }
}

/// What became of what killed runs had left.
pub fn left(left: &Outside) {
    if !left.written.is_empty() {
        let files = count(left.written.len() as u64, "file");
        warn(&format!(
            "{files} outside the project that a killed run had changed: written back"
        ));
    }
    outside_failures(left);
}

/// What could not be written back.
pub fn outside_failures(outside: &Outside) {
    for (file, aside) in &outside.conflicts {
        warn(&format!(
            "{} was changed outside as well, and is left as it is; what the run made of it is in {}",
            path(file),
            path(aside)
        ));
    }
    for why in &outside.failed {
        warn(&format!("cannot write back what the run changed: {why}"));
    }
}

/// Says a sentence.
pub fn say(text: &str) {
    warn(text);
}

/// How many files changed, and how.
fn counted(changes: &[Changed]) -> String {
    let kinds = [
        (&['M', 'T'][..], "changed"),
        (&['A'][..], "added"),
        (&['D'][..], "deleted"),
        (&['R'][..], "renamed"),
    ];
    let mut parts = Vec::new();
    for (statuses, word) in kinds {
        let count = changes
            .iter()
            .filter(|c| statuses.contains(&c.status))
            .count();
        if count > 0 {
            let files = match (parts.is_empty(), count) {
                (true, 1) => " file",
                (true, _) => " files",
                (false, _) => "",
            };
            parts.push(format!("{count}{files} {word}"));
        }
    }
    parts.join(", ")
}

/// `0.3s`, `12s`, `4m12s`, `3h05m`.
fn duration(took: Duration) -> String {
    let seconds = took.as_secs();
    match seconds {
        0..=9 => format!("{:.1}s", took.as_secs_f64()),
        10..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::protocol::Bytes;

    #[test]
    fn changes_are_counted_by_kind() {
        let changed = |status| Changed {
            status,
            path: Bytes(Vec::new()),
            old_path: None,
            lines: None,
        };
        let all: Vec<Changed> = "MMTAD".chars().map(changed).collect();
        assert_eq!(counted(&all), "3 files changed, 1 added, 1 deleted");
        assert_eq!(counted(&all[3..4]), "1 file added");
    }

    #[test]
    fn durations_are_short() {
        let told = |seconds: f64| duration(Duration::from_secs_f64(seconds));
        assert_eq!(told(0.34), "0.3s");
        assert_eq!(told(59.9), "59s");
        assert_eq!(told(252.0), "4m12s");
        assert_eq!(told(11_100.0), "3h05m");
    }
}
