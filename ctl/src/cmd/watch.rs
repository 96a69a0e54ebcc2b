//! `agentvfs watch`: what happens in a workspace, as it happens.

use super::Context;
use crate::cli::WatchArgs;
use crate::output::{print, stdout_style, talk, warn};
use agentvfs_client::connection::{Canceller, ClientError, Heard};
use agentvfs_client::failure::Failure;
use agentvfs_client::launch::failed;
use agentvfs_client::protocol::{
    Call, EventFilter, EventLine, LOST, Moment, OPS, Subscribe, SubscribeAnswer,
};
use agentvfs_client::quote::{json, quoted};
use agentvfs_client::when::local_seconds;
use std::borrow::Cow;
use std::io::IsTerminal;
use std::time::Duration;

/// What failed where something does.
const WHAT: &str = "cannot follow the events";

/// How often a daemon that ended is looked for again, and how long between.
const TRIES_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(200);

/// Prints events until there are no more.
pub fn run(args: &WatchArgs, context: &mut Context) -> Result<u8, Failure> {
    if let Some(op) = args.op.iter().find(|op| !OPS.contains(&op.as_str())) {
        let known = format!("an event has one of {}", OPS.join(", "));
        return Err(Failure::usage(format!("no event has op {op:?}")).hint(known));
    }
    let workspace = context.workspace(args.name.as_deref())?;
    let mut ask = Subscribe {
        workspace,
        since: args.since.or(args.no_follow.then_some(0)),
        filter: EventFilter {
            branches: context.options().branch.clone().into_iter().collect(),
            ops: args.op.clone(),
            paths: args.path.clone(),
        },
        follow: !args.no_follow,
    };
    let mut shown = Shown {
        for_person: std::io::stdout().is_terminal() && !context.json(),
        begun: Vec::new(),
        seen: None,
        failure: None,
    };
    let mut tries = 0;
    loop {
        let answer = shown.follow(&ask, context)?;
        if let Some(failure) = shown.failure {
            return Err(failure);
        }
        match answer {
            Ok(answer) => {
                if answer.stopped {
                    talk(&format!("{} was stopped", ask.workspace));
                }
                return Ok(0);
            }
            Err(ClientError::Broken(_) | ClientError::Ending) if tries < TRIES_MAX => {
                if tries == 0 {
                    warn("the daemon ended; waiting for it");
                }
                tries += 1;
                // What was begun comes again, or is told as lost.
                shown.begun.clear();
                if let Some(seen) = shown.seen.take() {
                    (ask.since, tries) = (Some(seen), 0);
                }
                context.forget_client();
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(failed(WHAT, error)),
        }
    }
}

/// What was printed.
struct Shown {
    for_person: bool,
    /// A line whose end has not come.
    begun: Vec<u8>,
    /// Number of the last event.
    seen: Option<u64>,
    /// Why no more can be printed.
    failure: Option<Failure>,
}

impl Shown {
    fn follow(
        &mut self,
        ask: &Subscribe,
        context: &mut Context,
    ) -> Result<Result<SubscribeAnswer, ClientError>, Failure> {
        let canceller = context.client()?.canceller()?;
        let call = Call::Subscribe(ask.clone());
        Ok(context.client()?.call_hearing(&call, &mut |heard| {
            if let Heard::Data(bytes) = heard {
                self.take(&bytes, &canceller);
            }
        }))
    }

    fn take(&mut self, bytes: &[u8], canceller: &Canceller) {
        if self.failure.is_some() {
            return;
        }
        self.begun.extend_from_slice(bytes);
        let end = self.begun.iter().rposition(|byte| *byte == b'\n');
        let rest = self.begun.split_off(end.map_or(0, |end| end + 1));
        let lines = std::mem::replace(&mut self.begun, rest);
        if let Err(failure) = self.show(&lines) {
            self.failure = Some(failure);
            // A daemon that has gone sends no more either.
            let _ = canceller.cancel();
        }
    }

    fn show(&mut self, lines: &[u8]) -> Result<(), Failure> {
        let all = || lines.split_inclusive(|byte| *byte == b'\n');
        let Some(last) = all().next_back() else {
            return Ok(());
        };
        let seen = decoded(last)?.extra.seq.parse().ok();
        self.seen = seen.or(self.seen);
        if !self.for_person {
            // Looking whether it is text is far quicker than looking where it is none.
            let text = std::str::from_utf8(lines).map(Cow::Borrowed);
            let text = text.unwrap_or_else(|_| String::from_utf8_lossy(lines));
            return print(json(&text).as_bytes());
        }
        let mut text = Vec::new();
        for line in all() {
            text.extend(for_person(&decoded(line)?));
        }
        print(&text)
    }
}

fn decoded(line: &[u8]) -> Result<EventLine, Failure> {
    serde_json::from_slice(line)
        .map_err(|e| Failure::new(WHAT, format!("an event is no JSON: {e}")))
}

/// The event as a person reads it: time, operation, paths, what else, and who.
fn for_person(event: &EventLine) -> Vec<u8> {
    const SECOND: u64 = 1_000_000_000;
    let moment = Moment {
        sec: i64::try_from(event.ts / SECOND).unwrap_or_default(),
        nsec: u32::try_from(event.ts % SECOND).unwrap_or_default(),
    };
    let time = local_seconds(moment);
    let clock = time.get(11..19).unwrap_or(&time);
    let mut words = vec![clock.to_owned(), format!("{:<10}", event.op)];
    let name = |path: &str| String::from_utf8_lossy(&quoted(path.as_bytes())).into_owned();
    let extra = &event.extra;
    if event.op == LOST {
        let count = match extra.count.as_str() {
            "" => "events that were not kept",
            count => count,
        };
        words.push(count.to_owned());
    }
    if !event.path.is_empty() {
        words.push(name(&event.path));
    }
    if !extra.path2.is_empty() {
        let arrow = if event.op == "rename" { "->" } else { "of" };
        words.extend([arrow.to_owned(), name(&extra.path2)]);
    }
    if event.bytes > 0 {
        words.push(format!("bytes={}", event.bytes));
    }
    if !extra.detail.is_empty() {
        words.push(name(&extra.detail));
    }
    let who = match (event.pid, extra.comm.as_str()) {
        (0, _) => String::new(),
        (pid, comm) => format!("by={} pid={pid}", name(comm)),
    };
    let call = match extra.call.as_str() {
        "" => String::new(),
        call => format!("call={call}"),
    };
    let branch = match extra.branch.as_str() {
        "" | "main" => String::new(),
        branch => format!("branch={}", name(branch)),
    };
    words.extend(
        [who, call, branch]
            .into_iter()
            .filter(|word| !word.is_empty()),
    );
    let width = stdout_style().width;
    let line = words.join(" ");
    let mut line = match width {
        0 => line,
        width => line.chars().take(width).collect(),
    };
    line.push('\n');
    line.into_bytes()
}
