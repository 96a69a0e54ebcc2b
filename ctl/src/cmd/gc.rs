//! `agentvfs gc`.

use super::Context;
use crate::cli::GcArgs;
use crate::output::{Facts, human_bytes, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Gc, GcAnswer};
use agentvfs_client::units::duration;

/// Takes away what nothing needs any more, or says what that would be.
pub fn run(args: &GcArgs, context: &mut Context) -> Result<u8, Failure> {
    let grace_ms = args.grace.as_deref().map(grace).transpose()?;
    let call = Call::Gc(Gc {
        grace_ms,
        dry_run: args.dry_run,
        progress: true,
    });
    let answer: GcAnswer = context.ask_with_bar("cannot collect", &call, "collecting")?;
    let mut facts = Facts::default();
    for (key, number) in numbers(&answer) {
        let text = number.to_string();
        facts.line(key, text.as_bytes()).json(key, number);
    }
    facts.json("dry_run", args.dry_run);
    if let Some(why) = &answer.unasked {
        facts.line("unasked", why.as_bytes());
    }
    facts.json("unasked", answer.unasked.as_deref());
    facts.print(context.json())?;
    let would = if args.dry_run { "would be " } else { "" };
    talk(&format!(
        "{} {would}freed; {} are within the grace period or too few to be worth it",
        human_bytes(answer.freed_bytes),
        human_bytes(answer.left_bytes)
    ));
    Ok(0)
}

fn grace(text: &str) -> Result<u64, Failure> {
    let parsed = duration(text).and_then(|d| u64::try_from(d.as_millis()).ok());
    parsed.ok_or_else(|| {
        Failure::usage(format!("--grace: {text:?} is not a duration"))
            .hint("such as 0s, 30m, 2h, 1d")
    })
}

fn numbers(answer: &GcAnswer) -> [(&'static str, u64); 13] {
    [
        ("freed_bytes", answer.freed_bytes),
        ("objects", answer.objects),
        ("packs", answer.packs),
        ("copied_bytes", answer.copied_bytes),
        ("store_bytes", answer.store_bytes),
        ("needed_bytes", answer.needed_bytes),
        ("left_bytes", answer.left_bytes),
        ("damaged_packs", answer.damaged_packs),
        ("dropped_bytes", answer.dropped_bytes),
        ("cache_bytes", answer.cache_bytes),
        ("remote_only_objects", answer.only_remote.objects),
        ("remote_only_bytes", answer.only_remote.bytes),
        ("remote_only_unknown", answer.only_remote.unknown),
    ]
}
