//! Remotes that are reached over the network, by a process of their own (crate `agentvfs-remote-worker`): the daemon has no
//! sockets to the outside and no runtime for them. It starts the process for a request and ends it with that.
//!
//! Credentials come with the request and go to the process over its socket: they are in no argument, environment or file. The
//! process's environment has nothing but what says how the network is reached.

use agentvfs_client::launch::own_program;
use agentvfs_client::protocol::Access;
use remote::bucket::wire;
use remote::bucket::worker::{Start, WorkerBucket};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Variables that say how the network is reached; in lower case, too, as other programs have it.
const VARIABLES: [&str; 5] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// What settings end with that name files.
const FILE: &str = "_token_file";

/// The bucket at a URL of the service; `options` are the remote's, and count more than what comes with the request.
pub fn bucket(url: &str, options: &BTreeMap<String, String>, access: &Access) -> WorkerBucket {
    let mut all = access.0.clone();
    all.extend(options.clone());
    let files = all.iter().filter(|(name, _)| name.ends_with(FILE));
    let program = Program {
        read: files.map(|(_, file)| file.into()).collect(),
    };
    WorkerBucket::new(Box::new(program), url, wire::Access(all))
}

/// How the process is started.
#[derive(Debug)]
struct Program {
    /// Files that it may read.
    read: Vec<OsString>,
}

impl Start for Program {
    fn start(&self) -> io::Result<(UnixStream, Child)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(own_program());
        command
            .arg0("agentvfs")
            .arg("remote-worker")
            .current_dir("/")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        for file in &self.read {
            command.arg("--read").arg(file);
        }
        for name in VARIABLES {
            for name in [name.to_owned(), name.to_lowercase()] {
                if let Some(value) = std::env::var_os(&name) {
                    command.env(name, value);
                }
            }
        }
        Ok((ours, command.spawn()?))
    }
}
