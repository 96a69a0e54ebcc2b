//! From the URL of a remote to the bucket that it is: the one place that knows which kinds there are.

use super::super::mounts::Mounts;
use super::faults::{bad_url, of_remote};
use agentvfs_client::protocol::{Fault, Moment};
use agentvfs_client::when::rfc3339_seconds;
use engine::verbs::remotes::RemoteConfig;
use remote::Remote;
use remote::bucket::Bucket;
use remote::bucket::directory::DirectoryBucket;
use remote::clock::{Clock, SystemClock};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a remote is.
enum Place {
    /// In a directory of this machine.
    Directory(PathBuf),
}

fn place_of(url: &str) -> Result<Place, Fault> {
    match url.split_once("://") {
        Some(("file", path)) => Ok(Place::Directory(local_path(url, path)?)),
        Some((scheme, _)) => Err(bad_url(
            url,
            &format!("remotes with {scheme}:// are not supported by this build"),
        )),
        None if url.starts_with('/') => Ok(Place::Directory(url.into())),
        None => Err(bad_url(url, "it is neither a URL nor an absolute path")),
    }
}

/// The bucket at a URL. A directory must be there.
pub fn remote_bucket(
    mounts: &Mounts,
    url: &str,
    options: &BTreeMap<String, String>,
) -> Result<Arc<dyn Bucket>, Fault> {
    match place_of(url)? {
        Place::Directory(path) => {
            check_directory(mounts, &path, options)?;
            let bucket = DirectoryBucket::open(&path).map_err(|e| of_remote(e, ""))?;
            Ok(Arc::new(bucket))
        }
    }
}

fn check_directory(
    mounts: &Mounts,
    path: &Path,
    options: &BTreeMap<String, String>,
) -> Result<(), Fault> {
    if let Some(option) = options.keys().next() {
        let why = format!("a directory has no {option}");
        return Err(bad_url(&path.to_string_lossy(), &why));
    }
    // The daemon would wait for itself.
    mounts.check_outside(path)
}

/// The path of a `file` URL: `%` and two hex digits are a byte.
fn local_path(url: &str, place: &str) -> Result<PathBuf, Fault> {
    if !place.starts_with('/') {
        return Err(bad_url(url, "a file URL begins with file:///"));
    }
    let mut bytes = Vec::with_capacity(place.len());
    let mut rest = place.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|d| char::from(d?).to_digit(16));
        match digits {
            [Some(high), Some(low)] if high + low > 0 => bytes.push((high << 4 | low) as u8),
            _ => return Err(bad_url(url, "after % two hex digits are wanted")),
        }
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// The remote at a URL, which must be there.
pub fn open_at(
    mounts: &Mounts,
    url: &str,
    options: &BTreeMap<String, String>,
) -> Result<Remote, Fault> {
    let bucket = remote_bucket(mounts, url, options)?;
    Remote::open(bucket, Arc::new(SystemClock)).map_err(|e| of_remote(e, ""))
}

/// Makes a remote where there is none, and finds out whether it keeps the conditions of puts.
pub fn create(mounts: &Mounts, config: &RemoteConfig) -> Result<Remote, Fault> {
    match place_of(&config.url)? {
        Place::Directory(path) => {
            check_directory(mounts, &path, &config.options)?;
            DirectoryBucket::create(&path).map_err(|e| of_remote(e, ""))?;
        }
    }
    let bucket = remote_bucket(mounts, &config.url, &config.options)?;
    let made = rfc3339_seconds(Moment {
        sec: SystemClock.now(),
        nsec: 0,
    });
    Remote::create(bucket, Arc::new(SystemClock), &made).map_err(|e| of_remote(e, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_urls_name_any_path_and_nothing_else() {
        let path = |url: &str| local_path(url, url.strip_prefix("file://").unwrap());
        for (url, wanted) in [
            ("file:///srv/x", "/srv/x"),
            ("file:///a%20b%2fc", "/a b/c"),
            ("file:///", "/"),
        ] {
            assert_eq!(path(url).unwrap(), Path::new(wanted), "{url}");
        }
        for url in [
            "file://host/x",
            "file://",
            "file:///%",
            "file:///%2",
            "file:///%zz",
            "file:///%00",
        ] {
            assert!(path(url).is_err(), "{url}");
        }
    }
}
