//! What a mount shows beside the trees: `.agentvfs` in the root of each branch, with `snapshots/REF`
//! and, in the mount's root, `branches/B`, `remotes/REMOTE/BRANCH` and `view`.
//!
//! These directories have node numbers at the upper end of their branch's range; nothing in them can
//! be changed through the mount. They are not listed by their parent.

use crate::error::{Error, Result};
use crate::limits::RESERVED_NAME;
use crate::types::*;
use crate::workspace::Workspace;

/// Node numbers from here on are those of the structure itself, which is the same in each workspace.
const FIXED_MIN: u64 = (1 << SLOT_SHIFT) - 16;
/// Node numbers from here on are not inodes of the tree. Up to `FIXED_MIN` a remote has two of them.
const VIRTUAL_MIN: u64 = FIXED_MIN - 2 * REMOTE_NUMBERS;
/// Remotes have numbers below this.
const REMOTE_NUMBERS: u64 = 1 << 35;

/// A directory or link of agentvfs itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Virtual {
    /// `.agentvfs`.
    Top,
    /// `.agentvfs/branches`.
    Branches,
    /// `.agentvfs/snapshots`.
    Snapshots,
    /// `.agentvfs/view`.
    View,
    /// `.agentvfs/remotes`.
    Remotes,
    /// `.agentvfs/remotes/REMOTE`.
    Remote(RemoteNumber),
    /// `.agentvfs/snapshots/REMOTE`, which leads there.
    RemoteLink(RemoteNumber),
}

impl Virtual {
    const FIXED: [Virtual; 5] = [
        Virtual::Top,
        Virtual::Branches,
        Virtual::Snapshots,
        Virtual::View,
        Virtual::Remotes,
    ];

    fn of(node: NodeId) -> Result<Virtual> {
        let nid = node.nid().0;
        if let Some(index) = nid.checked_sub(FIXED_MIN) {
            let found = Virtual::FIXED.get(index as usize);
            return found.copied().ok_or(Error::Stale);
        }
        let offset = nid.checked_sub(VIRTUAL_MIN).ok_or(Error::Stale)?;
        let number = RemoteNumber(offset / 2);
        Ok(match offset % 2 {
            0 => Virtual::Remote(number),
            _ => Virtual::RemoteLink(number),
        })
    }

    pub(super) fn node(self, slot: u16) -> NodeId {
        let nid = match self {
            Virtual::Top => FIXED_MIN,
            Virtual::Branches => FIXED_MIN + 1,
            Virtual::Snapshots => FIXED_MIN + 2,
            Virtual::View => FIXED_MIN + 3,
            Virtual::Remotes => FIXED_MIN + 4,
            Virtual::Remote(number) => VIRTUAL_MIN + 2 * number.0,
            Virtual::RemoteLink(number) => VIRTUAL_MIN + 2 * number.0 + 1,
        };
        NodeId::new(slot, Nid(nid))
    }

    fn kind(self) -> Kind {
        match self {
            Virtual::View | Virtual::RemoteLink(_) => Kind::Symlink,
            _ => Kind::Dir,
        }
    }
}

/// The number that stands for a remote. It follows from the name alone, so that a daemon knows what the
/// kernel was handed by one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteNumber(u64);

impl RemoteNumber {
    pub(super) fn of(name: &str) -> RemoteNumber {
        let hash = blake3::hash(name.as_bytes());
        let first = hash.as_bytes().first_chunk();
        let number = first.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        RemoteNumber(number % REMOTE_NUMBERS)
    }
}

/// True for a node that is no inode of a tree.
pub(crate) fn is_virtual(node: NodeId) -> bool {
    node.nid().0 >= VIRTUAL_MIN
}

/// The directory whose entries are the branches.
pub(crate) fn branches_node() -> NodeId {
    Virtual::Branches.node(NodeId::ROOT.slot())
}

/// The directory whose entries are the remotes.
pub(crate) fn remotes_node() -> NodeId {
    Virtual::Remotes.node(NodeId::ROOT.slot())
}

/// The directory whose entries are the branches of a remote that are known.
pub(crate) fn remote_node(name: &str) -> NodeId {
    Virtual::Remote(RemoteNumber::of(name)).node(NodeId::ROOT.slot())
}

/// The directory whose entries are the labels of the branch of this view.
pub(crate) fn snapshots_node(slot: u16) -> NodeId {
    Virtual::Snapshots.node(slot)
}

/// Whether a name in this directory means the same for ever, or until it is invalidated.
pub fn names_last(parent: NodeId) -> bool {
    !is_virtual(parent) || Virtual::of(parent).is_ok_and(|v| v == Virtual::Top)
}

impl Workspace {
    /// Looks a name up in a directory of agentvfs itself, or such a directory in a root.
    pub(crate) fn lookup_virtual(&self, parent: NodeId, name: &[u8], wait: Wait) -> Result<Attr> {
        let slot = parent.slot();
        if !is_virtual(parent) {
            let branch = self.views.by_slot(slot).ok_or(Error::Stale)?;
            if branch.read_only || name != RESERVED_NAME {
                return Err(Error::NotFound);
            }
            return self.virtual_found(Virtual::Top.node(slot));
        }
        match Virtual::of(parent)? {
            Virtual::Top => {
                let names = self.names_in_top(slot);
                let found = names.into_iter().find(|(n, _)| n.as_bytes() == name);
                self.virtual_found(found.ok_or(Error::NotFound)?.1.node(slot))
            }
            Virtual::Branches => {
                let name = std::str::from_utf8(name).map_err(|_| Error::NotFound)?;
                let branch = self.branch(name).map_err(|_| Error::NotFound)?;
                if branch.slot == self.main.slot {
                    // The kernel takes no second name for the root.
                    return Err(Error::NotFound);
                }
                branch.root_attr()
            }
            Virtual::Snapshots => {
                let name = std::str::from_utf8(name).map_err(|_| Error::NotFound)?;
                if let Some(link) = self.remote_in_snapshots(slot, name, wait)? {
                    return self.virtual_found(Virtual::RemoteLink(link).node(slot));
                }
                self.snapshot(slot, name, wait)?.root_attr()
            }
            Virtual::Remotes => {
                let name = std::str::from_utf8(name).map_err(|_| Error::NotFound)?;
                let found = self.remote_number(name, wait)?.ok_or(Error::NotFound)?;
                self.virtual_found(Virtual::Remote(found).node(slot))
            }
            Virtual::Remote(remote) => {
                let name = std::str::from_utf8(name).map_err(|_| Error::NotFound)?;
                self.remote_snapshot(remote, name, wait)?.root_attr()
            }
            Virtual::View | Virtual::RemoteLink(_) => Err(Error::NotDir),
        }
    }

    /// Attributes of a directory or link of agentvfs itself; counts a lookup of it.
    pub(super) fn virtual_found(&self, node: NodeId) -> Result<Attr> {
        let attr = self.virtual_attr(node)?;
        self.views.virtual_found(node);
        Ok(attr)
    }

    fn names_in_top(&self, slot: u16) -> Vec<(&'static str, Virtual)> {
        let mut names = vec![("snapshots", Virtual::Snapshots)];
        if slot == NodeId::ROOT.slot() {
            names.push(("branches", Virtual::Branches));
            names.push(("remotes", Virtual::Remotes));
            names.push(("view", Virtual::View));
        }
        names
    }

    /// Attributes of a directory or link of agentvfs itself: those of its branch's root, but writable by
    /// nobody.
    pub(crate) fn virtual_attr(&self, node: NodeId) -> Result<Attr> {
        let what = Virtual::of(node)?;
        let branch = self.views.by_slot(node.slot()).ok_or(Error::Stale)?;
        let root = branch
            .lock()
            .live
            .inode(Nid::ROOT)?
            .attr(node.slot(), Nid::ROOT);
        let kind = what.kind();
        Ok(Attr {
            node,
            ino: node.0,
            kind,
            perm: if kind == Kind::Dir { 0o555 } else { 0o777 },
            nlink: if kind == Kind::Dir { 2 } else { 1 },
            rdev: 0,
            size: 0,
            blocks: 0,
            ..root
        })
    }

    /// Target of `view`, relative to `.agentvfs`, and of the links to remotes.
    pub(crate) fn virtual_link(&self, who: &Caller, node: NodeId) -> Result<Vec<u8>> {
        match Virtual::of(node)? {
            Virtual::View => {}
            Virtual::RemoteLink(remote) => {
                let name = self.remote_name(remote)?;
                return Ok(format!("../remotes/{name}").into_bytes());
            }
            _ => return Err(Error::Invalid),
        }
        let seen = self.views.seen_by(who.pid);
        Ok(match seen.filter(|name| self.branch(name).is_ok()) {
            Some(name) if name != self.main.name() => format!("branches/{name}").into_bytes(),
            _ => b"..".to_vec(),
        })
    }

    /// Lists a directory of agentvfs itself.
    pub(crate) fn list_virtual(
        &self,
        dir: NodeId,
        cookie: u64,
        wait: Wait,
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let slot = dir.slot();
        let what = Virtual::of(dir)?;
        let above = match what {
            Virtual::Top => NodeId::new(slot, Nid::ROOT),
            Virtual::Remote(_) => Virtual::Remotes.node(slot),
            _ => Virtual::Top.node(slot),
        };
        let mut entries = vec![
            (".".to_owned(), dir, Kind::Dir),
            ("..".to_owned(), above, Kind::Dir),
        ];
        entries.extend(self.entries_of_virtual(what, slot, wait)?);
        for (at, (name, node, kind)) in entries.iter().enumerate().skip(cookie as usize) {
            let entry = DirEntry {
                name: name.as_bytes(),
                cookie: at as u64 + 1,
                node: *node,
                ino: node.0,
                kind: *kind,
                attr: None,
            };
            if !emit(&entry) {
                break;
            }
        }
        Ok(())
    }

    /// Entries of a directory of agentvfs itself.
    fn entries_of_virtual(
        &self,
        what: Virtual,
        slot: u16,
        wait: Wait,
    ) -> Result<Vec<(String, NodeId, Kind)>> {
        // What is not looked up yet has no number; any that nothing else has will do.
        let shown = |number: u64| NodeId::new(slot, Nid(VIRTUAL_MIN - 1 - number));
        let own = |(name, what): (String, Virtual)| (name, what.node(slot), what.kind());
        Ok(match what {
            Virtual::Top => {
                let names = self.names_in_top(slot).into_iter();
                names.map(|(n, v)| own((n.to_owned(), v))).collect()
            }
            Virtual::Branches => {
                let all = self.views.branches().into_iter().skip(1);
                all.map(|b| (b.name(), b.node(Nid::ROOT), Kind::Dir))
                    .collect()
            }
            Virtual::Snapshots => {
                let branch = self.views.by_slot(slot).ok_or(Error::Stale)?;
                let links = self.remotes_in_snapshots(slot, wait)?;
                let labels = branch.lock().book.history.labels_with_states();
                let labels = labels.into_iter().map(|(l, n)| (l, shown(n), Kind::Dir));
                labels.chain(links.into_iter().map(own)).collect()
            }
            Virtual::Remotes => {
                let remotes = self.remote_dirs(wait)?.into_iter();
                remotes.map(own).collect()
            }
            Virtual::Remote(remote) => {
                let branches = self.branches_of_remote(remote, wait)?;
                let branches = (0..).zip(branches);
                branches
                    .map(|(at, name)| (name, shown(at), Kind::Dir))
                    .collect()
            }
            Virtual::View | Virtual::RemoteLink(_) => return Err(Error::NotDir),
        })
    }
}
