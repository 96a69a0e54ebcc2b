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
    match args {
        ["log", root, control, marks, seed] => {
            worker::log(Path::new(root), Path::new(marks), number(seed)?, &open(control))
        }
        ["dirty", path, control, pages, index, workers] => worker::dirty(
            Path::new(path),
            number(pages)? as usize,
            (number(index)? as usize, number(workers)? as usize),
            &open(control),
        ),
        ["read", path, control, index] => {
            worker::read(Path::new(path), number(index)? as usize, &open(control))
        }
        ["write", path, control, index] => {
            worker::write(Path::new(path), number(index)? as usize, &open(control))
        }
        ["mixed", root, control, index] => {
            worker::mixed(Path::new(root), number(index)? as usize, &open(control))
        }
        other => Err(format!("not a kind of worker: {other:?}")),
    }
}

fn open(path: &str) -> Control {
    Control::open(Path::new(path))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|e| format!("{text}: {e}"))
}
