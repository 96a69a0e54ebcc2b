//! What the process may do: the network, and a few files. It has no privileges to gain, leaves no core, and no other process
//! of its user reads its memory, which has credentials.

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    path_beneath_rules,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// What is read to find hosts, to check certificates, and by the C library when it looks up names.
const READ: [&str; 17] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/localtime",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/lib",
    "/lib",
    "/lib64",
];

/// Confines this process: it reads files that any program needs for the network, and `more`, such as the file with a token.
/// A kernel without Landlock leaves out the rules about files.
///
/// # Errors
/// What the system says.
pub fn confine(more: &[PathBuf]) -> Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(Resource::Core, none)?;
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    let named = named.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let all: Vec<PathBuf> = READ
        .iter()
        .map(|path| Path::new(path).to_owned())
        .chain(named)
        .chain(more.iter().cloned())
        .filter(|path| path.exists())
        .collect();
    let abi = ABI::V3;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(&all, AccessFs::from_read(abi))))
        .and_then(|rules| rules.restrict_self())
        .map_err(Error::other)?;
    Ok(())
}
