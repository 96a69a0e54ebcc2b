//! Which build of the program this is: two that differ are told apart though they have one version.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// The version, and length and time of the program's file: the file that runs, also where another has
/// taken its name since.
pub fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        match std::fs::metadata("/proc/self/exe") {
            Ok(meta) => format!(
                "{version}-{:x}-{:x}.{:x}",
                meta.size(),
                meta.mtime(),
                meta.mtime_nsec()
            ),
            Err(_) => version.to_owned(),
        }
    })
}
