//! A long work in steps, as an agent does it that may be ended in the middle: each step is done once, however often the
//! program is started, and what a tool changes stands in the timeline with its call.
//!
//! `cargo run -p agentvfs-client --example steps` in a started workspace.

use agentvfs_client::context::Options;
use agentvfs_client::protocol::Side;
use agentvfs_client::workspace::{Error, Workspace};
use serde_json::json;

/// The work; gives what it found out, and the paths that changed since the commit before it.
pub fn work(options: Options) -> Result<(Vec<String>, Vec<String>), Error> {
    let mut ws = Workspace::open_with(options)?;
    let before = ws.step(("steps", "begin"), |ws| {
        let before = ws.checkpoint("before the steps")?;
        Ok::<_, Error>(before.commit.unwrap_or_default())
    })?;
    let topics = ws.step(("steps", "plan"), |_| {
        Ok::<_, Error>(vec!["storage".to_owned(), "network".to_owned()])
    })?;
    for topic in &topics {
        let name = format!("write {topic}");
        ws.step(("steps", &name), |ws| {
            ws.call("write_report", &json!({ "topic": topic }), |ws| {
                ws.write(
                    format!("report/{topic}.md"),
                    format!("# {topic}\n").as_bytes(),
                )?;
                ws.set(&format!("report:{topic}"), &json!({ "done": true }))?;
                Ok::<_, Error>(topic.len())
            })
        })?;
    }
    let changed = ws.diff(Side::Ref(before), Side::Live)?;
    let paths = changed.iter().map(|change| change.path.to_path());
    let paths = paths.map(|path| path.display().to_string()).collect();
    Ok((topics, paths))
}

fn main() -> Result<(), Error> {
    let (topics, paths) = work(Options::default())?;
    println!("{}: {}", topics.join(", "), paths.join(" "));
    Ok(())
}
