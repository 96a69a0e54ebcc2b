//! The simulated disk at work: its side of the storage traits.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::replay::{self, Image};
use super::{CrashStorage, Disk, FaultOp, Ino, Op};
use crate::io::{Segment, Storage};
use crate::limits::{RESERVE_PIECE_BYTES, ROOM_BYTES};
use crate::reserve::{is_full, with_reserve};

impl Storage for CrashStorage {
    fn create(&self, path: &str) -> io::Result<Arc<dyn Segment>> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Create)?;
        state.parent_exists(path)?;
        if state.live.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let ino = state.new_ino();
        state.live.names.insert(path.to_owned(), ino);
        state.live.files.insert(ino, Vec::new());
        state.record(Op::Create {
            path: path.to_owned(),
            ino,
        });
        Ok(self.segment(ino))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn Segment>> {
        let ino = self.state.lock().live.names.get(path).copied();
        ino.map(|ino| self.segment(ino))
            .ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Read)?;
        Ok(state.live.file(path).cloned())
    }

    fn replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        with_reserve(self, is_full, || self.try_replace(path, bytes))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Remove)?;
        if state.live.names.remove(path).is_some() {
            state.record(Op::Remove {
                path: path.to_owned(),
            });
        }
        Ok(())
    }

    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Remove)?;
        for file in replay::below(&state.live.names, path) {
            state.live.names.remove(&file);
            state.record(Op::Remove { path: file });
        }
        let inside = format!("{path}/");
        let is_gone = |dir: &&String| *dir == path || dir.starts_with(&inside);
        // Deepest first, as a recursive removal goes.
        let gone: Vec<String> = state
            .live
            .dirs
            .iter()
            .rev()
            .filter(is_gone)
            .cloned()
            .collect();
        for dir in gone {
            state.live.dirs.remove(&dir);
            state.record(Op::RemoveDir { path: dir });
        }
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let paths = state.live.names.keys().chain(&state.live.dirs);
        let inside = paths.filter(|path| replay::parent(path) == dir && !path.is_empty());
        let names = inside.map(|path| path[replay::name_start(path)..].to_owned());
        Ok(names.collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        let ends = dir.match_indices('/').map(|(i, _)| i).chain([dir.len()]);
        for path in ends.map(|end| &dir[..end]).filter(|path| !path.is_empty()) {
            if state.live.dirs.insert(path.to_owned()) {
                state.record(Op::CreateDir {
                    path: path.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::SyncDir)?;
        state.record(Op::SyncDir {
            dir: dir.to_owned(),
        });
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.state.lock().free_bytes())
    }

    fn give_reserve(&self) -> bool {
        let mut state = self.state.lock();
        let given = state.reserve_left.min(RESERVE_PIECE_BYTES);
        state.reserve_left -= given;
        given > 0
    }

    fn reserve_bytes(&self) -> u64 {
        self.state.lock().reserve_left
    }

    fn is_reserve_in_use(&self) -> bool {
        let state = self.state.lock();
        state.reserve_left < state.reserve
    }

    fn make_room(&self) {
        if self.state.lock().free_bytes() < ROOM_BYTES {
            self.give_reserve();
        }
    }

    fn restore_reserve(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        let missing = state.reserve - state.reserve_left;
        if state.free_bytes() / 2 >= missing {
            state.reserve_left = state.reserve;
        }
        Ok(state.reserve_left == state.reserve)
    }

    fn used_bytes(&self) -> io::Result<u64> {
        Ok(self.state.lock().live.bytes())
    }

    /// Nothing is young here: tests need not wait.
    fn age(&self, path: &str) -> io::Result<Duration> {
        let known = self.state.lock().live.names.contains_key(path);
        known
            .then_some(Duration::MAX)
            .ok_or(ErrorKind::NotFound.into())
    }
}

impl CrashStorage {
    fn try_replace(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Replace)?;
        state.parent_exists(path)?;
        if bytes.len() as u64 > state.free_bytes() {
            return Err(ErrorKind::StorageFull.into());
        }
        let ino = state.new_ino();
        state.live.names.insert(path.to_owned(), ino);
        state.live.files.insert(ino, bytes.to_vec());
        state.record(Op::Replace {
            path: path.to_owned(),
            ino,
            bytes: bytes.into(),
        });
        Ok(())
    }
}

/// One simulated file; it outlives its name.
#[derive(Debug)]
pub(super) struct CrashSegment {
    pub(super) state: Arc<Mutex<Disk>>,
    pub(super) ino: Ino,
}

impl Segment for CrashSegment {
    fn append(&self, parts: &[&[u8]]) -> io::Result<u64> {
        let bytes = parts.concat();
        let mut state = self.state.lock();
        let offset = state.live.len(self.ino);
        let struck = state.strike(FaultOp::Append);
        let full = bytes.len() as u64 > state.free_bytes();
        if struck.is_err() || full {
            state.failed_append(self.ino, offset, &bytes);
            struck?;
            return Err(ErrorKind::StorageFull.into());
        }
        state.write(self.ino, offset, bytes.into());
        Ok(offset)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Read)?;
        let file = state
            .live
            .files
            .get(&self.ino)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let bytes = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(buf.len())?;
            file.get(start..end)
        });
        buf.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn try_read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, buf).map(|()| true)
    }

    fn len(&self) -> u64 {
        self.state.lock().live.len(self.ino)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Truncate)?;
        state.live.truncate(self.ino, len);
        state.record(Op::Truncate { ino: self.ino, len });
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::WriteAt)?;
        if offset.saturating_add(bytes.len() as u64) > state.live.len(self.ino) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        state.write(self.ino, offset, bytes.into());
        Ok(())
    }

    fn can_punch(&self) -> bool {
        true
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Punch)?;
        if range.end > state.live.len(self.ino) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        state.live.zero(self.ino, &range);
        let ino = self.ino;
        state.record(Op::Punch { ino, range });
        Ok(())
    }

    /// Every whole block of zeros is one.
    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        let mut state = self.state.lock();
        state.strike(FaultOp::Read)?;
        Ok(state.live.holes(self.ino))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let struck = state.strike(FaultOp::Sync);
        let ino = self.ino;
        state.record(if struck.is_ok() {
            Op::Sync { ino }
        } else {
            Op::FailedSync { ino }
        });
        struck
    }
}

impl Image {
    fn file(&self, path: &str) -> Option<&Vec<u8>> {
        self.files.get(self.names.get(path)?)
    }

    pub(super) fn bytes(&self) -> u64 {
        let linked = self.names.values().collect::<BTreeSet<_>>();
        linked.into_iter().map(|ino| self.len(*ino)).sum()
    }

    fn holes(&self, ino: Ino) -> Vec<Range<u64>> {
        const BLOCK_BYTES: usize = 4096;
        let file = self.files.get(&ino).map(Vec::as_slice).unwrap_or_default();
        let mut holes: Vec<Range<u64>> = Vec::new();
        for (i, block) in file.chunks_exact(BLOCK_BYTES).enumerate() {
            let start = (i * BLOCK_BYTES) as u64;
            let end = start + BLOCK_BYTES as u64;
            match holes.last_mut() {
                _ if block.iter().any(|byte| *byte != 0) => {}
                Some(last) if last.end == start => last.end = end,
                _ => holes.push(start..end),
            }
        }
        holes
    }

    pub(super) fn flip_bit(&mut self, path: &str, offset: u64, bit: u8) -> bool {
        let file = self.names.get(path).and_then(|ino| self.files.get_mut(ino));
        match file.and_then(|file| file.get_mut(offset as usize)) {
            Some(byte) => {
                *byte ^= 1 << (bit % 8);
                true
            }
            None => false,
        }
    }
}
