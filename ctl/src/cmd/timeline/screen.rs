//! `timeline` and `tool list` on a terminal: bars over time.

use crate::output::{absolute, print, stdout_style};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{CallState, Moment, TimelineRow};
use agentvfs_picture::{Ended, Span, spans};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds of a second and of a minute.
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;

/// Prints it; with `all`, rows say of which branch they are.
pub fn show(items: &[TimelineRow], all: bool, in_full: bool) -> Result<(), Failure> {
    let style = match in_full {
        true => absolute(stdout_style()),
        false => stdout_style(),
    };
    let now = now();
    let of = |item: &TimelineRow| span(item, all, now);
    let drawn: Vec<Span> = items.iter().map(of).collect();
    print(spans(&drawn, style).as_bytes())
}

fn now() -> Moment {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(Moment { sec: 0, nsec: 0 }, |now| Moment {
        sec: now.as_secs() as i64,
        nsec: now.subsec_nanos(),
    })
}

fn span(item: &TimelineRow, all: bool, now: Moment) -> Span {
    let took = item.duration_ms.filter(|_| item.kind == "call");
    let name = match item.undoes {
        Some(call) => format!("{} {call}", item.name),
        None => item.name.clone(),
    };
    let (ended, to) = match item.status {
        CallState::Pending => (Ended::Not, now),
        CallState::Success => (Ended::Well, item.started),
        CallState::Error => (Ended::Failed, item.started),
    };
    Span {
        id: item.id.map_or_else(String::new, |id| id.to_string()),
        name,
        ended,
        status: item.status.word().to_owned(),
        took: took.map_or_else(String::new, duration),
        branch: if all {
            item.branch.clone()
        } else {
            String::new()
        },
        from: item.started,
        to: item.completed.unwrap_or(to),
    }
}

/// A duration with two of its units at most.
fn duration(ms: u64) -> String {
    match ms {
        0..SECOND => format!("{ms} ms"),
        SECOND..MINUTE => format!("{:.1} s", ms as f64 / SECOND as f64),
        _ => {
            let (minutes, seconds) = (ms / MINUTE, ms % MINUTE / SECOND);
            match minutes {
                0..60 => format!("{minutes} min {seconds} s"),
                _ => format!("{} h {} min", minutes / 60, minutes % 60),
            }
        }
    }
}
