//! Stored objects: manifests, trees, commits; key-value state, which is the content of a file.

use engine::kv::{decode_map, encode_map};
use objstore::object::manifest::Manifest;
use objstore::object::tree::TreeNode;
use objstore::{Commit, Object};

/// Each kind has one encoding: what is understood comes back byte for byte.
pub fn check(bytes: &[u8]) {
    round_trip::<Manifest>(bytes);
    round_trip::<TreeNode>(bytes);
    round_trip::<Commit>(bytes);
    if let Ok(keys) = decode_map(bytes) {
        assert!(
            encode_map(&keys) == bytes,
            "key-value state has two encodings"
        );
    }
}

fn round_trip<T: Object>(bytes: &[u8]) {
    if let Ok(object) = T::from_bytes(bytes) {
        let _ = object.check();
        assert!(object.to_bytes() == bytes, "an object has two encodings");
    }
}
