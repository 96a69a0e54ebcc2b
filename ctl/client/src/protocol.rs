//! The control protocol: JSON-RPC 2.0, one message a line. `docs/protocol.md` describes it.
//!
//! Owns the wire types and the decoding of requests, for both sides. Invariant: decoding is total;
//! any bytes give a [`Request`] or a [`Refusal`] that can be sent back.

/// Declares wire types: what both sides encode, decode and compare; unknown fields are refused.
macro_rules! wire {
    ($($item:item)*) => {
        $(
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            $item
        )*
    };
}

mod apply;
mod branch;
mod bytes;
mod cancel;
mod events;
mod exchange;
mod fault;
mod files;
mod handles;
mod kv;
mod mounting;
mod policy;
mod remote;
mod run;
mod session;
mod store;
mod timeline;
pub mod turns;
mod types;

pub use apply::*;
pub use branch::*;
pub use bytes::Bytes;
pub use cancel::{CancelHeard, CancelRequest};
pub use events::*;
pub use exchange::*;
pub use fault::Fault;
pub use files::*;
pub use handles::*;
pub use kv::*;
pub use mounting::*;
pub use policy::*;
pub use remote::*;
pub use run::*;
pub use session::*;
pub use store::*;
pub use timeline::*;
pub use types::*;

use types::is_not;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest notification that cancels a request.
const CANCEL_BYTES_MAX: usize = 4096;

/// Version of the protocol; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 1;

/// Longest request, in bytes, its newline included.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Method of the notifications that a daemon sends while it works on a request.
pub const PROGRESS: &str = "progress";

/// Method of the notifications that carry a part of a long result before its answer.
pub const DATA: &str = "data";

/// Method of the notification by which a client cancels a request that is worked on, and of the one by
/// which it hears whether that came in time.
pub const CANCEL: &str = "cancel";

/// Kind of the fault that answers a request that was cancelled.
pub const CANCELLED: &str = "cancelled";

/// Bytes of a file in one answer or request, and of a long result in one notification.
pub const PIECE_BYTES: usize = 256 << 10;

/// Error codes: those of JSON-RPC 2.0, and those of this protocol from -32000 on.
pub mod code {
    /// The line is not JSON.
    pub const PARSE: i32 = -32700;
    /// JSON, but not a request.
    pub const INVALID_REQUEST: i32 = -32600;
    /// No such method.
    pub const NO_METHOD: i32 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The work failed; `data.kind` says how.
    pub const FAILED: i32 = -32000;
    /// The daemon is ending and did nothing: connect again.
    pub const ENDING: i32 = -32001;
    /// The first message was no `hello`, or one of another version.
    pub const VERSION: i32 = -32002;
}

/// Who asked, to be repeated in the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// None could be read.
    Null,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// What is asked.
    pub call: Call,
    /// Whoever asks wants to hear how far it is.
    pub progress: bool,
}

/// A request that could not be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The request's id where it could be read.
    pub id: RequestId,
    /// Why.
    pub fault: Fault,
}

/// What asking a second time would do.
enum Effect {
    /// Nothing: it looks and changes nothing.
    Looks,
    /// Perhaps something that was done already.
    Changes,
}

/// Declares the methods once: name, parameters, effect, and the decoding by name.
macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident = $name:literal ($params:ty) $effect:ident;)*) => {
        /// What can be asked.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "method", content = "params")]
        pub enum Call {
            $($(#[$doc])* #[serde(rename = $name)] $variant($params),)*
        }

        impl Call {
            fn effect(&self) -> Effect {
                match self {
                    $(Call::$variant(..) => Effect::$effect,)*
                }
            }
        }

        /// Names of all methods.
        pub const METHODS: &[&str] = &[$($name),*];

        fn decode_call(method: &str, params: Value) -> Result<Call, Fault> {
            match method {
                $($name => decode_params(params).map(Call::$variant),)*
                _ => Err(Fault::protocol(code::NO_METHOD, format!("no method {method:?}"))),
            }
        }
    };
}

methods! {
    /// The first message of a connection.
    Hello = "hello" (Hello) Changes;
    /// All workspaces.
    List = "workspace.list" (Nothing) Looks;
    /// Makes a workspace.
    Init = "workspace.init" (Init) Changes;
    /// Mounts a workspace; makes it first where a base is given.
    Start = "workspace.start" (Start) Changes;
    /// Unmounts a workspace.
    Stop = "workspace.stop" (Stop) Changes;
    /// What a workspace is doing.
    Status = "workspace.status" (StatusOf) Looks;
    /// Removes a workspace.
    Delete = "workspace.delete" (Named) Changes;
    /// Makes a commit.
    Checkpoint = "workspace.checkpoint" (Checkpoint) Changes;
    /// Goes back.
    Rollback = "workspace.rollback" (Rollback) Changes;
    /// What going back would change.
    RollbackPlan = "workspace.rollback_plan" (Rollback) Looks;
    /// Takes the last rollback, restore, merge, resolve or update back.
    Undo = "workspace.undo" (Undo) Changes;
    /// Takes the last undo back.
    Redo = "workspace.redo" (OnBranch) Changes;
    /// The commits of a branch.
    Log = "workspace.log" (Log) Looks;
    /// What differs.
    Diff = "workspace.diff" (Diff) Looks;
    /// Makes a branch.
    BranchCreate = "branch.create" (BranchCreate) Changes;
    /// The branches of a workspace.
    BranchList = "branch.list" (BranchList) Looks;
    /// Removes a branch.
    BranchDelete = "branch.delete" (OnBranch) Changes;
    /// Gives a branch another name.
    BranchRename = "branch.rename" (BranchRename) Changes;
    /// Merges a branch into another.
    BranchMerge = "branch.merge" (BranchMerge) Changes;
    /// Conflicts that are not settled.
    BranchConflicts = "branch.conflicts" (OnBranch) Looks;
    /// Settles a conflict.
    BranchResolve = "branch.resolve" (BranchResolve) Changes;
    /// What differs between two branches.
    BranchDiff = "branch.diff" (BranchDiff) Looks;
    /// Writes a branch's changes to the base.
    Apply = "workspace.apply" (Apply) Changes;
    /// What that would change, as a patch.
    ApplyPatch = "workspace.apply_patch" (Apply) Looks;
    /// Merges what was changed in the base into a branch.
    Update = "workspace.update" (Update) Changes;
    /// Whether a ref names something.
    HasRef = "workspace.has_ref" (HasRef) Looks;
    /// Gives all mounts up and ends, for a daemon of another build.
    HandOver = "daemon.hand_over" (Nothing) Changes;
    /// What differs, as a patch.
    Patch = "workspace.patch" (Diff) Looks;
    /// What is known of a path.
    FsStat = "fs.stat" (AtPath) Looks;
    /// The entries of a directory.
    FsList = "fs.list" (ListFiles) Looks;
    /// A part of a file.
    FsRead = "fs.read" (ReadFile) Looks;
    /// Writes a part of a file.
    FsWrite = "fs.write" (WriteFile) Changes;
    /// Makes a directory.
    FsMkdir = "fs.mkdir" (MakeDir) Changes;
    /// Removes a file or a directory.
    FsRemove = "fs.remove" (RemovePath) Changes;
    /// Gives a file or directory another path.
    FsRename = "fs.rename" (RenamePath) Changes;
    /// Copies a file.
    FsCopy = "fs.copy" (CopyPath) Changes;
    /// Makes a symbolic link.
    FsSymlink = "fs.symlink" (MakeLink) Changes;
    /// Gives a file another length.
    FsTruncate = "fs.truncate" (SetLength) Changes;
    /// Changes permission bits.
    FsChmod = "fs.chmod" (SetPerm) Changes;
    /// What a branch takes, and what the disk has.
    FsStatfs = "fs.statfs" (OnBranch) Looks;
    /// Opens a file.
    FsOpen = "fs.open" (OpenPath) Changes;
    /// A part of an open file.
    FsPread = "fs.pread" (ReadHandle) Looks;
    /// Writes a part of an open file.
    FsPwrite = "fs.pwrite" (WriteHandle) Changes;
    /// Gives an open file another length.
    FsFtruncate = "fs.ftruncate" (ResizeHandle) Changes;
    /// What is known of an open file.
    FsFstat = "fs.fstat" (OfHandle) Looks;
    /// Brings an open file to stable storage.
    FsFsync = "fs.fsync" (OfHandle) Changes;
    /// Closes an open file.
    FsClose = "fs.close" (OfHandle) Changes;
    /// Brings a branch to stable storage.
    Sync = "workspace.sync" (OnBranch) Changes;
    /// Checks everything, changes nothing.
    Fsck = "store.fsck" (Nothing) Looks;
    /// What takes the space.
    Stats = "store.stats" (Nothing) Looks;
    /// Gives space back.
    Gc = "store.gc" (Gc) Changes;
    /// Settings of the store.
    Config = "store.config" (Config) Changes;
    /// Has the processes of a cgroup see a branch.
    SessionRegister = "session.register" (SessionRegister) Changes;
    /// The registered cgroups.
    SessionList = "session.list" (SessionList) Looks;
    /// Forgets a cgroup.
    SessionUnregister = "session.unregister" (SessionUnregister) Changes;
    /// Notes that a command in a sandbox begins.
    RunBegin = "run.begin" (RunBegin) Changes;
    /// Notes that one has ended and changed nothing.
    RunWroteNothing = "run.wrote_nothing" (RunWroteNothing) Changes;
    /// Writes a commit as a database.
    Export = "workspace.export" (ExportFile) Changes;
    /// Makes a workspace, or a branch, of a database.
    Import = "workspace.import" (ImportFile) Changes;
    /// Sets a key.
    KvSet = "kv.set" (KvSet) Changes;
    /// What a key has.
    KvGet = "kv.get" (KvGet) Looks;
    /// Keys with their values.
    KvList = "kv.list" (KvList) Looks;
    /// Removes a key.
    KvDelete = "kv.delete" (KvDelete) Changes;
    /// Notes that a tool call begins.
    ToolStart = "tool.start" (ToolStart) Changes;
    /// Notes that one has ended.
    ToolFinish = "tool.finish" (ToolFinish) Changes;
    /// Gives up those that nobody ends any more.
    ToolGiveUp = "tool.give_up" (ToolGiveUp) Changes;
    /// Notes one that is over.
    ToolRecord = "tool.record" (ToolRecord) Changes;
    /// One call.
    ToolShow = "tool.show" (OneCall) Looks;
    /// Takes back what one changed.
    ToolUndo = "tool.undo" (ToolUndo) Changes;
    /// Calls and switches, the newest first.
    Timeline = "timeline.list" (TimelineList) Looks;
    /// How often each tool was called, and how that ended.
    TimelineStats = "timeline.stats" (OnBranch) Looks;
    /// Whether the timeline is what was recorded.
    TimelineVerify = "timeline.verify" (OnBranch) Looks;
    /// Who changed a path.
    Blame = "timeline.blame" (BlamePath) Looks;
    /// What happens, as it happens.
    Subscribe = "events.subscribe" (Subscribe) Looks;
    /// Sets the rules that changes are judged by.
    PolicySet = "policy.set" (PolicySet) Changes;
    /// The rules that hold.
    PolicyShow = "policy.show" (PolicyOf) Looks;
    /// What the rules say of a tool call.
    JudgeTool = "policy.judge_tool" (JudgeTool) Looks;
    /// Adds a remote.
    RemoteAdd = "remote.add" (RemoteAdd) Changes;
    /// The remotes of a workspace.
    RemoteList = "remote.list" (RemoteList) Looks;
    /// Forgets a remote.
    RemoteRemove = "remote.remove" (RemoteRemove) Changes;
    /// Sends branches to a remote.
    RemotePush = "remote.push" (RemotePush) Changes;
    /// Brings branches of a remote.
    RemoteFetch = "remote.fetch" (RemoteFetch) Changes;
    /// Makes a workspace of what a remote has.
    RemoteClone = "remote.clone" (RemoteClone) Changes;
    /// Brings files of a lazy workspace before they are read.
    RemotePrefetch = "remote.prefetch" (RemotePrefetch) Changes;
    /// Removes from a remote what nobody needs.
    RemoteGc = "remote.gc" (RemoteGc) Changes;
}

impl Call {
    /// Whether it changes nothing, so that it may be asked again where the answer got lost.
    pub fn only_looks(&self) -> bool {
        matches!(self.effect(), Effect::Looks)
    }
}

/// A call for a log, cut where it is long.
pub fn shown(call: &Call) -> String {
    const CHARACTERS_MAX: usize = 300;
    let text = format!("{call:?}");
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn decode_params<P: DeserializeOwned>(params: Value) -> Result<P, Fault> {
    serde_json::from_value(params).map_err(|e| Fault::protocol(code::INVALID_PARAMS, e.to_string()))
}

#[derive(Deserialize)]
struct Envelope {
    jsonrpc: String,
    id: RequestId,
    method: String,
    #[serde(default = "no_params")]
    params: Value,
    /// Not of JSON-RPC; what takes no time ignores it.
    #[serde(default)]
    progress: bool,
}

fn no_params() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Reads one request from a line (its newline may be left out).
pub fn parse_request(line: &[u8]) -> Result<Request, Refusal> {
    let refuse = |id, code, why: String| Refusal {
        id,
        fault: Fault::protocol(code, why),
    };
    if line.len() > REQUEST_BYTES_MAX {
        let why = format!("the request is longer than {REQUEST_BYTES_MAX} bytes");
        return Err(refuse(RequestId::Null, code::INVALID_REQUEST, why));
    }
    let value: Value = serde_json::from_slice(line)
        .map_err(|e| refuse(RequestId::Null, code::PARSE, e.to_string()))?;
    let id = id_of(&value);
    let envelope: Envelope = serde_json::from_value(value)
        .map_err(|e| refuse(id.clone(), code::INVALID_REQUEST, e.to_string()))?;
    if envelope.jsonrpc != "2.0" || envelope.id == RequestId::Null {
        let why = "a request needs jsonrpc \"2.0\" and an id".to_owned();
        return Err(refuse(id, code::INVALID_REQUEST, why));
    }
    let call = decode_call(&envelope.method, envelope.params).map_err(|fault| Refusal {
        id: id.clone(),
        fault,
    })?;
    Ok(Request {
        id,
        call,
        progress: envelope.progress,
    })
}

fn id_of(value: &Value) -> RequestId {
    let id = value.get("id").cloned().unwrap_or(Value::Null);
    serde_json::from_value(id).unwrap_or(RequestId::Null)
}

/// A request as it is sent, newline included.
pub fn encode_request(id: i64, call: &Call) -> Vec<u8> {
    encode_watched(id, call, false)
}

/// The same; with `progress`, of somebody who wants to hear how far it is.
pub fn encode_watched(id: i64, call: &Call, progress: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Wire<'a> {
        jsonrpc: &'static str,
        id: i64,
        #[serde(skip_serializing_if = "is_not")]
        progress: bool,
        #[serde(flatten)]
        call: &'a Call,
    }
    to_line(&Wire {
        jsonrpc: "2.0",
        id,
        progress,
        call,
    })
}

/// An answer as it is sent, newline included.
pub fn encode_answer(id: &RequestId, answer: &Result<Value, Fault>) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    enum Body<'a> {
        Result(&'a Value),
        Error(&'a Fault),
    }
    #[derive(Serialize)]
    struct Wire<'a> {
        jsonrpc: &'static str,
        id: &'a RequestId,
        #[serde(flatten)]
        body: Body<'a>,
    }
    let body = match answer {
        Ok(value) => Body::Result(value),
        Err(fault) => Body::Error(fault),
    };
    to_line(&Wire {
        jsonrpc: "2.0",
        id,
        body,
    })
}

/// A progress notification as it is sent, newline included.
pub fn encode_progress(progress: &Progress) -> Vec<u8> {
    encode_notification(PROGRESS, progress)
}

/// A part of a long result as it is sent, newline included.
pub fn encode_data(id: i64, bytes: &[u8]) -> Vec<u8> {
    let mut line = Vec::new();
    encode_data_to(id, bytes, &mut line);
    line
}

/// The same in memory that is there already.
pub fn encode_data_to(id: i64, bytes: &[u8], line: &mut Vec<u8>) {
    // Base64 needs no escapes, so its text is made in place.
    line.clear();
    line.reserve(bytes.len() / 3 * 4 + 100);
    line.extend_from_slice(br#"{"jsonrpc":"2.0","method":""#);
    line.extend_from_slice(DATA.as_bytes());
    line.extend_from_slice(br#"","params":{"id":"#);
    line.extend_from_slice(id.to_string().as_bytes());
    line.extend_from_slice(br#","b64":""#);
    crate::quote::push_base64(bytes, line);
    line.extend_from_slice(b"\"}}\n");
}

/// The notification that cancels a request, newline included.
pub fn encode_cancel(id: i64) -> Vec<u8> {
    let id = RequestId::Number(id);
    encode_notification(CANCEL, &CancelRequest { id })
}

/// The notification that says whether a request will be cancelled, newline included.
pub fn encode_cancel_heard(heard: &CancelHeard) -> Vec<u8> {
    encode_notification(CANCEL, heard)
}

/// Reads a notification that cancels a request; `None` where a line is something else.
pub fn parse_cancel(line: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct Wire {
        method: String,
        id: Option<Value>,
        params: CancelRequest,
    }
    if line.len() > CANCEL_BYTES_MAX {
        return None;
    }
    let wire: Wire = serde_json::from_slice(line).ok()?;
    (wire.method == CANCEL && wire.id.is_none()).then_some(wire.params.id)
}

fn encode_notification(method: &'static str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Wire<'a, P> {
        jsonrpc: &'static str,
        method: &'static str,
        params: &'a P,
    }
    to_line(&Wire {
        jsonrpc: "2.0",
        method,
        params,
    })
}

fn to_line(message: &impl Serialize) -> Vec<u8> {
    // The wire types have string keys only and no failing implementations, so this cannot fail; an
    // empty line would be refused by the other side.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// What a daemon sends.
#[derive(Debug, Clone, PartialEq)]
pub enum FromDaemon {
    /// How far a request is.
    Progress(Progress),
    /// A part of a long result: the request's id, and bytes.
    Data(i64, Vec<u8>),
    /// Whether a request will be cancelled.
    Cancel(CancelHeard),
    /// The answer to a request.
    Answer(RequestId, Result<Value, Fault>),
}

/// Reads one message of a daemon; `None` where it is none.
pub fn parse_from_daemon(line: &[u8]) -> Option<FromDaemon> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        id: Option<RequestId>,
        method: Option<String>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
        error: Option<Fault>,
        #[serde(default)]
        result: Value,
    }
    let wire: Wire<'_> = serde_json::from_slice(line).ok()?;
    let params = wire.params.map(RawValue::get);
    match wire.method.as_deref() {
        Some(PROGRESS) => {
            let progress = serde_json::from_str(params?).ok()?;
            return Some(FromDaemon::Progress(progress));
        }
        Some(CANCEL) => {
            let heard = serde_json::from_str(params?).ok()?;
            return Some(FromDaemon::Cancel(heard));
        }
        Some(DATA) => {
            let data: Data = serde_json::from_str(params?).ok()?;
            let bytes = crate::quote::from_base64(&data.b64)?;
            return Some(FromDaemon::Data(data.id, bytes));
        }
        _ => {}
    }
    let answer = wire.error.map_or(Ok(wire.result), Err);
    Some(FromDaemon::Answer(
        wire.id.unwrap_or(RequestId::Null),
        answer,
    ))
}

#[cfg(test)]
mod tests;
