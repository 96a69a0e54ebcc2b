//! A bucket of a service that speaks S3.

use crate::failure::said;
use futures_core::Stream;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use remote::bucket::check_name;
use remote::bucket::wire::{Access, Only, Said};
use remote::limits::LISTED_MAX;
use std::future::poll_fn;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may pause.
const READ: Duration = Duration::from_secs(30);

/// A bucket, and what all names of this remote begin with there.
pub struct S3 {
    store: AmazonS3,
    prefix: Path,
}

/// Bytes that follow an answer.
type Heard = (Said, Vec<u8>);

impl S3 {
    /// The bucket at `s3://BUCKET/PREFIX`. Nothing is sent.
    ///
    /// # Errors
    /// The URL or a setting is none. No error has a setting's value.
    pub fn open(url: &str, access: &Access) -> Result<S3, String> {
        let rest = url
            .strip_prefix("s3://")
            .ok_or("it is not s3://BUCKET/PREFIX")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_bucket = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if !(1..=255).contains(&bucket.len()) || !bucket.bytes().all(is_bucket) {
            return Err("the bucket's name is not one of S3".into());
        }
        // The library takes empty parts at the beginning away.
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let prefix = Path::parse(prefix)
            .ok()
            .filter(|path| path.as_ref() == prefix)
            .ok_or("the prefix has empty parts, or . or ..")?;
        let endpoint = access.0.get("endpoint");
        let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let options = ClientOptions::new()
            .with_allow_http(plain)
            .with_connect_timeout(CONNECT)
            .with_read_timeout(READ)
            // Each request is bounded by its bytes.
            .with_timeout_disabled();
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_client_options(options)
            // One object is deleted at a time, and not all services have the other request.
            .with_disable_bulk_delete(true)
            // Whoever asked sends requests again.
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            });
        for (name, value) in &access.0 {
            let key = AmazonS3ConfigKey::from_str(name);
            let key = key.map_err(|_| format!("{name} is no setting"))?;
            builder = builder.with_config(key, value);
        }
        let store = builder
            .build()
            .map_err(|_| "the settings do not go together".to_owned())?;
        Ok(S3 { store, prefix })
    }

    fn path(&self, name: &str) -> Result<Path, Said> {
        check_name(name).map_err(|e| Said::Unsupported(e.to_string()))?;
        let whole = match self.prefix.as_ref() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        };
        Path::parse(whole).map_err(|_| Said::Unsupported("the name is none of S3".into()))
    }

    /// [`remote::bucket::Bucket::get`].
    pub async fn get(&self, name: &str, max: u64) -> Result<Heard, Said> {
        let path = self.path(name)?;
        let got = self.store.get_opts(&path, GetOptions::default()).await;
        let got = got.map_err(|e| said(&e))?;
        if got.meta.size > max {
            return Err(Said::TooLarge(got.meta.size));
        }
        let tag = got.meta.e_tag.clone();
        let tag = tag.ok_or_else(|| Said::Unsupported("it gives no tags of versions".into()))?;
        let bytes = body(got, max).await?;
        Ok((Said::Whole(tag), bytes))
    }

    /// [`remote::bucket::Bucket::get_range`].
    pub async fn range(&self, name: &str, start: u64, end: u64) -> Result<Heard, Said> {
        let path = self.path(name)?;
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..end)),
            ..GetOptions::default()
        };
        let got = self.store.get_opts(&path, options).await;
        let got = got.map_err(|e| said(&e))?;
        if got.meta.size < end {
            return Err(Said::Short);
        }
        let bytes = body(got, end - start).await?;
        Ok((Said::Part, bytes))
    }

    /// [`remote::bucket::Bucket::put`].
    pub async fn put(&self, name: &str, bytes: Vec<u8>, only: Only) -> Result<Heard, Said> {
        let path = self.path(name)?;
        let is_conditional = only != Only::Always;
        let mode = match only {
            Only::Always => PutMode::Overwrite,
            Only::Absent => PutMode::Create,
            Only::Matches(tag) => PutMode::Update(UpdateVersion {
                e_tag: Some(tag),
                version: None,
            }),
        };
        let put = self
            .store
            .put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode))
            .await;
        match put.map_err(|e| said(&e)) {
            Ok(done) => match done.e_tag {
                Some(tag) => Ok((Said::Put(tag), Vec::new())),
                None => Err(Said::Unsupported("it gives no tags of versions".into())),
            },
            // A version of nothing is never there.
            Err(Said::Absent) if is_conditional => Err(Said::Refused),
            Err(Said::Refused) if !is_conditional => Err(Said::Transient(
                "it refused a put without a condition".into(),
            )),
            Err(said) => Err(said),
        }
    }

    /// [`remote::bucket::Bucket::delete`].
    pub async fn delete(&self, name: &str) -> Result<Heard, Said> {
        let path = self.path(name)?;
        self.store.delete(&path).await.map_err(|e| said(&e))?;
        Ok((Said::Done, Vec::new()))
    }

    /// [`remote::bucket::Bucket::list`].
    pub async fn list(&self, prefix: &str) -> Result<Heard, Said> {
        let below = match prefix.trim_end_matches('/') {
            "" => self.prefix.clone(),
            prefix => self.path(prefix)?,
        };
        let mut all = Vec::new();
        let mut listing = self.store.list(Some(&below));
        while let Some(found) = next(&mut listing).await {
            let found = found.map_err(|e| said(&e))?;
            let name = found.location.as_ref().strip_prefix(self.prefix.as_ref());
            let name = name.map(|name| name.trim_start_matches('/').to_owned());
            let put_at = found.last_modified.timestamp();
            all.extend(name.map(|name| (name, found.size, put_at)));
            if all.len() >= LISTED_MAX {
                break;
            }
        }
        Ok((Said::Listed(all), Vec::new()))
    }
}

/// The bytes of an answer, `max` at most.
async fn body(got: GetResult, max: u64) -> Result<Vec<u8>, Said> {
    let mut bytes = Vec::new();
    let mut stream = got.into_stream();
    while let Some(part) = next(&mut stream).await {
        let part = part.map_err(|e| said(&e))?;
        if bytes.len() as u64 + part.len() as u64 > max {
            return Err(Said::Transient("it answers more than asked for".into()));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// The next item of a stream; `None` at its end.
async fn next<S: Stream + ?Sized>(stream: &mut Pin<Box<S>>) -> Option<S::Item> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}
