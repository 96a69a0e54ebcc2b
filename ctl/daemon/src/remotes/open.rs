//! From the URL of a remote to the bucket that it is: the one place that knows which kinds there are.

use super::super::mounts::Mounts;
use super::faults::{bad_url, of_remote};
use super::network;
use agentvfs_client::protocol::{Access, Fault, Moment};
use agentvfs_client::when::rfc3339_seconds;
use engine::verbs::remotes::RemoteConfig;
use remote::bucket::Bucket;
use remote::bucket::directory::DirectoryBucket;
use remote::clock::{Clock, SystemClock};
use remote::{Error, Remote};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a remote is.
enum Place {
    /// In a directory of this machine.
    Directory(PathBuf),
    /// In a bucket of a service that speaks S3.
    S3,
}

/// A remote, and how it is reached.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// Where it is.
    pub url: &'a str,
    /// Its options.
    pub options: &'a BTreeMap<String, String>,
    /// What came with the request.
    pub access: &'a Access,
}

impl<'a> At<'a> {
    /// A remote of a workspace.
    pub fn of(config: &'a RemoteConfig, access: &'a Access) -> At<'a> {
        At {
            url: &config.url,
            options: &config.options,
            access,
        }
    }
}

fn place_of(url: &str) -> Result<Place, Fault> {
    match url.split_once("://") {
        Some(("file", path)) => Ok(Place::Directory(local_path(url, path)?)),
        Some(("s3", _)) => Ok(Place::S3),
        Some((scheme, _)) => Err(bad_url(
            url,
            &format!("remotes with {scheme}:// are not supported by this build"),
        )),
        None if url.starts_with('/') => Ok(Place::Directory(url.into())),
        None => Err(bad_url(url, "it is neither a URL nor an absolute path")),
    }
}

/// The bucket at a URL. A directory must be there.
pub fn remote_bucket(mounts: &Mounts, at: At<'_>) -> Result<Arc<dyn Bucket>, Fault> {
    match place_of(at.url)? {
        Place::S3 => Ok(Arc::new(network::bucket(at.url, at.options, at.access))),
        Place::Directory(path) => {
            check_directory(mounts, &path, at.options)?;
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
pub fn open_at(mounts: &Mounts, at: At<'_>) -> Result<Remote, Fault> {
    let bucket = remote_bucket(mounts, at)?;
    Remote::open(bucket, Arc::new(SystemClock)).map_err(|e| of_remote(e, ""))
}

/// The remote that a lazy workspace needs, for as long as it is used; its errors are those of the remote.
pub fn open_near(
    mounts: &Mounts,
    config: &RemoteConfig,
    access: &Access,
) -> remote::Result<Remote> {
    let bad = |fault: Fault| Error::Unsupported {
        name: config.name.clone(),
        why: fault.message,
    };
    let bucket: Arc<dyn Bucket> = match place_of(&config.url).map_err(bad)? {
        Place::S3 if access.0.is_empty() => {
            return Err(Error::Denied {
                name: config.url.clone(),
                why: "it needs credentials: run agentvfs prefetch or fetch".into(),
            });
        }
        Place::S3 => Arc::new(network::bucket(&config.url, &config.options, access)),
        Place::Directory(path) => {
            check_directory(mounts, &path, &config.options).map_err(bad)?;
            Arc::new(DirectoryBucket::open(&path)?)
        }
    };
    Remote::open(bucket, Arc::new(SystemClock))
}

/// Makes a remote where there is none, and finds out whether it keeps the conditions of puts.
pub fn create(mounts: &Mounts, at: At<'_>) -> Result<Remote, Fault> {
    if let Place::Directory(path) = place_of(at.url)? {
        check_directory(mounts, &path, at.options)?;
        DirectoryBucket::create(&path).map_err(|e| of_remote(e, ""))?;
    }
    let bucket = remote_bucket(mounts, at)?;
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
