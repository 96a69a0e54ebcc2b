//! Stored objects: manifests, trees, commits.

use objstore::codec::{decode_object, encode_object};
use objstore::object::manifest::Manifest;
use objstore::object::tree::TreeNode;
use objstore::{Commit, Object};

/// Each kind has one encoding: what is understood comes back byte for byte.
pub fn check(bytes: &[u8]) {
    round_trip::<Manifest>(bytes);
    round_trip::<TreeNode>(bytes);
    round_trip::<Commit>(bytes);
}

fn round_trip<T: Object>(bytes: &[u8]) {
    if let Ok(object) = decode_object::<T>(T::KIND, T::VERSION, bytes) {
        let _ = object.check();
        let again = encode_object(T::KIND, T::VERSION, &object);
        assert!(again == bytes, "an object has two encodings");
    }
}
