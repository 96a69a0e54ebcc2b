//! Hooks come and go, in files that are fixed and in random ones.

use super::super::json::random::{gap, json, object};
use super::*;
use proptest::prelude::*;

const CLAUDE: Hooks = Hooks {
    form: Form::Groups,
    events: &["PreToolUse", "Stop"],
    agent: "claude",
};

const CURSOR: Hooks = Hooks {
    form: Form::Flat,
    events: &["preToolUse", "stop"],
    agent: "cursor",
};

fn entry(hooks: &Hooks, before: &str, after: &Edited) -> Entry {
    Entry::of(hooks.agent, (before, after), before.is_empty())
}

#[test]
fn a_new_file_is_what_agents_read_and_goes_again() {
    let after = CLAUDE.with("", "agentvfs").unwrap();
    let hook =
        serde_json::json!([{"hooks": [{"type": "command", "command": "agentvfs hook claude"}]}]);
    let expected = serde_json::json!({"hooks": {"PreToolUse": hook, "Stop": hook}});
    assert_eq!(
        serde_json::from_str::<Value>(&after.text).unwrap(),
        expected
    );
    let left = CLAUDE
        .without(&after.text, &entry(&CLAUDE, "", &after))
        .unwrap();
    assert_eq!((left.text.as_str(), left.whole), ("", true));
    let after = CURSOR.with("", "agentvfs").unwrap();
    let hook = serde_json::json!([{"command": "agentvfs hook cursor"}]);
    let expected = serde_json::json!({"version": 1, "hooks": {"preToolUse": hook, "stop": hook}});
    assert_eq!(
        serde_json::from_str::<Value>(&after.text).unwrap(),
        expected
    );
}

#[test]
fn what_the_user_did_in_the_same_lines_stays() {
    let before = "{\"hooks\": {\"Stop\": []}, \"model\": \"x\"}";
    let after = CLAUDE.with(before, "agentvfs").unwrap();
    let entry = entry(&CLAUDE, before, &after);
    let changed = after.text.replace("\"x\"", "\"y\"").replace('\n', " ");
    let left = CLAUDE.without(&changed, &entry).unwrap();
    let expected = serde_json::json!({"hooks": {"Stop": []}, "model": "y"});
    assert!(
        left.whole && value(&left.text).unwrap() == expected,
        "{}",
        left.text
    );
    // A hook of the user's own in our group.
    let own = "{\"type\": \"command\", \"command\": \"own\"}, {\"type\": \"command\"";
    let changed = after.text.replace("{\"type\": \"command\"", own);
    let changed = match changed == after.text {
        true => after.text.replacen(
            "\"type\": \"command\"",
            "\"type\": \"command\", \"timeout\": 5",
            1,
        ),
        false => changed,
    };
    let left = CLAUDE.without(&changed, &entry).unwrap();
    assert!(left.whole && CLAUDE.found(&left.text).unwrap().is_empty());
}

#[test]
fn what_is_not_understood_is_refused() {
    for text in [
        "{",
        "[]",
        "{\"hooks\": 1}",
        "{\"hooks\": {\"Stop\": {}}}",
        "{'a': 1}",
        "{a: 1}",
        "1 2",
    ] {
        assert!(CLAUDE.with(text, "agentvfs").is_err(), "{text}");
    }
}

#[test]
fn our_hook_is_known_wherever_the_program_is() {
    let is_ours = |command: &str| CLAUDE.is_ours(&serde_json::json!({ "command": command }));
    assert!(is_ours("agentvfs hook claude") && is_ours("/opt/a/agentvfs hook claude"));
    assert!(is_ours("'/opt/a b/agentvfs' hook  claude"));
    assert!(!is_ours("agentvfs hook codex") && !is_ours("myagentvfs hook claude"));
    assert!(!is_ours("agentvfs") && !is_ours("echo hook claude"));
}

/// Settings, some with hooks of others.
fn settings() -> impl Strategy<Value = String> {
    let others = prop_oneof![
        Just(None),
        Just(Some("{}")),
        Just(Some("{\"Stop\": []}")),
        Just(Some(
            "{ \"Stop\" : [ {\"hooks\": [{\"type\":\"command\",\"command\":\"x\"}]} , ] }"
        )),
        Just(Some(
            "{\"stop\":[{\"command\":\"y\"}\n],// z\n\"Other\": []}"
        )),
    ];
    let named = prop::collection::btree_map("[a-g]{1,5}", (gap(), json()), 0..5);
    (named, gap(), any::<bool>(), others, gap(), gap()).prop_map(
        |(mut all, end, comma, others, first, last)| {
            if let Some(hooks) = others {
                all.insert("hooks".to_owned(), (String::new(), hooks.to_owned()));
            }
            first + &object((all, end, comma)) + &last
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hooks_come_and_go_and_every_other_byte_stays(before in settings(), cursor in any::<bool>()) {
        let hooks = if cursor { CURSOR } else { CLAUDE };
        let after = hooks.with(&before, "agentvfs").unwrap();
        prop_assert_eq!(hooks.found(&after.text).unwrap().len(), hooks.events.len());
        let again = hooks.with(&after.text, "agentvfs").unwrap();
        prop_assert_eq!(&again.text, &after.text);
        let entry = entry(&hooks, &before, &after);
        let left = hooks.without(&after.text, &entry).unwrap();
        prop_assert!(left.whole);
        prop_assert_eq!(&left.text, &before);
        // The user adds a line at the end.
        let line = "\n// mine";
        let left = hooks.without(&(after.text.clone() + line), &entry).unwrap();
        prop_assert!(left.whole);
        prop_assert!(value(&left.text).unwrap() == value(&before).unwrap() && left.text.ends_with(line));
    }

    #[test]
    fn any_bytes_are_refused_or_stay(text in ".{0,80}") {
        if let Ok(after) = CLAUDE.with(&text, "agentvfs") {
            let entry = entry(&CLAUDE, &text, &after);
            prop_assert!(CLAUDE.without(&after.text, &entry).unwrap().whole);
        }
    }
}
