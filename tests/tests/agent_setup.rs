//! `agentvfs agent`: what it writes in agents' settings is what they read, and goes again without a trace.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tests::env::{Env, Told};
use tests::mcp::Mcp;

/// A user with settings of Claude Code.
struct User {
    env: Env,
    home: PathBuf,
}

const SETTINGS: &str =
    "{\r\n\t// mine\r\n\t\"model\": \"opus\", /* and */ \"hooks\": {\"Stop\": [],},\r\n}";

impl User {
    fn new() -> Option<User> {
        let env = Env::new()?;
        let home = env.path("user");
        fs::create_dir_all(home.join(".claude")).unwrap();
        fs::write(home.join(".claude/settings.json"), SETTINGS).unwrap();
        Some(User { env, home })
    }

    fn agent(&self, args: &[&str]) -> Told {
        let args: Vec<&str> = ["agent"].iter().chain(args).copied().collect();
        self.env.told(self.env.command(&self.env.path(""), &args))
    }

    /// Part, file below the home, and state of each row.
    fn rows(&self, args: &[&str]) -> Vec<String> {
        let out = self.agent(args).ok();
        let home = format!("{}/", self.home.display());
        out.lines()
            .map(|row| row.replace(&home, "").replace('\t', " "))
            .collect()
    }

    fn settings(&self) -> String {
        fs::read_to_string(self.home.join(".claude/settings.json")).unwrap()
    }
}

/// All files and directories below one, with their contents.
fn tree(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            all.push((path.clone(), fs::read(&path).ok()));
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    all.sort();
    all
}

/// Files of a user's own in which parts are written.
fn seed(home: &Path) {
    for (name, text) in [
        (".claude.json", "{\"numStartups\": 3, \"mcpServers\": {}}"),
        (".claude/CLAUDE.md", "# Mine\r\n\r\nNo last line end"),
        (
            ".codex/config.toml",
            "model = \"x\" # mine\r\n\r\n[mcp_servers.own]\r\ncommand = 'y'\r\n",
        ),
        (
            ".gemini/settings.json",
            "{\n  // mine\n  \"theme\": \"dark\"\n}\n",
        ),
        (".config/opencode/opencode.jsonc", "{}"),
        (".config/opencode/AGENTS.md", ""),
    ] {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// What is written for a user, agent by agent.
const WANTED: &[&str] = &[
    "claude hooks .claude/settings.json written",
    "claude skill .claude/skills/agentvfs/SKILL.md written",
    "claude mcp .claude.json written",
    "claude instructions .claude/CLAUDE.md written",
    "codex hooks .codex/hooks.json needs-trust",
    "codex skill .agents/skills/agentvfs/SKILL.md written",
    "codex mcp .codex/config.toml written",
    "codex instructions .codex/AGENTS.md written",
    "gemini hooks .gemini/settings.json written",
    "gemini skill .agents/skills/agentvfs/SKILL.md same",
    "gemini mcp .gemini/settings.json written",
    "gemini instructions .gemini/GEMINI.md written",
    "cursor hooks .cursor/hooks.json written",
    "cursor skill .agents/skills/agentvfs/SKILL.md same",
    "cursor mcp .cursor/mcp.json written",
    "openhands hooks .openhands/hooks.json written",
    "openhands skill .agents/skills/agentvfs/SKILL.md same",
    "openhands mcp .openhands/mcp.json written",
    "opencode skill .agents/skills/agentvfs/SKILL.md same",
    "opencode mcp .config/opencode/opencode.jsonc written",
    "opencode instructions .config/opencode/AGENTS.md written",
];

#[test]
fn what_is_installed_is_the_same_the_second_time_and_goes_without_a_trace() {
    let Some(user) = User::new() else { return };
    let all = [
        "claude",
        "codex",
        "gemini",
        "cursor",
        "openhands",
        "opencode",
    ];
    let with = |verb| [&[verb][..], &all].concat();
    seed(&user.home);
    let before = tree(&user.home);
    let dry = user.rows(&[&with("install")[..], &["--dry-run"]].concat());
    assert_eq!(tree(&user.home), before);
    assert_eq!(user.rows(&with("install")), WANTED);
    assert_eq!(dry, WANTED);
    let mode = user.env.home().metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o711, "the home is private, whoever makes it");
    let installed = tree(&user.home);
    let same = |rows: Vec<String>| rows.iter().all(|row| row.ends_with(" same"));
    assert!(same(user.rows(&with("install"))) && same(user.rows(&with("status"))));
    assert_eq!(tree(&user.home), installed);
    let claude = user.settings();
    assert!(claude.starts_with("{\r\n\t// mine\r\n\t\"model\": \"opus\", /* and */ \"hooks\""));
    let dry = user.rows(&[&with("remove")[..], &["--dry-run"]].concat());
    assert_eq!(tree(&user.home), installed);
    let removed = user.rows(&with("remove"));
    assert_eq!(dry, removed);
    assert_eq!(
        removed
            .iter()
            .filter(|row| row.ends_with(" removed"))
            .count(),
        17,
        "{removed:?}"
    );
    assert_eq!(
        removed
            .iter()
            .filter(|row| row.ends_with(" shared"))
            .count(),
        4,
        "{removed:?}"
    );
    assert_eq!(tree(&user.home), before);
    assert!(
        user.rows(&with("remove"))
            .iter()
            .all(|row| row.ends_with(" absent"))
    );
}

#[test]
fn hooks_that_are_installed_are_those_that_agents_call() {
    let Some(user) = User::new() else { return };
    user.agent(&["install", "codex", "cursor", "--hooks"]).ok();
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(user.home.join(path)).unwrap()).unwrap()
    };
    let codex = read(".codex/hooks.json");
    let command = codex
        .pointer("/hooks/PreToolUse/0/hooks/0/command")
        .unwrap();
    let command = command.as_str().unwrap();
    assert!(command.ends_with("agentvfs hook codex"), "{command}");
    let cursor = read(".cursor/hooks.json");
    assert_eq!(cursor.pointer("/version"), Some(&json!(1)));
    assert!(cursor.pointer("/hooks/preToolUse/0/command").is_some());
    // What stands there runs in a shell, as the agents run it.
    let root = user.env.start();
    let mut shell = user.env.program("sh");
    let event = r#"{"hook_event_name": "PreToolUse", "session_id": "s", "tool_use_id": "1", "tool_name": "Bash",
        "tool_input": {"command": "x"}}"#;
    let script = format!("printf '%s' \"$EVENT\" | {command}");
    shell
        .args(["-c", &script])
        .env("EVENT", event)
        .current_dir(&root);
    user.env.told(shell).ok();
    let timeline = user.env.told(user.env.command(&root, &["timeline"])).ok();
    assert!(timeline.contains("Bash"), "{timeline}");
}

#[test]
fn what_the_user_changed_is_left() {
    let Some(user) = User::new() else { return };
    let two = ["--hooks", "--skill"];
    user.agent(&[&["install", "claude"][..], &two].concat())
        .ok();
    let settings = user.home.join(".claude/settings.json");
    let skill = user.home.join(".claude/skills/agentvfs/SKILL.md");
    // Settings beside ours are the user's, and are there when ours are gone.
    fs::write(&settings, user.settings().replace("opus", "sonnet")).unwrap();
    fs::write(&skill, "mine").unwrap();
    assert_eq!(
        user.rows(&[&["status", "claude"][..], &two].concat()),
        [
            "claude hooks .claude/settings.json same",
            "claude skill .claude/skills/agentvfs/SKILL.md changed"
        ]
    );
    assert_eq!(
        user.rows(&[&["remove", "claude"][..], &two].concat()),
        [
            "claude hooks .claude/settings.json removed",
            "claude skill .claude/skills/agentvfs/SKILL.md changed"
        ]
    );
    assert_eq!(user.settings(), SETTINGS.replace("opus", "sonnet"));
    assert_eq!(fs::read_to_string(&skill).unwrap(), "mine");
    // One that the user wrote is not ours, and left, even if it is the same.
    let skills = |verb: &str| user.rows(&[verb, "claude", "--skill"]).remove(0);
    fs::write(
        &skill,
        user.env
            .told(user.env.command(&user.env.path(""), &["skill"]))
            .ok(),
    )
    .unwrap();
    assert!(skills("remove").ends_with(" removed"));
    fs::create_dir_all(skill.parent().unwrap()).unwrap();
    fs::write(
        &skill,
        user.env
            .told(user.env.command(&user.env.path(""), &["skill"]))
            .ok(),
    )
    .unwrap();
    assert!(skills("install").ends_with(" same") && skills("remove").ends_with(" changed"));
    assert!(skill.exists());
    // A file that the user removed is nothing that was changed.
    user.agent(&["install", "claude", "--hooks"]).ok();
    fs::remove_file(&settings).unwrap();
    let hooks = |args: &[&str]| {
        user.rows(&[args, &["claude", "--hooks"]].concat())
            .remove(0)
    };
    assert!(hooks(&["remove"]).ends_with(" absent") && hooks(&["install"]).ends_with(" written"));
    assert!(hooks(&["remove"]).ends_with(" removed") && !settings.exists());
    fs::write(&settings, SETTINGS).unwrap();
    // A hook that the user took out is not put in again.
    user.agent(&["install", "claude", "--hooks"]).ok();
    let without = user.settings().replace("\"PreToolUse\"", "\"Pretooluse\"");
    fs::write(&settings, &without).unwrap();
    assert_eq!(
        user.rows(&["install", "claude", "--hooks"]),
        ["claude hooks .claude/settings.json changed"]
    );
    assert_eq!(user.settings(), without);
}

#[test]
fn files_that_cannot_be_used_are_left_alone_and_named() {
    let Some(user) = User::new() else { return };
    let settings = user.home.join(".claude/settings.json");
    let install = || user.agent(&["install", "claude", "--hooks"]);
    for (text, why) in [
        ("{\"a\": }", "it is not JSON"),
        ("[1]", "no JSON object"),
        ("{\"hooks\": 3}", "no object"),
    ] {
        fs::write(&settings, text).unwrap();
        let told = install();
        assert!(told.status == 1 && told.err.contains(why), "{told:?}");
        assert!(
            told.out.ends_with("\tfailed\n") && user.settings() == text,
            "{told:?}"
        );
    }
    fs::write(&settings, SETTINGS).unwrap();
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o444)).unwrap();
    let told = install();
    assert!(
        told.status == 1 && told.err.contains("read-only"),
        "{told:?}"
    );
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o640)).unwrap();
    // A link stays one, and modes stay.
    let elsewhere = user.home.join("dotfiles.json");
    fs::rename(&settings, &elsewhere).unwrap();
    symlink(&elsewhere, &settings).unwrap();
    install().ok();
    assert!(settings.is_symlink() && user.settings().contains("hook claude"));
    assert_eq!(
        elsewhere.metadata().unwrap().permissions().mode() & 0o777,
        0o640
    );
    user.agent(&["remove", "claude"]).ok();
    assert!(settings.is_symlink() && user.settings() == SETTINGS);
    fs::remove_file(&elsewhere).unwrap();
    let told = install();
    assert!(
        told.status == 1 && told.err.contains("link to nothing"),
        "{told:?}"
    );
    let told = user.agent(&["install", "nobody"]);
    assert!(
        told.status == 2 && told.err.contains("known are claude, codex"),
        "{told:?}"
    );
}

/// Has the record say that a text is what an install wrote to a file.
fn record(user: &User, file: &Path, text: &str) {
    let path = user.env.home().join("agents.json");
    let mut all: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let entry = &mut all["files"][file.to_str().unwrap()];
    assert!(entry["after"].is_string(), "{all}");
    entry["after"] = json!(blake3::hash(text.as_bytes()).to_hex().to_string());
    fs::write(&path, all.to_string()).unwrap();
}

#[test]
fn what_an_older_program_wrote_is_renewed_unless_the_user_changed_it() {
    let Some(user) = User::new() else { return };
    let skill = user.home.join(".claude/skills/agentvfs/SKILL.md");
    let before = tree(&user.home);
    user.agent(&["install", "claude", "--skill"]).ok();
    let new = fs::read_to_string(&skill).unwrap();
    let row = |state| {
        vec![format!(
            "claude skill .claude/skills/agentvfs/SKILL.md {state}"
        )]
    };
    let old = "---\nname: agentvfs\n---\nof an older program\n";
    fs::write(&skill, old).unwrap();
    assert_eq!(user.rows(&["install", "claude", "--skill"]), row("changed"));
    assert_eq!(fs::read_to_string(&skill).unwrap(), old);
    record(&user, &skill, old);
    assert_eq!(user.rows(&["install", "claude", "--skill"]), row("written"));
    assert_eq!(fs::read_to_string(&skill).unwrap(), new);
    assert_eq!(user.rows(&["install", "claude", "--skill"]), row("same"));
    // The same program later takes away what the older one wrote.
    fs::write(&skill, old).unwrap();
    record(&user, &skill, old);
    user.agent(&["remove", "claude"]).ok();
    assert_eq!(tree(&user.home), before);
}

#[test]
fn files_that_the_user_removed_are_written_again_and_removed_without_a_word() {
    let Some(user) = User::new() else { return };
    user.agent(&["install", "claude"]).ok();
    let installed = tree(&user.home);
    let gone = [".claude/skills/agentvfs/SKILL.md", ".claude.json"];
    let remove = || {
        gone.iter()
            .for_each(|name| fs::remove_file(user.home.join(name)).unwrap())
    };
    remove();
    let status = user.rows(&["status", "claude"]);
    for name in gone {
        let is_absent = |row: &String| row.ends_with(&format!("{name} absent"));
        assert!(status.iter().any(is_absent), "{name}: {status:?}");
    }
    user.agent(&["install", "claude"]).ok();
    assert_eq!(tree(&user.home), installed);
    remove();
    user.agent(&["remove", "claude"]).ok();
    for name in gone {
        assert!(!user.home.join(name).exists(), "{name}");
    }
    assert_eq!(user.settings(), SETTINGS);
    assert_eq!(user.rows(&["status", "claude"]).len(), 4);
}

#[test]
fn directories_of_settings_may_be_elsewhere_and_a_project_has_its_own() {
    let Some(mut user) = User::new() else { return };
    let elsewhere = user.env.path("elsewhere");
    user.env
        .set_variable("CLAUDE_CONFIG_DIR", elsewhere.to_str().unwrap());
    let codex = user.env.path("codex-elsewhere");
    user.env.set_variable("CODEX_HOME", codex.to_str().unwrap());
    user.agent(&["install", "codex"]).ok();
    for name in ["hooks.json", "config.toml", "AGENTS.md"] {
        assert!(codex.join(name).exists(), "{name}");
    }
    assert!(!user.home.join(".codex").exists());
    user.agent(&["remove", "codex"]).ok();
    assert!(!codex.exists());
    user.agent(&["install", "claude"]).ok();
    assert!(
        elsewhere.join("settings.json").exists()
            && elsewhere.join(".claude.json").exists()
            && elsewhere.join("CLAUDE.md").exists()
            && elsewhere.join("skills/agentvfs/SKILL.md").exists()
    );
    assert_eq!(user.settings(), SETTINGS);
    user.agent(&["remove", "claude"]).ok();
    assert!(!elsewhere.exists());
    let root = user.env.start();
    let in_project = |args: &[&str]| user.env.told(user.env.command(&root, args)).ok();
    in_project(&["agent", "install", "openhands", "--project"]);
    assert!(
        root.join(".openhands/hooks.json").exists()
            && root.join(".agents/skills/agentvfs/SKILL.md").exists()
    );
    in_project(&["agent", "remove", "openhands", "--project"]);
    for name in [".openhands", ".agents", "AGENTS.md"] {
        assert!(!root.join(name).exists(), "{name}");
    }
    let list = user.agent(&["list"]).ok();
    assert_eq!(list.lines().count(), 6);
    assert!(list.starts_with("claude\t"), "{list}");
}

#[test]
fn many_at_once_write_each_hook_once() {
    let Some(user) = User::new() else { return };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| user.agent(&["install", "claude", "codex"]).ok());
        }
    });
    let found = user.settings().matches("hook claude").count();
    assert_eq!(found, 8, "one for each event");
    user.agent(&["remove", "claude", "codex"]).ok();
    assert_eq!(user.settings(), SETTINGS);
}

#[test]
fn parts_are_written_and_taken_away_by_name_in_any_order() {
    let Some(user) = User::new() else { return };
    seed(&user.home);
    let before = tree(&user.home);
    // Two parts in one file.
    let settings = user.home.join(".gemini/settings.json");
    for (first, second) in [("--mcp", "--hooks"), ("--hooks", "--mcp")] {
        for part in [first, second] {
            assert_eq!(user.rows(&["install", "gemini", part]).len(), 1);
        }
        assert_eq!(
            user.rows(&["remove", "gemini", "--hooks", "--mcp"]).len(),
            2
        );
        assert_eq!(tree(&user.home), before);
    }
    // Each by itself: what is left means the same.
    user.agent(&["install", "gemini", "--hooks", "--mcp"]).ok();
    user.agent(&["remove", "gemini", "--hooks"]).ok();
    let left: Value = {
        let text = fs::read_to_string(&settings).unwrap();
        assert!(text.starts_with("{\n  // mine\n"), "{text}");
        serde_json::from_str(&text.replace("// mine", "")).unwrap()
    };
    let server = json!({"command": "agentvfs", "args": ["serve", "mcp", "--here"]});
    let mut found = left.clone();
    let command = found["mcpServers"]["agentvfs"]["command"].take();
    assert!(command.as_str().unwrap().ends_with("agentvfs"), "{left}");
    found["mcpServers"]["agentvfs"]["command"] = "agentvfs".into();
    assert_eq!(
        found,
        json!({"theme": "dark", "mcpServers": {"agentvfs": server}})
    );
    user.agent(&["remove", "gemini", "--mcp"]).ok();
    // A file that was made for one part goes with the last of them.
    fs::remove_file(&settings).unwrap();
    user.agent(&["install", "gemini", "--hooks", "--mcp"]).ok();
    user.agent(&["remove", "gemini", "--hooks"]).ok();
    assert!(settings.exists());
    user.agent(&["remove", "gemini", "--mcp"]).ok();
    assert!(!settings.exists());
}

#[test]
fn servers_and_instructions_that_the_user_changed_are_left() {
    let Some(user) = User::new() else { return };
    seed(&user.home);
    let parts = |verb: &str| user.rows(&[verb, "claude", "codex", "--mcp", "--instructions"]);
    let states = |rows: Vec<String>| -> Vec<String> {
        let last = |row: String| row.rsplit(' ').next().unwrap().to_owned();
        rows.into_iter().map(last).collect()
    };
    parts("install");
    let change = |name: &str, from: &str, to: &str| {
        let path = user.home.join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    change(".claude.json", "--here", "--exports");
    change(".codex/config.toml", "--here", "--exports");
    change(".claude/CLAUDE.md", "before risky work", "always");
    let changed = tree(&user.home);
    for verb in ["status", "install", "remove"] {
        let codex = match verb {
            "remove" => "removed",
            _ => "same",
        };
        assert_eq!(
            states(parts(verb)),
            ["changed", "changed", "changed", codex],
            "{verb}"
        );
    }
    let left: Vec<_> = tree(&user.home).into_iter().map(|(path, _)| path).collect();
    let mut wanted: Vec<_> = changed.iter().map(|(path, _)| path.clone()).collect();
    wanted.retain(|path| !path.ends_with(".codex/AGENTS.md"));
    assert_eq!(left, wanted);
    // Changed back, it is ours again.
    change(".claude.json", "--exports", "--here");
    change(".codex/config.toml", "--exports", "--here");
    change(".claude/CLAUDE.md", "always", "before risky work");
    parts("remove");
    let text = |name: &str| fs::read_to_string(user.home.join(name)).unwrap();
    assert_eq!(
        text(".claude.json"),
        "{\"numStartups\": 3, \"mcpServers\": {}}"
    );
    assert_eq!(text(".claude/CLAUDE.md"), "# Mine\r\n\r\nNo last line end");
    assert!(text(".codex/config.toml").ends_with("command = 'y'\r\n"));
    // A server of that name that the user wrote.
    fs::write(
        user.home.join(".claude.json"),
        "{\"mcpServers\": {\"agentvfs\": {\"command\": \"x\"}}}",
    )
    .unwrap();
    assert_eq!(
        user.rows(&["install", "claude", "--mcp"]),
        ["claude mcp .claude.json changed"]
    );
    assert_eq!(
        user.rows(&["remove", "claude", "--mcp"]),
        ["claude mcp .claude.json changed"]
    );
}

#[test]
fn instructions_of_a_project_are_written_once_for_all_agents() {
    let Some(user) = User::new() else { return };
    let root = user.env.start();
    fs::write(root.join("AGENTS.md"), "Mine.\n").unwrap();
    let in_project = |verb: &str, names: &[&str]| {
        let args = [
            &["agent", verb][..],
            names,
            &["--project", "--instructions"],
        ]
        .concat();
        let out = user.env.told(user.env.command(&root, &args)).ok();
        let last = |row: &str| row.rsplit('\t').next().unwrap().to_owned();
        out.lines().map(last).collect::<Vec<_>>()
    };
    assert_eq!(
        in_project("install", &["codex", "cursor"]),
        ["written", "same"]
    );
    let text = fs::read_to_string(root.join("AGENTS.md")).unwrap();
    assert_eq!(text.matches("agentvfs-begin").count(), 1, "{text}");
    assert_eq!(in_project("remove", &["codex"]), ["shared"]);
    assert_eq!(fs::read_to_string(root.join("AGENTS.md")).unwrap(), text);
    assert_eq!(in_project("remove", &["cursor"]), ["removed"]);
    assert_eq!(
        fs::read_to_string(root.join("AGENTS.md")).unwrap(),
        "Mine.\n"
    );
}

#[test]
fn the_server_that_is_installed_serves_where_there_is_a_workspace() {
    let Some(user) = User::new() else { return };
    let root = user.env.start();
    let mut mcp = Mcp::start(&user.env, &root, &["--here"]);
    assert!(mcp.tools().contains(&"checkpoint".to_owned()));
    assert_eq!(mcp.end(), (String::new(), 0));
    // Elsewhere, beside the only workspace that runs, there is nothing that could change that.
    let elsewhere = user.env.path("tmp");
    let mut mcp = Mcp::start(&user.env, &elsewhere, &["--here"]);
    assert_eq!(mcp.tools(), Vec::<String>::new());
    assert_eq!(mcp.end(), (String::new(), 0));
}
