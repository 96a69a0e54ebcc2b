//! Programs that append records to a log, and what a log must consist of.

use crate::wait;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Switches under each load.
pub const ROUNDS: usize = 100;
/// Length of a record of which as many fit exactly into a page.
pub const SHORT: usize = 64;

/// Records of one writer: its letter, a number that grows, and filling up to a length.
pub fn record_of(len: usize, writer: usize, number: u64) -> Vec<u8> {
    let letter = char::from(b'a' + writer as u8);
    let filling: String = std::iter::repeat_n(letter, len - 13).collect();
    format!("{letter} {number:08} {filling}.\n").into_bytes()
}

/// A record of [`SHORT`] bytes.
pub fn record(writer: usize, number: u64) -> Vec<u8> {
    record_of(SHORT, writer, number)
}

fn append(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.append(true).open(path).unwrap()
}

/// [`numbers_of`] records of [`SHORT`] bytes.
#[track_caller]
pub fn numbers(bytes: &[u8], writers: usize) -> Vec<Vec<u64>> {
    numbers_of(SHORT, bytes, writers)
}

/// The numbers of each writer's records in a file that must consist of whole ones, in order.
#[track_caller]
pub fn numbers_of(len: usize, bytes: &[u8], writers: usize) -> Vec<Vec<u64>> {
    let mut found = vec![Vec::new(); writers];
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let text = String::from_utf8_lossy(line);
        let writer = usize::from(line[0].wrapping_sub(b'a'));
        let number = text.get(2..10).and_then(|n| n.parse::<u64>().ok());
        let number = number.filter(|n| writer < writers && record_of(len, writer, *n) == line);
        let Some(number) = number else {
            panic!(
                "not a whole record: {text:?} in\n{}",
                String::from_utf8_lossy(bytes)
            );
        };
        let before: &mut Vec<u64> = &mut found[writer];
        assert!(before.last().is_none_or(|last| *last < number), "order");
        before.push(number);
    }
    found
}

/// [`with_loggers_of`] records of [`SHORT`] bytes.
pub fn with_loggers(
    path: &Path,
    writers: usize,
    switch: impl FnMut(usize, &[AtomicU64]),
) -> Vec<u64> {
    let append = |log: &mut File, bytes: &[u8]| assert_eq!(log.write(bytes).unwrap(), bytes.len());
    with_loggers_of((SHORT, &append), path, writers, switch)
}

/// How long a record is, and how it is written.
pub type How<'a> = (usize, &'a (dyn Fn(&mut File, &[u8]) + Sync));

/// Lets `writers` append to `path` through descriptors of their own while `switch` is called, round after
/// round; gives what they had written and been answered by the end.
pub fn with_loggers_of(
    (len, write): How<'_>,
    path: &Path,
    writers: usize,
    mut switch: impl FnMut(usize, &[AtomicU64]),
) -> Vec<u64> {
    let end = AtomicBool::new(false);
    let done: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (writer, done) in done.iter().enumerate() {
            let (mut log, end) = (append(path), &end);
            scope.spawn(move || {
                let mut number = 0;
                while !end.load(Ordering::SeqCst) {
                    write(&mut log, &record_of(len, writer, number));
                    number += 1;
                    done.store(number, Ordering::SeqCst);
                }
            });
        }
        let ended = EndOnDrop(&end);
        for round in 0..ROUNDS {
            let before: Vec<u64> = done.iter().map(|d| d.load(Ordering::SeqCst)).collect();
            for (done, before) in done.iter().zip(before) {
                wait::until("a logger goes on", || {
                    done.load(Ordering::SeqCst) > before + 2
                });
            }
            switch(round, &done);
        }
        drop(ended);
    });
    done.into_iter().map(AtomicU64::into_inner).collect()
}

/// Tells threads to end, also where the test fails.
pub struct EndOnDrop<'a>(pub &'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
