//! Objects that came and wait for what they refer to: in a file without a name, so that a killed fetch leaves none.

use crate::error::{Error, Result};
use objstore::exchange::{RECORD_START, Record};
use objstore::{Key, ObjectStore};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The objects, in the order in which they came.
#[derive(Debug)]
pub(super) struct Staged {
    file: BufWriter<File>,
    bytes: u64,
    objects: Vec<One>,
    numbers: HashMap<Key, usize>,
}

#[derive(Debug)]
struct One {
    key: Key,
    offset: u64,
    bytes: u64,
    below: Vec<Key>,
}

impl Staged {
    /// Nothing yet; the file is in this directory.
    pub fn new(directory: &Path) -> Result<Staged> {
        let flags = rustix::fs::OFlags::TMPFILE.bits() as i32;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(directory);
        Ok(Staged {
            file: BufWriter::new(file.map_err(Error::io(directory.to_string_lossy()))?),
            bytes: 0,
            objects: Vec::new(),
            numbers: HashMap::new(),
        })
    }

    /// Adds an object, which refers to these.
    pub fn add(&mut self, record: &Record, below: impl Iterator<Item = Key>) -> Result<()> {
        let bytes = record.to_bytes();
        self.file
            .write_all(&bytes)
            .map_err(Error::io("a temporary file"))?;
        self.numbers.insert(record.key(), self.objects.len());
        self.objects.push(One {
            key: record.key(),
            offset: self.bytes,
            bytes: bytes.len() as u64,
            below: below.collect(),
        });
        debug_assert!(bytes.len() as u64 == RECORD_START + record.stored_len());
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Puts all of them, each after those to which it refers.
    pub fn put_all(&mut self, store: &ObjectStore) -> Result<()> {
        self.file.flush().map_err(Error::io("a temporary file"))?;
        let mut entered = vec![false; self.objects.len()];
        for first in 0..self.objects.len() {
            let mut steps = vec![(first, false)];
            while let Some((number, is_done)) = steps.pop() {
                if is_done {
                    store.put_record(&self.read(number)?)?;
                } else if !std::mem::replace(&mut entered[number], true) {
                    steps.push((number, true));
                    let below = self.objects[number].below.iter();
                    let below = below.filter_map(|key| self.numbers.get(key));
                    steps.extend(below.map(|number| (*number, false)));
                }
            }
        }
        Ok(())
    }

    fn read(&self, number: usize) -> Result<Record> {
        let one = &self.objects[number];
        let mut bytes = vec![0; one.bytes as usize];
        let read = self.file.get_ref().read_exact_at(&mut bytes, one.offset);
        read.map_err(Error::io("a temporary file"))?;
        Record::parse(&one.key, bytes).map_err(|what| Error::Damaged {
            name: "a temporary file".into(),
            what,
        })
    }
}
