//! Requests about policies: setting, showing, and what one says of a tool call.
//!
//! Invariant: a text that does not compile is never kept.
//!
//! Tests: `tests/tests/policy.rs`.

use super::faults;
use super::mounts::Mounts;
use super::policies::{Compiled, Policy, ToolCall, ToolVerdict};
use super::policies::{ONE, refused, unreadable};
use super::request::on;
use agentvfs_client::protocol::{
    Fault, JudgeTool, JudgeToolAnswer, PolicyAnswer, PolicyOf, PolicySet,
};
use engine::judge::Sentence;
use engine::{StoredPolicy, Workspace, verbs};

fn answer(kept: StoredPolicy, policy: &Policy) -> PolicyAnswer {
    PolicyAnswer {
        version: kept.version,
        rules: policy.len() as u64,
        text: kept.text,
    }
}

/// Keeps another policy, which holds for all changes from then on.
pub fn set(mounts: &Mounts, ask: &PolicySet) -> Result<PolicyAnswer, Fault> {
    let compiled = Compiled::load(&ask.text).map_err(refused)?;
    let name = &ask.workspace;
    let engine = mounts.engine();
    let answer = {
        let _one = ONE.lock();
        let kept = engine
            .set_policy(name, &ask.text)
            .map_err(|e| faults::of_engine(&e, name))?;
        let answer = answer(kept, &compiled.policy);
        if let Some(workspace) = engine.opened(name) {
            let policies = mounts.policies();
            policies.put_in_force(&workspace, answer.version, compiled);
        }
        answer
    };
    mounts.policy_changed(name);
    Ok(answer)
}

/// The policy of a workspace.
pub fn show(mounts: &Mounts, ask: &PolicyOf) -> Result<PolicyAnswer, Fault> {
    let name = &ask.workspace;
    let kept = mounts
        .engine()
        .policy(name)
        .map_err(|e| unreadable(&e, name))?;
    let Some(kept) = kept else {
        return Ok(PolicyAnswer {
            version: 0,
            rules: 0,
            text: String::new(),
        });
    };
    let policy = Policy::load(&kept.text).map_err(refused)?;
    Ok(answer(kept, &policy))
}

/// Version of the policy that is in force in a running workspace, if it has rules.
pub fn version(workspace: &Workspace) -> Option<u64> {
    Some(workspace.judges().version()).filter(|version| *version > 0)
}

/// What the policy says of a tool call.
pub fn judge_tool(mounts: &Mounts, ask: &JudgeTool) -> Result<JudgeToolAnswer, Fault> {
    let allowed = JudgeToolAnswer {
        verdict: ToolVerdict::Allow.word().to_owned(),
        rule: None,
        reason: None,
    };
    on(mounts, &ask.workspace, |workspace| {
        let policy = mounts.policies().of(&ask.workspace);
        let Some(policy) = policy.filter(|policy| policy.is_about_tools()) else {
            return Ok(allowed);
        };
        let run = verbs::run_of(workspace, &ask.branch)?;
        let ruling = policy.judge_tool(&ToolCall {
            tool: &ask.tool,
            texts: &ask.texts,
            branch: &ask.branch,
            run: run.as_deref(),
        });
        let Some(ruling) = ruling else {
            return Ok(allowed);
        };
        let sentence = match ruling.verdict {
            ToolVerdict::Allow => Sentence::Allow,
            ToolVerdict::Watch => Sentence::Watch,
            ToolVerdict::Ask => Sentence::Ask,
            ToolVerdict::Deny => Sentence::Deny(0),
        };
        let detail = format!("rule={} op=tool name={}", ruling.rule, ask.tool);
        verbs::tell_verdict(workspace, &ask.branch, sentence, &detail)?;
        Ok(JudgeToolAnswer {
            verdict: ruling.verdict.word().to_owned(),
            rule: Some(ruling.rule.to_string()),
            reason: ruling.reason.map(|reason| reason.to_string()),
        })
    })
}
