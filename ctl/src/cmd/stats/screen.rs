//! `stats` on a terminal: what takes the space, as tables and bars.

use super::ratio;
use crate::output::{print, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::StatsAnswer;
use agentvfs_client::quote::shown;
use agentvfs_client::render::count;
use agentvfs_picture::{Style, facts, human_bytes, human_count, share, table};

/// Kinds of files that are listed.
const KINDS_MAX: usize = 12;

/// Prints it.
pub fn show(answer: &StatsAnswer) -> Result<(), Failure> {
    let style = stdout_style();
    let mut parts = vec![facts(&whole(answer), style)];
    if !answer.workspaces.is_empty() {
        parts.push(workspaces(answer, style));
        parts.push(branches(answer, style));
    }
    if !answer.kinds.is_empty() {
        parts.push(kinds(answer, style));
    }
    print(parts.join("\n").as_bytes())
}

fn whole(a: &StatsAnswer) -> Vec<(&'static str, String)> {
    let quota = a.quota.map_or("none".to_owned(), human_bytes);
    vec![
        (
            "disk",
            format!(
                "{} used, {} free, quota {quota}",
                human_bytes(a.used_bytes),
                human_bytes(a.free_bytes)
            ),
        ),
        (
            "copies",
            format!(
                "full copies would take {}: deduplication {:.2}, compression {:.2}",
                human_bytes(a.logical_bytes),
                ratio(a.logical_bytes, a.chunk_bytes),
                ratio(a.chunk_bytes, a.chunk_stored_bytes)
            ),
        ),
        (
            "packs",
            format!(
                "{} in {} with {} objects; {} can be freed",
                human_bytes(a.pack_bytes),
                count(a.packs, "pack"),
                human_count(a.objects),
                human_bytes(a.unneeded_bytes)
            ),
        ),
        (
            "else",
            format!(
                "journals {}, states {}",
                human_bytes(a.journal_bytes),
                human_bytes(a.state_bytes)
            ),
        ),
    ]
}

fn workspaces(answer: &StatsAnswer, style: Style) -> String {
    let most = answer.workspaces.iter().map(|w| w.needed_bytes).max();
    let rows: Vec<Vec<String>> = answer
        .workspaces
        .iter()
        .map(|w| {
            vec![
                shown(w.name.as_bytes()),
                human_bytes(w.needed_bytes),
                human_bytes(w.own_bytes),
                share(w.needed_bytes, most.unwrap_or(0), style),
            ]
        })
        .collect();
    table(&["WORKSPACE", "NEEDS", "ALONE", ""], &rows, style)
}

fn branches(answer: &StatsAnswer, style: Style) -> String {
    let of_all = answer.workspaces.iter();
    let rows: Vec<Vec<String>> = of_all
        .flat_map(|w| w.branches.iter().map(move |b| (w, b)))
        .map(|(w, b)| {
            vec![
                shown(format!("{}/{}", w.name, b.name).as_bytes()),
                human_count(b.files),
                human_bytes(b.bytes),
                human_count(b.keys),
                human_count(b.commits),
                human_count(b.automatic_commits),
                human_bytes(b.journal_bytes),
            ]
        })
        .collect();
    let header = [
        "BRANCH",
        "FILES",
        "SIZE",
        "KEYS",
        "COMMITS",
        "AUTOMATIC",
        "JOURNAL",
    ];
    table(&header, &rows, style)
}

fn kinds(answer: &StatsAnswer, style: Style) -> String {
    let most = answer.kinds.iter().map(|k| k.stored_bytes).max();
    let rows: Vec<Vec<String>> = answer
        .kinds
        .iter()
        .take(KINDS_MAX)
        .map(|k| {
            let name = match k.extension.as_str() {
                "" => "none",
                name => name,
            };
            vec![
                shown(name.as_bytes()),
                human_bytes(k.bytes),
                human_bytes(k.stored_bytes),
                share(k.stored_bytes, most.unwrap_or(0), style),
            ]
        })
        .collect();
    table(&["KIND", "SIZE", "STORED", ""], &rows, style)
}
