//! Has the daemon note what an agent says.
//!
//! Every request can be made twice, so it is made again if the daemon ends meanwhile: the keeper starts the next one
//! within milliseconds. No daemon is started from here.

use super::event::{Event, Told, ToldCall};
use super::place::Place;
use super::refusal;
use agentvfs_client::connection::{Client, ClientError};
use agentvfs_client::home::Home;
use agentvfs_client::protocol::turns;
use agentvfs_client::protocol::{
    Call, CallId, Checkpoint, CheckpointAnswer, Finished, GivenUp, JudgeTool, JudgeToolAnswer, Log,
    LogAnswer, LogRow, ToolFinish, ToolGiveUp, ToolStart,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two tries to reach a daemon that is being started.
const AGAIN: Duration = Duration::from_millis(10);

/// What is left of the deadline when the tries end.
const RESERVE: Duration = Duration::from_millis(300);

/// Commits among which the beginning of a turn is looked for.
const LOOKED_AT_MAX: u64 = 500;

/// Why a call failed of whose end the agent did not tell.
const NO_END: &str = "no end was reported";

/// Notes it; gives what the agent is to be told.
pub fn note(
    home: &Home,
    place: &Place,
    mut told: Told,
    deadline: Instant,
) -> Result<String, String> {
    let mut daemon = Daemon {
        home,
        client: None,
        until: deadline.checked_sub(RESERVE).unwrap_or(deadline),
    };
    let name = told.event_name.clone();
    let not_noted = |why| format!("{name} in {} is not noted: {why}", place.workspace);
    let noted = match &told.event {
        Event::SessionStarts => return Ok(welcome(place, &told)),
        Event::CallBegins => return begin(&mut daemon, place, &told).map_err(not_noted),
        Event::CallEnds => end(&mut daemon, place, &told),
        Event::Prompt => prompt(&mut daemon, place, &told),
        Event::TurnEnds(_) => turn_ends(&mut daemon, place, &mut told),
        Event::SubagentEnds => match &told.subagent {
            Some(subagent) => {
                let keys = told.keys_of(Some(subagent));
                give_up(&mut daemon, place, keys)
            }
            None => Ok(()),
        },
        Event::SessionEnds => session_ends(&mut daemon, place, &told),
    };
    noted.map_err(not_noted)?;
    Ok(String::new())
}

fn key(told: &Told, call: &ToldCall) -> String {
    told.keys_of(told.subagent.as_deref()) + &call.id
}

/// Asks the rules first; gives what the agent is to be told. A call that is denied does not begin.
fn begin(daemon: &mut Daemon<'_>, place: &Place, told: &Told) -> Result<String, String> {
    let Some(call) = &told.call else {
        return Ok(String::new());
    };
    let judge = Call::JudgeTool(JudgeTool {
        workspace: place.workspace.clone(),
        branch: place.branch.clone(),
        tool: call.name.clone(),
        texts: call.texts.clone(),
    });
    let ruling: JudgeToolAnswer = daemon.ask(&judge)?;
    let answer = refusal::of(&told.agent, &ruling);
    match ruling.verdict.as_str() {
        "deny" => return Ok(answer),
        // Whether the user lets it begin is not told.
        "ask" => drop(start(daemon, place, told, call)),
        _ => start(daemon, place, told, call)?,
    }
    Ok(answer)
}

fn start(
    daemon: &mut Daemon<'_>,
    place: &Place,
    told: &Told,
    call: &ToldCall,
) -> Result<(), String> {
    let start = Call::ToolStart(ToolStart {
        workspace: place.workspace.clone(),
        branch: place.branch.clone(),
        name: call.name.clone(),
        parameters: Some(call.parameters.clone()),
        // What the call changes is in the same journal, behind it.
        unsynced: true,
        of_process: false,
        key: Some(key(told, call)),
    });
    daemon.ask::<CallId>(&start).map(drop)
}

fn end(daemon: &mut Daemon<'_>, place: &Place, told: &Told) -> Result<(), String> {
    let Some(call) = &told.call else {
        return Ok(());
    };
    let key = key(told, call);
    let (result, error) = match &call.outcome {
        Ok(result) => (result.clone(), None),
        Err(why) => (None, Some(why.clone())),
    };
    let finish = Call::ToolFinish(ToolFinish {
        workspace: place.workspace.clone(),
        branch: place.branch.clone(),
        id: None,
        key: Some(key.clone()),
        result,
        error,
        unsynced: true,
    });
    match daemon.ask::<Finished>(&finish)? {
        Finished { id: Some(_) } => Ok(()),
        Finished { id: None } => Err(format!("no call {key} ({}) runs", call.name)),
    }
}

/// Ends calls of which the agent says nothing more.
fn give_up(daemon: &mut Daemon<'_>, place: &Place, prefix: String) -> Result<(), String> {
    let call = Call::ToolGiveUp(ToolGiveUp {
        workspace: place.workspace.clone(),
        prefix,
        error: NO_END.to_owned(),
    });
    daemon.ask::<GivenUp>(&call).map(drop)
}

fn prompt(daemon: &mut Daemon<'_>, place: &Place, told: &Told) -> Result<(), String> {
    // A turn that was interrupted has no end.
    give_up(daemon, place, told.keys_of(None))?;
    // One of whose turns the agent tells no ids may be asked the same again.
    let unlike = told.prompt.as_deref().filter(|_| told.has_own_id);
    let named = Named {
        turn: turns::PROMPT,
        unlike: unlike.map(|id| (turns::PROMPT, id)),
        joins: None,
        message: "",
    };
    commit(daemon, place, told, &named)
}

fn turn_ends(daemon: &mut Daemon<'_>, place: &Place, told: &mut Told) -> Result<(), String> {
    give_up(daemon, place, told.keys_of(None))?;
    if told.prompt.is_none() {
        told.prompt = last_prompt(daemon, place, told)?;
    }
    let told = &*told;
    let words = match &told.event {
        Event::TurnEnds(words) => words.as_deref(),
        _ => None,
    };
    let turn = told.turn();
    let unlike = turn.as_deref().map(|turn| (turns::TURN, turn));
    let unlike = unlike.unwrap_or((turns::SESSION, &told.session));
    let named = Named {
        turn: turns::PROMPT_END,
        unlike: Some(unlike),
        // Sessions that end a turn on one branch at once leave the same files, which are the work of both.
        joins: Some(turns::PROMPT_END),
        message: words.unwrap_or_default(),
    };
    commit(daemon, place, told, &named)
}

/// The session's newest turn, for an agent that names it only as it begins (OpenHands).
fn last_prompt(
    daemon: &mut Daemon<'_>,
    place: &Place,
    told: &Told,
) -> Result<Option<String>, String> {
    let call = Call::Log(Log {
        workspace: place.workspace.clone(),
        branch: place.branch.clone(),
        all: true,
        limit: Some(LOOKED_AT_MAX),
        after: None,
        digits: false,
        count: false,
    });
    let log = daemon.ask::<LogAnswer>(&call)?;
    let value = |row: &LogRow, key: &str| {
        let mut meta = row.meta.iter();
        meta.find(|(k, _)| k == key).map(|(_, v)| v.clone())
    };
    let own = |row: &&LogRow| {
        value(row, turns::SESSION).as_ref() == Some(&told.session)
            && value(row, turns::AGENT).as_ref() == Some(&told.agent)
    };
    let mut own = log.commits.iter().filter(own);
    Ok(own.find_map(|row| value(row, turns::PROMPT)))
}

fn session_ends(daemon: &mut Daemon<'_>, place: &Place, told: &Told) -> Result<(), String> {
    give_up(daemon, place, told.keys_of(None))?;
    give_up(daemon, place, told.keys_of_subagents())?;
    let named = Named {
        turn: turns::SESSION_END,
        unlike: Some((turns::SESSION, told.session.as_str())),
        joins: None,
        message: "",
    };
    commit(daemon, place, told, &named)
}

/// What of a commit is of its event.
struct Named<'a> {
    /// The key that names the turn.
    turn: &'a str,
    /// Key and value of the commit that it must differ from.
    unlike: Option<(&'a str, &'a str)>,
    /// The key of commits of other sessions whose metadata it has, too, where the files are the same.
    joins: Option<&'a str>,
    message: &'a str,
}

/// An automatic commit that names the session and the turn.
fn commit(
    daemon: &mut Daemon<'_>,
    place: &Place,
    told: &Told,
    named: &Named<'_>,
) -> Result<(), String> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let mut meta = vec![
        owned((turns::AGENT, &told.agent)),
        owned((turns::SESSION, &told.session)),
    ];
    meta.extend(told.prompt.as_deref().map(|id| owned((named.turn, id))));
    // On both ends of a turn, so that a hook that is installed twice, for the user and for the project, makes one commit.
    meta.extend(told.turn().map(|turn| (turns::TURN.to_owned(), turn)));
    let call = Call::Checkpoint(Checkpoint {
        workspace: place.workspace.clone(),
        branch: place.branch.clone(),
        label: None,
        message: named.message.to_owned(),
        meta,
        wait: false,
        automatic: true,
        unlike: named.unlike.map(owned),
        joins: named.joins.map(str::to_owned),
        progress: false,
    });
    daemon.ask::<CheckpointAnswer>(&call).map(drop)
}

/// What an agent is told when a session begins, in the form of its own.
fn welcome(place: &Place, told: &Told) -> String {
    let text = format!(
        "This directory is the agentvfs workspace {}, branch {}: every tool call and turn is kept.\n\
        Before risky work: agentvfs checkpoint LABEL. Back to it: agentvfs rollback LABEL; agentvfs undo reverses that.\n\
        One file: agentvfs restore --ref LABEL PATH. One call: agentvfs timeline, then agentvfs tool undo ID.\n\
        Where am I: agentvfs status. What changed: agentvfs diff. Conflicts of a merge: agentvfs branch conflicts.",
        place.workspace, place.branch,
    );
    match told.agent.as_str() {
        "claude" | "codex" | "gemini" => json!({
            "hookSpecificOutput": { "hookEventName": "SessionStart", "additionalContext": text }
        }),
        "cursor" => json!({ "additional_context": text }),
        // What others do with what they are told is not known.
        _ => return String::new(),
    }
    .to_string()
}

/// The daemon, as long as there is time to ask it.
struct Daemon<'a> {
    home: &'a Home,
    client: Option<Client>,
    until: Instant,
}

impl Daemon<'_> {
    fn ask<R: DeserializeOwned>(&mut self, call: &Call) -> Result<R, String> {
        loop {
            let answer = match self.client() {
                Ok(client) => client.call(call),
                Err(error) => Err(error),
            };
            match answer {
                Ok(answer) => return Ok(answer),
                Err(
                    error
                    @ (ClientError::NotRunning | ClientError::Ending | ClientError::Broken(_)),
                ) => {
                    // A daemon that ends on request, or that nobody replaces, is not waited for.
                    if Instant::now() >= self.until || !self.is_kept() {
                        return Err(error.to_string());
                    }
                    self.client = None;
                    std::thread::sleep(AGAIN);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn client(&mut self) -> Result<&mut Client, ClientError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&self.socket())?,
        };
        Ok(self.client.insert(client))
    }

    /// The daemon's socket, or in the sandbox of a run the run's.
    fn socket(&self) -> PathBuf {
        let of_run = self.home.socket_of_run();
        of_run.map_or_else(|| self.home.socket(), Path::to_owned)
    }

    /// Whether a daemon that dies is replaced. A run waits for the next one itself.
    fn is_kept(&self) -> bool {
        self.home.socket_of_run().is_some() || is_kept(self.home)
    }
}

/// Whether a keeper of the home listens, which replaces a daemon that dies. It is not asked: it would take whoever asks
/// for a daemon.
fn is_kept(home: &Home) -> bool {
    let socket = home.keeper_socket();
    let Ok(sockets) = std::fs::read("/proc/net/unix") else {
        return false;
    };
    let path = socket.as_os_str().as_bytes();
    sockets
        .split(|byte| *byte == b'\n')
        .any(|line| line.ends_with(path) && line[..line.len() - path.len()].ends_with(b" "))
}
