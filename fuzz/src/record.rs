//! What stands in journal records: mutations, events, patches, conflicts; and the settings of a store.

use crate::seeds;
use engine::journal::PayloadRef;
use engine::merge::Conflict;
use engine::record::{Record, TreePatch, decode, encode};
use engine::tree::Tree;
use engine::tree::patch::BaseDirs;

/// What is understood comes back byte for byte, and carrying it out gives a tree or an error.
pub fn check(bytes: &[u8]) {
    if let Ok(record) = decode::<Record>(bytes) {
        assert!(encode(&record) == bytes, "a record has two encodings");
        if let Some(m) = record.mutation() {
            let payload = PayloadRef {
                segment: 1,
                offset: 96,
                len: 5,
            };
            if m.check(Some(payload)).is_ok() {
                let _ = seeds::tree().apply(m, Some(payload));
            }
        }
    }
    if let Ok(conflict) = decode::<Conflict>(bytes) {
        assert!(encode(&conflict) == bytes, "a conflict has two encodings");
    }
    if let Ok(settings) = engine::settings::decode_settings(bytes) {
        let again = engine::settings::encode_settings(&settings);
        assert!(again == bytes, "settings have two encodings");
    }
    if let Ok(patch) = TreePatch::from_bytes(bytes) {
        assert!(patch.to_bytes() == bytes, "a patch has two encodings");
        carry_out(&patch);
    }
}

/// A patch gives a tree, whose own patch gives an equal one, or an error.
fn carry_out(patch: &TreePatch) {
    let mut tree = Tree::default();
    if patch.apply(&mut tree, &mut BaseDirs::default()).is_err() {
        return;
    }
    let again = TreePatch::between(&Tree::default(), &tree);
    let mut copy = Tree::default();
    let applied = again.apply(&mut copy, &mut BaseDirs::default());
    assert!(applied.is_ok(), "a tree's own patch is refused");
    assert_eq!(copy.len(), tree.len());
}
