//! What a process did, out of the bytes of a record (`struct record` in `bpf/runs.bpf.c`).
//!
//! Invariant: any bytes give a deed or nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes before the text of a record.
const HEAD: usize = 56;

/// Kinds of records.
const EXEC: u32 = 1;
const CONNECT: u32 = 2;
const OPEN: u32 = 3;

/// Families of addresses (linux/socket.h).
const UNIX: u16 = 1;
const INET: u16 = 2;
const INET6: u16 = 10;

/// What a process of a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// The run, by the number that the caller gave it.
    pub run: u32,
    /// The process, as this process sees it; 0 if it does not.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
    /// Number of the file's node, if it is in the mount.
    pub node: Option<u64>,
    /// What it did.
    pub what: What,
}

/// What there is to tell of it. Paths are those of the process's mount namespace, with a leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It executes a program.
    Executed {
        /// The program's file; of a script that of its interpreter.
        path: Vec<u8>,
        /// Its first argument, by custom its name; at most 255 bytes.
        first: Vec<u8>,
        /// The script, as it was named; at most 255 bytes.
        script: Option<Vec<u8>>,
    },
    /// It asked for a connection.
    Connected {
        /// To where.
        to: Address,
        /// The error that it got; 0 if it is connected.
        errno: u32,
    },
    /// It opened a file.
    Opened {
        /// The file.
        path: Vec<u8>,
        /// As open(2) has them.
        flags: u32,
    },
}

/// What a socket is connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of IPv4 or IPv6.
    Ip(SocketAddr),
    /// A socket with a path, as the process named it.
    Path(Vec<u8>),
    /// One with a name alone.
    Abstract(Vec<u8>),
    /// Of another family.
    Family(u16),
}

impl Deed {
    /// What a record says.
    pub fn decode(bytes: &[u8]) -> Option<Deed> {
        let (head, text) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let short = |at: usize| {
            Some(usize::from(u16::from_le_bytes(
                head.get(at..at + 2)?.try_into().ok()?,
            )))
        };
        let (path, rest) = text.split_at_checked(short(48)?)?;
        let (first, rest) = rest.split_at_checked(short(50)?)?;
        let script = rest.get(..short(52)?)?;
        let flags = word(20)?;
        let what = match word(0)? {
            EXEC => What::Executed {
                path: joined(path),
                first: first.to_vec(),
                script: (!script.is_empty()).then(|| script.to_vec()),
            },
            CONNECT => What::Connected {
                to: address(path)?,
                errno: flags.wrapping_neg(),
            },
            OPEN => What::Opened {
                path: joined(path),
                flags,
            },
            _ => return None,
        };
        let node = u64::from_le_bytes(head.get(24..32)?.try_into().ok()?);
        Some(Deed {
            run: word(4)?,
            pid: word(8)?,
            uid: word(12)?,
            gid: word(16)?,
            comm: head.get(32..48)?.try_into().ok()?,
            node: (node > 0).then_some(node),
            what,
        })
    }
}

/// A path out of its names, the last one first, each with a NUL at its end.
fn joined(names: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(names.len() + 1);
    let names = names.strip_suffix(b"\0").unwrap_or(names);
    for name in names.rsplit(|byte| *byte == 0) {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// What `struct sockaddr` says; none for what ends a connection.
fn address(bytes: &[u8]) -> Option<Address> {
    let (family, rest) = bytes.split_at_checked(2)?;
    let family = u16::from_le_bytes(family.try_into().ok()?);
    let port = || Some(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?));
    let ip = |ip: IpAddr| Some(Address::Ip(SocketAddr::new(ip, port()?)));
    match family {
        0 => None,
        INET => {
            let octets: [u8; 4] = rest.get(2..6)?.try_into().ok()?;
            ip(Ipv4Addr::from(octets).into())
        }
        INET6 => {
            let octets: [u8; 16] = rest.get(6..22)?.try_into().ok()?;
            ip(Ipv6Addr::from(octets).into())
        }
        UNIX => Some(match rest.split_first() {
            Some((0, name)) => Address::Abstract(name.to_vec()),
            _ => {
                let end = rest
                    .iter()
                    .position(|byte| *byte == 0)
                    .unwrap_or(rest.len());
                Address::Path(rest.get(..end).unwrap_or_default().to_vec())
            }
        }),
        other => Some(Address::Family(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, flags: u32, parts: [&[u8]; 3]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [kind, 7, 8, 9, 10, flags] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(11u64.to_le_bytes());
        bytes.extend(*b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        for part in parts {
            bytes.extend(u16::try_from(part.len()).unwrap().to_le_bytes());
        }
        bytes.extend([0, 0]);
        parts.iter().for_each(|part| bytes.extend(*part));
        bytes
    }

    fn what(kind: u32, flags: u32, parts: [&[u8]; 3]) -> Option<What> {
        Deed::decode(&record(kind, flags, parts)).map(|deed| deed.what)
    }

    #[test]
    fn a_record_is_decoded_and_no_part_of_one() {
        let whole = record(EXEC, 0, [b"cat\0bin\0usr\0", b"cat", b"./s"]);
        let deed = Deed::decode(&whole).unwrap();
        let what = What::Executed {
            path: b"/usr/bin/cat".to_vec(),
            first: b"cat".to_vec(),
            script: Some(b"./s".to_vec()),
        };
        assert_eq!(deed.what, what);
        let numbers = (deed.run, deed.pid, deed.uid, deed.gid, deed.node);
        assert_eq!(numbers, (7, 8, 9, 10, Some(11)));
        for len in 0..whole.len() {
            assert_eq!(Deed::decode(&whole[..len]), None, "{len}");
        }
        assert_eq!(Deed::decode(&record(4, 0, [b"", b"", b""])), None);
    }

    #[test]
    fn addresses_of_each_family_are_told() {
        let to = |bytes: &[u8]| match what(CONNECT, 111u32.wrapping_neg(), [bytes, b"", b""]) {
            Some(What::Connected { to, errno: 111 }) => Some(to),
            None => None,
            other => panic!("{other:?}"),
        };
        let v4 = to(&[2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0]).unwrap();
        assert_eq!(v4, Address::Ip("127.0.0.1:8080".parse().unwrap()));
        let mut v6 = vec![10, 0, 0, 80, 0, 0, 0, 0];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        assert_eq!(to(&v6).unwrap(), Address::Ip("[::1]:80".parse().unwrap()));
        assert_eq!(
            to(b"\x01\0/run/s\0x").unwrap(),
            Address::Path(b"/run/s".to_vec())
        );
        assert_eq!(
            to(b"\x01\0\0name").unwrap(),
            Address::Abstract(b"name".to_vec())
        );
        assert_eq!(to(b"\x10\0").unwrap(), Address::Family(16));
        assert_eq!((to(b"\0\0"), to(b"\x02\0\0"), to(b"")), (None, None, None));
    }

    #[test]
    fn the_names_of_a_path_are_joined_in_their_order() {
        assert_eq!(joined(b"file\0"), b"/file");
        assert_eq!(joined(b""), b"/");
        let opened = what(OPEN, 2, [b"b\0a\0", b"", b""]).unwrap();
        assert_eq!(
            opened,
            What::Opened {
                path: b"/a/b".to_vec(),
                flags: 2
            }
        );
    }
}
