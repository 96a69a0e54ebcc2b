//! Names of programs are those of the moment of the change: however fast a process executes one program after the other,
//! events tell of each by its own name, and a rule about names is not got round.
#![allow(clippy::unwrap_used)]

use agentvfs_client::protocol::{EventLine, LOST};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tests::env::Env;
use tests::skip::{Want, skip};

/// Names by which the program is executed in turn: what one may not do, the ones before and after it may.
const NAMES: [&str; 8] = [
    "good-0", "bad-1", "good-2", "bad-3", "good-4", "bad-5", "good-6", "bad-7",
];
/// What programs of some names may not do.
const RULES: &str = "[[rule]]\nname = \"bad\"\ncommand = \"bad-*\"\nverdict = \"deny\"\n";
/// Processes, one after the other.
const PROCESSES: usize = 250;
/// Programs that each process executes.
const PROGRAMS: usize = 16;

/// Where the program begins in memory, and the bytes of what is before it in its file: the headers of ELF.
const BASE: u64 = 0x40_0000;
const HEAD_BYTES: u64 = 64 + 56;
/// `EM_X86_64` (elf.h).
const MACHINE: u16 = 62;

/// `mkdir(argv[1], 0700)`, and then `execve(argv[2], &argv[2], NULL)` if there is that. Without a library, so that less time passes
/// from the execution to the first request than with any other program.
#[rustfmt::skip]
const CODE: [u8; 53] = [
    0x48, 0x8b, 0x7c, 0x24, 0x10,   // mov rdi, [rsp + 16]
    0xbe, 0xc0, 0x01, 0x00, 0x00,   // mov esi, 0700
    0xb8, 83, 0x00, 0x00, 0x00,     // mov eax, SYS_mkdir
    0x0f, 0x05,                     // syscall
    0x48, 0x8b, 0x7c, 0x24, 0x18,   // mov rdi, [rsp + 24]
    0x48, 0x85, 0xff,               // test rdi, rdi
    0x74, 0x13,                     // jz exit
    0x48, 0x8d, 0x74, 0x24, 0x18,   // lea rsi, [rsp + 24]
    0x31, 0xd2,                     // xor edx, edx
    0xb8, 59, 0x00, 0x00, 0x00,     // mov eax, SYS_execve
    0x0f, 0x05,                     // syscall
    0xbf, 0x01, 0x00, 0x00, 0x00,   // mov edi, 1
    // exit:
    0xb8, 60, 0x00, 0x00, 0x00,     // mov eax, SYS_exit
    0x0f, 0x05,                     // syscall
];

/// The program as a file (elf(5)): one segment, which is the whole file.
fn program() -> Vec<u8> {
    let bytes = HEAD_BYTES + CODE.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let short =
        |file: &mut Vec<u8>, all: &[u16]| all.iter().for_each(|n| file.extend(n.to_le_bytes()));
    let long =
        |file: &mut Vec<u8>, all: &[u64]| all.iter().for_each(|n| file.extend(n.to_le_bytes()));
    // ET_EXEC, the machine and the version; where it begins, program headers, no sections, no flags.
    short(&mut file, &[2, MACHINE, 1, 0]);
    long(&mut file, &[BASE + HEAD_BYTES, 64, 0]);
    short(&mut file, &[0, 0, 64, 56, 1, 0, 0, 0]);
    // PT_LOAD, to be read and executed.
    short(&mut file, &[1, 0, 5, 0]);
    long(&mut file, &[0, BASE, BASE, bytes, bytes, 0x1000]);
    assert_eq!(file.len() as u64, HEAD_BYTES);
    file.extend(CODE);
    file
}

/// The program by all its names.
fn programs(dir: &Path) -> Vec<PathBuf> {
    fs::create_dir(dir).unwrap();
    let first = dir.join(NAMES[0]);
    fs::write(&first, program()).unwrap();
    fs::set_permissions(&first, fs::Permissions::from_mode(0o755)).unwrap();
    let name = |name: &&str| {
        let path = dir.join(name);
        if path != first {
            fs::hard_link(&first, &path).unwrap();
        }
        path
    };
    NAMES.iter().map(name).collect()
}

fn events(env: &Env, args: &[&str]) -> Vec<EventLine> {
    let args = [&["watch", "--no-follow", "-w", "project"], args].concat();
    let text = env.told(env.command(&env.path(""), &args)).ok();
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter(|event: &EventLine| event.op != LOST).collect()
}

/// Has a process execute the program by one name after the other, the first of which is that of the process's number; gives what
/// each was to create: its name and a number.
fn execute(env: &Env, programs: &[PathBuf], process: usize) -> Vec<String> {
    let at = env.mountpoint();
    let of = |n: usize| (process + n) % NAMES.len();
    let created: Vec<String> = (0..PROGRAMS)
        .map(|n| format!("{}.{process}.{n}", NAMES[of(n)]))
        .collect();
    let mut command = env.program(programs[of(0)].to_str().unwrap());
    for (n, name) in created.iter().enumerate() {
        if n > 0 {
            command.arg(&programs[of(n)]);
        }
        command.arg(at.join(name));
    }
    assert!(command.status().unwrap().success());
    created
}

#[test]
fn each_change_is_told_and_judged_by_the_name_of_the_program_that_made_it() {
    if !cfg!(target_arch = "x86_64") {
        return skip(Want::Machine, "the program is one for x86-64");
    }
    let Some(env) = Env::new() else { return };
    env.start();
    let programs = programs(&env.path("programs"));
    let rules = env.path("policy.toml");
    fs::write(&rules, RULES).unwrap();
    let set = ["policy", "set", "-w", "project", rules.to_str().unwrap()];
    env.told(env.command(&env.path(""), &set)).ok();
    events(&env, &[]);
    let mut created = BTreeSet::new();
    for process in 0..PROCESSES {
        created.extend(execute(&env, &programs, process));
    }
    assert_eq!(created.len(), PROCESSES * PROGRAMS);
    let told = events(&env, &["--since", "0", "--op", "create,verdict"]);
    let wrong = told.iter().filter(|event| {
        let is_denied = event.extra.result == "denied";
        let is_own = event.path.split('.').next() == Some(&event.extra.comm);
        !is_own || is_denied != event.path.starts_with("bad-")
    });
    let wrong: Vec<_> = wrong
        .map(|event| (&event.path, &event.extra.comm))
        .collect();
    let (some, count) = (&wrong[..wrong.len().min(9)], wrong.len());
    assert!(wrong.is_empty(), "{count} of {}: {some:?}", told.len());
    let paths: BTreeSet<String> = told.iter().map(|event| event.path.clone()).collect();
    assert_eq!((told.len(), &paths), (created.len(), &created));
    let shown = fs::read_dir(env.mountpoint()).unwrap();
    let names = shown.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_ours = |name: &String| NAMES.iter().any(|ours| name.starts_with(ours));
    let there: BTreeSet<String> = names.filter(is_ours).collect();
    let may = created.into_iter().filter(|name| name.starts_with("good-"));
    assert_eq!(there, may.collect());
}
