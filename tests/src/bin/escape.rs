//! A process that tries to reach out of its sandbox: `escape KIND ON`. Prints a line for each attempt, and fails if
//! one was not refused. `escape mapped PROGRAM…` becomes PROGRAM in a user namespace that the run's socket has mapped.

use std::process::ExitCode;
use tests::attempt::{attempts, become_mapped, is_refusal};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mapped, program @ ..] = &args[..]
        && mapped == "mapped"
    {
        eprintln!("mapped: {}", become_mapped(program));
        return ExitCode::FAILURE;
    }
    let kind = args.first().map_or("", String::as_str);
    let on = args.get(1).map_or("", String::as_str);
    let Some(tried) = attempts(kind, on) else {
        eprintln!("not KIND ON: {args:?}");
        return ExitCode::FAILURE;
    };
    let mut all_refused = true;
    for (name, result) in tried {
        match result {
            Err(error) if is_refusal(&error) => println!("{name}: refused: {error}"),
            other => {
                all_refused = false;
                println!("{name}: NOT REFUSED: {other:?}");
            }
        }
    }
    match all_refused {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
