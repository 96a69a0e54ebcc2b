//! `agentvfs fsck`.
//!
//! Where a daemon serves the home it looks, else this process does, owning the store meanwhile. Repairing
//! is for a store that nobody works on.

use super::Context;
use crate::cli::FsckArgs;
use crate::output::{CHECKING, Rows, bar, human_bytes, print_json, talk, warn};
use crate::signals::{Interrupted, on_interrupt};
use agentvfs_client::connection::{Client, ClientError};
use agentvfs_client::failure::{FAILED, Failure, INTERRUPTED};
use agentvfs_client::home::Home;
use agentvfs_client::protocol::{AffectedRow, CANCELLED, Call, FsckAnswer, FsckFinding, Nothing};
use agentvfs_client::render::{count, insert_bytes};
use agentvfs_daemon::fsck_answer;
use engine::{Cancel, Engine, EngineConfig, FsckReport};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WHAT: &str = "cannot check the store";

/// How long to wait for a daemon that is just ending.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to get the store's lock.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Checks the store, and repairs it where that was asked for.
pub fn run(args: &FsckArgs, context: &mut Context) -> Result<u8, Failure> {
    if !context.is_home_used()? {
        let why = format!("there is no store in {}", context.home().root().display());
        return Err(Failure::new(WHAT, why)
            .kind("no-store")
            .hint("set the home with --root DIR or $AGENTVFS_HOME"));
    }
    let alone = args.repair || args.rebuild_index;
    if context.home().socket_of_run().is_some() {
        // The store is not seen in a sandbox; whoever serves its socket says so.
        let answer = context.ask(WHAT, &Call::Fsck(Nothing {}))?;
        return tell(&answer, args, context.json());
    }
    let answer = match Client::connect(&context.home().socket()) {
        Ok(_) if alone => {
            return Err(
                Failure::new("cannot repair the store", "a daemon is serving it")
                    .kind("store-locked")
                    .hint("stop all workspaces first (agentvfs list), then wait two seconds"),
            );
        }
        Ok(_) => {
            let call = Call::Fsck(Nothing {});
            context.ask_cancellable(WHAT, &call, CHECKING, &mut |_| {})?
        }
        Err(ClientError::NotRunning | ClientError::Ending) => here(args, context.home())?,
        Err(error) => return Err(agentvfs_client::launch::failed(WHAT, error)),
    };
    tell(&answer, args, context.json())
}

/// Checks the store in this process.
fn here(args: &FsckArgs, home: &Home) -> Result<FsckAnswer, Failure> {
    let cancel = Cancel::new();
    let heard = cancel.clone();
    // Before the engine has threads, any of which the signal could end otherwise.
    on_interrupt(move || {
        if !heard.cancel() {
            warn("too late to cancel; it continues until it is done");
        }
        Interrupted::GoOn
    })?;
    let config = EngineConfig {
        root: home.root().to_owned(),
        author: String::new(),
    };
    let engine = open(&config, args.rebuild_index).map_err(failure)?;
    let bar = RefCell::new(bar(CHECKING));
    let progress = |done, total| bar.borrow_mut().set(done, total);
    let report = engine.fsck_unless(&progress, &cancel).map_err(failure)?;
    drop(bar);
    let mut answer = fsck_answer(&report);
    if args.repair && !args.dry_run {
        cancel.decide().map_err(failure)?;
        repair(&engine, &report, &mut answer).map_err(failure)?;
    }
    engine.shut_down().map_err(failure)?;
    Ok(answer)
}

/// What is told of an error of the store in this process.
fn failure(error: engine::Error) -> Failure {
    let failure = Failure::new(WHAT, error.to_string());
    match error {
        engine::Error::StoreLocked { pid } => {
            failure.hint(format!("wait until process {pid} has ended"))
        }
        engine::Error::Cancelled => Failure {
            exit: INTERRUPTED,
            ..failure.kind(CANCELLED).hint("run the command again")
        },
        _ => failure.hint("copy the agentvfs home before you do anything else"),
    }
}

/// Opens the store; a daemon that is just ending gives it up soon.
fn open(config: &EngineConfig, rebuild: bool) -> engine::Result<Arc<Engine>> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        let opened = if rebuild {
            Engine::open_rebuilding(config.clone())
        } else {
            Engine::open(config.clone())
        };
        match opened {
            Err(engine::Error::StoreLocked { .. }) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
}

fn repair(
    engine: &Arc<Engine>,
    report: &FsckReport,
    answer: &mut FsckAnswer,
) -> engine::Result<()> {
    for step in &report.steps {
        warn(&format!("plan: {step}"));
    }
    engine.repair(report, &mut |step, done| match done {
        Ok(()) => answer.repaired.push(step.to_string()),
        Err(e) => warn(&format!("not done: {step}: {e}")),
    })?;
    let left = engine.fsck(&|_, _| ())?;
    answer.left = Some(left.findings.len() as u64);
    Ok(())
}

fn tell(answer: &FsckAnswer, args: &FsckArgs, json: bool) -> Result<u8, Failure> {
    if json {
        print_json(&object(answer))?;
    } else {
        rows(answer).print(false)?;
        if !args.repair || args.dry_run {
            for step in &answer.plan {
                warn(&format!("agentvfs fsck --repair would {step}"));
            }
        }
        for step in &answer.repaired {
            warn(&format!("done: {step}"));
        }
        if let Some(left) = answer.left {
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            warn(&format!(
                "{} left after the repair",
                count(left as u64, "finding")
            ));
        }
        if let Some(why) = &answer.unasked {
            warn(&format!(
                "{} not checked: {why}",
                count(answer.only_remote.unknown, "object")
            ));
        }
        talk(&summary(answer));
    }
    Ok(if answer.findings.is_empty() {
        0
    } else {
        FAILED
    })
}

/// What was checked and found.
fn summary(answer: &FsckAnswer) -> String {
    let found = match answer.findings.len() {
        0 => "nothing is damaged".to_owned(),
        many => count(many as u64, "finding"),
    };
    let branches = match answer.branches {
        1 => "1 branch".to_owned(),
        many => format!("{many} branches"),
    };
    let away = match answer.only_remote.objects {
        0 => String::new(),
        many => format!("; {} only in remotes", count(many, "object")),
    };
    format!(
        "checked {} ({}), {branches}, {}: {found}{away}",
        count(answer.records, "record"),
        human_bytes(answer.bytes),
        count(answer.commits, "commit")
    )
}

/// A row for each file that is affected, and one for what affects none.
fn rows(answer: &FsckAnswer) -> Rows {
    let mut rows = Rows::new(&["PLACE", "DAMAGE", "WORKSPACE", "BRANCH", "COMMIT", "PATH"]);
    let dash = || b"-".to_vec();
    let or_dash = |text: &str| if text.is_empty() { dash() } else { text.into() };
    for f in &answer.findings {
        let start = [f.place.clone().into_bytes(), f.what.clone().into_bytes()];
        for a in &f.affects {
            let commit = a.labels.first().or(a.commit.as_ref());
            let path = if a.path.0.is_empty() {
                dash()
            } else {
                a.path.0.clone()
            };
            let mut row = start.to_vec();
            row.extend([or_dash(&a.workspace), or_dash(&a.branch)]);
            row.extend([commit.map_or(dash(), |c| c.clone().into_bytes()), path]);
            rows.push(row);
        }
        if f.affects_more > 0 || f.affects.is_empty() {
            let mut row = start.to_vec();
            let more = match f.affects_more {
                0 => dash(),
                more => format!("and {more} more").into_bytes(),
            };
            row.extend([dash(), dash(), dash(), more]);
            rows.push(row);
        }
    }
    rows
}

fn object(answer: &FsckAnswer) -> Value {
    let affected = |a: &AffectedRow| {
        let mut object = Map::new();
        object.insert("workspace".into(), a.workspace.clone().into());
        object.insert("branch".into(), a.branch.clone().into());
        object.insert("commit".into(), a.commit.clone().into());
        object.insert("labels".into(), a.labels.clone().into());
        insert_bytes(&mut object, "path", &a.path.0);
        Value::Object(object)
    };
    let finding = |f: &FsckFinding| {
        json!({
            "place": f.place,
            "what": f.what,
            "affects": f.affects.iter().map(affected).collect::<Vec<_>>(),
            "affects_more": f.affects_more,
        })
    };
    json!({
        "findings": answer.findings.iter().map(finding).collect::<Vec<_>>(),
        "plan": answer.plan,
        "repaired": answer.repaired,
        "left": answer.left,
        "records": answer.records,
        "bytes": answer.bytes,
        "branches": answer.branches,
        "commits": answer.commits,
        "remote_only_objects": answer.only_remote.objects,
        "remote_only_bytes": answer.only_remote.bytes,
        "remote_only_unknown": answer.only_remote.unknown,
        "unasked": answer.unasked,
    })
}
