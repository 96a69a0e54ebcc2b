//! What of a directory need not be looked into, because a commit that is here as a whole has it in the same place.
//!
//! Without this, a change of one file in a hundred thousand would have all directories read that did not change: an
//! object that is here need not be whole, as gc may have taken what it refers to.

use objstore::exchange::content_key;
use objstore::{Body, Commit, CommitId, Key, Kind, Object, ObjectStore, TreeId, TreeNode};
use std::collections::{HashMap, HashSet};

/// For directories that are to be looked into, one that is here as a whole and probably much the same.
#[derive(Debug, Default)]
pub(super) struct Hints(HashMap<TreeId, TreeId>);

impl Hints {
    /// Of what an object refers to, what is here as a whole. Notes for the rest with what it is to be compared.
    pub fn known_below(
        &mut self,
        store: &ObjectStore,
        key: &Key,
        content: &[u8],
        complete: &dyn Fn(&CommitId) -> bool,
    ) -> HashSet<Key> {
        match key.0 {
            Kind::Commit => self.of_commit(store, content, complete),
            Kind::Tree => self.of_tree(store, &TreeId::from_bytes(key.1), content),
            Kind::Chunk | Kind::Manifest => HashSet::new(),
        }
    }

    fn of_commit(
        &mut self,
        store: &ObjectStore,
        content: &[u8],
        complete: &dyn Fn(&CommitId) -> bool,
    ) -> HashSet<Key> {
        let Ok(commit) = Commit::from_bytes(content) else {
            return HashSet::new();
        };
        let parent = commit.parents.iter().find(|id| complete(id));
        let parent = parent.and_then(|id| store.get_object::<Commit>(id).ok());
        let Some((new, old)) = parent.and_then(|p| Some((commit.root?, p.root?))) else {
            return HashSet::new();
        };
        if new == old {
            return HashSet::from([(Kind::Tree, *new.as_bytes())]);
        }
        self.0.insert(new, old);
        HashSet::new()
    }

    fn of_tree(&mut self, store: &ObjectStore, id: &TreeId, content: &[u8]) -> HashSet<Key> {
        let old = self.0.remove(id);
        let old = old.and_then(|old| store.get_object::<TreeNode>(&old).ok());
        let (Some(old), Ok(new)) = (old, TreeNode::from_bytes(content)) else {
            return HashSet::new();
        };
        let mut known = HashSet::new();
        match (&new, &old) {
            (TreeNode::Inner(new), TreeNode::Inner(old)) => {
                for child in new {
                    if let Some(before) = old.iter().find(|o| o.slot == child.slot) {
                        self.compare(child.id, before.id, &mut known);
                    }
                }
            }
            (TreeNode::Leaf(new), TreeNode::Leaf(old)) => {
                for entry in new {
                    let before = old.iter().find(|o| o.name == entry.name);
                    match (&entry.body, before.map(|o| &o.body)) {
                        (Body::Dir(Some(new)), Some(Body::Dir(Some(old)))) => {
                            self.compare(*new, *old, &mut known);
                        }
                        (Body::File(new), Some(Body::File(old))) if new == old => {
                            known.extend(content_key(new));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        known
    }

    fn compare(&mut self, new: TreeId, old: TreeId, known: &mut HashSet<Key>) {
        if new == old {
            known.insert((Kind::Tree, *new.as_bytes()));
        } else {
            self.0.insert(new, old);
        }
    }
}
