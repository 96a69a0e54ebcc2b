//! zstd where it pays. Contexts live per thread: making one costs more than a small object.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

/// Level while sealing: near the speed of the disk, most of the gain.
const LEVEL: i32 = 1;

/// Below this there is little to gain (a record's header and its entry in the index alone take 96 bytes), and
/// building a frame's tables costs more than hashing and writing the object.
const RAW_BYTES_MIN: usize = 512;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The compressed form of `raw`, or `None` where it would save less than a sixteenth.
pub(crate) fn compress(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.len() < RAW_BYTES_MIN {
        return None;
    }
    let worth = raw.len() - raw.len() / 16;
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            None => slot.insert(Compressor::new(LEVEL).ok()?),
        };
        // A buffer that is too small makes zstd stop: so much the better, it did not pay.
        let mut out = Vec::with_capacity(worth);
        let len = compressor.compress_to_buffer(raw, &mut out).ok()?;
        (len <= worth).then_some(out)
    })
}

/// Undoes [`compress`]; the result has exactly `raw_len` bytes or it is an error.
pub(crate) fn decompress(stored: &[u8], raw_len: usize) -> io::Result<Vec<u8>> {
    let raw = DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            None => slot.insert(Decompressor::new()?),
        };
        decompressor.decompress(stored, raw_len)
    })?;
    if raw.len() != raw_len {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shrinks_and_comes_back() {
        let raw = b"to be or not to be; ".repeat(100);
        let stored = compress(&raw).unwrap();
        assert!(stored.len() < raw.len() / 4);
        assert_eq!(decompress(&stored, raw.len()).unwrap(), raw);
        assert!(decompress(&stored, raw.len() - 1).is_err());
        assert!(decompress(&stored, raw.len() + 1).is_err());
    }

    #[test]
    fn noise_and_crumbs_stay_raw() {
        let mut noise = vec![0; 65536];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        assert!(compress(&noise).is_none());
        assert!(compress(b"tiny").is_none());
        assert!(compress(b"").is_none());
    }
}
