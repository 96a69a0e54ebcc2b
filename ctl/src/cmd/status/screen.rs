//! `status` on a terminal: how a workspace is, and what can be done next.

use crate::cmd::Context;
use crate::output::{bar, print, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{
    Call, ConflictsAnswer, Diff, DiffAnswer, Facts, Import, OnBranch, RemoteStanding, Resources,
    Side, StatusAnswer,
};
use agentvfs_client::quote::shown;
use agentvfs_client::render::{count, short};
use agentvfs_picture::{facts, human_bytes, human_count};

/// Prints it.
pub fn show(answer: &StatusAnswer, context: &mut Context) -> Result<(), Failure> {
    let info = &answer.info;
    let health = match (&answer.facts, answer.healthy) {
        (None, _) => "",
        (Some(_), true) => ", healthy",
        (Some(_), false) => ", not healthy",
    };
    let mut rows = vec![
        (
            "workspace",
            format!("{}, {}{health}", info.name, info.status.word()),
        ),
        (
            "mount",
            match info.unmounted {
                true => format!("none; agentvfs start {} mounts it", info.name),
                false => shown(&info.mount.0),
            },
        ),
        ("project", shown(&info.base.0)),
    ];
    let mut next = vec!["agentvfs start mounts it".to_owned()];
    if let Some(more) = &answer.facts {
        next = branch(answer, more, &mut rows, context)?;
    }
    rows.extend(next.into_iter().map(|next| ("next", next)));
    print(facts(&rows, stdout_style()).as_bytes())
}

type Row = (&'static str, String);

/// Adds what is known of a branch; gives what can be done next.
fn branch(
    answer: &StatusAnswer,
    more: &Facts,
    rows: &mut Vec<Row>,
    context: &mut Context,
) -> Result<Vec<String>, Failure> {
    let head = more.head.as_deref().map_or("pending", short);
    rows.push(("branch", format!("{}, head {head}", answer.branch)));
    let mut next = Vec::new();
    let (changes, is_changed) = match more.head {
        Some(_) => changes(answer, context)?,
        None => ("not known before the head is stored".to_owned(), false),
    };
    rows.push(("changes", changes));
    if is_changed {
        next.push(
            "agentvfs diff lists the changes, agentvfs checkpoint LABEL commits them".to_owned(),
        );
    }
    let conflicts = conflicts(answer, context)?;
    if conflicts > 0 {
        rows.push(("conflicts", count(conflicts, "conflict")));
        next.push(
            "agentvfs branch conflicts lists the conflicts, agentvfs branch resolve resolves one"
                .to_owned(),
        );
    }
    rows.push(("import", import(&more.import, answer.resources)));
    for (key, paths) in [
        ("changed", &more.base_changed),
        ("unreadable", &more.unreadable),
        ("missing", &more.not_imported),
    ] {
        if !paths.is_empty() {
            let many = count(paths.len() as u64, "path");
            rows.push((
                key,
                format!("{many} of the project; agentvfs status --json lists them"),
            ));
        }
    }
    let entries = format!("{} files and directories", human_count(more.entries));
    rows.push((
        "size",
        format!("{entries}, journal {}", human_bytes(more.journal_bytes)),
    ));
    if let Some(used) = answer.resources {
        rows.push(("disk", disk(used)));
        if let Some(memory) = used.memory_bytes {
            let daemon = format!(
                "{} in the daemon (process {})",
                human_bytes(memory),
                answer.pid
            );
            rows.push(("memory", daemon));
        }
    }
    rows.extend(events(more));
    if let Some(policy) = more.policy {
        rows.push(("policy", format!("version {policy}: agentvfs policy show")));
    }
    rows.extend(more.remotes.iter().map(remote));
    if let Some(recovered) = &more.recovered {
        rows.push(("recovered", shown(recovered.as_bytes())));
    }
    if next.is_empty() {
        next.push("agentvfs log lists the commits, agentvfs rollback goes back to one".to_owned());
    }
    Ok(next)
}

/// How the branch stands to the one of a remote.
fn remote(standing: &RemoteStanding) -> (&'static str, String) {
    let RemoteStanding {
        name,
        ahead,
        behind,
    } = standing;
    ("remote", format!("{name}: {ahead} ahead, {behind} behind"))
}

/// Where events come from, if not from the front alone, and where they go.
fn events(more: &Facts) -> impl Iterator<Item = (&'static str, String)> {
    let sources = (more.telemetry != ["front"]).then(|| ("events", more.telemetry.join(", ")));
    let audit = more.audit.as_ref().map(|file| ("audit", shown(&file.0)));
    sources.into_iter().chain(audit)
}

/// What differs from the head, and whether anything does.
fn changes(answer: &StatusAnswer, context: &mut Context) -> Result<(String, bool), Failure> {
    let call = Call::Diff(Diff {
        workspace: answer.info.name.clone(),
        branch: answer.branch.clone(),
        from: Side::Ref("@".to_owned()),
        to: Side::Live,
        paths: Vec::new(),
        stat: false,
    });
    let _bar = bar("comparing");
    let found: DiffAnswer = match context.try_ask("cannot compare with the head", &call)? {
        Ok(found) => found,
        // The rest of the state is shown all the same.
        Err(fault) => return Ok((format!("not known: {fault}"), false)),
    };
    if found.changes.is_empty() {
        return Ok(("none since the head".to_owned(), false));
    }
    let of = |status: char| found.changes.iter().filter(|c| c.status == status).count();
    let words = [
        ('A', "added"),
        ('M', "modified"),
        ('D', "removed"),
        ('R', "renamed"),
        ('T', "of another type"),
    ];
    let words = words.iter().map(|(status, word)| (of(*status), word));
    let words: Vec<String> = words
        .filter(|(many, _)| *many > 0)
        .map(|(many, word)| format!("{many} {word}"))
        .collect();
    Ok((format!("{} since the head", words.join(", ")), true))
}

fn conflicts(answer: &StatusAnswer, context: &mut Context) -> Result<u64, Failure> {
    let call = Call::BranchConflicts(OnBranch {
        workspace: answer.info.name.clone(),
        branch: answer.branch.clone(),
    });
    let found: ConflictsAnswer = context.ask("cannot list the conflicts", &call)?;
    Ok(found.conflicts.len() as u64)
}

fn disk(used: Resources) -> String {
    format!(
        "{} in the home, {} free",
        human_bytes(used.used_bytes),
        human_bytes(used.free_bytes)
    )
}

/// How far the import is; while it goes on, how fast, and how long it will take at that rate.
fn import(import: &Import, used: Option<Resources>) -> String {
    let (files, bytes) = (
        count(import.files_done, "file"),
        human_bytes(import.bytes_done),
    );
    match import.state.as_str() {
        "done" => format!("done, {files}, {bytes}"),
        state => {
            let far = format!(
                "{state}, {} of {} files, {bytes} of {}",
                human_count(import.files_done),
                human_count(import.files_total),
                human_bytes(import.bytes_total)
            );
            match (state, used) {
                ("running" | "scanning", Some(used)) => far + &rate(import, used.import_ms),
                _ => far,
            }
        }
    }
}

fn rate(import: &Import, ms: u64) -> String {
    let seconds = ms as f64 / 1000.0;
    if seconds < 0.1 || import.bytes_done == 0 {
        return String::new();
    }
    let (files, bytes) = (
        import.files_done as f64 / seconds,
        import.bytes_done as f64 / seconds,
    );
    let left = import.bytes_total.saturating_sub(import.bytes_done) as f64 / bytes;
    format!(
        ", {} files and {} a second, {} s left",
        human_count(files as u64),
        human_bytes(bytes as u64),
        human_count(left.ceil() as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import_of(state: &str, ms: u64) -> String {
        let far = Import {
            state: state.to_owned(),
            files_done: 1500,
            files_total: 6000,
            bytes_done: 3 << 20,
            bytes_total: 12 << 20,
        };
        let used = Resources {
            used_bytes: 0,
            free_bytes: 0,
            memory_bytes: None,
            import_ms: ms,
        };
        import(&far, Some(used))
    }

    #[test]
    fn an_import_says_how_far_and_how_fast_it_is() {
        let far = "1,500 of 6,000 files, 3.00 MiB of 12.00 MiB";
        assert_eq!(
            import_of("running", 3000),
            format!("running, {far}, 500 files and 1.00 MiB a second, 9 s left")
        );
        // Too early to tell, and not going on.
        assert_eq!(import_of("scanning", 50), format!("scanning, {far}"));
        assert_eq!(import_of("paused", 3000), format!("paused, {far}"));
        assert_eq!(import_of("done", 3000), "done, 1500 files, 3.00 MiB");
    }
}
