//! `agentvfs skill`: each command in it works as it stands there.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;
use tests::env::Env;

/// Longest Skill that agents are to read, in lines.
const LINES_MAX: usize = 150;

fn skill(env: &Env) -> String {
    env.told(env.command(&env.path(""), &["skill"])).ok()
}

/// What a shell in the project does; the program is found by its name, as an agent finds it.
fn shell(env: &Env, line: &str) -> (i32, String) {
    let mut command: Command = env.program("sh");
    let dir = tests::binary::agentvfs().parent().unwrap().to_owned();
    let path = std::env::join_paths(
        std::iter::once(dir).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    command.arg("-c").arg(line).env("PATH", path.unwrap());
    command.current_dir(env.mountpoint());
    let told = env.told(command);
    (told.status, told.out + &told.err)
}

/// What must be so before the commands of a section make sense.
fn prepare(section: &str, env: &Env, root: &Path) {
    let main = root.join("src/main.rs");
    match section {
        "What has changed" => fs::write(&main, "two\n").unwrap(),
        "One tool call" => {
            let line = "agentvfs tool exec edit -- sh -c 'echo three >> src/main.rs'";
            assert_eq!(shell(env, line).0, 0);
        }
        "Conflicts" => {
            let made = shell(env, "agentvfs branch create theirs");
            assert_eq!(made.0, 0, "{}", made.1);
            fs::write(
                root.join(".agentvfs/branches/theirs/src/main.rs"),
                "theirs\n",
            )
            .unwrap();
            fs::write(&main, "ours\n").unwrap();
        }
        _ => {}
    }
}

#[test]
fn each_command_of_the_skill_works_as_it_stands_there() {
    let Some(env) = Env::new() else { return };
    fs::create_dir(env.project().join("src")).unwrap();
    fs::write(env.project().join("src/main.rs"), "one\n").unwrap();
    let root = env.start();
    let (mut section, mut in_code, mut ran) = (String::new(), false, 0);
    for line in skill(&env).lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.to_owned();
            prepare(&section, &env, &root);
        } else if line.starts_with("```") {
            in_code = line == "```sh";
        } else if in_code {
            // The workspace is not that old.
            let (status, said) = shell(&env, &line.replace("10min", "0s"));
            // With conflicts a merge and its dry run fail.
            let expected = i32::from(line.starts_with("agentvfs merge theirs"));
            assert_eq!(status, expected, "{section}: {line}: {said}");
            ran += 1;
        }
    }
    assert!(ran >= 25, "{ran}");
}

#[test]
fn the_skill_has_the_form_that_agents_read() {
    let Some(env) = Env::new() else { return };
    let text = skill(&env);
    assert!(text.lines().count() <= LINES_MAX);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("---"));
    assert_eq!(lines.next(), Some("name: agentvfs"));
    let description = lines.next().unwrap().strip_prefix("description: ").unwrap();
    assert!(description.len() <= 1024, "{}", description.len());
    assert_eq!(lines.next(), Some("---"));
}
