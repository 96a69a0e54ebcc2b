//! A first look at a stored tree: how much there is, and how many names each hard-link group has.

use crate::error::Result;
use engine::Cancel;
use objstore::{Body, ObjectStore, TreeId, read_tree};
use std::collections::HashMap;

/// What a tree holds.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Names.
    pub names: u64,
    /// Bytes of all files, holes too.
    pub bytes: u64,
    /// Names of each hard-link group.
    pub groups: HashMap<u64, i64>,
}

impl Survey {
    /// Looks at the tree whose root directory is `root`.
    pub fn of(store: &ObjectStore, root: Option<TreeId>, cancel: &Cancel) -> Result<Survey> {
        let mut survey = Survey::default();
        let mut dirs = vec![root];
        while let Some(dir) = dirs.pop() {
            cancel.check()?;
            read_tree(store, dir, &mut |entry| {
                survey.names += 1;
                let group = entry.meta.link_group;
                if group != 0 {
                    *survey.groups.entry(group).or_default() += 1;
                }
                match entry.body {
                    Body::Dir(Some(id)) => dirs.push(Some(id)),
                    Body::File(content) if group == 0 || survey.groups[&group] == 1 => {
                        survey.bytes += content.len();
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(survey)
    }
}
