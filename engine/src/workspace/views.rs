//! What a mount shows beside the trees: `.agentvfs` in the root of each branch, with `snapshots/REF`
//! and, in the mount's root, `branches/B` and `view`.
//!
//! These directories have node numbers at the upper end of their branch's range; nothing in them can
//! be changed through the mount. They are not listed by their parent.

use crate::error::{Error, Result};
use crate::limits::RESERVED_NAME;
use crate::types::*;
use crate::workspace::Workspace;

/// Node numbers from here on are not inodes of the tree.
const VIRTUAL_MIN: u64 = (1 << SLOT_SHIFT) - 16;

/// A directory or link of agentvfs itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Virtual {
    /// `.agentvfs`.
    Top,
    /// `.agentvfs/branches`.
    Branches,
    /// `.agentvfs/snapshots`.
    Snapshots,
    /// `.agentvfs/view`.
    View,
}

impl Virtual {
    const ALL: [Virtual; 4] = [
        Virtual::Top,
        Virtual::Branches,
        Virtual::Snapshots,
        Virtual::View,
    ];

    fn of(node: NodeId) -> Result<Virtual> {
        let index = node.nid().0.checked_sub(VIRTUAL_MIN);
        let found = index.and_then(|i| Virtual::ALL.get(i as usize));
        found.copied().ok_or(Error::Stale)
    }

    fn node(self, slot: u16) -> NodeId {
        NodeId::new(slot, Nid(VIRTUAL_MIN + self as u64))
    }

    fn kind(self) -> Kind {
        match self {
            Virtual::View => Kind::Symlink,
            _ => Kind::Dir,
        }
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
                self.snapshot(slot, name, wait)?.root_attr()
            }
            Virtual::View => Err(Error::NotDir),
        }
    }

    /// Attributes of a directory or link of agentvfs itself; counts a lookup of it.
    fn virtual_found(&self, node: NodeId) -> Result<Attr> {
        let attr = self.virtual_attr(node)?;
        self.views.virtual_found(node);
        Ok(attr)
    }

    fn names_in_top(&self, slot: u16) -> Vec<(&'static str, Virtual)> {
        let mut names = vec![("snapshots", Virtual::Snapshots)];
        if slot == NodeId::ROOT.slot() {
            names.push(("branches", Virtual::Branches));
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

    /// Target of `view`, relative to `.agentvfs`.
    pub(crate) fn virtual_link(&self, who: &Caller, node: NodeId) -> Result<Vec<u8>> {
        if Virtual::of(node)? != Virtual::View {
            return Err(Error::Invalid);
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
        emit: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let slot = dir.slot();
        let root = NodeId::new(slot, Nid::ROOT);
        let what = Virtual::of(dir)?;
        let above = if what == Virtual::Top {
            root
        } else {
            Virtual::Top.node(slot)
        };
        let mut entries = vec![
            (".".to_owned(), dir, Kind::Dir),
            ("..".to_owned(), above, Kind::Dir),
        ];
        match what {
            Virtual::Top => {
                let names = self.names_in_top(slot).into_iter();
                entries.extend(names.map(|(n, v)| (n.to_owned(), v.node(slot), v.kind())));
            }
            Virtual::Branches => {
                let all = self.views.branches().into_iter().skip(1);
                entries.extend(all.map(|b| (b.name(), b.node(Nid::ROOT), Kind::Dir)));
            }
            Virtual::Snapshots => {
                let branch = self.views.by_slot(slot).ok_or(Error::Stale)?;
                // What is not looked up yet has no number; any that nothing else has will do.
                let labels = branch.lock().book.history.labels_with_states();
                entries.extend(labels.into_iter().map(|(l, n)| {
                    let shown = NodeId::new(slot, Nid(VIRTUAL_MIN - 1 - n));
                    (l, shown, Kind::Dir)
                }));
            }
            Virtual::View => return Err(Error::NotDir),
        }
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
}
