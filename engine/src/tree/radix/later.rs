//! Nodes whose values are made when one of them is first needed.
//!
//! Such a node stands for the values of [`BLOCK`] neighbouring keys. Maps that share it open it once and go on sharing
//! what is in it. Invariants: a node that is open holds no node that is not; how many values it has is known before.

use super::{BITS, FANOUT, Node, Parts, Radix, empty};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

/// Level of a node that can be opened later: its children are leaves.
pub(super) const LEVEL: u32 = 1;
/// Keys that such a node is for.
pub const BLOCK: u64 = 1 << (BITS * (LEVEL + 1));
/// Nodes that a thread opens before it looks for others.
const OPENED_TOGETHER: usize = 16;
/// Threads that open nodes, at most.
const THREADS_MAX: usize = 8;

/// Sets the values of a block, over those that are there.
pub type Opening<T> = Box<dyn FnOnce(&mut Block<T>) + Send>;

/// A node that was not needed yet, or was.
pub(super) struct Later<T> {
    number: u64,
    /// Values that it has.
    pub count: usize,
    opened: OnceLock<Arc<Node<T>>>,
    /// What it is made of until it is opened.
    closed: Mutex<Option<Closed<T>>>,
}

struct Closed<T> {
    /// The node that it stands over.
    below: Option<Arc<Node<T>>>,
    opening: Opening<T>,
}

impl<T> fmt::Debug for Later<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_open() { "open" } else { "closed" };
        write!(f, "block {} of {}, {state}", self.number, self.count)
    }
}

impl<T> Later<T> {
    pub fn new(
        number: u64,
        count: usize,
        below: Option<Arc<Node<T>>>,
        opening: Opening<T>,
    ) -> Self {
        Later {
            number,
            count,
            opened: OnceLock::new(),
            closed: Mutex::new(Some(Closed { below, opening })),
        }
    }

    pub fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// The node; whoever else needs it meanwhile waits.
    pub fn open(&self) -> &Arc<Node<T>> {
        self.opened.get_or_init(|| {
            let closed = self.closed.lock().take();
            assert!(closed.is_some(), "opening {self:?} had panicked");
            let mut block = Block {
                number: self.number,
                node: Arc::new(empty(LEVEL)),
            };
            if let Some(Closed { below, opening }) = closed {
                if let Some(below) = below {
                    block.node = below.opened_arc().clone();
                }
                opening(&mut block);
            }
            block.node
        })
    }
}

/// The values of [`BLOCK`] neighbouring keys while they are set.
pub struct Block<T> {
    number: u64,
    node: Arc<Node<T>>,
}

impl<T> Block<T> {
    /// Its keys divided by [`BLOCK`].
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many values it has.
    pub fn count(&self) -> usize {
        self.node.count()
    }

    /// Sets or removes the value of a key; false where that is a key of another block.
    pub fn set(&mut self, key: u64, value: Option<Arc<T>>) -> bool {
        if key / BLOCK != self.number {
            return false;
        }
        match value {
            Some(value) => drop(Radix::put(&mut self.node, LEVEL, key, value)),
            None => drop(Radix::take(&mut self.node, LEVEL, key)),
        }
        true
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.node = Arc::new(empty(LEVEL));
    }
}

impl<T> Radix<T> {
    /// Has the values of block `number` be set by `opening` when one of them is first needed, over those that are there. There
    /// will be `count` of them.
    pub fn set_later(&mut self, number: u64, count: usize, opening: Opening<T>) {
        let last = number * BLOCK + (BLOCK - 1);
        self.grow(super::levels_for(last));
        let level = self.levels - 1;
        let len = &mut self.len;
        Self::replace_block(&mut self.root, level, last, |below| {
            *len -= below.as_ref().map_or(0, |node| node.count());
            *len += count;
            let later = || Arc::new(Node::Later(Later::new(number, count, below, opening)));
            (count > 0).then(later)
        });
        if self.len == 0 {
            *self = Radix::default();
        }
    }

    fn replace_block(
        place: &mut Option<Arc<Node<T>>>,
        level: u32,
        key: u64,
        replace: impl FnOnce(Option<Arc<Node<T>>>) -> Option<Arc<Node<T>>>,
    ) {
        if level == LEVEL {
            *place = replace(place.take());
            return;
        }
        let node = place.get_or_insert_with(|| Arc::new(empty(level)));
        if let Parts::Children(children) = Self::own(node) {
            let child = &mut children[super::slot(key, level)];
            Self::replace_block(child, level - 1, key, replace);
            if child.as_ref().is_some_and(|c| c.is_vacant()) {
                *child = None;
            }
        }
    }

    /// How many values block `number` has, whether it is open or not.
    pub fn count_of_block(&self, number: u64) -> usize {
        self.block(number).map_or(0, Node::count)
    }

    /// Whether block `number` has no values that are still to be made.
    pub fn is_block_open(&self, number: u64) -> bool {
        self.block(number).is_none_or(|node| match node {
            Node::Later(later) => later.is_open(),
            _ => true,
        })
    }

    fn block(&self, number: u64) -> Option<&Node<T>> {
        let key = number * BLOCK;
        if self.levels < super::LEVELS_MAX && key >> (BITS * self.levels) != 0 {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut level = self.levels - 1;
        while level > LEVEL {
            let Node::Inner(children) = node else {
                return None;
            };
            node = children[super::slot(key, level)].as_deref()?;
            level -= 1;
        }
        Some(node)
    }

    /// The value at `key`; `None` also where it is still to be made.
    pub fn get_open(&self, key: u64) -> Option<&Arc<T>> {
        self.is_block_open(key / BLOCK).then(|| self.get(key))?
    }
}

impl<T: Send + Sync> Radix<T> {
    /// Makes all values that are still to be made, on all cores.
    pub fn open(&self) {
        let mut closed = Vec::new();
        if let Some(root) = self.root.as_deref() {
            Self::closed_below(root, &mut closed);
        }
        Self::open_all(&closed);
    }

    /// Makes the values of the blocks that have these keys, on all cores.
    pub fn open_those(&self, keys: impl Iterator<Item = u64>) {
        let numbers: BTreeSet<u64> = keys.map(|key| key / BLOCK).collect();
        let nodes = numbers.into_iter().filter_map(|number| self.block(number));
        let closed: Vec<&Later<T>> = nodes
            .filter_map(|node| match node {
                Node::Later(later) if !later.is_open() => Some(later),
                _ => None,
            })
            .collect();
        Self::open_all(&closed);
    }

    fn open_all(closed: &[&Later<T>]) {
        on_cores(closed.len().div_ceil(OPENED_TOGETHER), &|part| {
            let from = part * OPENED_TOGETHER;
            let to = closed.len().min(from + OPENED_TOGETHER);
            closed[from..to].iter().for_each(|later| {
                later.open();
            });
        });
    }

    fn closed_below<'a>(node: &'a Node<T>, closed: &mut Vec<&'a Later<T>>) {
        match node {
            Node::Inner(children) => {
                for child in children.iter().flatten() {
                    Self::closed_below(child, closed);
                }
            }
            Node::Later(later) if !later.is_open() => closed.push(later),
            Node::Later(_) | Node::Leaf(_) => {}
        }
    }
}

impl<T> Node<T> {
    /// The node, made if it has to be.
    pub(super) fn opened(&self) -> &Node<T> {
        match self {
            Node::Later(later) => later.open(),
            node => node,
        }
    }

    /// The node itself, or what it was opened as.
    fn opened_arc(self: &Arc<Node<T>>) -> &Arc<Node<T>> {
        match &**self {
            Node::Later(later) => later.open(),
            _ => self,
        }
    }

    /// How many values it has.
    pub(super) fn count(&self) -> usize {
        match self {
            Node::Later(later) => later.count,
            Node::Leaf(values) => values.iter().flatten().count(),
            Node::Inner(children) => children.iter().flatten().map(|child| child.count()).sum(),
        }
    }

    /// Whether its values are still to be made.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Node::Later(later) if !later.is_open())
    }

    /// The children of a node that has some.
    pub(super) fn children(&self) -> Option<&[Option<Arc<Node<T>>>; FANOUT]> {
        match self.opened() {
            Node::Inner(children) => Some(children),
            Node::Leaf(_) | Node::Later(_) => None,
        }
    }
}

impl<T> Radix<T> {
    /// The parts of a node, to change them: those of a copy where it is shared.
    pub(super) fn own(node: &mut Arc<Node<T>>) -> Parts<'_, T> {
        if let Node::Later(later) = &**node {
            *node = later.open().clone();
        }
        match Arc::make_mut(node) {
            Node::Inner(children) => Parts::Children(children),
            Node::Leaf(values) => Parts::Values(values),
            Node::Later(later) => unreachable!("{later:?} was opened"),
        }
    }
}

/// What `work` gives for each number below `count`, in order; all cores do it.
pub fn on_cores<R: Send>(count: usize, work: &(dyn Fn(usize) -> R + Sync)) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return done;
            }
            done.push((number, work(number)));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let more = cores.min(THREADS_MAX).min(count).saturating_sub(1);
    let mut all = thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, some).ok();
        // Without a thread more, the others do more.
        let others: Vec<_> = (0..more).filter_map(spawn).collect();
        let mut all = some();
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_unstable_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, result)| result).collect()
}
