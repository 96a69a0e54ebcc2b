//! What a command or a tool means, and the way to ask for it.
//!
//! Puts options, environment and current directory together, connects when something is asked first, and starts
//! the daemon where none runs. Invariant: nothing is printed here, and what changes something is never asked twice.

use crate::connection::{Client, ClientError, Heard};
use crate::failure::{Failure, NO_DAEMON};
use crate::home::{Home, canonical, process_env};
use crate::infer::{Purpose, Surroundings, branch_meant};
use crate::launch::{Launch, connect_or_start, failed};
use crate::protocol::{
    Call, Fault, HandOverAnswer, Info, ListAnswer, MountChoice, Nothing, Start, StartAnswer,
};
use crate::seen::{self, Look};
use serde::de::DeserializeOwned;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What whoever asks says of it; what is left out is found in the surroundings.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The home.
    pub root: Option<PathBuf>,
    /// The workspace.
    pub workspace: Option<String>,
    /// The branch.
    pub branch: Option<String>,
    /// How a daemon is started where none runs.
    pub launch: Launch,
}

/// What a command or a tool asks through: options, surroundings, the connection.
pub struct Context {
    options: Options,
    home: Home,
    surroundings: Surroundings,
    client: Option<Client>,
    list: OnceCell<Vec<Info>>,
}

impl Context {
    /// Nothing is asked, and no daemon started, before something is asked for.
    pub fn new(options: Options) -> Result<Context, Failure> {
        let home = find_home(options.root.as_deref())?;
        let surroundings = Surroundings {
            option: options.workspace.clone(),
            variable: text_variable("AGENTVFS_WORKSPACE")?,
            cwd: current_directory(),
        };
        Ok(Context {
            options,
            home,
            surroundings,
            client: None,
            list: OnceCell::new(),
        })
    }

    /// Another one for the same, with a connection of its own.
    pub fn another(&self) -> Result<Context, Failure> {
        Context::new(self.options.clone())
    }

    /// Forgets the connection if the daemon has ended it.
    pub fn drop_dead_connection(&mut self) {
        if self.client.as_ref().is_some_and(|client| !client.is_open()) {
            self.client = None;
        }
    }

    /// What whoever asks said.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether something was ever kept in the home; an error where that cannot be told.
    pub fn is_home_used(&self) -> Result<bool, Failure> {
        let used = self.home.is_used();
        used.map_err(|e| no_home(Failure::new("cannot read the agentvfs home", e.to_string())))
    }

    /// What the command's surroundings say about the workspace.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The branch that is meant.
    pub fn branch(&self) -> Result<String, Failure> {
        let variable = text_variable("AGENTVFS_BRANCH")?;
        let cwd = self.surroundings.cwd.as_deref();
        let option = self.options.branch.as_deref();
        Ok(branch_meant(option, variable.as_deref(), cwd))
    }

    /// The workspace that is meant by a command that looks, where `word` names it if given.
    pub fn workspace(&mut self, word: Option<&str>) -> Result<String, Failure> {
        self.workspace_for(word, Purpose::Look)
    }

    /// The workspace that is meant by a command that changes something.
    pub fn workspace_to_change(&mut self, word: Option<&str>) -> Result<String, Failure> {
        self.workspace_for(word, Purpose::Change)
    }

    /// The workspace that holds the current directory, or the only one running where its project lies below.
    pub fn workspace_here(&mut self) -> Result<Option<String>, Failure> {
        self.list()?;
        let list = self.list.get().map_or(&[][..], Vec::as_slice);
        self.surroundings.here(list)
    }

    fn workspace_for(&mut self, word: Option<&str>, purpose: Purpose) -> Result<String, Failure> {
        if let Some(name) = self.surroundings.named(word)? {
            return Ok(name);
        }
        self.list()?;
        let list = self.list.get().map_or(&[][..], Vec::as_slice);
        self.surroundings.workspace(word, list, purpose)
    }

    /// All workspaces. No daemon is started where nothing was ever kept.
    pub fn list(&mut self) -> Result<&[Info], Failure> {
        if self.list.get().is_none() {
            let list = self.fetch_list()?;
            self.list.get_or_init(|| list);
        }
        Ok(self.list.get().map_or(&[][..], Vec::as_slice))
    }

    fn fetch_list(&mut self) -> Result<Vec<Info>, Failure> {
        if self.client.is_none() && !self.is_home_used()? {
            return Ok(Vec::new());
        }
        let answer: ListAnswer = self.ask("cannot list the workspaces", &Call::List(Nothing {}))?;
        Ok(answer.workspaces)
    }

    /// The workspace's entry in the list.
    pub fn info(&mut self, name: &str) -> Result<Option<Info>, Failure> {
        Ok(self.list()?.iter().find(|info| info.name == name).cloned())
    }

    /// A failure where what the daemon serves at a workspace's mount point is not what this process sees there.
    pub fn check_seen(&mut self, info: &Info, look: Look) -> Result<(), Failure> {
        if info.device.is_none() {
            return Ok(());
        }
        let daemon = self.client()?.daemon().pid;
        seen::check(info, look, daemon)
    }

    /// Asks for something that names paths in a workspace's mount: fails where this process does not see the
    /// mount there, before anything is done if it is mounted by then.
    pub fn ask_seen<R: DeserializeOwned>(
        &mut self,
        workspace: &str,
        what: &str,
        call: &Call,
    ) -> Result<R, Failure> {
        let is_checked = self.check_seen_now(workspace)?;
        let answer = self.ask(what, call)?;
        if !is_checked {
            self.check_seen_now(workspace)?;
        }
        Ok(answer)
    }

    /// Whether there was a mount to look for.
    pub fn check_seen_now(&mut self, workspace: &str) -> Result<bool, Failure> {
        self.list = OnceCell::new();
        let info = self.info(workspace)?.filter(|info| info.device.is_some());
        match &info {
            Some(info) => self.check_seen(info, Look::At).map(|()| true),
            None => Ok(false),
        }
    }

    /// Asks the daemon; `what` says what could not be done if it fails.
    pub fn ask<R: DeserializeOwned>(&mut self, what: &str, call: &Call) -> Result<R, Failure> {
        self.try_ask(what, call)?
            .map_err(|fault| failed(what, fault.into()))
    }

    /// The same, for who wants to know which fault the daemon finds.
    ///
    /// A daemon that has died may still hold its connections for a moment. So what the next one can be
    /// asked without harm is asked once more: what only looks, and what a daemon that is ending refused.
    pub fn try_ask<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
    ) -> Result<Result<R, Fault>, Failure> {
        let mut answer = self.client()?.call(call);
        let is_harmless = match answer {
            Err(ClientError::Ending) => true,
            Err(ClientError::Broken(_)) => call.only_looks(),
            _ => false,
        };
        if is_harmless {
            self.forget_client();
            answer = self.client()?.call(call);
        }
        match answer {
            Ok(answer) => Ok(Ok(answer)),
            Err(ClientError::Fault(fault)) => Ok(Err(fault)),
            Err(error) => Err(failed(what, error)),
        }
    }

    /// The same; `progress` hears how far the work is (done, total).
    pub fn ask_long<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<R, Failure> {
        let mut answer = self.client()?.call_with(call, progress);
        if matches!(answer, Err(ClientError::Ending)) {
            // It did nothing.
            self.forget_client();
            answer = self.client()?.call_with(call, progress);
        }
        answer.map_err(|e| failed(what, e))
    }

    /// Asks for something whose result comes in parts before the answer.
    pub fn ask_data<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<R, Failure> {
        let answer = self.client()?.call_hearing(call, &mut |heard| {
            if let Heard::Data(bytes) = heard {
                take(&bytes);
            }
        });
        answer.map_err(|e| failed(what, e))
    }

    /// Lets a daemon of another build hand over to one of this build, which mounts everything again.
    /// Where its mounts are in use it goes on as it is, and says why.
    pub fn renew_daemon(&mut self) -> Result<Option<Fault>, Failure> {
        if self.client()?.daemon().build == crate::identity::build() {
            return Ok(None);
        }
        let answer = match self.client()?.call(&Call::HandOver(Nothing {})) {
            Ok(answer) => answer,
            Err(ClientError::Fault(fault)) => return Ok(Some(fault)),
            Err(error) => return Err(failed("the daemon cannot hand over", error)),
        };
        let HandOverAnswer { workspaces } = answer;
        self.list = OnceCell::new();
        if let Some(client) = self.client.take() {
            client.wait_for_end();
        }
        for workspace in workspaces {
            let call = Call::Start(Start {
                workspace: workspace.clone(),
                base: None,
                named: false,
                mount: None,
                options: MountChoice::default(),
            });
            let _: StartAnswer = self.ask(&format!("cannot start {workspace} again"), &call)?;
        }
        Ok(None)
    }

    /// Connects anew for what is asked next.
    pub fn forget_client(&mut self) {
        self.client = None;
    }

    /// The connection; a daemon is started where none runs.
    pub fn client(&mut self) -> Result<&mut Client, Failure> {
        let client = match self.client.take() {
            Some(client) => client,
            None => connect_or_start(&self.home, &self.options.launch)?,
        };
        Ok(self.client.insert(client))
    }

    /// An absolute path without symbolic links for one that was given.
    pub fn absolute(&self, path: &Path) -> Result<PathBuf, Failure> {
        let absolute = std::path::absolute(path)
            .map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
        Ok(canonical(&absolute))
    }
}

/// The home that an option or the environment names.
pub fn find_home(root: Option<&Path>) -> Result<Home, Failure> {
    Home::find(root, &process_env).map_err(|e| {
        let failure = Failure::new("cannot find the agentvfs home", e.to_string());
        no_home(failure)
    })
}

fn no_home(failure: Failure) -> Failure {
    Failure {
        exit: NO_DAEMON,
        ..failure
    }
    .kind("home")
    .hint("set it with --root DIR or $AGENTVFS_HOME")
}

/// The current directory, also where it was removed: then what the kernel says that it was.
fn current_directory() -> Option<PathBuf> {
    let removed = || {
        let was = std::fs::read_link("/proc/self/cwd").ok()?;
        let was = was.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
        Some(PathBuf::from(OsStr::from_bytes(was)))
    };
    std::env::current_dir().ok().or_else(removed)
}

fn text_variable(name: &str) -> Result<Option<String>, Failure> {
    match process_env(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(Failure::usage(format!("${name} is not UTF-8"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{HasRef, HasRefAnswer, OnBranch};
    use serde_json::Value;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// A context whose daemon's connections get these answers, one list each, to their lines.
    fn served(connections: Vec<Vec<&'static str>>) -> (tempfile::TempDir, Context) {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            root: Some(dir.path().to_owned()),
            ..Options::default()
        };
        let context = Context::new(options).unwrap();
        let listener = UnixListener::bind(context.home().socket()).unwrap();
        std::thread::spawn(move || {
            for answers in connections {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                for answer in answers {
                    stream.read_line(&mut String::new()).unwrap();
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                }
                stream.read_line(&mut String::new()).unwrap();
            }
        });
        (dir, context)
    }

    const GREETING: &str =
        "{\"id\":1,\"result\":{\"protocol\":1,\"version\":\"x\",\"build\":\"x\",\"pid\":7}}\n";

    fn has_ref(context: &mut Context) -> Result<HasRefAnswer, Failure> {
        let call = Call::HasRef(HasRef {
            workspace: "w".to_owned(),
            branch: "main".to_owned(),
            name: "r".to_owned(),
        });
        context.ask("cannot look", &call)
    }

    #[test]
    fn what_only_looks_is_asked_again_where_the_daemon_died_meanwhile() {
        let answer = "{\"id\":2,\"result\":{\"exists\":true}}\n";
        let (_dir, mut context) = served(vec![vec![GREETING], vec![GREETING, answer]]);
        assert!(has_ref(&mut context).unwrap().exists);
        let (_dir, mut context) = served(vec![vec![GREETING], vec![GREETING]]);
        let failure = has_ref(&mut context).unwrap_err();
        assert!(failure.why.contains("the daemon ended"), "{failure:?}");
    }

    #[test]
    fn change_is_not_asked_for_twice() {
        let (_dir, mut context) = served(vec![vec![GREETING]]);
        let call = Call::Redo(OnBranch {
            workspace: "w".to_owned(),
            branch: "main".to_owned(),
        });
        let failure = context.ask::<Value>("cannot undo", &call).unwrap_err();
        assert!(failure.why.contains("the daemon ended"), "{failure:?}");
    }

    #[test]
    fn daemon_that_is_ending_did_nothing_and_the_next_is_asked() {
        let ending = "{\"id\":2,\"error\":{\"code\":-32001,\"message\":\"ending\"}}\n";
        let answer = "{\"id\":2,\"result\":{}}\n";
        let (_dir, mut context) = served(vec![vec![GREETING, ending], vec![GREETING, answer]]);
        let call = Call::Redo(OnBranch {
            workspace: "w".to_owned(),
            branch: "main".to_owned(),
        });
        context.ask::<Value>("cannot undo", &call).unwrap();
    }
}
