//! What takes the space, and how much may: stats and quota through the real binary.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use tests::env::{Env, Told};
use tests::rng::Rng;

fn agentvfs(env: &Env, args: &[&str]) -> Told {
    env.told(env.command(&env.path(""), args))
}

#[test]
fn writers_are_refused_at_the_quota_and_everything_else_goes_on() {
    const EDQUOT: i32 = 122;
    let Some(env) = Env::new() else { return };
    fs::write(env.project().join("base"), "base").unwrap();
    agentvfs(&env, &["config", "quota=64M"]).ok();
    let mount = env.start();
    env.imported();
    env.workspace(&["checkpoint", "project", "before"]).id();
    let block = Rng::new(1).bytes(1 << 20);
    let mut written = 0;
    let refused = loop {
        let mut file = File::create(mount.join(format!("f{written}"))).unwrap();
        match file.write_all(&block) {
            Ok(()) => written += 1,
            Err(e) => break e,
        }
        assert!(written < 100, "no end");
    };
    assert_eq!(refused.raw_os_error(), Some(EDQUOT), "{refused}");
    assert!(written > 40, "{written}");
    assert_eq!(fs::read(mount.join("f3")).unwrap(), block);
    assert_eq!(fs::read_to_string(mount.join("base")).unwrap(), "base");
    fs::remove_file(mount.join("f0")).unwrap();
    env.workspace(&["rollback", "project", "before"]).id();
    assert!(!mount.join("f3").exists());
    env.workspace(&["undo", "project"]).ok();
    assert_eq!(fs::read(mount.join("f3")).unwrap(), block);
    env.workspace(&["checkpoint", "project", "full"]).id();
    agentvfs(&env, &["config", "quota=none"]).ok();
    fs::write(mount.join("more"), &block).unwrap();
    env.workspace(&["stop", "project"]).ok();
}

#[test]
fn stats_tell_what_takes_the_space() {
    let Some(env) = Env::new() else { return };
    let data = Rng::new(5).bytes(1 << 20);
    fs::write(env.project().join("one.bin"), &data).unwrap();
    fs::write(env.project().join("two.bin"), &data).unwrap();
    fs::write(env.project().join("text.txt"), "word ".repeat(50_000)).unwrap();
    let mount = env.start();
    env.imported();
    fs::write(mount.join("new.log"), "line\n".repeat(10)).unwrap();
    env.workspace(&["checkpoint", "project", "kept"]).id();
    let other = env.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("same.bin"), &data).unwrap();
    fs::write(other.join("own.bin"), Rng::new(6).bytes(500_000)).unwrap();
    env.workspace(&["start", "--from", "other"]).ok();
    env.workspace(&["stop", "other"]).ok();
    let stats: Value = serde_json::from_str(&agentvfs(&env, &["stats", "--json"]).ok()).unwrap();
    let number = |v: &Value| v.as_u64().unwrap();
    let workspace = |name: &str| {
        let all = stats["workspaces"].as_array().unwrap();
        all.iter().find(|w| w["name"] == name).unwrap().clone()
    };
    let (project, second) = (workspace("project"), workspace("other"));
    assert!(number(&project["needed_bytes"]) > 1 << 20, "{stats:#}");
    assert!(
        number(&project["own_bytes"]) < 1 << 20,
        "the large file is shared: {stats:#}"
    );
    assert!(
        (500_000..600_000).contains(&number(&second["own_bytes"])),
        "{stats:#}"
    );
    assert_eq!(project["branches"][0]["files"], 4);
    assert_eq!(project["branches"][0]["commits"], 2);
    let kinds = stats["kinds"].as_array().unwrap();
    assert_eq!(kinds[0]["extension"], "bin");
    let text = kinds.iter().find(|k| k["extension"] == "txt").unwrap();
    assert!(
        number(&text["stored_bytes"]) * 10 < number(&text["bytes"]),
        "{text}"
    );
    assert!(stats["dedup_ratio"].as_f64().unwrap() > 2.0, "{stats:#}");
    assert!(stats["compression_ratio"].as_f64().unwrap() > 1.0);
    let used = number(&stats["used_bytes"]);
    assert!(
        used >= number(&stats["pack_bytes"]) && used < 20 << 20,
        "{stats:#}"
    );
    let lines = agentvfs(&env, &["stats"]).ok();
    assert!(
        lines.contains("\nworkspace.project.branch.main.files=4\n"),
        "{lines}"
    );
    assert!(lines.contains("\nkind.bin.bytes="), "{lines}");
    env.workspace(&["stop", "project"]).ok();
}
