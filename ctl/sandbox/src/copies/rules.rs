//! Which files of an agent's own directory may be written back to the machine.
//!
//! Written back is what an agent remembers: transcripts, histories, tokens, databases. Kept with the session is what
//! runs by itself outside, what names programs that do, and what tells the next agent what to do. The list is of
//! names at any depth, since an agent reads such directories wherever its settings lead; where in doubt a file is kept.

use serde_json::{Map, Value};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of files and directories, in lower case, that are never written back, with all that is in them.
const KEPT: [&str; 43] = [
    "plugins",
    "plugin",
    "skills",
    "skill",
    "commands",
    "command",
    "agents",
    "agent",
    "hooks",
    "hook",
    "scripts",
    "script",
    "bin",
    "local",
    "lib",
    "extensions",
    "packages",
    "node_modules",
    "vendor",
    "rules",
    "prompts",
    "policies",
    "policy",
    "shell-snapshots",
    "session-env",
    "output-styles",
    "workflows",
    "tools",
    "tool",
    "modes",
    "mode",
    "themes",
    "ide",
    "memory",
    "memories",
    "statusline",
    "versions",
    "downloads",
    "environments",
    "env",
    "mcp",
    "config",
    "profiles",
];

/// Ends of names, in lower case, that are never written back.
const KEPT_ENDS: [&str; 34] = [
    ".md",
    ".mdc",
    ".sh",
    ".bash",
    ".zsh",
    ".fish",
    ".ps1",
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".mts",
    ".tsx",
    ".rb",
    ".pl",
    ".lua",
    ".php",
    ".node",
    ".so",
    ".dll",
    ".dylib",
    ".wasm",
    ".exe",
    ".bat",
    ".cmd",
    ".jar",
    ".toml",
    ".yaml",
    ".yml",
    ".ini",
    ".conf",
    ".rules",
    ".code-workspace",
];

/// Beginnings of names of JSON files, in lower case, that are never written back.
const KEPT_JSON: [&str; 16] = [
    "settings",
    "hooks",
    "mcp",
    ".mcp",
    "config",
    "package",
    "opencode",
    "keybindings",
    "permissions",
    "policy",
    "trusted",
    "cli-config",
    "managed",
    "remote-settings",
    "argv",
    "requirements",
];

/// JSON files right in an agent's directory that are state and no settings.
const STATE_JSON: [&str; 9] = [
    ".credentials.json",
    "auth.json",
    "oauth_creds.json",
    "google_accounts.json",
    "stats-cache.json",
    "models_cache.json",
    "version.json",
    "state.json",
    "statsig.json",
];

/// Whether a file at this path in an agent's directory is nothing but what the agent remembers.
pub fn is_state(path: &Path) -> bool {
    let parts: Vec<String> = path
        .components()
        .map(|part| String::from_utf8_lossy(part.as_os_str().as_bytes()).to_lowercase())
        .collect();
    let Some(name) = parts.last() else {
        return false;
    };
    let is_json = [".json", ".jsonc", ".json5"]
        .iter()
        .any(|end| name.ends_with(end));
    let is_kept = |part: &String| {
        let stem = part.split('.').next().unwrap_or(part);
        // A repository has hooks of its own.
        KEPT.contains(&part.as_str()) || KEPT.contains(&stem) || part.starts_with(".git")
    };
    let is_top_setting = is_json && parts.len() == 1 && !STATE_JSON.contains(&name.as_str());
    let is_kept_json = is_json && KEPT_JSON.iter().any(|start| name.starts_with(start));
    let is_kept_end = KEPT_ENDS.iter().any(|end| name.ends_with(end));
    !(parts.iter().any(is_kept) || is_top_setting || is_kept_json || is_kept_end)
}

/// Parts of a name that SQLite gives to what belongs to a database.
const DATABASE_ENDS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The database that a file is, or is part of: its files are written back together, and once nobody has it open.
pub fn database(path: &Path) -> Option<std::path::PathBuf> {
    let text = path.to_str()?;
    let stem = DATABASE_ENDS
        .iter()
        .find_map(|end| text.strip_suffix(end))
        .unwrap_or(text);
    let is_database = [".db", ".sqlite", ".sqlite3"]
        .iter()
        .any(|end| stem.ends_with(end));
    is_database.then(|| stem.into())
}

/// All files of a database.
pub fn files_of(database: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let of = |end: &str| {
        let mut path = database.as_os_str().to_owned();
        path.push(end);
        path.into()
    };
    let all: Vec<std::path::PathBuf> = [""].iter().chain(&DATABASE_ENDS).map(|e| of(e)).collect();
    all.into_iter()
}

/// Keys of `~/.claude.json`, right in it and in each of its projects, that name programs or what is trusted.
const GUARDED: [&str; 18] = [
    "mcpServers",
    "mcpContextUris",
    "enabledMcpjsonServers",
    "disabledMcpjsonServers",
    "enableAllProjectMcpServers",
    "hasTrustDialogAccepted",
    "hasClaudeMdExternalIncludesApproved",
    "hasClaudeMdExternalIncludesWarningShown",
    "allowedTools",
    "ignorePatterns",
    "permissions",
    "hooks",
    "env",
    "apiKeyHelper",
    "customApiKeyResponses",
    "bypassPermissionsModeAccepted",
    "statusLine",
    "preferredNotifChannel",
];

/// What is written back of an agent's file that holds both what it remembers and what runs: what is guarded stays as
/// it is outside. None where that cannot be told.
pub fn guarded(inside: &[u8], outside: Option<&[u8]>) -> Option<Vec<u8>> {
    let object = |bytes: &[u8]| match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    };
    let mut new = object(inside)?;
    let old = match outside {
        Some(bytes) if !bytes.is_empty() => object(bytes)?,
        _ => Map::new(),
    };
    keep_guarded(&mut new, &old);
    let none = Map::new();
    if let Some(projects) = new.get_mut("projects") {
        let old = old.get("projects").and_then(Value::as_object);
        for (path, project) in projects.as_object_mut()? {
            let old = old.and_then(|all| all.get(path)).and_then(Value::as_object);
            keep_guarded(project.as_object_mut()?, old.unwrap_or(&none));
        }
    }
    serde_json::to_vec_pretty(&new).ok()
}

fn keep_guarded(new: &mut Map<String, Value>, old: &Map<String, Value>) {
    for key in GUARDED {
        match old.get(key) {
            Some(value) => new.insert(key.to_owned(), value.clone()),
            None => new.remove(key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_runs_or_instructs_is_no_state_wherever_it_is() {
        for path in [
            "settings.json",
            "settings.local.json",
            "hooks.json",
            "config.toml",
            "mcp.json",
            "plugins/x",
            "skills/a/b",
            "commands/x.txt",
            "agents/a",
            "CLAUDE.md",
            "AGENTS.md",
            "a/CLAUDE.md",
            "Settings.json",
            "PLUGINS/x",
            "projects/p/memory/x",
            "a/hooks/run",
            "local/claude",
            "rules/default",
            "new.json",
            "statusline.sh",
            ".git/config",
            "projects/settings.json",
            "ide/1.lock",
            "x/.mcp.json",
            "shell-snapshots/s",
            "",
        ] {
            assert!(!is_state(Path::new(path)), "{path}");
        }
        for path in [
            ".credentials.json",
            "history.jsonl",
            "projects/p/1.jsonl",
            "todos/1.json",
            "sessions/2026/x.jsonl",
            "auth.json",
            "state_5.sqlite",
            "log/x.log",
            "notes",
        ] {
            assert!(is_state(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_database_is_all_of_its_files() {
        let of = |path: &str| database(Path::new(path));
        assert_eq!(of("a/s.sqlite-wal"), Some("a/s.sqlite".into()));
        assert_eq!(of("s.db"), Some("s.db".into()));
        assert_eq!(of("history.jsonl"), None);
        assert_eq!(files_of(Path::new("s.db")).count(), 4);
    }

    #[test]
    fn what_names_programs_stays_as_it_is_outside() {
        let outside =
            json!({"a": 1, "mcpServers": {"own": {}}, "projects": {"/p": {"allowedTools": ["x"]}}});
        let inside = json!({"a": 2, "mcpServers": {"evil": {}}, "projects": {
            "/p": {"allowedTools": ["evil"], "cost": 3, "mcpServers": {"evil": {}}},
            "/q": {"hasTrustDialogAccepted": true, "cost": 4}}});
        let text = |value: &Value| serde_json::to_vec(value).unwrap();
        let written = guarded(&text(&inside), Some(&text(&outside))).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(
            written,
            json!({"a": 2, "mcpServers": {"own": {}}, "projects": {
                "/p": {"allowedTools": ["x"], "cost": 3}, "/q": {"cost": 4}}})
        );
        let new = guarded(&text(&inside), None).unwrap();
        assert!(!String::from_utf8(new).unwrap().contains("evil"));
        assert!(guarded(b"[]", None).is_none() && guarded(b"{", None).is_none());
    }
}
