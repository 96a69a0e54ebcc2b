//! The commands: each turns words into requests and answers into output.
//!
//! One file per verb. Invariant: wrong usage is found before the daemon is asked to do anything.

mod apply;
mod branch;
mod cancellable;
mod checkpoint;
mod completions;
mod config;
mod delete;
mod diff;
mod doctor;
mod export;
mod files;
mod fs;
mod fsck;
mod gc;
mod import;
mod init;
mod kv;
mod list;
mod log;
mod patch;
mod place;
mod restore;
mod rollback;
mod serve;
mod session;
mod start;
mod stats;
mod status;
mod stop;
mod timeline;
mod tool;
mod tool_exec;
mod undo;

pub use files::State;
pub use rollback::moment;
pub use timeline::object as timeline_object;

use crate::cli::{Cli, Command, Global, Verb};
use crate::client::{Client, ClientError, Heard};
use crate::exit::{Failure, NO_DAEMON};
use crate::home::{Home, process_env};
use crate::infer::{Purpose, Surroundings, branch_meant};
use crate::launch::{connect_or_start, failed};
use crate::output::{Bar, Facts, warn};
use crate::patharg::{PathError, Places, inside};
use crate::protocol::{
    Bytes, Call, Fault, HandOverAnswer, Info, ListAnswer, MountChoice, Nothing, Start, StartAnswer,
};
use crate::seen::{self, Look};
use serde::de::DeserializeOwned;
use std::cell::OnceCell;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub use fsck::of_report;

/// Runs a command and gives its exit status.
pub fn run(cli: Cli) -> Result<u8, Failure> {
    if cli.global.verbose && !matches!(cli.command, Command::Daemon) {
        say_what_is_done();
    }
    match cli.command {
        Command::Completions { shell } => completions::run(shell),
        Command::Doctor(args) => doctor::run(&args, &cli.global),
        Command::Branch(verb) => branch::run(verb, &mut Context::new(cli.global)?),
        Command::Session(verb) => session::run(verb, &mut Context::new(cli.global)?),
        Command::Serve(verb) => serve::run(verb, Context::new(cli.global)?),
        Command::Fs(verb) => fs::run(verb, &mut Context::new(cli.global)?),
        Command::Export(args) => export::run(&args, &mut Context::new(cli.global)?),
        Command::Import(args) => import::run(&args, &mut Context::new(cli.global)?),
        Command::Tool(verb) => tool::run(verb, &mut Context::new(cli.global)?),
        Command::Timeline(args) => timeline::run(&args, &mut Context::new(cli.global)?),
        Command::Blame(args) => timeline::blame(&args, &mut Context::new(cli.global)?),
        Command::Kv(verb) => kv::run(verb, &mut Context::new(cli.global)?),
        Command::Gc(args) => gc::run(&args, &mut Context::new(cli.global)?),
        Command::Stats => stats::run(&mut Context::new(cli.global)?),
        Command::Fsck(args) => fsck::run(&args, &mut Context::new(cli.global)?),
        Command::Config(args) => config::run(&args, &mut Context::new(cli.global)?),
        Command::PassOn => tool_exec::pass_on(),
        Command::Daemon => Ok(crate::daemon::run(find_home(&cli.global)?)),
        Command::Workspace(verb) => run_verb(verb, &mut Context::new(cli.global)?),
    }
}

/// Has the client's own log written to standard error: `--verbose`.
fn say_what_is_done() {
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(crate::output::stderr_colour())
        .with_writer(std::io::stderr);
    // Only one logger can be set; a second attempt would mean that there is one already.
    let _ = log.try_init();
}

fn run_verb(verb: Verb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        Verb::Init(args) => init::run(&args, context),
        Verb::Start(args) => start::run(&args, context),
        Verb::Stop(args) => stop::run(&args, context),
        Verb::Status(args) => status::run(&args, context),
        Verb::List(args) => list::run(&args, context),
        Verb::Delete(args) => delete::run(&args, context),
        Verb::Checkpoint(args) => checkpoint::run(&args, context),
        Verb::Rollback(args) => rollback::run(&args, context),
        Verb::Restore(args) => restore::run(&args, context),
        Verb::Undo(args) => undo::back(&args, context),
        Verb::Redo(args) => undo::forward(&args, context),
        Verb::Log(args) => log::run(&args, context),
        Verb::Diff(args) => diff::run(&args, context),
        Verb::Apply(args) => apply::apply(&args, context),
        Verb::Update(args) => apply::update(&args, context),
    }
}

fn find_home(global: &Global) -> Result<Home, Failure> {
    Home::find(global.root.as_deref(), &process_env).map_err(|e| {
        let failure = Failure::new("no agentvfs home can be found", e.to_string());
        no_home(failure)
    })
}

fn no_home(failure: Failure) -> Failure {
    Failure {
        exit: NO_DAEMON,
        ..failure
    }
    .kind("home")
    .hint("give one with --root DIR or $AGENTVFS_HOME")
}

/// What the commands share: options, surroundings, the connection.
pub struct Context {
    global: Global,
    home: Home,
    surroundings: Surroundings,
    client: Option<Client>,
    list: OnceCell<Vec<Info>>,
}

impl Context {
    fn new(global: Global) -> Result<Context, Failure> {
        let home = find_home(&global)?;
        let surroundings = Surroundings {
            option: global.workspace.clone(),
            variable: text_variable("AGENTVFS_WORKSPACE")?,
            cwd: current_directory(),
        };
        Ok(Context {
            global,
            home,
            surroundings,
            client: None,
            list: OnceCell::new(),
        })
    }

    /// Another one for the same, with a connection of its own.
    pub fn another(&self) -> Result<Context, Failure> {
        Context::new(self.global.clone())
    }

    /// Forgets the connection if the daemon has ended it.
    pub fn drop_dead_connection(&mut self) {
        if self.client.as_ref().is_some_and(|client| !client.is_open()) {
            self.client = None;
        }
    }

    /// Whether `--json` was given.
    pub fn json(&self) -> bool {
        self.global.json
    }

    /// The home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Whether something was ever kept in the home; an error where that cannot be told.
    pub fn is_home_used(&self) -> Result<bool, Failure> {
        let used = self.home.is_used();
        used.map_err(|e| {
            no_home(Failure::new(
                "the agentvfs home cannot be read",
                e.to_string(),
            ))
        })
    }

    /// What the command's surroundings say about the workspace.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The branch that is meant.
    pub fn branch(&self) -> Result<String, Failure> {
        let variable = text_variable("AGENTVFS_BRANCH")?;
        let cwd = self.surroundings.cwd.as_deref();
        let option = self.global.branch.as_deref();
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

    /// The same with a progress bar.
    pub fn ask_long<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        doing: &'static str,
    ) -> Result<R, Failure> {
        let mut bar = Bar::new(doing);
        let answer = self
            .client()?
            .call_with(call, &mut |done, total| bar.set(done, total));
        drop(bar);
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
    /// Where its mounts are in use it goes on as it is.
    pub fn renew_daemon(&mut self) -> Result<(), Failure> {
        if self.client()?.daemon().build == crate::identity::build() {
            return Ok(());
        }
        let answer = match self.client()?.call(&Call::HandOver(Nothing {})) {
            Ok(answer) => answer,
            Err(ClientError::Fault(fault)) => {
                warn(&format!(
                    "the daemon is of another build and goes on as it is: {}",
                    fault.message
                ));
                return Ok(());
            }
            Err(error) => return Err(failed("the daemon cannot hand over", error)),
        };
        let HandOverAnswer { workspaces } = answer;
        (self.client, self.list) = (None, OnceCell::new());
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
        Ok(())
    }

    /// Connects anew for what is asked next.
    pub fn forget_client(&mut self) {
        self.client = None;
    }

    fn client(&mut self) -> Result<&mut Client, Failure> {
        let client = match self.client.take() {
            Some(client) => client,
            None => connect_or_start(&self.home, self.global.verbose)?,
        };
        Ok(self.client.insert(client))
    }

    /// An absolute path without symbolic links for one that was given.
    pub fn absolute(&self, path: &std::path::Path) -> Result<PathBuf, Failure> {
        let absolute = std::path::absolute(path)
            .map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
        Ok(crate::home::canonical(&absolute))
    }
}

/// The current directory, also where it was removed: then what the kernel says that it was.
fn current_directory() -> Option<PathBuf> {
    let removed = || {
        let was = std::fs::read_link("/proc/self/cwd").ok()?;
        let was = was.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(was)))
    };
    std::env::current_dir().ok().or_else(removed)
}

fn text_variable(name: &str) -> Result<Option<String>, Failure> {
    match process_env(name).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(Failure::usage(format!("${name} is not UTF-8"))),
    }
}

/// The paths, relative to the workspace's root.
/// Wrong usage where one leads out of the workspace or is its root.
fn paths(given: &[PathBuf], workspace: &str, context: &mut Context) -> Result<Vec<Bytes>, Failure> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let Some(info) = context.info(workspace)? else {
        // The daemon's own answer about a workspace that does not exist is the better one.
        return Ok(given
            .iter()
            .map(|path| Bytes::from(path.as_path()))
            .collect());
    };
    let cwd = context.surroundings().cwd.clone();
    let places = Places {
        mount: info.mount.path(),
        base: info.base.path(),
        cwd: cwd.as_deref(),
    };
    given
        .iter()
        .map(|path| inside(path, places).map(Bytes).map_err(bad_path))
        .collect()
}

/// A path, relative to the workspace's root; empty for the root itself.
fn path_or_root(
    given: &std::path::Path,
    workspace: &str,
    context: &mut Context,
) -> Result<Bytes, Failure> {
    let info = context.info(workspace)?;
    let cwd = context.surroundings().cwd.clone();
    let places = info.as_ref().map(|info| Places {
        mount: info.mount.path(),
        base: info.base.path(),
        cwd: cwd.as_deref(),
    });
    match places.map(|places| inside(given, places)) {
        Some(Ok(path)) => Ok(Bytes(path)),
        Some(Err(PathError::Root(_))) => Ok(Bytes(Vec::new())),
        Some(Err(e)) => Err(bad_path(e)),
        // The daemon's own answer about a workspace that does not exist is the better one.
        None => Ok(Bytes::from(given)),
    }
}

fn bad_path(error: PathError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        PathError::Root(_) => failure.hint("leave out --path to mean all of it"),
        PathError::Outside(..) => {
            failure.hint("paths count from the workspace's root, or from here in the mount")
        }
    }
}

/// The facts that `init`, `start` and `status` begin with.
fn workspace_facts(info: &Info, branch: &str, home: &Home) -> Facts {
    let mut facts = Facts::default();
    facts
        .add("name", info.name.as_bytes())
        .add("mount", &info.mount.0)
        .add(
            "view",
            info.mount
                .path()
                .join(".agentvfs/view")
                .as_os_str()
                .as_bytes(),
        )
        .add("socket", home.socket().as_os_str().as_bytes())
        .add("store", home.root().as_os_str().as_bytes())
        .add("base", &info.base.0)
        .add("branch", branch.as_bytes())
        .add("status", info.status.word().as_bytes());
    facts
}

/// `KEY=VALUE` as key and value.
fn key_value(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("{text:?} is not KEY=VALUE"))),
    }
}

/// Checks a new name by the engine's rules before anything is asked.
fn check_name(checked: engine::Result<()>) -> Result<(), Failure> {
    checked.map_err(|e| Failure::usage(e.to_string()))
}

/// How a commit's id is printed.
fn id_or_pending(commit: Option<&str>) -> &str {
    commit.unwrap_or("pending")
}

/// The beginning of an id, for people.
pub fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// At most one word for the workspace, and the words after it, for verbs where a second word is
/// needed to make the first the workspace.
fn split_two(words: &[String], named: bool) -> Result<(Option<&str>, Option<&str>), Failure> {
    match words {
        [] => Ok((None, None)),
        [one] => Ok((None, Some(one))),
        [first, second] if !named => Ok((Some(first), Some(second))),
        _ => Err(Failure::usage(
            "too many words: the workspace is named by --workspace already",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{HasRef, HasRefAnswer, OnBranch};
    use clap::Parser;
    use serde_json::Value;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// A context whose daemon's connections get these answers, one list each, to their lines.
    fn served(connections: Vec<Vec<&'static str>>) -> (tempfile::TempDir, Context) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        let cli = Cli::parse_from(["agentvfs", "--root", root, "workspace", "list"]);
        let context = Context::new(cli.global).unwrap();
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

    #[test]
    fn second_word_makes_the_first_the_workspace() {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(split_two(&words(""), false).unwrap(), (None, None));
        assert_eq!(split_two(&words("l"), false).unwrap(), (None, Some("l")));
        assert_eq!(
            split_two(&words("w l"), false).unwrap(),
            (Some("w"), Some("l"))
        );
        assert!(split_two(&words("w l"), true).is_err());
        assert_eq!(split_two(&words("l"), true).unwrap(), (None, Some("l")));
    }

    #[test]
    fn metadata_needs_a_key() {
        assert_eq!(key_value("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert_eq!(key_value("a=").unwrap(), ("a".into(), String::new()));
        assert!(key_value("a").is_err() && key_value("=b").is_err());
    }
}
