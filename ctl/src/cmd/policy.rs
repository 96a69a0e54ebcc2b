//! `agentvfs policy`: the rules of a workspace.

use super::Context;
use crate::cli::{
    Global, PolicyCheckArgs, PolicySetArgs, PolicyShowArgs, PolicyTestArgs, PolicyVerb, ProgramArgs,
};
use crate::output::{Facts, Rows, print, print_json, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::judged::texts_of;
use agentvfs_client::protocol::{Call, EventLine, PolicyAnswer, PolicyOf, PolicySet};
use agentvfs_client::quote::shown;
use agentvfs_daemon::policies::{
    Asker, Bench, Compiled, FeedOp, PROGRAM_BYTES_MAX, Policy, ProgramText, Sentence, ToolCall,
    Touch, ruled, with_program,
};
use agentvfs_daemon::programs::{AskedBy, Asking, Questions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest file of rules that is read, in bytes: longer than a policy may be.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest line of an event, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Branches whose events are told apart, at most.
const BRANCHES_MAX: usize = 10_000;

/// Runs a verb.
pub fn run(verb: PolicyVerb, global: Global) -> Result<u8, Failure> {
    match verb {
        PolicyVerb::Set(args) => set(&args, &mut Context::new(global)?)?,
        PolicyVerb::Show(args) => show(&args, &mut Context::new(global)?)?,
        PolicyVerb::Check(args) => check(&args, global.json)?,
        PolicyVerb::Test(args) => test(&args, global.json)?,
    }
    Ok(0)
}

fn named(file: &Path) -> String {
    shown(file.as_os_str().as_bytes())
}

/// What a file has, up to a limit that is longer than it may be; `-` is standard input.
fn read(file: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    let what = format!("cannot read {}", named(file));
    let failed = |error: io::Error| {
        Failure::new(&what, error.to_string()).hint("name a file of rules, or a program")
    };
    let mut bytes = Vec::new();
    let mut read = |from: &mut dyn Read| from.take(max).read_to_end(&mut bytes);
    let done = match file == Path::new("-") {
        true => read(&mut io::stdin().lock()),
        false => File::open(file).and_then(|mut file| read(&mut file)),
    };
    done.map_err(failed)?;
    Ok(bytes)
}

fn read_text(file: &Path, max: u64) -> Result<String, Failure> {
    String::from_utf8(read(file, max)?).map_err(|_| {
        Failure::new(format!("cannot read {}", named(file)), "it is no UTF-8")
            .hint("name a file of text")
    })
}

/// The program that is named, and its file.
fn read_program(args: &ProgramArgs) -> Result<Option<(ProgramText, &Path)>, Failure> {
    let max = PROGRAM_BYTES_MAX as u64 + 1;
    if let Some(file) = &args.lua {
        return Ok(Some((ProgramText::Lua(read_text(file, max)?), file)));
    }
    match &args.wasm {
        Some(file) => Ok(Some((ProgramText::Wasm(read(file, max)?), file))),
        None => Ok(None),
    }
}

/// Rules and a program, compiled, and their text.
fn load(file: Option<&Path>, program: &ProgramArgs) -> Result<(Compiled, String), Failure> {
    let rules = match file {
        Some(file) => read_text(file, FILE_BYTES_MAX)?,
        None => String::new(),
    };
    let faulty = |file: &Path, fault: String| {
        Failure::new(named(file), fault).hint("docs/policy.md has all keys with examples")
    };
    let program = read_program(program)?;
    let text = match (&program, file) {
        (Some((program, _)), None) => with_program(&rules, program),
        (Some((program, of)), Some(file)) => {
            let both = with_program(&rules, program);
            // What is wrong with the rules is said of their own file.
            match Policy::load(&rules) {
                Ok(rules) if rules.program().is_some() => {
                    let why = format!("it has a [program], and {} is another", named(of));
                    return Err(faulty(file, why));
                }
                _ => both,
            }
        }
        (None, _) => rules,
    };
    let at = file.or(program.as_ref().map(|(_, file)| *file));
    let compiled = Compiled::load(&text)
        .map_err(|fault| faulty(at.unwrap_or(Path::new("the policy")), fault))?;
    Ok((compiled, text))
}

fn set(args: &PolicySetArgs, context: &mut Context) -> Result<(), Failure> {
    let (_, text) = load(args.file.as_deref(), &args.program)?;
    let workspace = context.workspace_to_change(None)?;
    let what = format!("cannot set the policy of {workspace}");
    let call = Call::PolicySet(PolicySet {
        workspace: workspace.clone(),
        text,
    });
    let answer: PolicyAnswer = context.ask(&what, &call)?;
    let mut facts = Facts::default();
    facts.add("name", workspace.as_bytes());
    for (key, number) in [("version", answer.version), ("rules", answer.rules)] {
        facts
            .line(key, number.to_string().as_bytes())
            .json(key, number);
    }
    facts.print(context.json())
}

fn show(args: &PolicyShowArgs, context: &mut Context) -> Result<(), Failure> {
    let workspace = context.workspace(args.name.as_deref())?;
    let what = format!("cannot show the policy of {workspace}");
    let call = Call::PolicyShow(PolicyOf {
        workspace: workspace.clone(),
    });
    let answer: PolicyAnswer = context.ask(&what, &call)?;
    if context.json() {
        let PolicyAnswer {
            version,
            rules,
            text,
        } = answer;
        return print_json(
            &json!({"name": workspace, "version": version, "rules": rules, "text": text}),
        );
    }
    match answer.version {
        0 => talk(&format!(
            "{workspace} has no policy; agentvfs policy set FILE sets one"
        )),
        version => talk(&format!("policy of {workspace}, version {version}")),
    }
    print(answer.text.as_bytes())
}

fn check(args: &PolicyCheckArgs, json: bool) -> Result<(), Failure> {
    let (compiled, _) = load(args.file.as_deref(), &args.program)?;
    let mut facts = Facts::default();
    let rules = compiled.policy.len();
    facts
        .line("rules", rules.to_string().as_bytes())
        .json("rules", rules);
    facts.print(json)
}

fn test(args: &PolicyTestArgs, json: bool) -> Result<(), Failure> {
    let (compiled, _) = load(args.file.as_deref(), &args.program)?;
    match &args.tool {
        Some(tool) => test_tool(
            &compiled.policy,
            tool,
            args.input.as_deref().unwrap_or_default(),
            json,
        ),
        None => test_events(compiled, json),
    }
}

/// What the rules say of a tool call.
fn test_tool(policy: &Policy, tool: &str, input: &str, json: bool) -> Result<(), Failure> {
    let input = serde_json::from_str(input).unwrap_or_else(|_| Value::from(input));
    let texts = texts_of(&input);
    let ruling = policy.judge_tool(&ToolCall {
        tool,
        texts: &texts,
        branch: "main",
        run: None,
    });
    let mut facts = Facts::default();
    let verdict = ruling
        .as_ref()
        .map_or("allow", |ruling| ruling.verdict.word());
    facts.add("verdict", verdict.as_bytes());
    if let Some(ruling) = ruling {
        facts.add("rule", ruling.rule.as_bytes());
        if let Some(reason) = ruling.reason {
            facts.add("reason", reason.as_bytes());
        }
    }
    facts.print(json)
}

/// What the rules say of events on standard input, each branch by itself.
fn test_events(compiled: Compiled, as_json: bool) -> Result<(), Failure> {
    let Compiled { policy, program } = compiled;
    let asking = program.map(|program| Arc::new(Asking::new(program, 0)));
    let mut benches: BTreeMap<String, Bench> = BTreeMap::new();
    let mut rows = Rows::new(&["VERDICT", "RULE", "SEQ", "OP", "PATH"]);
    let mut said = Vec::new();
    let mut input = io::stdin().lock();
    for number in 1u64.. {
        let what = format!("line {number} of standard input");
        let mut line = Vec::new();
        let read = (&mut input)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line);
        read.map_err(|error| Failure::new(&what, error.to_string()))?;
        if line.is_empty() {
            break;
        }
        let event: EventLine = serde_json::from_slice(&line).map_err(|error| {
            let hint = "use what `agentvfs watch` or `start --audit` wrote";
            Failure::new(&what, format!("it is no event: {error}")).hint(hint)
        })?;
        if benches.len() >= BRANCHES_MAX && !benches.contains_key(&event.extra.branch) {
            return Err(Failure::new(&what, "there are too many branches")
                .hint("choose some: watch --branch"));
        }
        let bench = benches
            .entry(event.extra.branch.clone())
            .or_insert_with(|| Bench::new(policy.clone()));
        if let Some((verdict, rule)) = judge(bench, asking.as_ref(), &event) {
            let cells = [
                verdict.word(),
                &*rule,
                &*event.extra.seq,
                &*event.op,
                &*event.path,
            ];
            said.push(json!({"verdict": cells[0], "rule": cells[1], "seq": cells[2], "op": cells[3], "path": cells[4]}));
            rows.push(cells.map(|cell| cell.as_bytes().to_vec()).into());
        }
    }
    match as_json {
        true => print_json(&json!({ "verdicts": said })),
        false => rows.print(false),
    }
}

/// What is said of an event, if a rule fits it.
fn judge(
    bench: &mut Bench,
    asking: Option<&Arc<Asking>>,
    event: &EventLine,
) -> Option<(Sentence, Arc<str>)> {
    let op = ruled(&event.op)?;
    let (path, path2) = (event.path.as_bytes(), event.extra.path2.as_bytes());
    let asker = Asker {
        pid: event.pid,
        uid: event.uid,
        comm: &event.extra.comm,
        branch: &event.extra.branch,
        ..Asker::default()
    };
    let is_dir = false;
    let touch = match op {
        FeedOp::Rename => Touch::Moved {
            is_dir,
            from: path,
            to: path2,
        },
        FeedOp::Link => Touch::Linked {
            from: path2,
            to: path,
        },
        op => Touch::At(op, path),
    };
    let now = Duration::from_nanos(event.ts);
    bench.begin(&asker, now);
    bench.touch(touch);
    let open = bench.open();
    if let Some(asking) = asking.filter(|_| !open.is_empty()) {
        let questions = Questions {
            asking: asking.clone(),
            policy: bench.policy().clone(),
            by: AskedBy::recorded(asker.uid, asker.pid, asker.comm, asker.branch),
            open,
        };
        bench.begin(&asker, now);
        bench.hear(questions.answers());
        bench.touch(touch);
    }
    let ruling = bench.end();
    if !matches!(ruling.sentence, Sentence::Deny(_)) {
        bench.made();
    }
    let (_, name) = ruling.rule?;
    Some((ruling.sentence, name))
}
