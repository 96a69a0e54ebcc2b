//! What programs of agents (Claude Code, Codex, Gemini CLI, Cursor, OpenHands and others) tell by themselves.
//!
//! Owns the forms in which they tell it, and what is written in their settings so that they do. Invariant: an agent is never held up: whatever goes wrong, it hears nothing of
//! it and goes on. Nothing is printed here, and neither arguments nor environment are read; no daemon is started.

#![forbid(unsafe_code)]

pub mod hook;
pub mod setup;

/// The Skill: what an agent is to know of agentvfs, as `SKILL.md` of a directory of that name
/// (<https://agentskills.io>).
pub const SKILL: &str = include_str!("SKILL.md");
