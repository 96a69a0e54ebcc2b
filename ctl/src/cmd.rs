//! The commands: each turns words into requests and answers into output.
//!
//! One file per verb. Invariant: wrong usage is found before the daemon is asked to do anything.

mod agent;
mod agents;
mod apply;
mod blame;
mod branch;
mod cancellable;
mod changes;
mod checkpoint;
mod completions;
mod config;
mod delete;
mod diff;
mod doctor;
mod export;
mod fs;
mod fsck;
mod gc;
mod here;
pub mod hook;
mod import;
mod init;
mod kv;
mod list;
mod log;
mod man;
mod patch;
mod paths;
mod place;
mod policy;
mod quickstart;
mod remote;
mod restore;
mod rollback;
mod run;
mod serve;
mod session;
mod skill;
mod start;
mod stats;
mod status;
mod stop;
mod timeline;
mod tool;
mod tool_exec;
mod transfer;
mod undo;
mod watch;
mod words;

use crate::cli::{Cli, Command, Global, Verb};
use crate::output::{Bar, bar, warn};
use crate::signals::{Interrupted, on_interrupt};
use agentvfs_client::context::{self, Options};
use agentvfs_client::failure::Failure;
use agentvfs_client::keeper;
use agentvfs_client::launch::{Launch, Program};
use agentvfs_client::protocol::Call;
use agentvfs_picture::BarEnding;
use paths::{path_or_root, paths};
use serde::de::DeserializeOwned;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tracing_subscriber::filter::LevelFilter;
use words::{check_name, id_or_pending, key_value, split_two, workspace_facts};

/// Runs a command and gives its exit status.
pub fn run(cli: Cli) -> Result<u8, Failure> {
    if cli.global.verbose && !matches!(cli.command, Command::Daemon | Command::Keeper) {
        log_to_stderr(LevelFilter::DEBUG);
    }
    match cli.command {
        Command::Completions(args) => completions::run(&args, cli.global.json),
        Command::Man(verb) => man::run(&verb, cli.global.json),
        Command::Agent(verb) => agent::run(verb, cli.global),
        Command::Quickstart(args) => quickstart::run(&args, cli.global),
        Command::Hook { agent } => Ok(hook::run(&agent, cli.global.root.as_deref())),
        Command::Skill => skill::run(cli.global.json),
        Command::Doctor(args) => doctor::run(&args, &cli.global),
        Command::Daily(verb) | Command::Workspace(verb) => {
            run_verb(verb, &mut Context::new(cli.global)?)
        }
        Command::DailyBranch(verb) => branch::daily(verb, &mut Context::new(cli.global)?),
        Command::Here => here::run(&mut Context::new(cli.global)?),
        Command::Branch(verb) => branch::run(verb, &mut Context::new(cli.global)?),
        Command::Run(args) => run::run(&args, &mut Context::new(cli.global)?),
        Command::Session(verb) => session::run(verb, &mut Context::new(cli.global)?),
        Command::Serve(verb) => serve::run(verb, Context::new(cli.global)?),
        Command::Fs(verb) => fs::run(verb, &mut Context::new(cli.global)?),
        Command::Export(args) => export::run(&args, &mut Context::new(cli.global)?),
        Command::Import(args) => import::run(&args, &mut Context::new(cli.global)?),
        Command::Tool(verb) => tool::run(verb, &mut Context::new(cli.global)?),
        Command::Timeline(args) => timeline::run(&args, &mut Context::new(cli.global)?),
        Command::Blame(args) => blame::run(&args, &mut Context::new(cli.global)?),
        Command::Watch(args) => watch::run(&args, &mut Context::new(cli.global)?),
        Command::Policy(verb) => policy::run(verb, cli.global),
        Command::Remote(verb) => remote::run(verb, &mut Context::new(cli.global)?),
        Command::Push(args) => transfer::push(args, &mut Context::new(cli.global)?),
        Command::Fetch(args) => transfer::fetch(args, &mut Context::new(cli.global)?),
        Command::Pull(args) => transfer::pull(args, &mut Context::new(cli.global)?),
        Command::Clone(args) => transfer::clone(args, &mut Context::new(cli.global)?),
        Command::Prefetch(args) => transfer::prefetch(args, &mut Context::new(cli.global)?),
        Command::Kv(verb) => kv::run(verb, &mut Context::new(cli.global)?),
        Command::Gc(args) => gc::run(&args, &mut Context::new(cli.global)?),
        Command::Stats => stats::run(&mut Context::new(cli.global)?),
        Command::Fsck(args) => fsck::run(&args, &mut Context::new(cli.global)?),
        Command::Config(args) => config::run(&args, &mut Context::new(cli.global)?),
        Command::PassOn => tool_exec::pass_on(),
        Command::Reach { words } => run::reach::run(&words),
        Command::RemoteWorker { read } => remote_worker(&read),
        Command::Keeper => {
            log_to_stderr(LevelFilter::INFO);
            keeper::process::run(&context::find_home(cli.global.root.as_deref())?);
            Ok(0)
        }
        Command::Daemon => Ok(agentvfs_daemon::run(context::find_home(
            cli.global.root.as_deref(),
        )?)),
    }
}

/// Serves the socket on standard input; `read` names files that the service's credentials are in.
fn remote_worker(read: &[PathBuf]) -> Result<u8, Failure> {
    let what = "the process that has the network cannot work";
    let failed = |error: std::io::Error| Failure::new(what, error.to_string());
    agentvfs_remote_worker::confine::confine(read).map_err(failed)?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    agentvfs_remote_worker::serve(UnixStream::from(socket.map_err(failed)?)).map_err(failed)?;
    Ok(0)
}

/// Has this process's own log written to standard error: with `--verbose`, and the keeper's.
fn log_to_stderr(level: LevelFilter) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
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

/// What the commands share: how the answer is printed, and what they ask through.
pub struct Context {
    json: bool,
    asking: context::Context,
}

impl Deref for Context {
    type Target = context::Context;

    fn deref(&self) -> &context::Context {
        &self.asking
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut context::Context {
        &mut self.asking
    }
}

impl Context {
    fn new(global: Global) -> Result<Context, Failure> {
        let options = Options {
            root: global.root,
            workspace: global.workspace,
            branch: global.branch,
            launch: Launch {
                program: Program::Own,
                verbose: global.verbose,
            },
        };
        Ok(Context {
            json: global.json,
            asking: context::Context::new(options)?,
        })
    }

    /// Whether `--json` was given.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Asks for what is only looked at; where that takes long, a person sees what is waited for.
    pub fn look<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        doing: &'static str,
    ) -> Result<R, Failure> {
        let _bar = bar(doing);
        self.ask(what, call)
    }

    /// Asks for what takes long, with a progress bar; `doing` says what is done. It is not cancelled by an interrupt,
    /// which says so.
    pub fn ask_with_bar<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        doing: &'static str,
    ) -> Result<R, Failure> {
        let over = Arc::new(AtomicBool::new(false));
        let ending: Arc<OnceLock<BarEnding>> = Arc::default();
        if Bar::is_wanted() {
            let (over, ending) = (Arc::clone(&over), Arc::clone(&ending));
            let look = where_to_look(call);
            // Before the bar has a thread, which the signal could end otherwise. Where nobody can watch for an interrupt,
            // it ends this process without a word.
            let _ = on_interrupt(move || {
                if !over.load(Ordering::Acquire) {
                    ending.get().inspect(|bar| bar.end());
                    warn(&format!("the daemon continues until it is done; {look}"));
                }
                Interrupted::End
            });
        }
        let mut bar = bar(doing);
        let _ = ending.set(bar.ending());
        let answer = self.ask_long(what, call, &mut |done, total| bar.set(done, total));
        over.store(true, Ordering::Release);
        answer
    }
}

/// What shows whether the daemon is done with a call that nobody waits for any more.
fn where_to_look(call: &Call) -> &'static str {
    match call {
        Call::Delete(_) => "agentvfs list shows whether the workspace is gone",
        Call::Gc(_) | Call::Stats(_) => "agentvfs stats shows the disk usage",
        _ => "agentvfs status shows the state",
    }
}
