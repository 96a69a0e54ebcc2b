//! The command line: the one source of help, completions and `docs/cli.md`.
//!
//! Says what can be written, not what it means. Which of one or two words is the workspace depends
//! on the verb; that is decided by the commands.
//!
//! Definitions of subcommands are deferred: only the own one of a command is made, which saves it 0.4 ms of 2.
//! clap then takes the `///` of a struct of arguments for the command's description, which the enum's
//! variant has already; `#[doc = concat!(…)]` it leaves alone.

mod branch;
mod exchange;
mod files;
mod guess;
mod kv;
mod meanings;
mod policy;
mod remote;
mod run;
mod serve;
mod session;
mod store;
mod timeline;
mod undo;
mod watch;
mod workspace;

pub use branch::*;
pub use exchange::*;
pub use files::*;
use guess::Guess;
pub use kv::*;
pub use policy::*;
pub use remote::*;
pub use run::*;
pub use serve::*;
pub use session::*;

use crate::output::print_json;
use agentvfs_client::failure::Failure;
use agentvfs_pages::{Page, Shell};
use clap::builder::styling::{AnsiColor, Style, Styles};
use clap::{Args, Command as Definition, CommandFactory, Parser, Subcommand};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
pub use store::*;
pub use timeline::*;
pub use undo::*;
pub use watch::*;
pub use workspace::*;

/// A copy-on-write filesystem for AI agents: workspaces on any project, with branches, checkpoints and rollback.
#[derive(Debug, Parser)]
#[command(name = "agentvfs", version, styles = styles(), max_term_width = 100)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "Example:\n  agentvfs start --from project\n  \
    agentvfs checkpoint before-refactor\n  agentvfs rollback")]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// What `hook --help` says more.
const HOOK_HELP: &str = "Example:\n  \
    echo '{\"hook_event_name\": \"UserPromptSubmit\", \"session_id\": \"s\", \"prompt_id\": \"7\"}' | agentvfs hook claude\n\n\
    In the mount of a workspace, tool calls that may change files are recorded as with `agentvfs tool`, and each\n\
    prompt and end of a turn is an automatic commit with the metadata agent, session and prompt or prompt-end:\n\
    `agentvfs rollback --meta prompt=7` goes back to before that turn. The exit status is always 0; what cannot be\n\
    recorded is a line in hooks.log of the agentvfs home. After 2 s it ends, whatever it waits for.";

/// What `agent install --help` says more.
const INSTALL_HELP: &str = "Examples:\n  agentvfs agent install --dry-run\n  agentvfs agent install claude codex\n\n\
    Without names: for the agents that are on this machine. Prints agent, part, file and written, needs-trust,\n\
    same, changed (by you: left alone) or failed. Everything else in a file stays as it is, and what was written\n\
    is recorded, so that `agentvfs agent remove` takes exactly that away.";

/// Verbs of `agent`.
#[derive(Debug, Subcommand)]
pub enum AgentVerb {
    /// List the agents that are known: name, program, directory of settings; empty where it is not there
    #[command(after_help = "Example:\n  agentvfs agent list")]
    List(RowArgs),
    /// Write hooks, a Skill, an MCP server and instructions for agents, so that each tool call is recorded and each turn
    /// can be taken back
    #[command(after_help = INSTALL_HELP)]
    Install(AgentArgs),
    /// Show for each part of each agent whether it is there: same, changed, absent or failed
    #[command(after_help = "Example:\n  agentvfs agent status claude")]
    Status(AgentLookArgs),
    /// Take away what `agent install` wrote; what you changed since is left
    #[command(after_help = "Example:\n  agentvfs agent remove --dry-run")]
    Remove(AgentArgs),
    /// Run an agent in a sandbox as `agentvfs run` does, with hooks, MCP server and instructions for this run alone;
    /// nothing is written to its settings
    #[command(override_usage = "agentvfs agent run [OPTIONS] NAME [ARG]...")]
    #[command(after_help = AGENT_RUN_HELP)]
    Run(Box<RunArgs>),
}

/// What `agent run --help` says more.
const AGENT_RUN_HELP: &str = "Examples:\n  agentvfs agent run claude\n  \
    agentvfs agent run --session fix codex exec 'mend the tests'\n\n\
    The same as `agentvfs run --agent NAME -- [ARG]...`. What is installed already is not added again. Codex\n\
    runs hooks only after you have trusted them (/hooks).";

/// What `quickstart --help` says more.
const QUICKSTART_HELP: &str = "Example:\n  agentvfs quickstart ~/project\n\n\
    Checks the machine, starts a workspace of the project, and does `agentvfs agent install` for the agents that are\n\
    on this machine. Prints mount, branch and agents, and says what to type next. Twice is the same as once.";

#[doc = concat!("Arguments of `quickstart`.")]
#[derive(Debug, Args)]
pub struct QuickstartArgs {
    /// The project's directory [default: the current one]
    pub dir: Option<PathBuf>,
    /// An agent to set up; can be repeated [default: those on this machine]
    #[arg(long, value_name = "NAME")]
    pub agent: Vec<String>,
    /// Print what would be, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `agent install` and `agent remove`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Which agents and parts.
    #[command(flatten)]
    pub look: AgentLookArgs,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Which agents and parts.
#[derive(Debug, Args)]
pub struct AgentLookArgs {
    /// claude, codex, gemini, cursor, openhands, opencode [default: those on this machine]
    pub names: Vec<String>,
    /// For the user [default]
    #[arg(long, conflicts_with = "project")]
    pub user: bool,
    /// For the project in the current directory instead of for the user
    #[arg(long)]
    pub project: bool,
    /// Only hooks, and what else is named [default: all four parts]
    #[arg(long)]
    pub hooks: bool,
    /// Only the Skill, and what else is named
    #[arg(long)]
    pub skill: bool,
    /// Only the MCP server, and what else is named
    #[arg(long)]
    pub mcp: bool,
    /// Only the region in AGENTS.md or CLAUDE.md, and what else is named
    #[arg(long)]
    pub instructions: bool,
    /// End rows with NUL instead of a newline, and do not quote names
    #[arg(short = 'z')]
    pub nul: bool,
}

/// What `push --help` says more.
const PUSH_HELP: &str = "Examples:\n  agentvfs push\n  agentvfs push origin --all --labels\n\n\
    If the branch has changed since its head, a checkpoint is made first. Only what the remote lacks\n\
    is sent; a push that was cut off is continued by the next one. If the remote has commits that\n\
    the branch lacks, the push is rejected (exit status 1) and nothing changes; `agentvfs pull`\n\
    merges them.";

/// What `skill --help` says more.
const SKILL_HELP: &str = "Examples:\n  \
    mkdir -p ~/.claude/skills/agentvfs && agentvfs skill > ~/.claude/skills/agentvfs/SKILL.md\n  \
    mkdir -p ~/.agents/skills/agentvfs && agentvfs skill > ~/.agents/skills/agentvfs/SKILL.md\n\n\
    The first is read by Claude Code, the second by Codex, Gemini CLI and most others.";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Directory for the store, logs and mounts [default: $AGENTVFS_HOME, else
    /// $XDG_DATA_HOME/agentvfs, else ~/.local/share/agentvfs]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Workspace to use [default: $AGENTVFS_WORKSPACE, else the one that holds the current
    /// directory, else the only one running]
    #[arg(long, short, global = true, value_name = "NAME")]
    pub workspace: Option<String>,
    /// Branch to use [default: $AGENTVFS_BRANCH, else the one that holds the current directory,
    /// else main]
    #[arg(long, global = true, value_name = "NAME")]
    pub branch: Option<String>,
    /// Print one JSON object
    #[arg(long, global = true)]
    pub json: bool,
    /// Print each request and its duration to standard error, and log more
    #[arg(long, global = true)]
    pub verbose: bool,
}

/// Commands.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Command {
    #[command(flatten)]
    #[allow(missing_docs)]
    Daily(Verb),
    #[command(flatten)]
    #[allow(missing_docs)]
    DailyBranch(DailyBranchVerb),
    /// The commands from init to update, also with `workspace` before them
    #[command(subcommand)]
    Workspace(Verb),
    /// Create, list, delete and merge branches
    #[command(subcommand)]
    Branch(BranchVerb),
    /// Run a command in a sandbox that shows a branch at the project's own path
    #[command(override_usage = "agentvfs run [OPTIONS] [--] [CMD [ARG]...]")]
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Map cgroups to branches at a shared path
    #[command(subcommand)]
    Session(SessionVerb),
    /// Read commits and the live tree, and write files, without a mount
    #[command(subcommand)]
    Fs(FsVerb),
    /// Export a branch or a commit to one SQLite file, which AgentFS's tools can open
    #[command(override_usage = "agentvfs export [OPTIONS] [WORKSPACE] FILE")]
    #[command(after_help = "Examples:\n  agentvfs export my-task state.db\n  \
        agentvfs export --ref before-refactor --history state.db")]
    Export(ExportArgs),
    /// Import an export or an AgentFS database as a workspace, or with --branch as a branch of one
    #[command(override_usage = "agentvfs import [OPTIONS] --workspace <NAME> FILE")]
    #[command(
        after_help = "Examples:\n  agentvfs import state.db --workspace copy\n  \
        agentvfs import state.db --workspace my-task --branch theirs"
    )]
    Import(ImportArgs),
    /// Record tool calls, show what each changed, undo one
    #[command(subcommand)]
    Tool(ToolVerb),
    /// List the tool calls: id, tool, status, duration, start; newest first
    #[command(
        after_help = "Examples:\n  agentvfs timeline --status error --format json\n  agentvfs timeline --verify\n\n\
        A rollback adds an entry to the timeline and never removes one."
    )]
    Timeline(TimelineArgs),
    /// List the calls, checkpoints, rollbacks and merges that changed a file or directory; newest first
    #[command(after_help = "Example:\n  agentvfs blame src/main.rs\n\n\
        Renames are followed to the old names. Changes that came with a merge are followed into\n\
        the calls of the merged branch, even if it has been deleted. If a rollback brings back a\n\
        file that had been renamed and then removed, calls that used its other name are not listed.")]
    Blame(BlameArgs),
    /// Print each change, checkpoint, rollback, merge and tool call as it happens
    #[command(after_help = WATCH_HELP)]
    Watch(WatchArgs),
    /// Set rules about what may be changed: deny or watch changes and tool calls
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Share commits, labels and timelines with other machines through a common store
    #[command(subcommand)]
    Remote(RemoteVerb),
    /// Send a branch to a remote: what it shows, with its history and timeline; print status, name and commit
    #[command(after_help = PUSH_HELP)]
    Push(PushArgs),
    /// Bring the branches of a remote, named REMOTE/BRANCH, and change no branch of the workspace
    #[command(
        after_help = "Examples:\n  agentvfs fetch\n  agentvfs fetch origin --branch main\n  \
        agentvfs diff origin/main\n\n\
        Prints new, moved or up-to-date, name and commit. REMOTE/BRANCH can be used in log --branch,\n\
        diff, merge, rollback, restore and branch create --from. Without --branch all branches are\n\
        fetched."
    )]
    Fetch(FetchArgs),
    /// Fetch a branch of a remote and merge it into the branch of that name; print the commit
    #[command(after_help = "Example:\n  agentvfs pull && agentvfs push\n\n\
        Conflicts are treated as by `agentvfs merge`. `agentvfs undo` reverses the merge.")]
    Pull(PullArgs),
    /// Create a workspace from a project in a remote, with its history, and mount it
    #[command(
        after_help = "Examples:\n  agentvfs clone /mnt/team/agentvfs website\n  \
        agentvfs clone /mnt/team/agentvfs website -w copy --branch fix\n\n\
        The remote is named origin. With --branch that branch is created as well as main.\n\n\
        Files and directories are fetched when they are read, with their neighbours, and are kept: what was\n\
        read once works without the remote. What cannot be fetched gives an I/O error within 30 seconds, and\n\
        `agentvfs status` says why. `agentvfs prefetch` fetches before the remote is out of reach; --full\n\
        fetches everything now."
    )]
    Clone(CloneArgs),
    /// Fetch what a clone has not read yet: files and directories of a branch, or everything
    #[command(
        after_help = "Examples:\n  agentvfs prefetch src docs/guide.md\n  agentvfs prefetch\n  \
        agentvfs prefetch --all\n\n\
        For workspaces that `agentvfs clone` created without --full. What comes is kept. If the daemon was\n\
        restarted, this also gives it the credentials of the remote again."
    )]
    Prefetch(PrefetchArgs),
    /// Store JSON values with a branch; checkpoints, rollbacks and merges include them
    #[command(subcommand)]
    Kv(KvVerb),
    /// Serve a workspace over another protocol
    #[command(subcommand)]
    Serve(ServeVerb),
    /// Set agents' programs up to use agentvfs: hooks, a Skill, an MCP server, instructions
    #[command(subcommand)]
    Agent(AgentVerb),
    /// Start a workspace of a project and set agents' programs up to use it: all in one command
    #[command(after_help = QUICKSTART_HELP)]
    Quickstart(QuickstartArgs),
    /// Note what an agent says by its hook, as JSON on standard input; the agents' settings call this
    #[command(after_help = HOOK_HELP)]
    Hook {
        /// claude, codex, gemini, cursor, openhands, or another agent that speaks like one of these
        agent: String,
    },
    /// Print a Skill: the instructions by which an agent uses agentvfs
    #[command(after_help = SKILL_HELP)]
    Skill,
    /// Check whether this machine has what agentvfs needs; name what is missing and how to get it
    #[command(after_help = "Example:\n  agentvfs doctor")]
    Doctor(RowArgs),
    /// Free space used by unreachable objects; safe while workspaces run
    #[command(after_help = "Example:\n  agentvfs gc --dry-run\n\n\
        The daemon also runs it when it is worthwhile; see `agentvfs config --help`.")]
    Gc(GcArgs),
    /// Show disk usage by workspace, branch, pack, journal and kind of file
    #[command(after_help = "Example:\n  agentvfs stats --json")]
    Stats,
    /// Check every checksum and reference; list the files, commits and branches that are damaged;
    /// exit status 1 if any are
    #[command(after_help = "Example:\n  agentvfs fsck\n  agentvfs fsck --repair --dry-run")]
    Fsck(FsckArgs),
    /// Show or change the settings of the store
    #[command(after_help = SETTINGS_HELP)]
    Config(ConfigArgs),
    /// Print shell completions, or install them
    #[command(after_help = "Example:\n  agentvfs completions install")]
    Completions(CompletionsArgs),
    /// Install the man pages
    #[command(subcommand)]
    Man(ManVerb),
    /// Say which workspace holds the current directory, and what can be done next; what `agentvfs` alone is
    #[command(hide = true)]
    Here,
    /// Serve the workspaces of one home; started by the other commands
    #[command(hide = true)]
    Daemon,
    /// Reach a remote over the network; started by the daemon
    #[command(hide = true)]
    RemoteWorker {
        /// A file that may be read: with a token
        #[arg(long, value_name = "FILE")]
        read: Vec<std::path::PathBuf>,
    },
    /// Hold the mounts of one home while no daemon does; started by the daemon
    #[command(hide = true)]
    Keeper,
    /// Reach into a sandbox from outside; started by `run`
    #[command(hide = true)]
    Reach {
        /// What to do there
        words: Vec<std::ffi::OsString>,
    },
    /// Pass standard input on to standard output; started by `tool exec`
    #[command(hide = true)]
    PassOn,
}

#[doc = concat!("Arguments of `completions`.")]
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct CompletionsArgs {
    /// What to do but print.
    #[command(subcommand)]
    pub verb: Option<CompletionsVerb>,
    /// Print the completions of this shell
    #[arg(required = true)]
    pub shell: Option<Shell>,
}

/// What can be done with completions.
#[derive(Debug, Subcommand)]
pub enum CompletionsVerb {
    /// Write the completions where the shell looks for them; print the file
    #[command(after_help = "Example:\n  agentvfs completions install zsh")]
    Install {
        /// bash, zsh or fish [default: $SHELL]
        shell: Option<Shell>,
    },
}

/// What can be done with man pages.
#[derive(Debug, Subcommand)]
pub enum ManVerb {
    /// Write a man page for each command where man looks for them; print the directory
    #[command(after_help = "Example:\n  agentvfs man install\n  man agentvfs-rollback")]
    Install {
        /// Directory of the manual, where man1 is made [default: share/man beside the directory of
        /// the program, where man looks if that is in $PATH]
        dir: Option<PathBuf>,
    },
}

#[doc = concat!("Arguments of commands that print rows.")]
#[derive(Debug, Args)]
pub struct RowArgs {
    /// End rows with NUL instead of a newline, and do not quote names
    #[arg(short = 'z')]
    pub nul: bool,
}

fn styles() -> Styles {
    Styles::styled()
        .header(Style::new().bold())
        .usage(Style::new().bold())
        .literal(AnsiColor::Cyan.on_default())
        .error(AnsiColor::Red.on_default().bold())
}

/// Help, a version or a usage error: text for the user instead of a command.
#[derive(Debug)]
pub enum Told {
    /// What clap says.
    Clap(Box<clap::Error>),
    /// Words that mean something else than a command or an option of that name.
    Guessed(Failure),
}

impl Told {
    /// Prints it and gives the exit status: 0 for what was asked for, 2 for wrong usage, which with `json` is
    /// also told as an object.
    pub fn tell(&self, json: bool) -> ExitCode {
        let error = match self {
            Told::Guessed(failure) => return crate::exit::tell(failure, json),
            Told::Clap(error) => error,
        };
        if error.use_stderr() {
            // Standard error may be closed; there is nobody left to tell then.
            let _ = std::io::stderr().write_all(usage_text(error).as_bytes());
            if json {
                // So may standard output: the exit status tells it all the same.
                let _ = print_json(&json!({ "error": usage_failure(error).object() }));
            }
            return ExitCode::from(agentvfs_client::failure::USAGE);
        }
        // A closed standard output is success.
        let _ = error.print();
        ExitCode::SUCCESS
    }
}

/// The error without what explains it: its first paragraph.
fn usage_failure(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let why = match text.strip_prefix("error: ") {
        Some(text) => text.split("\n\n").next().unwrap_or_default().to_owned(),
        // Help in place of an error: for want of a word.
        None => "a command is missing".to_owned(),
    };
    Failure::usage(why.trim_end()).hint("--help after a command explains it")
}

/// The error in the shape of all errors of this program.
fn usage_text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        None => text,
        Some(rest) => agentvfs_client::quote::lines(&format!("agentvfs: wrong usage: {rest}"))
            .replace(
                "For more information, try '--help'.",
                "hint: --help after a command explains it",
            ),
    }
}

/// Reads the command line, the program's own name first. Words that people use for a command are replaced by
/// it ([`guess`]), so the cost of that falls on command lines that are wrong without it.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Told> {
    let mut words: Vec<OsString> = args.into_iter().collect();
    for _ in 0..guess::REPLACED_MAX {
        let error = match Cli::try_parse_from(&words) {
            Ok(cli) => return Ok(cli),
            Err(error) => error,
        };
        match guess::guess(&words, &error, Cli::command) {
            Some(Guess::Meant(meant)) => words = meant,
            Some(Guess::Told(failure)) => return Err(Told::Guessed(failure)),
            None => return Err(Told::Clap(Box::new(error))),
        }
    }
    Cli::try_parse_from(&words).map_err(|error| Told::Clap(Box::new(error)))
}

/// Whether words that are no command line ask for JSON all the same; what follows `--` is another command's.
pub fn asks_for_json(mut args: impl Iterator<Item = OsString>) -> bool {
    args.by_ref()
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
}

impl Cli {
    /// Whether an error is told as an object, too: not by what has standard output for a protocol of its own.
    pub fn tells_errors_as_json(&self) -> bool {
        self.global.json
            && !matches!(
                self.command,
                Command::Serve(_) | Command::Daemon | Command::Keeper
            )
    }
}

/// Completions for `shell`.
pub fn completions(shell: Shell) -> Vec<u8> {
    agentvfs_pages::completions(Cli::command(), shell)
}

/// A man page for each command.
///
/// # Errors
/// Those of formatting.
pub fn man_pages() -> std::io::Result<Vec<Page>> {
    agentvfs_pages::pages(Cli::command(), "workspace")
}

/// The text of `docs/cli.md`.
pub fn reference() -> String {
    let mut text = String::from(include_str!("cli.md"));
    let mut root = Cli::command();
    root.build();
    describe(&mut root, &mut text);
    text
}

fn describe(command: &mut Definition, text: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let title = command
        .get_bin_name()
        .unwrap_or(command.get_name())
        .to_owned();
    let is_root = text.ends_with(include_str!("cli.md"));
    let help = command
        .clone()
        .mut_args(|arg| {
            let hidden = arg.is_global_set() && !is_root;
            arg.hide(hidden)
        })
        .term_width(96)
        .render_long_help()
        .to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!(
        "\n## {title}\n\n```text\n{}\n```\n",
        help.join("\n").trim_end()
    ));
    if command.get_name() == "workspace" {
        text.push_str(
            "\n`agentvfs workspace VERB` is the same as `agentvfs VERB`, described above.\n",
        );
        return;
    }
    for child in command.get_subcommands_mut() {
        describe(child, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, Told> {
        parse(line.split(' ').map(OsString::from))
    }

    fn error(line: &str) -> Box<clap::Error> {
        match parsed(line) {
            Err(Told::Clap(error)) => error,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_users_own_words_parse() {
        for line in [
            "agentvfs workspace start --from project",
            "agentvfs workspace checkpoint before-refactor",
            "agentvfs workspace checkpoint my-task before-refactor --meta a=b --meta c=d",
            "agentvfs workspace rollback",
            "agentvfs workspace rollback --before 5m my-task --dry-run",
            "agentvfs workspace start my-task --allow-other=false --json",
            "agentvfs --root /x -w my-task workspace log --all -z",
            "agentvfs workspace diff a @~1 --branch main",
            "agentvfs start --from project",
            "agentvfs merge fix --into main",
            "agentvfs branch merge fix",
        ] {
            parsed(line).unwrap_or_else(|told| panic!("{line}: {told:?}"));
        }
    }

    #[test]
    fn wrong_usage_is_an_object_too() {
        let object = usage_failure(&error("agentvfs workspace start a b --json")).object();
        assert_eq!(object["kind"], "usage");
        let message = object["message"].as_str().unwrap();
        assert!(
            message.starts_with("wrong usage: ") && message.contains("'b'"),
            "{message}"
        );
        assert!(!message.contains("Usage:"), "{message}");
        let words = |line: &str| asks_for_json(line.split(' ').map(OsString::from));
        assert!(words("agentvfs workspace start a b --json"));
        assert!(!words("agentvfs tool exec x -- cargo test --json"));
    }

    #[test]
    fn wrong_usage_has_the_shape_of_all_errors() {
        for line in [
            "agentvfs workspace start a b",
            "agentvfs workspace rollback --before 5m --meta a=b",
            "agentvfs workspace checkpoint a b c",
            "agentvfs workspace rollback -z",
            "agentvfs branch create",
            "agentvfs workspace start --latency none",
        ] {
            let text = usage_text(&error(line));
            assert!(
                text.starts_with("agentvfs: wrong usage: "),
                "{line}: {text}"
            );
            assert!(text.contains("\nhint: "), "{line}: {text}");
        }
    }
}
