//! How often a request allocates memory, on the thread that reads requests.
//!
//! Alone in its file, because it counts with an allocator of its own. Needs /dev/fuse and the right to mount;
//! without them it says so and passes.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/src/skip.rs"]
#[allow(dead_code)]
mod skip;

use engine::{Engine, EngineConfig};
use fuse_front::{MountError, MountOptions, mount};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, readlinkat_raw, statx};
use rustix::io::{Errno, pread, pwrite};
use skip::{Want, skip};
use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// The thread whose allocations are counted; 0: none.
static TASK: AtomicU32 = AtomicU32::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call goes to the system's allocator as it is; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let task = TASK.load(SeqCst);
        if task != 0 && task == rustix::thread::gettid().as_raw_nonzero().get() as u32 {
            COUNT.fetch_add(1, SeqCst);
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The thread of this process that reads requests.
fn reader() -> u32 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut readers = tasks.filter(|task| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.trim_end() == "fuse-connection"
    });
    let name = readers.next().unwrap().file_name();
    assert!(readers.next().is_none());
    name.to_str().unwrap().parse().unwrap()
}

/// Allocations of one request, on average over many that are all alike.
fn each(mut request: impl FnMut(usize)) -> u64 {
    const TIMES: usize = 200;
    // What is made once and used again.
    request(0);
    let before = COUNT.load(SeqCst);
    (1..=TIMES).for_each(&mut request);
    // A request that had to wait for the disk, which none should, does not count for the others.
    (COUNT.load(SeqCst) - before) / TIMES as u64
}

/// Makes requests of each kind below `root`.
fn counted(root: &Path) -> [(&'static str, u64); 5] {
    let path = |name: &str| root.join(name);
    fs::write(path("file"), vec![b'x'; 1 << 16]).unwrap();
    std::os::unix::fs::symlink("a/target", path("link")).unwrap();
    // Past the page cache, so that each is a request.
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = open(path("file"), flags, Mode::empty()).unwrap();
    let dir = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let (mut page, names) = (vec![b'y'; 4096], (0..=200).map(|i| format!("missing {i}")));
    let names: Vec<String> = names.collect();
    let fresh = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    [
        (
            "getattr",
            each(|_| {
                statx(&file, "", fresh, StatxFlags::SIZE).unwrap();
            }),
        ),
        (
            "lookup of a missing name",
            each(|i| {
                let found = statx(&dir, &*names[i], AtFlags::empty(), StatxFlags::SIZE);
                assert_eq!(found.err(), Some(Errno::NOENT));
            }),
        ),
        (
            "readlink",
            each(|_| {
                let mut target = [MaybeUninit::uninit(); 64];
                readlinkat_raw(&dir, "link", &mut target[..]).unwrap();
            }),
        ),
        (
            "read",
            each(|_| assert_eq!(pread(&file, &mut page[..], 0), Ok(4096))),
        ),
        (
            "write",
            each(|_| assert_eq!(pwrite(&file, &page, 8192), Ok(4096))),
        ),
    ]
}

#[test]
fn no_request_allocates_more_than_the_table_says() {
    let dir = tempfile::tempdir().unwrap();
    let [base, store, mnt] = ["base", "store", "mnt"].map(|name| dir.path().join(name));
    for dir in [&base, &mnt] {
        fs::create_dir(dir).unwrap();
    }
    let author = "test".into();
    let engine = Engine::open(EngineConfig {
        root: store,
        author,
    })
    .unwrap();
    engine
        .create("w", &base.canonicalize().unwrap(), None)
        .unwrap();
    let ws = engine.open_workspace("w").unwrap();
    let mounted = match mount(ws, MountOptions::new(&mnt)) {
        Ok(mounted) => mounted,
        Err(error @ (MountError::Refused { .. } | MountError::NoDevice(_))) => {
            return skip(Want::Fuse, &error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    TASK.store(reader(), SeqCst);
    let counts = counted(&mnt);
    TASK.store(0, SeqCst);
    mounted.abort();
    // What READ and WRITE allocate is the engine's: more where a state with the file was stored meanwhile.
    let most = [0, 0, 1, 8, 24];
    for ((request, count), most) in counts.into_iter().zip(most) {
        println!("{request}: {count} allocations");
        assert!(
            count <= most,
            "{request}: {count} allocations, at most {most} were wanted"
        );
    }
}
