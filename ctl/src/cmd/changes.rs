//! Changes as the commands print them.

use crate::output::Rows;
use agentvfs_client::protocol::Changed;
use agentvfs_client::render::insert_bytes;
use serde_json::{Map, Value};

/// Adds a change as a row: the status and the path, of a renamed one old and new path.
pub fn push_change(rows: &mut Rows, change: &Changed) {
    let mut cells = vec![change.status.to_string().into_bytes()];
    cells.extend(change.old_path.iter().map(|path| path.0.clone()));
    cells.push(change.path.0.clone());
    rows.push(cells);
}

/// A change as JSON.
pub fn change_object(change: &Changed) -> Value {
    let mut object = Map::new();
    object.insert("status".into(), change.status.to_string().into());
    insert_bytes(&mut object, "path", &change.path.0);
    if let Some(old) = &change.old_path {
        insert_bytes(&mut object, "old_path", &old.0);
    }
    Value::Object(object)
}
