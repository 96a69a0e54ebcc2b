//! What the sandbox's processes may do: capabilities, system calls, signals and abstract sockets.
//!
//! Applied to process 1 before it starts the command, which inherits all of it.

use crate::error::{Doing, Error, Result};
use crate::own::OWN_PROC;
use crate::plan::{Net, Plan, Protection};
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Landlock's scopes, as they are told.
const SCOPES: &str = "landlock-scopes";
/// Landlock's rules about files, as they are told.
const RULES: &str = "landlock-files";
/// The filter of system calls, as it is told.
const SECCOMP: &str = "seccomp";
/// What the filter denies besides, as it is told.
const NO_NAMESPACES: &str = "no-user-namespaces";
/// Namespaces that a command can do without, as they are told.
pub const OPTIONAL_NAMESPACES: [&str; 2] = ["ipc-namespace", "uts-namespace"];

/// The layers that a plan asks for, as they are told; `root` where the caller is root.
pub fn asked(plan: &Plan, root: bool) -> Vec<&'static str> {
    let mut all = match root && plan.protection == Protection::ViewOnly {
        true => Vec::new(),
        false => vec!["user-namespace"],
    };
    all.extend(["mount-namespace", "pid-namespace"]);
    if plan.protection == Protection::ViewOnly {
        return all;
    }
    all.extend(OPTIONAL_NAMESPACES);
    all.extend([OWN_PROC, "no-new-privileges", SECCOMP, SCOPES]);
    if plan.net == Net::None {
        all.push("network-namespace");
    }
    if plan.strict {
        all.extend([RULES, NO_NAMESPACES]);
    }
    all
}

/// Applies all layers; `root` where the sandbox's user is root. With `strict`, which names what is writable, also those
/// that other sandboxes inside cannot do with. Gives those that the kernel lacks, each with why, if it may.
pub fn apply(root: bool, strict: Option<&[PathBuf]>, may_lack: bool) -> Result<Vec<String>> {
    rustix::thread::set_no_new_privs(true).doing(|| "setting no_new_privs".to_owned())?;
    drop_capabilities(kept(root)).doing(|| "dropping capabilities".to_owned())?;
    let denied = match (strict.is_some(), root) {
        (true, _) => libc::CLONE_NEWUSER,
        (false, true) => libc::CLONE_NEWCGROUP,
        (false, false) => 0,
    };
    let filter = filter(denied).map_err(|e| step(format!("compiling the seccomp filter ({e})")))?;
    let mut done = vec![(SCOPES, scope())];
    if let Some(writable) = strict {
        done.push((RULES, restrict_files(writable)));
    }
    // The last one: it may deny what the others need.
    let filtered = seccompiler::apply_filter(&filter).map_err(|e| e.to_string());
    if strict.is_some() {
        done.push((NO_NAMESPACES, filtered.clone()));
    }
    done.push((SECCOMP, filtered));
    let mut lacking = Vec::new();
    for (layer, done) in done {
        match done {
            Ok(()) => {}
            Err(why) if may_lack => lacking.push(format!("{layer}: {why}")),
            Err(why) => return Err(Error::Lacking(format!("{layer}: {why}"))),
        }
    }
    Ok(lacking)
}

/// Takes all capabilities from a process that has them in its user namespace alone.
pub fn drop_all() -> Result<()> {
    drop_capabilities(CapabilitySet::empty()).doing(|| "dropping capabilities".to_owned())
}

fn step(what: String) -> Error {
    Error::Step {
        what,
        errno: Errno::NOTSUP,
    }
}

/// Root keeps what makes the project of another owner usable, and what maps root in a user namespace, as sandboxes that
/// agents make for their commands do (user_namespaces(7)); nothing that reaches beyond files.
fn kept(root: bool) -> CapabilitySet {
    match root {
        true => {
            CapabilitySet::CHOWN
                | CapabilitySet::DAC_OVERRIDE
                | CapabilitySet::FOWNER
                | CapabilitySet::FSETID
                | CapabilitySet::SETFCAP
        }
        false => CapabilitySet::empty(),
    }
}

fn drop_capabilities(kept: CapabilitySet) -> rustix::io::Result<()> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) if !kept.contains(one) => {
                rustix::thread::remove_capability_from_bounding_set(one)?;
            }
            Ok(_) => {}
            // The kernel has no more of them.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(errno),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Keeps signals, and connections to abstract sockets, inside: Landlock's scopes. No rules about files, which
/// would forbid the sandboxes that agents make for their own commands.
fn scope() -> std::result::Result<(), String> {
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket)
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.restrict_self())
        .map_err(|e| e.to_string())?;
    is_enforced(restricted.ruleset)
}

fn is_enforced(status: RulesetStatus) -> std::result::Result<(), String> {
    match status {
        RulesetStatus::FullyEnforced => Ok(()),
        _ => Err("it is not enforced".to_owned()),
    }
}

/// Lets files be written to in these directories alone, and no mount be made or changed: Landlock's rules about files.
/// What the mounts allow is not more for it.
fn restrict_files(writable: &[PathBuf]) -> std::result::Result<(), String> {
    let all = AccessFs::from_all(FILES);
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .and_then(|rules| rules.create())
        .and_then(|rules| rules.add_rules(path_beneath_rules(["/"], AccessFs::from_read(FILES))))
        .and_then(|rules| rules.add_rules(path_beneath_rules(writable, all)))
        .and_then(|rules| rules.restrict_self())
        .map_err(|e| e.to_string())?;
    is_enforced(restricted.ruleset)
}

/// Of the Landlock that has rules for every access to a file that there is; scopes need a later one.
const FILES: ABI = ABI::V5;

/// ioctl(2) requests that type into a terminal.
const TYPING: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Denied altogether.
const DENIED: [libc::c_long; 7] = [
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
];

/// Not there: who sees that takes other calls. io_uring(7) opens and connects where neither this filter nor
/// tracepoints of system calls see it.
const ABSENT: [libc::c_long; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// userfaultfd(2): only faults of user mode.
const UFFD_USER_MODE_ONLY: u64 = 1;

/// Calls that would make a namespace, with where their flags are.
const NAMESPACES: [(libc::c_long, u8); 2] = [(libc::SYS_unshare, 0), (libc::SYS_clone, 0)];

/// Denies what makes namespaces of one kind; none can be entered where these are user namespaces.
fn without_namespaces(
    kind: libc::c_int,
    rules: &mut BTreeMap<i64, Vec<SeccompRule>>,
) -> std::result::Result<(), seccompiler::BackendError> {
    let flag = kind as u64;
    for (call, at) in NAMESPACES {
        let is = SeccompCmpOp::MaskedEq(flag);
        let is = SeccompCondition::new(at, SeccompCmpArgLen::Qword, is, flag)?;
        rules.insert(call, vec![SeccompRule::new(vec![is])?]);
    }
    if kind == libc::CLONE_NEWUSER {
        rules.insert(libc::SYS_setns, Vec::new());
    }
    Ok(())
}

/// The filter of system calls; `denied` is the kind of namespace that cannot be made, or 0. Who is root in a
/// cgroup namespace of his own can mount hierarchies, whose files belong to root, and so reach groups of the machine.
fn filter(denied: libc::c_int) -> std::result::Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    rules.extend(DENIED.map(|call| (call, Vec::new())));
    let mut typing = Vec::new();
    for request in TYPING {
        // The kernel looks at the lower half alone.
        let is = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?;
        typing.push(SeccompRule::new(vec![is])?);
    }
    rules.insert(libc::SYS_ioctl, typing);
    let mode = SeccompCmpOp::MaskedEq(UFFD_USER_MODE_ONLY);
    let kernel_too = SeccompCondition::new(0, SeccompCmpArgLen::Dword, mode, 0)?;
    rules.insert(
        libc::SYS_userfaultfd,
        vec![SeccompRule::new(vec![kernel_too])?],
    );
    if denied != 0 {
        without_namespaces(denied, &mut rules)?;
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        arch,
    )?;
    let mut program = without_other_numbers();
    program.extend(without(&ABSENT));
    if denied != 0 {
        // Its flags are in memory, where no filter sees them.
        program.extend(without(&[libc::SYS_clone3]));
    }
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// On x86-64 a call may also be made by its x32 number, which no rule above names: they do not exist inside.
fn without_other_numbers() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    // Offsets in struct seccomp_data (seccomp(2)).
    const NR: u32 = 0;
    const ARCH: u32 = 4;
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    let code = |bits: u32| bits as u16;
    let of = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    vec![
        of(load, 0, 0, ARCH),
        of(
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            0,
            3,
            AUDIT_ARCH_X86_64,
        ),
        of(load, 0, 0, NR),
        of(code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K), 0, 1, X32),
        of(
            code(libc::BPF_RET | libc::BPF_K),
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        ),
    ]
}

/// These calls do not exist inside. Programs that know others take those.
fn without(calls: &[libc::c_long]) -> BpfProgram {
    // Offset of the call's number in struct seccomp_data (seccomp(2)).
    const NR: u32 = 0;
    let of = |code: u32, jt, jf, k| sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = vec![of(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NR)];
    for call in calls {
        let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let no = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        program.push(of(is, 0, 1, *call as u32));
        program.push(of(libc::BPF_RET | libc::BPF_K, 0, 0, no));
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use rustix::process::{WaitOptions, waitpid};

    /// Exit status of what is done in a process that has the filter.
    fn filtered(work: impl FnOnce() -> i32) -> Option<i32> {
        let program = filter(libc::CLONE_NEWUSER).unwrap();
        let Some(child) = sys::fork().unwrap() else {
            sys::exit(match seccompiler::apply_filter(&program) {
                Ok(()) => work(),
                Err(_) => 99,
            });
        };
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status()
    }

    #[test]
    fn the_filter_denies_what_it_names_and_nothing_else() {
        let tty = || match rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, 0.into()) {
            Ok(fd) => i32::from(matches!(rustix::termios::tcgetattr(fd), Err(Errno::NOTTY))),
            Err(_) => 98,
        };
        assert_eq!(filtered(tty), Some(1), "other requests of ioctl");
        let key = || i32::from(std::fs::read_dir("/").is_ok());
        assert_eq!(filtered(key), Some(1), "files");
    }

    #[test]
    fn root_keeps_five_capabilities_and_others_none() {
        assert_eq!(kept(true).bits().count_ones(), 5);
        assert!(kept(false).is_empty());
    }
}
