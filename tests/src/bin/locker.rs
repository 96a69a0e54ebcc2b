//! A process that takes a lock and keeps it until its standard input ends: `locker HOW PATH`, where
//! HOW is `flock`, `process`, `open-file` or `lease`. Prints `held`, or `refused` and ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Result, Write};
use std::process::ExitCode;
use tests::sys::{self, RangeLock};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [how, path] = args.as_slice() else {
        eprintln!("not HOW PATH: {args:?}");
        return ExitCode::FAILURE;
    };
    match take(how, path) {
        Ok(file) => {
            say("held");
            // Its end is what is waited for.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(file);
        }
        Err(error) => say(&format!("refused: {error}")),
    }
    ExitCode::SUCCESS
}

fn say(word: &str) {
    let mut out = std::io::stdout();
    // Nobody listens any more: the test has failed.
    let _ = writeln!(out, "{word}").and_then(|()| out.flush());
}

fn take(how: &str, path: &str) -> Result<File> {
    if how == "lease" {
        let file = File::open(path)?;
        return sys::take_read_lease(&file).map(|()| file);
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let lock = RangeLock {
        of_open_file: how == "open-file",
        exclusive: true,
        start: 10,
        len: 10,
    };
    match how {
        "flock" => file.try_lock().map_err(Into::into),
        _ => sys::try_lock(&file, lock),
    }
    .map(|()| file)
}
