//! One process that uses a mount, started by the tests: `worker KIND …`.

use std::path::Path;
use std::process::ExitCode;
use tests::pages::Control;
use tests::worker::{self, Outcome};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Outcome {
    let [kind, path, control, rest @ ..] = args else {
        return Err(format!("not enough arguments: {args:?}"));
    };
    let control = Control::open(Path::new(control));
    worker::ended(work(kind, Path::new(path), &control, rest), &control)
}

fn work(kind: &str, path: &Path, control: &Control, rest: &[&str]) -> Outcome {
    match (kind, rest) {
        ("log", [marks, seed]) => worker::log(path, Path::new(marks), number(seed)?, control),
        ("dirty", [pages, index, workers]) => {
            let share = (index_of(index)?, index_of(workers)?);
            worker::dirty(path, index_of(pages)?, share, control)
        }
        ("read", [index]) => worker::read(path, index_of(index)?, control),
        ("write", [index]) => worker::write(path, index_of(index)?, control),
        ("mixed", [index]) => worker::mixed(path, index_of(index)?, control),
        _ => Err(format!("not a kind of worker: {kind} {rest:?}")),
    }
}

fn index_of(text: &str) -> Result<usize, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}
