//! What the tests of remotes share: machines with a store each, histories, and a look at what a remote has.
#![allow(dead_code, clippy::unwrap_used)]

use objstore::crash_storage::CrashStorage;
use objstore::exchange::{commit_key, references};
use objstore::{
    Body, Commit, CommitId, CommitKind, Edit, FileContent, Key, Kind, Meta, ObjectStore, Source,
    StoreConfig, TreeEntry, TreeId, TreeNode, edit_tree, store_content,
};
use remote::bucket::Bucket;
use remote::bucket::memory::MemoryBucket;
use remote::chance::Chance;
use remote::clock::{Clock, SimulatedClock};
use remote::layout::catalog::BranchName;
use remote::push::{Allow, Context, PushRequest, Pushed};
use remote::{Error, Generation, Remote, fetch};
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The seed of a random test: `AGENTVFS_SEED`, else a new one.
pub fn seed() -> u64 {
    let given = std::env::var("AGENTVFS_SEED").ok();
    let seed = given.map_or_else(|| Chance::fresh().word(), |text| text.parse().unwrap());
    println!("AGENTVFS_SEED={seed} makes this happen again");
    seed
}

/// Bytes that do not compress; the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// A clock, and a remote in memory whose clock it is.
pub fn world() -> (Arc<SimulatedClock>, MemoryBucket) {
    let clock = Arc::new(SimulatedClock::at(1_700_000_000));
    let bucket = MemoryBucket::new(clock.clone());
    (clock, bucket)
}

pub fn branch(name: &str) -> BranchName {
    BranchName {
        project: "p".into(),
        branch: name.into(),
    }
}

/// A machine: a store, and a remote as it sees it.
pub struct Machine {
    pub store: ObjectStore,
    pub remote: Remote,
    pub dir: tempfile::TempDir,
    /// Commits that something here keeps, with their ancestors.
    pub complete: HashSet<CommitId>,
    pub stop: Cell<bool>,
    /// What happens between requests of a push.
    pub between: Option<Box<dyn Fn()>>,
}

impl Machine {
    pub fn new(bucket: Arc<dyn Bucket>, clock: Arc<dyn Clock>) -> Machine {
        let remote = Remote::create(bucket, clock, "2026-11-25T00:00:00Z").unwrap();
        Machine::with(remote)
    }

    pub fn with(remote: Remote) -> Machine {
        let disk = Arc::new(CrashStorage::without_log());
        Machine {
            store: ObjectStore::open(disk, StoreConfig::default()).unwrap(),
            remote,
            dir: tempfile::tempdir().unwrap(),
            complete: HashSet::new(),
            stop: Cell::new(false),
            between: None,
        }
    }

    /// A commit that changes files of its first parent: new contents, or `None` to remove them. A name with a slash is
    /// in a directory.
    pub fn commit(&mut self, parents: &[CommitId], files: &[(&str, Option<&[u8]>)]) -> CommitId {
        let base = parents.first();
        let base = base.and_then(|id| self.store.get_object::<Commit>(id).unwrap().root);
        let mut by_dir: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
        for (path, content) in files {
            let (dir, name) = path.split_once('/').unwrap_or(("", path));
            let edit = match content {
                Some(bytes) => Edit::Put(file(name, self.content(bytes))),
                None => Edit::Remove(name.as_bytes().to_vec()),
            };
            by_dir.entry(dir).or_default().push(edit);
        }
        let mut top = by_dir.remove("").unwrap_or_default();
        for (dir, edits) in by_dir {
            let old = base.and_then(|base| subdirectory(&self.store, base, dir));
            let new = edit_tree(&self.store, old, edits).unwrap();
            top.push(Edit::Put(directory(dir, new)));
        }
        let root = edit_tree(&self.store, base, top).unwrap();
        let commit = Commit {
            root_meta: meta(0o40755),
            root,
            parents: parents.to_vec(),
            time_sec: 1,
            time_nsec: 0,
            author: "a".into(),
            message: format!("{} files", files.len()),
            meta: Vec::new(),
            kind: CommitKind::Asked,
            kv: None,
            timeline: None,
        };
        let id = self.store.put_object(&commit).unwrap();
        self.store.sync().unwrap();
        self.complete.insert(id);
        id
    }

    pub fn content(&self, bytes: &[u8]) -> FileContent {
        let all = std::slice::from_ref(&(0..bytes.len() as u64)).to_vec();
        let src = Bytes(bytes);
        store_content(&self.store, None, &[], &all, bytes.len() as u64, &src).unwrap()
    }

    pub fn request(&self, to: &str, commit: CommitId) -> PushRequest {
        PushRequest {
            to: branch(to),
            commit,
            labels: BTreeMap::new(),
            timeline: None,
            mentioned: Vec::new(),
            by: "me".into(),
            time: (5, 6),
            allow: Allow::FastForward,
        }
    }

    pub fn push(&self, to: &str, commit: CommitId) -> Result<Pushed, Error> {
        self.push_as(&self.request(to, commit))
    }

    pub fn push_as(&self, request: &PushRequest) -> Result<Pushed, Error> {
        let context = Context {
            progress: &|_, _| (),
            check: &|| {
                self.between.iter().for_each(|between| between());
                match self.stop.get() {
                    true => Err(Error::Stopped),
                    false => Ok(()),
                }
            },
            decide: &|| Ok(()),
            has_entry: &|_| Ok(false),
        };
        remote::push::push(&self.remote, &self.store, request, &context)
    }

    /// Fetches a branch; its commit is complete here afterwards.
    pub fn fetch(&mut self, of: &str) -> Result<(CommitId, fetch::Fetched), Error> {
        let found = self.remote.reference(&branch(of))?;
        let commit = found
            .map(|(found, _)| found.commit)
            .ok_or(Error::NoRemote)?;
        let complete = |id: &CommitId| self.complete.contains(id);
        let context = fetch::Context {
            progress: &|_, _| (),
            check: &|| Ok(()),
            room: &|_| Ok(()),
            complete: &complete,
            directory: self.dir.path(),
            depth: fetch::Depth::Whole,
        };
        let roots = [(commit_key(&commit), false)];
        let fetched = fetch::fetch(&self.remote, &self.store, &roots, &context)?;
        let mut work = vec![commit];
        while let Some(id) = work.pop() {
            if self.store.contains(Kind::Commit, id.as_bytes()) && self.complete.insert(id) {
                work.extend(self.store.get_object::<Commit>(&id).unwrap().parents);
            }
        }
        Ok((commit, fetched))
    }

    /// All that a commit needs is here: keys of it.
    pub fn whole(&self, commit: CommitId) -> HashSet<Key> {
        let (mut seen, mut work) = (HashSet::new(), vec![commit_key(&commit)]);
        while let Some(key) = work.pop() {
            if seen.insert(key) {
                let found = self.store.references(&key).unwrap();
                work.extend(found.needed);
                work.extend(found.parents.iter().map(commit_key));
            }
        }
        seen
    }
}

/// Everything that the refs of a remote need is present and whole: checked by reading all of it. Gives how many
/// objects that are.
pub fn check_whole(remote: &Remote, bucket: &dyn Bucket) -> usize {
    let generation = remote.generation().unwrap();
    let mut work = Vec::new();
    for name in &generation.catalog.refs {
        if let Some((found, _)) = remote.reference(name).unwrap() {
            work.push(commit_key(&found.commit));
            work.extend(found.labels.iter().map(|(_, id)| commit_key(id)));
        }
    }
    below(&generation, bucket, work, &mut HashSet::new()).len()
}

/// Everything below some objects, read from the remote.
pub fn below(
    generation: &Generation,
    bucket: &dyn Bucket,
    mut work: Vec<Key>,
    known: &mut HashSet<Key>,
) -> HashSet<Key> {
    let mut seen = HashSet::new();
    while let Some(key) = work.pop() {
        if known.contains(&key) || !seen.insert(key) {
            continue;
        }
        let found = generation.find(&key);
        let found = found.unwrap_or_else(|| {
            panic!(
                "{} {} is missing in the remote",
                key.0,
                objstore::exchange::key_hex(&key.1)
            )
        });
        let name = remote::layout::pack_name(&found.pack.hash);
        let bytes = bucket.get_range(&name, found.place.range()).unwrap();
        let bytes = bytes.unwrap_or_else(|| panic!("{name} is missing, which has a {}", key.0));
        let record = objstore::exchange::Record::parse(&key, bytes).unwrap();
        let found = references(key.0, &record.content().unwrap()).unwrap();
        work.extend(found.needed);
        work.extend(found.parents.iter().map(commit_key));
    }
    seen
}

struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        let start = offset as usize;
        buf.copy_from_slice(&self.0[start..start + buf.len()]);
        Ok(())
    }
}

fn meta(mode: u32) -> Meta {
    Meta {
        mode,
        ..Meta::default()
    }
}

pub fn file(name: &str, content: FileContent) -> TreeEntry {
    TreeEntry {
        name: name.as_bytes().to_vec(),
        meta: meta(0o100644),
        body: Body::File(content),
    }
}

fn directory(name: &str, id: Option<TreeId>) -> TreeEntry {
    TreeEntry {
        name: name.as_bytes().to_vec(),
        meta: meta(0o40755),
        body: Body::Dir(id),
    }
}

fn subdirectory(store: &ObjectStore, base: TreeId, name: &str) -> Option<TreeId> {
    let entry = objstore::tree_entry(store, base, name.as_bytes()).unwrap()?;
    match entry.body {
        Body::Dir(id) => id,
        _ => None,
    }
}

/// Number of nodes of a directory, so that tests see that it is split.
pub fn is_split(store: &ObjectStore, id: TreeId) -> bool {
    matches!(
        store.get_object::<TreeNode>(&id).unwrap(),
        TreeNode::Inner(_)
    )
}
