//! Right checksums for arbitrary bytes, after `docs/format.md`.

/// Salt of sealed packs.
pub(crate) const SALT: u32 = 0x5a17_5a17;
/// Number of sealed journals.
pub(crate) const JOURNAL: u64 = 0x0102_0304_0506_0708;

const PACK_HEADER: usize = 24;
const OBJECT_HEADER: usize = 56;
const STATE_HEADER: usize = 12;
const FRAME_HEADER: usize = 8;
const SEGMENT_HEADER: usize = 64;
const RECORD_HEADER: usize = 32;

/// Puts `part` at `at`, as far as it fits.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + part.len()) {
        place.copy_from_slice(part);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    u32::from_le_bytes(four.copied().unwrap_or_default())
}

fn put_crc(bytes: &mut [u8], from: usize, at: usize) {
    if at + 4 <= bytes.len() {
        let crc = crc32fast::hash(&bytes[from..at]);
        put(bytes, at, &crc.to_le_bytes());
    }
}

/// A pack: its header, and every record that follows from it, with ids of raw contents.
pub(crate) fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut b = bytes.to_vec();
    put(&mut b, 0, b"avfspack\x01\0\0\0\x01\0\0\0");
    put(&mut b, 16, &SALT.to_le_bytes());
    put_crc(&mut b, 0, 20);
    let mut at = PACK_HEADER;
    while at + OBJECT_HEADER <= b.len() {
        let end = at + OBJECT_HEADER + u32_at(&b, at + 12) as usize;
        put(&mut b, at, b"avob");
        put(&mut b, at + 4, &SALT.to_le_bytes());
        if end <= b.len() && b[at + 9] == 0 {
            let id = *blake3::hash(&b[at + OBJECT_HEADER..end]).as_bytes();
            put(&mut b, at + 20, &id);
        }
        put_crc(&mut b, at, at + 52);
        at = end;
    }
    b
}

/// An index of pack 1, whose bytes are `body` and a checksum.
pub(crate) fn index(body: &[u8]) -> Vec<u8> {
    let mut b = body.to_vec();
    put(&mut b, 0, b"avfspidx\x01\0\0\0\x01\0\0\0");
    let mut hasher = blake3::Hasher::new();
    hasher.update(&SALT.to_le_bytes()).update(&b);
    b.extend_from_slice(hasher.finalize().as_bytes());
    b
}

/// A ref with this value.
pub(crate) fn reference(value: &[u8]) -> Vec<u8> {
    let mut b = b"avrf\x01\0\0\0".to_vec();
    b.extend_from_slice(value);
    let crc = crc32fast::hash(&b);
    b.extend_from_slice(&crc.to_le_bytes());
    b
}

/// A state file: its header, and every frame that follows from it.
pub(crate) fn state(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTAT\0\x0a\0\0\0")
}

/// A state file of the last version whose inodes are not in blocks.
pub(crate) fn state_without_blocks(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTAT\0\x09\0\0\0")
}

/// A state file of the last version without the state that was shown last.
pub(crate) fn state_without_shown(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTAT\0\x08\0\0\0")
}

/// A state file of the last version without outcomes.
pub(crate) fn state_without_outcomes(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTAT\0\x06\0\0\0")
}

/// A state file of the first version that has a timeline.
pub(crate) fn first_timeline_state(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTAT\0\x04\0\0\0")
}

/// A state file of the oldest version that is read.
pub(crate) fn old_state(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTAT\0\x02\0\0\0")
}

/// A tree file: the same.
pub(crate) fn tree(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTREE\x02\0\0\0")
}

/// A tree file of the version whose inodes are not in blocks.
pub(crate) fn first_tree(bytes: &[u8]) -> Vec<u8> {
    framed(bytes, b"AVFSTREE\x01\0\0\0")
}

fn framed(bytes: &[u8], header: &[u8]) -> Vec<u8> {
    let mut b = bytes.to_vec();
    put(&mut b, 0, header);
    let mut at = STATE_HEADER;
    while at + FRAME_HEADER <= b.len() {
        let body = at + FRAME_HEADER;
        let end = body + u32_at(&b, at) as usize;
        if end <= b.len() {
            let crc = crc32fast::hash(&b[body..end]);
            put(&mut b, at + 4, &crc.to_le_bytes());
        }
        at = end;
    }
    b
}

/// A pointer to the state file of this number.
pub(crate) fn pointer(number: u32) -> Vec<u8> {
    let mut b = b"AVFSPTR\0\x01\0\0\0".to_vec();
    b.extend_from_slice(&number.to_le_bytes());
    let crc = crc32fast::hash(&b);
    b.extend_from_slice(&crc.to_le_bytes());
    b
}

/// The first segment of a journal, with every record that follows from it. Sequence numbers are
/// put right too; a payload's checksums are left as they are.
pub(crate) fn segment(bytes: &[u8]) -> Vec<u8> {
    let mut b = bytes.to_vec();
    put(&mut b, 0, b"AVFSJRNL\x01\0\0\0\x01\0\0\0");
    put(&mut b, 16, &JOURNAL.to_le_bytes());
    put(&mut b, 24, &1u64.to_le_bytes());
    put_crc(&mut b, 0, 60);
    let mut seed = JOURNAL.to_le_bytes().to_vec();
    seed.extend_from_slice(&1u32.to_le_bytes());
    let seed = crc32fast::hash(&seed);
    let (mut at, mut seq) = (SEGMENT_HEADER, 1u64);
    while at + RECORD_HEADER <= b.len() {
        at = record(&mut b, at, seq, seed);
        seq += 1;
    }
    b
}

/// Seals the record at `at`; returns where it ends.
fn record(b: &mut [u8], at: usize, seq: u64, seed: u32) -> usize {
    let payload = u32_at(b, at + 8) as usize;
    let covered = u32_at(b, at + 4) as usize + payload.div_ceil(4096) * 4;
    put(b, at, b"\xA5Jr\x1E");
    put(b, at + 12, &seq.to_le_bytes());
    let rest = at + RECORD_HEADER..at + RECORD_HEADER + covered;
    if rest.end <= b.len() {
        let mut hasher = crc32fast::Hasher::new_with_initial(seed);
        hasher.update(&b[at..at + 28]);
        hasher.update(&b[rest]);
        put(b, at + 28, &hasher.finalize().to_le_bytes());
    }
    at + RECORD_HEADER + covered + payload
}

/// The mark of a sealed journal: records up to `seq` were synced.
pub(crate) fn mark(seq: u64) -> Vec<u8> {
    let mut b = vec![0; 1024];
    put(&mut b, 0, b"MARK\x01\0");
    put(&mut b, 8, &JOURNAL.to_le_bytes());
    put(&mut b, 16, &1u64.to_le_bytes());
    put(&mut b, 24, &seq.to_le_bytes());
    put(&mut b, 32, &1u32.to_le_bytes());
    put(&mut b, 36, &1u32.to_le_bytes());
    put_crc(&mut b, 0, 60);
    b
}
