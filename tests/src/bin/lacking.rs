//! Runs a program on a kernel that seems to lack a system call: `lacking CALL PROGRAM [ARG…]`, where CALL is `landlock`
//! or `user-namespace`.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, program, rest @ ..] = args.as_slice() else {
        eprintln!("not CALL PROGRAM: {args:?}");
        return ExitCode::FAILURE;
    };
    let calls: &[libc::c_long] = match what.as_str() {
        "landlock" => &[libc::SYS_landlock_create_ruleset],
        "user-namespace" => &[libc::SYS_clone, libc::SYS_clone3],
        _ => {
            eprintln!("not a call: {what}");
            return ExitCode::FAILURE;
        }
    };
    let error = match calls
        .iter()
        .try_for_each(|call| tests::sys::without_call(*call))
    {
        Ok(()) => Command::new(program).args(rest).exec(),
        Err(error) => error,
    };
    eprintln!("{program}: {error}");
    ExitCode::FAILURE
}
