//! The programs and their maps in the kernel: loading, attaching, and saying which processes are of runs.
//!
//! Invariant: what looks at system calls is attached only while there is a process or a group that it could tell of, since
//! it costs each system call of the machine some time.

use crate::error::{Error, Result, refused};
use crate::machine::{Machine, THIS};
use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::RawTracePoint;
use aya::programs::raw_trace_point::RawTracePointLinkId;
use aya::{Btf, Ebpf, EbpfLoader, VerifierLogLevel};
use std::os::unix::fs::MetadataExt;

/// The programs, as `bpf/build.sh` compiled them.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/runs.bpf.o");

/// Programs that are attached as long as they are loaded, and to which tracepoints.
const ALWAYS: [(&str, &str); 3] = [
    ("forked", "sched_process_fork"),
    ("exited", "sched_process_exit"),
    ("executed", "sched_process_exec"),
];

/// The program that looks at system calls.
const CALLS: (&str, &str) = ("returned", "sys_exit");

/// Places in the map of counts.
const LOST: u32 = 0;
const GROUPS: u32 = 1;

/// What a process is in `struct proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is told of.
    Told = 0,
    /// It is told of once it has executed a program.
    Waits = 1,
    /// Its children are told of then.
    Root = 2,
}

/// The mount in which files have numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mount {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Opens in it are told of by somebody else.
    pub opens_are_told: bool,
}

/// Programs in the kernel.
pub struct Programs {
    loaded: Ebpf,
    procs: HashMap<MapData, u32, [u32; 2]>,
    groups: HashMap<MapData, u64, u32>,
    counts: Array<MapData, u64>,
    /// While it looks at system calls.
    calls: Option<RawTracePointLinkId>,
}

/// Whether programs can be loaded here: they are, and taken away.
///
/// # Errors
/// Says what is missing: BTF, privileges, or whatever the kernel refuses.
pub fn check() -> Result<()> {
    Programs::load(None).map(drop)
}

impl Programs {
    /// Loads the programs; those that follow processes are attached. Gives the buffer in which they tell.
    pub fn load(mount: Option<Mount>) -> Result<(Programs, RingBuf<MapData>)> {
        let machine = THIS.ok_or(Error::Machine)?;
        let types =
            Btf::from_sys_fs().map_err(|error| Error::NoTypes(crate::error::why(&error)))?;
        let mut loaded = load(machine, mount, &types)?;
        drop(types);
        for (name, point) in ALWAYS {
            let program = program(&mut loaded, name)?;
            program.load().map_err(refused("loading a BPF program"))?;
            let attached = program.attach(point);
            attached.map_err(refused("attaching a BPF program"))?;
        }
        let calls = program(&mut loaded, CALLS.0)?;
        calls.load().map_err(refused("loading a BPF program"))?;
        let mut programs = Programs {
            procs: HashMap::try_from(map(&mut loaded, "procs")?).map_err(refused(MAP))?,
            groups: HashMap::try_from(map(&mut loaded, "groups")?).map_err(refused(MAP))?,
            counts: Array::try_from(map(&mut loaded, "counts")?).map_err(refused(MAP))?,
            calls: None,
            loaded,
        };
        let ring = map(&mut programs.loaded, "ring")?;
        let ring = RingBuf::try_from(ring).map_err(refused(MAP))?;
        // It can be attached: that is found out now and not when the first run begins.
        programs.look_at_calls(true)?;
        programs.look_at_calls(false)?;
        Ok((programs, ring))
    }

    /// Has a process be of a run from now on, and whatever it starts.
    pub fn add(&mut self, pid: u32, run: u32, state: State) -> Result<()> {
        let added = self.procs.insert(pid, [run, state as u32], 0);
        added.map_err(refused("noting a process of a run"))?;
        self.look_at_calls(true)
    }

    /// Whether a process is known.
    pub fn has(&self, pid: u32) -> bool {
        self.procs.get(&pid, 0).is_ok()
    }

    /// Has these control groups, and no others, be of runs.
    pub fn set_groups(&mut self, wanted: &[(u64, u32)]) -> Result<()> {
        let known: Vec<u64> = self.groups.keys().flatten().collect();
        for gone in known
            .iter()
            .filter(|id| !wanted.iter().any(|(w, _)| w == *id))
        {
            // One that is not there any more is as good.
            let _ = self.groups.remove(gone);
        }
        for (id, run) in wanted {
            let added = self.groups.insert(id, run, 0);
            added.map_err(refused("noting a control group"))?;
        }
        let count = self.counts.set(GROUPS, wanted.len() as u64, 0);
        count.map_err(refused("noting a control group"))?;
        self.look_at_calls(!wanted.is_empty() || self.has_processes())
    }

    /// Stops looking at system calls if there is nobody to tell of. True if it goes on.
    pub fn rest(&mut self) -> Result<bool> {
        let has_groups = self.counts.get(&GROUPS, 0).is_ok_and(|count| count > 0);
        self.look_at_calls(has_groups || self.has_processes())?;
        Ok(self.calls.is_some())
    }

    /// How many events were lost since it was loaded.
    pub fn lost(&self) -> u64 {
        self.counts.get(&LOST, 0).unwrap_or_default()
    }

    fn has_processes(&self) -> bool {
        self.procs.keys().next().is_some()
    }

    fn look_at_calls(&mut self, wanted: bool) -> Result<()> {
        if wanted == self.calls.is_some() {
            return Ok(());
        }
        let program = program(&mut self.loaded, CALLS.0)?;
        self.calls = match self.calls.take() {
            Some(link) => {
                program
                    .detach(link)
                    .map_err(refused("detaching a BPF program"))?;
                None
            }
            None => {
                let attached = program.attach(CALLS.1);
                Some(attached.map_err(refused("attaching a BPF program"))?)
            }
        };
        Ok(())
    }
}

const MAP: &str = "making a BPF map";

/// The object in the kernel, without its programs.
fn load(machine: Machine, mount: Option<Mount>, types: &Btf) -> Result<Ebpf> {
    // The inode number of a namespace is of 32 bits (`struct ns_common`).
    let namespace = std::fs::metadata("/proc/self/ns/pid")?.ino() as u32;
    // `MKDEV` in linux/kdev_t.h.
    let device = mount.map_or(0, |mount| mount.device.0 << 20 | mount.device.1);
    let leaves = u32::from(mount.is_some_and(|mount| mount.opens_are_told));
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(types))
        .verifier_log_level(VerifierLogLevel::DISABLE)
        .override_global("namespace", &namespace, true)
        .override_global("mount_dev", &device, true)
        .override_global("leaves_mount", &leaves, true)
        .override_global("connect_call", &machine.connect, true)
        .override_global("open_calls", &machine.opens, true)
        .override_global("number_at", &machine.number_at, true)
        .override_global("arguments_at", &machine.arguments_at, true);
    loader.load(OBJECT).map_err(refused("loading BPF maps"))
}

fn program<'a>(loaded: &'a mut Ebpf, name: &str) -> Result<&'a mut RawTracePoint> {
    let missing = || Error::Refused {
        what: "finding a BPF program",
        why: name.to_owned(),
    };
    let program = loaded.program_mut(name).ok_or_else(missing)?;
    program.try_into().map_err(refused("finding a BPF program"))
}

fn map(loaded: &mut Ebpf, name: &str) -> Result<aya::maps::Map> {
    loaded.take_map(name).ok_or_else(|| Error::Refused {
        what: "finding a BPF map",
        why: name.to_owned(),
    })
}
