//! What the sandbox of a run shows, hides and lets write.

use super::super::{Context, agents};
use super::home::{self, Allowed};
use super::kept::kept;
use super::nested::{Around, BRANCHES};
use super::ssh;
use super::user::{existing, short, told, user_home};
use super::work::{self, Work};
use crate::cli::{NetArg, RunArgs};
use agentvfs_agents::setup::{self, Once};
use agentvfs_client::failure::Failure;
use agentvfs_client::home::SOCKET_VARIABLE;
use agentvfs_client::infer::read_state;
use agentvfs_client::protocol::WorkspaceStatus;
use agentvfs_client::quote::shown;
use agentvfs_sandbox::{Limits, Nested, Net, PathRule, Plan, Protection, What, are_replaced_by};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// What is hidden of a user's home: keys, tokens, browsers with their cookies.
const SECRETS: [&str; 22] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".config/gcloud",
    ".docker/config.json",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".password-store",
    ".local/share/keyrings",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    "snap/firefox",
    "snap/chromium",
];

/// Variables that name a directory for temporary files: of no use where that is read-only.
const TEMPORARY: [&str; 3] = ["TMPDIR", "TMP", "TEMP"];
/// Variables that are set for the command, or that name what it does not see.
const OWN: [&str; 2] = ["AGENTVFS_HOME", SOCKET_VARIABLE];

/// The command as it is told: the agent and the words, the words, else the user's shell.
pub fn command(args: &RunArgs) -> Vec<OsString> {
    if let Some(name) = &args.agent {
        let program = setup::named(name).map_or(&name[..], |agent| agent.program);
        return [&[program.into()], &args.command[..]].concat();
    }
    match args.command.is_empty() {
        false => args.command.clone(),
        true => {
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            vec![shell.unwrap_or("/bin/sh".into())]
        }
    }
}

/// Finds wrong usage before anything is asked.
pub fn check(args: &RunArgs, context: &Context) -> Result<(), Failure> {
    work::check_names(args, context)?;
    if let Some(around) = Around::look(context)? {
        around.check(args, context)?;
    }
    agent(args, context)?;
    for pair in &args.env {
        key_value(pair)?;
    }
    for path in args.allow.iter().chain(&args.show) {
        let real = existing(path)?;
        if real == Path::new("/") || real.starts_with(context.home().root()) {
            let why = format!("{} cannot be shown in a sandbox", told(path));
            return Err(Failure::usage(why));
        }
    }
    for path in &args.hide {
        absolute(path)?;
    }
    for path in &args.allow_socket {
        check_socket(path, context)?;
    }
    match args.at.as_deref().map(absolute).transpose()? {
        Some(at) if at == Path::new("/") => Err(Failure::usage("--at cannot be /")),
        _ => Ok(()),
    }
}

/// What an agent is started with.
fn agent(args: &RunArgs, context: &Context) -> Result<Once, Failure> {
    let Some(name) = &args.agent else {
        return Ok(Once::default());
    };
    let once = agents::once(name, context.home())?;
    let is_settings = |word: &OsString| word.as_bytes().starts_with(b"--settings");
    let has_settings = |option: &String| option.starts_with("--settings");
    if args.command.iter().any(is_settings) && once.options.iter().any(has_settings) {
        return Err(
            Failure::usage(format!("{name} takes one --settings")).hint(format!(
                "agentvfs agent install {name} --hooks writes the hooks to its own settings"
            )),
        );
    }
    Ok(once)
}

/// Whether the agent does nothing with its hooks before the user trusts them.
pub fn needs_trust(args: &RunArgs, context: &Context) -> bool {
    agent(args, context).is_ok_and(|once| once.needs_trust)
}

/// Refuses what is no socket, and the daemon's: who speaks to it may do everything.
fn check_socket(path: &Path, context: &Context) -> Result<(), Failure> {
    let real = existing(path)?;
    let home = context.home();
    let is_ours =
        real.starts_with(home.root()) || home.socket().canonicalize().is_ok_and(|own| own == real);
    if is_ours {
        let why = format!(
            "{} is agentvfs's own and cannot be shown in a sandbox",
            told(path)
        );
        return Err(Failure::usage(why));
    }
    match real
        .metadata()
        .is_ok_and(|meta| meta.file_type().is_socket())
    {
        true => Ok(()),
        false => Err(Failure::usage(format!("{} is no socket", told(path)))),
    }
}

fn key_value(pair: &OsStr) -> Result<(OsString, OsString), Failure> {
    let bytes = pair.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) if at > 0 => {
            let own = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Ok((own(&bytes[..at]), own(&bytes[at + 1..])))
        }
        _ => {
            let why = format!("{} is not KEY=VALUE", shown(bytes));
            Err(Failure::usage(why))
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|e| Failure::usage(format!("{}: {e}", told(path))))
}

/// What the run asks of a sandbox, and what of it is shown as copies.
pub fn plan(
    args: &RunArgs,
    work: &Work,
    context: &mut Context,
) -> Result<(Plan, Allowed), Failure> {
    let base = work.info.base.to_path();
    let at = match &args.at {
        Some(at) => context.absolute(at)?,
        None if base.is_dir() => base.clone(),
        None => {
            let why = format!("the project {} is gone", told(&base));
            return Err(
                Failure::new("cannot run", why).hint("--at DIR shows the branch at another path")
            );
        }
    };
    if at == Path::new("/") {
        return Err(Failure::usage("the branch cannot be shown at /").hint("use --at DIR"));
    }
    let cwd = cwd(args, work, &at, context)?;
    let protection = protection(args);
    let (mut places, allowed) = match protection {
        Protection::ViewOnly => (vec![view(work, &at)], Allowed::default()),
        _ if work.around.is_some() => {
            let mut places = places(args, work, &at, context)?;
            places.extend(socket(work, &at, &places, context));
            (places, Allowed::default())
        }
        _ => {
            let mut places = places(args, work, &at, context)?;
            let session = kept(context.home(), &work.info.name, &work.branch);
            let home = context.home().root();
            let allowed = home::allow(args, (&session, &work.run), &mut places, home)?;
            places.extend(socket(work, &at, &places, context));
            (places, allowed)
        }
    };
    places.extend(ssh::places(&places));
    let once = agent(args, context)?;
    let mut command = command(args);
    command.splice(1..1, once.options.into_iter().map(OsString::from));
    let mut env = environment(args, work, &places, &cwd.0)?;
    // What the user has set comes first.
    for (key, value) in once.env {
        if !env.iter().any(|(other, _)| *other == *key) {
            env.push((key.into(), value.into()));
        }
    }
    let plan = Plan {
        command,
        env,
        cwd,
        places,
        net: match args.net == NetArg::None || args.no_network {
            true => Net::None,
            false => Net::Host,
        },
        strict: args.strict,
        protection,
        limits: Limits {
            pids: args.pids,
            memory_bytes: args.memory,
            cpu_percent: args.cpu,
        },
        nested: work.around.as_ref().map(|around| Nested {
            maps: is_root().then(|| around.socket.clone()),
        }),
    };
    Ok((plan, allowed))
}

fn protection(args: &RunArgs) -> Protection {
    match (args.no_sandbox, args.best_effort) {
        (true, _) => Protection::ViewOnly,
        (_, true) => Protection::BestEffort,
        _ => Protection::All,
    }
}

/// The socket of the run. It would show what is hidden of the branch, so there is none then.
fn socket(work: &Work, at: &Path, places: &[PathRule], context: &Context) -> Option<PathRule> {
    let branches = at.join(".agentvfs");
    let hides = |place: &PathRule| {
        let is_hidden = place.what == What::Hidden && place.at.starts_with(at);
        is_hidden && !place.at.starts_with(&branches)
    };
    let run = Path::new("/run");
    if places.iter().any(hides) || !run.is_dir() {
        return None;
    }
    let name = format!("{}-{}.sock", work.run, std::process::id());
    let dir = match work.around {
        None => context.home().runs(),
        Some(_) => PathBuf::from("/tmp"),
    };
    let path = dir.join(name);
    Some(place(&run.join("agentvfs.sock"), What::Socket(path)))
}

/// The path of the run's socket outside and inside, if there is one.
pub fn socket_in(places: &[PathRule]) -> Option<(&Path, &Path)> {
    places.iter().find_map(|place| match &place.what {
        What::Socket(from) => Some((from.as_path(), place.at.as_path())),
        _ => None,
    })
}

/// Where the branch of the run appears.
pub fn view_in<'a>(places: &'a [PathRule], work: &Work) -> Option<&'a Path> {
    let mut all = places.iter();
    let found = all.find(|place| place.what == What::View(work.view.clone()));
    found.map(|place| place.at.as_path())
}

/// Whether the directories in memory are the session's: nothing else is in the place of one.
pub fn shares(plan: &Plan) -> bool {
    let mut places = plan.places.iter().map(|place| place.at.as_path());
    plan.protection != Protection::ViewOnly && !are_replaced_by(&mut places)
}

/// Where the branches that are made in the sandbox appear in it.
pub fn branches_in(places: &[PathRule]) -> Option<&Path> {
    let mut all = places.iter();
    let found = all.find(|place| place.what == What::Empty && place.at.ends_with(BRANCHES));
    found.map(|place| place.at.as_path())
}

/// `.agentvfs` in the view: snapshots of the branch, the branches that were made in its sandbox, and the branch itself.
fn reserved(work: &Work, at: &Path, context: &Context) -> Result<Vec<PathRule>, Failure> {
    let top = at.join(".agentvfs");
    let mut all = vec![
        place(&top, What::Hidden),
        place(
            &top.join("snapshots"),
            What::Tree(work.view.join(".agentvfs/snapshots")),
        ),
        place(&top.join("view"), What::Link("..".into())),
        place(&at.join(BRANCHES), What::Empty),
    ];
    for name in work.made_inside(context)? {
        let from = work.branches.join(&name);
        // Somebody may have deleted it meanwhile.
        if from.is_dir() {
            all.push(place(&at.join(BRANCHES).join(&name), What::View(from)));
        }
    }
    Ok(all)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn view(work: &Work, at: &Path) -> PathRule {
    place(at, What::View(work.view.clone()))
}

/// The working directory, and the one where that is not there.
fn cwd(
    args: &RunArgs,
    work: &Work,
    at: &Path,
    context: &Context,
) -> Result<(PathBuf, PathBuf), Failure> {
    let (base, mount) = (work.info.base.to_path(), work.info.mount.to_path());
    let caller = context.surroundings().cwd.as_deref();
    let caller = caller.map(|cwd| cwd.canonicalize().unwrap_or(cwd.to_owned()));
    let below = |dir: &Path| Some(caller.as_ref()?.strip_prefix(dir).ok()?.to_owned());
    let in_mount = below(&mount).map(|rest| read_state(&rest).map_or(rest, |(_, inner)| inner));
    let inside = in_mount.or_else(|| below(&base)).unwrap_or_default();
    let default = match inside.as_os_str().is_empty() {
        true => at.to_owned(),
        false => at.join(inside),
    };
    match &args.cwd {
        Some(dir) => {
            let dir = default.join(dir);
            Ok((dir.clone(), dir))
        }
        None => Ok((default, at.to_owned())),
    }
}

fn places(
    args: &RunArgs,
    work: &Work,
    at: &Path,
    context: &mut Context,
) -> Result<Vec<PathRule>, Failure> {
    let mut places = vec![view(work, at)];
    let hides = |path: &PathBuf| {
        context
            .absolute(path)
            .is_ok_and(|path| path.starts_with(at))
    };
    match args.hide.iter().any(hides) {
        // Snapshots would show it, and other branches.
        true => places.push(place(&at.join(".agentvfs"), What::Hidden)),
        false => places.extend(reserved(work, at, context)?),
    }
    if let Some(around) = &work.around {
        places.extend(around.places(at));
    }
    let home = context.home().root().to_owned();
    places.push(place(&home, What::Hidden));
    for info in context.list()? {
        let mount = info.mount.to_path();
        let is_seen = matches!(
            info.status,
            WorkspaceStatus::Started | WorkspaceStatus::Stale
        );
        // Over its own project the view is placed; inside a run a workspace is where the run around this one shows it.
        if is_seen && mount != at && !mount.starts_with(&home) && work.around.is_none() {
            places.push(place(&mount, What::Hidden));
        }
    }
    let mut opened = Vec::new();
    for (paths, what) in [(&args.allow, What::Writable), (&args.show, What::Shown)] {
        for path in paths {
            let real = existing(path)?;
            if real.starts_with(at) {
                let why = format!("{} is in the project, whose branch is writable", told(path));
                return Err(Failure::usage(why));
            }
            opened.push(real.clone());
            places.push(place(&real, what.clone()));
        }
    }
    for path in &args.allow_socket {
        places.push(place(&existing(path)?, What::Shown));
    }
    for path in secrets().into_iter().filter(|p| !opened.contains(p)) {
        places.push(place(&path, What::Hidden));
    }
    for path in &args.hide {
        places.push(place(&context.absolute(path)?, What::Hidden));
    }
    if let Some(runtime) = runtime_directory() {
        places.push(place(&runtime, What::Private));
    }
    places.sort_by(|a, b| a.at.cmp(&b.at));
    places.dedup();
    Ok(places)
}

fn place(at: &Path, what: What) -> PathRule {
    PathRule {
        at: at.to_owned(),
        what,
    }
}

/// What of the user's secrets is there.
fn secrets() -> Vec<PathBuf> {
    let Some(home) = user_home() else {
        return Vec::new();
    };
    let all = SECRETS.iter().map(|name| home.join(name));
    // Most are not there, which one look tells; a path without links takes one for each directory in it.
    let there = all.filter(|path| path.symlink_metadata().is_ok());
    there.filter_map(|path| path.canonicalize().ok()).collect()
}

fn runtime_directory() -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let dir = dir.canonicalize().ok().filter(|dir| dir.is_dir())?;
    // A directory that holds more than it should must not be emptied.
    (dir.components().count() > 2).then_some(dir)
}

/// The secrets that a plan hides, as they are told.
pub fn hidden(plan: &Plan) -> Vec<String> {
    let is_hidden = |path: &PathBuf| {
        let mut places = plan.places.iter();
        places.any(|place| place.at == *path && place.what == What::Hidden)
    };
    let all: Vec<PathBuf> = secrets().into_iter().filter(is_hidden).collect();
    let mut all = short(&all);
    all.dedup();
    all
}

/// The caller's environment, with what tells the command where it is.
fn environment(
    args: &RunArgs,
    work: &Work,
    places: &[PathRule],
    cwd: &Path,
) -> Result<Vec<(OsString, OsString)>, Failure> {
    let mut env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let is_writable = |dir: &OsStr| {
        let mut writable = places.iter().filter(|place| {
            matches!(
                place.what,
                What::View(_) | What::Writable | What::Copy { .. }
            )
        });
        writable.any(|place| Path::new(dir).starts_with(&place.at))
    };
    let is_of_no_use = |key: &OsString, value: &OsString| {
        OWN.iter().any(|own| key == own)
            || TEMPORARY.iter().any(|name| key == name) && !is_writable(value)
    };
    if !args.no_sandbox {
        env.retain(|(key, value)| !is_of_no_use(key, value));
    }
    let sandbox = match args.no_sandbox {
        true => "none",
        false => "linux-namespace",
    };
    let mut set = |key: &OsStr, value: &OsStr| {
        env.retain(|(other, _)| other != key);
        env.push((key.to_owned(), value.to_owned()));
    };
    for (key, value) in [
        ("PWD", cwd.as_os_str()),
        ("AGENTVFS_WORKSPACE", OsStr::new(&work.info.name)),
        ("AGENTVFS_BRANCH", OsStr::new(&work.branch)),
        ("AGENTVFS_SESSION", OsStr::new(&work.branch)),
        ("AGENTVFS_RUN", OsStr::new(&work.run)),
        ("AGENTFS", OsStr::new("1")),
        ("AGENTFS_SANDBOX", OsStr::new(sandbox)),
        ("AGENTFS_SESSION", OsStr::new(&work.branch)),
    ] {
        set(OsStr::new(key), value);
    }
    if let Some((_, at)) = socket_in(places) {
        set(OsStr::new(SOCKET_VARIABLE), at.as_os_str());
    }
    for pair in &args.env {
        let (key, value) = key_value(pair)?;
        set(&key, &value);
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_need_a_key() {
        let pair = |text: &str| key_value(OsStr::new(text));
        assert_eq!(pair("A=b=c").unwrap(), ("A".into(), "b=c".into()));
        assert_eq!(pair("A=").unwrap(), ("A".into(), "".into()));
        assert!(pair("A").is_err() && pair("=b").is_err());
    }
}
