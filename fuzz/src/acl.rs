//! Access control lists, as the kernel and the base pass them in extended attributes.

use engine::acl::Acl;

/// What is understood comes back byte for byte, and chmod changes no more than the nine bits say.
pub fn check(bytes: &[u8]) {
    let Some(mut acl) = Acl::parse(bytes) else {
        return;
    };
    assert_eq!(acl.to_bytes(), bytes);
    let _ = acl.is_minimal();
    assert!(acl.mode_bits() <= 0o777);
    acl.chmod(0o640);
    assert_eq!(acl.to_bytes().len(), bytes.len());
}
