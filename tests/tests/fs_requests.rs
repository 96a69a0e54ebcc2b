//! What one system call costs: how many requests the kernel sends the daemon for it, by the daemon's
//! own count. The table is in `docs/performance.md`; this test reads it there and fails where a call
//! sends one request more than it says.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tests::env::Env;
use tests::requests::{Count, DATA, NAMES, TIMES, answered, cost, since};

/// Times that a call may be counted.
const ROUNDS: u32 = 3;

/// The table: requests of each kind that one call may send.
fn table() -> BTreeMap<String, Count> {
    let doc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
    let doc = fs::read_to_string(doc).unwrap();
    let section = doc.split("## Requests per operation\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        Some((cells.next()?.to_owned(), parsed(cells.next()?)?))
    });
    rows.collect()
}

/// `lookup 1, write 1`, or `none`.
fn parsed(cell: &str) -> Option<Count> {
    if cell == "none" {
        return Some(Count::new());
    }
    let parts = cell.split(", ").map(|part| {
        let (kind, count) = part.split_once(' ')?;
        Some((kind.to_owned(), count.parse().ok()?))
    });
    parts.collect()
}

fn shown(count: &Count) -> String {
    let each = |(kind, count): (&String, &u64)| {
        let (whole, rest) = (count / TIMES, count % TIMES);
        match rest {
            0 => format!("{kind} {whole}"),
            _ => format!("{kind} {count}/{TIMES}"),
        }
    };
    match count.is_empty() {
        true => "none".to_owned(),
        false => count.iter().map(each).collect::<Vec<_>>().join(", "),
    }
}

/// Whether there are more requests than the table allows.
fn is_more(found: &Count, allowed: &Count) -> bool {
    // Whoever lists the machine's file systems meanwhile (df) asks for the mount's figures, too.
    let foreign = |kind: &str| kind == "statfs" && !allowed.contains_key(kind);
    let more = |(kind, count): (&String, &u64)| {
        !foreign(kind) && *count > allowed.get(kind).unwrap_or(&0) * TIMES
    };
    found.iter().any(more)
}

#[test]
fn no_call_sends_more_requests_than_the_table_says() {
    let Some(env) = Env::new() else { return };
    let root = env.start();
    env.imported();
    let before = answered(&env);
    let idle = since(&before, &answered(&env));
    assert!(
        idle.is_empty(),
        "asking costs more requests itself: {idle:?}"
    );
    let table = table();
    let mut wrong = Vec::new();
    for call in DATA.iter().chain(NAMES) {
        let allowed = table.get(call.name);
        // What the kernel has to ask for once more, as it has dropped it meanwhile, is no cost of the call: the least of
        // some rounds is.
        let found = (0..ROUNDS).find_map(|round| {
            let place = root.join(round.to_string());
            fs::create_dir_all(&place).unwrap();
            let found = cost(&env, &place, call);
            let is_last = round + 1 == ROUNDS;
            let fits = allowed.is_some_and(|allowed| !is_more(&found, allowed));
            (fits || is_last).then_some(found)
        });
        let found = found.unwrap();
        println!("| {} | {} |", call.name, shown(&found));
        match allowed {
            None => wrong.push(format!("{}: not in the table", call.name)),
            Some(allowed) if is_more(&found, allowed) => {
                let found = shown(&found);
                wrong.push(format!("{}: {found}; the table: {allowed:?}", call.name));
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(table.len(), DATA.len() + NAMES.len(), "rows nobody checks");
}
