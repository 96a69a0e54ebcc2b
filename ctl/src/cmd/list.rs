//! `agentvfs workspace list`.

use super::Context;
use crate::cli::RowArgs;
use crate::output::{Rows, print_json};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::Info;
use agentvfs_client::render::insert_bytes;
use agentvfs_client::seen::Look;
use serde_json::{Map, Value, json};

/// Prints all workspaces.
pub fn run(args: &RowArgs, context: &mut Context) -> Result<u8, Failure> {
    let json = context.json();
    let list = context.list()?.to_vec();
    let seen = list
        .iter()
        .try_for_each(|info| context.check_seen(info, Look::At));
    // Rows are true of the others all the same; JSON is one object, which then is the failure.
    if json {
        seen?;
        print_json(&json!({ "workspaces": list.iter().map(object).collect::<Vec<_>>() }))?;
        return Ok(0);
    }
    rows(&list).print(args.nul)?;
    seen.map(|()| 0)
}

fn rows(list: &[Info]) -> Rows {
    let mut rows = Rows::new(&["NAME", "STATUS", "MOUNT"]);
    for info in list {
        rows.push(vec![
            info.name.clone().into(),
            info.status.word().into(),
            match info.unmounted {
                true => b"-".to_vec(),
                false => info.mount.0.clone(),
            },
        ]);
    }
    rows
}

fn object(info: &Info) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), info.name.clone().into());
    object.insert("status".into(), info.status.word().into());
    if !info.unmounted {
        insert_bytes(&mut object, "mount", &info.mount.0);
    }
    insert_bytes(&mut object, "base", &info.base.0);
    Value::Object(object)
}
