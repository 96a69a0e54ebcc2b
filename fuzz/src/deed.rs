//! Records of the programs in the kernel that follow runs (`ctl/telemetry/bpf/runs.bpf.c`).
//!
//! A record says the lengths of its three texts, behind which hardly any mutation would get, so it is also looked at with
//! lengths that fit.

use agentvfs_telemetry::{Address, Deed, What};

/// Bytes before the texts, and where their lengths are.
const HEAD: usize = 56;
const LENGTHS: usize = 48;

/// Any bytes give a deed or nothing; what it says has no more bytes than the record.
pub fn check(bytes: &[u8]) {
    look(bytes);
    let Some(texts) = bytes.len().checked_sub(HEAD) else {
        return;
    };
    let mut sealed = bytes.to_vec();
    let third = texts / 3;
    let lengths =
        [texts - 2 * third, third, third].map(|len| len.min(usize::from(u16::MAX)) as u16);
    let bytes_of = lengths.into_iter().flat_map(u16::to_le_bytes);
    let places = sealed.iter_mut().skip(LENGTHS);
    places.zip(bytes_of).for_each(|(place, byte)| *place = byte);
    look(&sealed);
}

fn look(bytes: &[u8]) {
    let Some(deed) = Deed::decode(bytes) else {
        return;
    };
    let texts = bytes.len() - HEAD;
    assert!(deed.node != Some(0));
    let is_path = |path: &[u8]| {
        assert!(path.starts_with(b"/") && path.len() <= texts + 1);
        assert!(!path.contains(&0), "a name ends where the next one begins");
    };
    match deed.what {
        What::Executed {
            path,
            first,
            script,
        } => {
            is_path(&path);
            let script = script.unwrap_or_default();
            assert!(first.len() + script.len() <= texts);
        }
        What::Connected { to, .. } => match to {
            Address::Path(name) => assert!(name.len() < texts && !name.contains(&0)),
            Address::Abstract(name) => assert!(name.len() < texts),
            Address::Family(family) => assert!(family > 0),
            Address::Ip(_) => {}
        },
        What::Opened { path, .. } => is_path(&path),
    }
}

/// A record of each kind, with an address of each family.
pub fn seeds() -> Vec<Vec<u8>> {
    let v6 = [&[10, 0, 0, 80, 0, 0, 0, 0][..], &[0; 15], &[1, 0, 0, 0, 0]].concat();
    let deeds: [(u32, u32, [&[u8]; 3]); 7] = [
        (1, 0, [b"cat\0bin\0usr\0", b"cat", b"./script"]),
        (3, 2, [b"file\0d\0", b"", b""]),
        (2, 0, [&[2, 0, 0x1f, 0x90, 127, 0, 0, 1], b"", b""]),
        (2, 115u32.wrapping_neg(), [&v6, b"", b""]),
        (2, 0, [b"\x01\0/run/socket\0", b"", b""]),
        (2, 0, [b"\x01\0\0name", b"", b""]),
        (2, 0, [b"\x10\0", b"", b""]),
    ];
    let seed = |(kind, flags, texts): (u32, u32, [&[u8]; 3])| {
        let words = [kind, 7, 8, 1000, 1000, flags].map(u32::to_le_bytes);
        let lengths = texts.map(|text| (text.len() as u16).to_le_bytes());
        let head = [
            words.as_flattened(),
            &11u64.to_le_bytes(),
            b"cat\0\0\0\0\0\0\0\0\0\0\0\0\0",
            lengths.as_flattened(),
            &[0, 0],
        ];
        [head.concat(), texts.concat()].concat()
    };
    deeds.map(seed).into()
}
