//! What an agent is told of a tool call that rules deny, or about which the user is to be asked, in the agent's own form.
//!
//! Codex, Gemini CLI and OpenHands have no way to ask the user from a hook: they are told to.

use agentvfs_client::protocol::JudgeToolAnswer;
use serde_json::{Value, json};

/// The answer to the hook; empty where the call may be made.
pub fn of(agent: &str, ruling: &JudgeToolAnswer) -> String {
    let asks = match ruling.verdict.as_str() {
        "deny" => false,
        "ask" => true,
        _ => return String::new(),
    };
    let rule = ruling.rule.as_deref().unwrap_or_default();
    let can_ask = matches!(agent, "claude" | "cursor");
    let reason = match (&ruling.reason, asks && !can_ask) {
        (Some(reason), false) => format!("agentvfs rule {rule}: {reason}"),
        (None, false) => format!("agentvfs rule {rule} does not allow this."),
        (Some(reason), true) => {
            format!("agentvfs rule {rule}: {reason} Ask the user to do it.")
        }
        (None, true) => format!("agentvfs rule {rule}: ask the user to do this."),
    };
    let decision = match asks && can_ask {
        true => "ask",
        false => "deny",
    };
    form(agent, decision, &reason).to_string()
}

fn form(agent: &str, decision: &str, reason: &str) -> Value {
    let claude = json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    });
    match agent {
        "claude" | "codex" => json!({ "hookSpecificOutput": claude }),
        "gemini" => json!({ "decision": decision, "reason": reason }),
        "cursor" => json!({
            "permission": decision,
            "user_message": reason,
            "agent_message": reason,
        }),
        // OpenHands, and whoever has taken over one of these forms.
        _ => json!({ "decision": decision, "reason": reason, "hookSpecificOutput": claude }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruling(verdict: &str, reason: Option<&str>) -> JudgeToolAnswer {
        JudgeToolAnswer {
            verdict: verdict.into(),
            rule: Some("r".into()),
            reason: reason.map(str::to_owned),
        }
    }

    fn told(agent: &str, verdict: &str) -> Value {
        serde_json::from_str(&of(agent, &ruling(verdict, Some("No.")))).unwrap()
    }

    #[test]
    fn what_is_allowed_is_no_answer() {
        for verdict in ["allow", "soft_watch", "what is this"] {
            assert_eq!(of("claude", &ruling(verdict, None)), "");
        }
    }

    #[test]
    fn each_agent_is_told_in_its_own_form() {
        let of_claude = |agent, verdict| {
            let told = told(agent, verdict);
            let said = &told["hookSpecificOutput"];
            assert_eq!(said["hookEventName"], "PreToolUse");
            (
                said["permissionDecision"].clone(),
                said["permissionDecisionReason"].clone(),
            )
        };
        let reason = json!("agentvfs rule r: No.");
        assert_eq!(of_claude("claude", "deny"), (json!("deny"), reason.clone()));
        assert_eq!(of_claude("claude", "ask").0, "ask");
        assert_eq!(of_claude("codex", "deny"), (json!("deny"), reason.clone()));
        let asked = json!("agentvfs rule r: No. Ask the user to do it.");
        assert_eq!(of_claude("codex", "ask"), (json!("deny"), asked.clone()));
        assert_eq!(
            told("gemini", "deny"),
            json!({"decision": "deny", "reason": reason})
        );
        assert_eq!(
            told("gemini", "ask"),
            json!({"decision": "deny", "reason": asked})
        );
        assert_eq!(told("cursor", "ask")["permission"], "ask");
        assert_eq!(told("cursor", "deny")["agent_message"], reason);
        assert_eq!(told("openhands", "deny")["decision"], "deny");
        assert_eq!(of_claude("openhands", "deny").0, "deny");
    }
}
