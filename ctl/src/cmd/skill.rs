//! `agentvfs skill`.

use crate::output::{print, print_json};
use agentvfs_agents::SKILL;
use agentvfs_client::failure::Failure;
use serde_json::json;

/// Prints the Skill.
pub fn run(json: bool) -> Result<u8, Failure> {
    match json {
        true => print_json(&json!({ "skill": SKILL }))?,
        false => print(SKILL.as_bytes())?,
    }
    Ok(0)
}
