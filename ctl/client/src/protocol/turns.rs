//! Metadata of the commits that agents' hooks make at both ends of a turn.

/// Name of the agent's program.
pub const AGENT: &str = "agent";
/// Id of the agent's session.
pub const SESSION: &str = "session";
/// Session and turn; on the commits at both ends of it.
pub const TURN: &str = "turn";
/// Id of the turn that begins.
pub const PROMPT: &str = "prompt";
/// Id of the turn that has ended.
pub const PROMPT_END: &str = "prompt-end";
/// Id of the last turn of a session that has ended.
pub const SESSION_END: &str = "session-end";
/// All of them. A command in a sandbox may make automatic commits with these and no others.
pub const ALL: [&str; 6] = [AGENT, SESSION, TURN, PROMPT, PROMPT_END, SESSION_END];
