//! Gives memory that is free inside the process back to the system.
//!
//! An import, a state file or a large rollback needs memory for a short while; the allocator keeps it.

use crate::sys;

/// Growth since the last look from which on it is worth the work, in pages (8 MiB).
const GROWTH_PAGES: u64 = 2048;

/// Remembers how large the process was after memory was last given back.
#[derive(Debug, Default)]
pub struct Memory {
    resident_pages: u64,
}

impl Memory {
    /// Gives free memory back if the process has grown.
    pub fn tend(&mut self) {
        let now = resident_pages();
        if now >= self.resident_pages + GROWTH_PAGES {
            sys::release_free_memory();
            self.resident_pages = resident_pages();
        }
    }
}

/// Resident pages of this process (proc(5), statm); 0 where that cannot be read.
fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let field = statm.split_whitespace().nth(1);
    field.and_then(|f| f.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_freed_goes_back() {
        let keep: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 4000]).collect();
        let last = vec![1; 64];
        let full = resident_pages();
        drop(keep);
        Memory::default().tend();
        assert!(
            resident_pages() + 10_000 < full,
            "{} of {full}",
            resident_pages()
        );
        drop(last);
    }
}
