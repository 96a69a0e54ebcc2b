//! Whether two contents have the same bytes, in whatever form they were stored.

use crate::content::FileContent;
use crate::content::parts::Parts;
use crate::content::read::fill_part;
use crate::error::Result;
use crate::object::manifest::{Form, Placed};
use crate::store::ObjectStore;

/// Bytes of zeros that a hole is compared as.
const STEP_BYTES: u64 = 64 * 1024;

/// Whether two contents have the same bytes. Reads only where one of them has the form of an earlier build and their
/// length is the same; then no further than to the first difference, and no chunk that both have at one place.
pub fn same_bytes(store: &ObjectStore, a: &FileContent, b: &FileContent) -> Result<bool> {
    if a == b || a.len() != b.len() {
        return Ok(a == b);
    }
    if let (FileContent::Chunk { .. }, FileContent::Chunk { .. }) = (a, b) {
        return Ok(false);
    }
    let canonical = Some(Form::Canonical);
    if store.form_of(a)? == canonical && store.form_of(b)? == canonical {
        return Ok(false);
    }
    compare(store, a, b)
}

fn compare(store: &ObjectStore, a: &FileContent, b: &FileContent) -> Result<bool> {
    let (mut a_parts, mut b_parts) = (Parts::new(store, a, 0)?, Parts::new(store, b, 0)?);
    let (mut a, mut b) = (a_parts.next()?, b_parts.next()?);
    let mut pos = 0;
    while let (Some(x), Some(y)) = (a, b) {
        let (a_end, b_end) = (x.0 + x.1.len(), y.0 + y.1.len());
        let end = a_end.min(b_end);
        if !same_part(store, x, y, pos..end)? {
            return Ok(false);
        }
        pos = end;
        if a_end == end {
            a = a_parts.next()?;
        }
        if b_end == end {
            b = b_parts.next()?;
        }
    }
    Ok(true)
}

/// Whether a range that is within two parts is the same in both.
fn same_part(
    store: &ObjectStore,
    (a_start, a): Placed,
    (b_start, b): Placed,
    range: std::ops::Range<u64>,
) -> Result<bool> {
    if !a.is_data() && !b.is_data() || (a_start, a) == (b_start, b) {
        return Ok(true);
    }
    let mut pos = range.start;
    let mut bytes = [Vec::new(), Vec::new()];
    while pos < range.end {
        let step = (range.end - pos).min(STEP_BYTES) as usize;
        for (buf, (start, part)) in bytes.iter_mut().zip([(a_start, &a), (b_start, &b)]) {
            buf.resize(step, 0);
            fill_part(store, part, pos - start, buf, true)?;
        }
        if bytes[0] != bytes[1] {
            return Ok(false);
        }
        pos += step as u64;
    }
    Ok(true)
}
