//! `compare PLAIN MOUNTED`: the same work in two directories, and how much longer the second takes.
//!
//! `benches/compare.sh` calls it with a directory of the plain file system and one in a mount. Each
//! row is the best of some rounds, taken in turns, so that both see the same machine.

use benches::noise;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Result, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const FILES: usize = 2000;
const FILES_PER_DIR: usize = 100;
const BIG_BYTES: usize = 256 << 20;
const BLOCK_BYTES: usize = 1 << 20;

type Work = fn(&Path) -> Result<()>;

const ROWS: [(&str, Work); 5] = [
    ("create 2,000 files", create),
    ("walk, warm", walk),
    ("open, read, close 2,000 files", read_all),
    ("write 256 MiB and fsync", write_big),
    ("remove 2,000 files", remove),
];

fn main() -> ExitCode {
    let dirs: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [plain, mounted] = &dirs[..] else {
        eprintln!("usage: compare PLAIN MOUNTED");
        return ExitCode::from(2);
    };
    match compare(plain, mounted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(plain: &Path, mounted: &Path) -> Result<()> {
    let mut best = [[Duration::MAX; 2]; ROWS.len()];
    for _ in 0..ROUNDS {
        for (row, (_, work)) in ROWS.iter().enumerate() {
            for (side, dir) in [plain, mounted].into_iter().enumerate() {
                let start = Instant::now();
                work(&dir.join("compare"))?;
                best[row][side] = best[row][side].min(start.elapsed());
            }
        }
    }
    println!("work\tplain ms\tmounted ms\tratio");
    for ((name, _), [plain, mounted]) in ROWS.iter().zip(best) {
        let (plain, mounted) = (plain.as_secs_f64(), mounted.as_secs_f64());
        let ratio = mounted / plain;
        println!(
            "{name}\t{:.1}\t{:.1}\t{ratio:.2}",
            plain * 1e3,
            mounted * 1e3
        );
    }
    Ok(())
}

fn path(dir: &Path, i: usize) -> PathBuf {
    dir.join(format!("d{}/f{i}", i / FILES_PER_DIR))
}

fn create(dir: &Path) -> Result<()> {
    let text = noise(1, 4096);
    for i in 0..FILES {
        if i % FILES_PER_DIR == 0 {
            fs::create_dir_all(dir.join(format!("d{}", i / FILES_PER_DIR)))?;
        }
        fs::write(path(dir, i), &text)?;
    }
    Ok(())
}

fn walk(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            walk(&entry.path())?;
        }
    }
    Ok(())
}

fn read_all(dir: &Path) -> Result<()> {
    let mut text = Vec::new();
    for i in 0..FILES {
        text.clear();
        File::open(path(dir, i))?.read_to_end(&mut text)?;
    }
    Ok(())
}

fn write_big(dir: &Path) -> Result<()> {
    let block = noise(2, BLOCK_BYTES);
    let file = dir.join("big");
    let mut big = OpenOptions::new().create(true).append(true).open(&file)?;
    for _ in 0..BIG_BYTES / BLOCK_BYTES {
        big.write_all(&block)?;
    }
    big.sync_all()?;
    fs::remove_file(file)
}

fn remove(dir: &Path) -> Result<()> {
    fs::remove_dir_all(dir)
}
