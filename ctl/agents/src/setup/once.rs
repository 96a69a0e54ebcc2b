//! The same for one run alone, by an agent's own options: nothing is written anywhere.

use super::config;
use super::known::{Agent, Form, INSTRUCTIONS, McpForm};
use super::servers::Servers;
use super::{Part, Scope, User, file};
use serde_json::{Value, json};

/// What an agent is started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Once {
    /// Options before its own arguments.
    pub options: Vec<String>,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// Hooks are among it that do nothing before the user trusts them.
    pub needs_trust: bool,
}

impl Agent {
    /// Options that have these parts; `None` where the agent has none for a run. `program` is how a shell finds
    /// `agentvfs`.
    pub fn once(&self, parts: &[Part], program: &str, user: &User) -> Option<Once> {
        let mut once = Once::default();
        for part in parts {
            match self.name {
                "claude" => once.options.extend(self.claude(*part, program)),
                "codex" => once.options.extend(self.codex(*part, program, user)),
                "opencode" => once.env.extend(self.opencode(*part, program)),
                _ => return None,
            }
            once.needs_trust |= self.needs_trust(*part, &Scope::User(user.clone()));
        }
        Some(once)
    }

    /// An option of Claude Code that it takes more than once, or with several words, is one word here: what follows is
    /// the user's.
    fn claude(&self, part: Part, program: &str) -> Option<String> {
        Some(match part {
            Part::Hooks => format!("--settings={}", self.hooks_of_all(program)),
            Part::Mcp => format!("--mcp-config={}", Servers::Typed.settings(program)),
            Part::Instructions => format!("--append-system-prompt={INSTRUCTIONS}"),
            Part::Skill => return None,
        })
    }

    fn hooks_of_all(&self, program: &str) -> Value {
        let hooks = json!([{ "hooks": [self.hook(program)] }]);
        let all = self
            .events
            .iter()
            .map(|event| ((*event).to_owned(), hooks.clone()));
        json!({ "hooks": Value::Object(all.collect()) })
    }

    fn hook(&self, program: &str) -> Value {
        debug_assert_eq!(self.form, Form::Groups);
        json!({ "type": "command", "command": format!("{program} hook {}", self.name) })
    }

    fn codex(&self, part: Part, program: &str, user: &User) -> Vec<String> {
        let quoted = |text: &str| Value::from(text).to_string();
        let settings: Vec<String> = match part {
            Part::Hooks => {
                let command = quoted(&format!("{program} hook {}", self.name));
                let hook = format!("[{{hooks=[{{type=\"command\",command={command}}}]}}]");
                let all = self.events.iter();
                all.map(|event| format!("hooks.{event}={hook}")).collect()
            }
            Part::Mcp => config::options(program),
            // The user's own would be replaced.
            Part::Instructions if self.says(user, "developer_instructions") => Vec::new(),
            Part::Instructions => vec![format!("developer_instructions={}", quoted(INSTRUCTIONS))],
            Part::Skill => Vec::new(),
        };
        settings
            .into_iter()
            .flat_map(|s| ["-c".to_owned(), s])
            .collect()
    }

    /// Whether the user's settings have a word.
    fn says(&self, user: &User, word: &str) -> bool {
        let path = self.file(Part::Mcp, &Scope::User(user.clone()));
        let text = path.and_then(|path| file::read(&path).ok().flatten());
        text.is_some_and(|text| text.contains(word))
    }

    fn opencode(&self, part: Part, program: &str) -> Option<(String, String)> {
        let (Part::Mcp, McpForm::Json(servers)) = (part, self.mcp_form()) else {
            return None;
        };
        let settings = servers.settings(program).to_string();
        Some(("OPENCODE_CONFIG_CONTENT".to_owned(), settings))
    }
}

#[cfg(test)]
mod tests {
    use super::super::named;
    use super::*;

    const PARTS: [Part; 3] = [Part::Hooks, Part::Mcp, Part::Instructions];

    fn once(agent: &str) -> Option<Once> {
        let user = User {
            home: "/nowhere".into(),
            dirs: Vec::new(),
        };
        named(agent).unwrap().once(&PARTS, "agentvfs", &user)
    }

    #[test]
    fn options_have_what_settings_would_have() {
        let claude = once("claude").unwrap();
        assert!(claude.options.len() == 3 && !claude.needs_trust);
        let settings = claude.options[0].strip_prefix("--settings=").unwrap();
        let settings: Value = serde_json::from_str(settings).unwrap();
        let command = settings.pointer("/hooks/Stop/0/hooks/0/command").unwrap();
        assert_eq!(command, "agentvfs hook claude");
        let codex = once("codex").unwrap();
        assert!(
            codex.needs_trust && codex.options.len() == 2 * (6 + 2 + 1),
            "{codex:?}"
        );
        // Codex reads what follows the first `=` as TOML.
        for setting in codex.options.iter().filter(|option| *option != "-c") {
            let (key, value) = setting.split_once('=').unwrap();
            let text = format!("{key} = {value}\n");
            assert!(text.parse::<toml_edit::DocumentMut>().is_ok(), "{text}");
        }
        assert_eq!(once("opencode").unwrap().env.len(), 1);
        assert_eq!(once("gemini"), None);
    }
}
