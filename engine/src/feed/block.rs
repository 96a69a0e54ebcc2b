//! Events as the ring keeps them: one after the other in little memory, as most of them are never read and each is
//! written. What many of them have in common is there once.
//!
//! Invariant: an event comes out as it was put in ([`Block::get`]), with the number that its place says.

use super::event::{FeedOp, FeedWho, Sentence, Told, ToldDetail};
use crate::limits::{FEED_BLOCK_EVENTS, FEED_BLOCK_TEXT_BYTES};
use std::sync::Arc;

/// Where an event happened, and what else the next one mostly has, too.
#[derive(Clone, Debug)]
struct Scene {
    branch: Arc<str>,
    branch_number: u16,
    teller: u64,
    policy_version: u64,
    call: Option<u64>,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time_ns: u64,
    ino: u64,
    bytes: u64,
    latency_ns: u64,
    offset: Option<u64>,
    size: Option<u64>,
    /// Where its texts begin, and how long each is.
    text: usize,
    path: u32,
    path2: u32,
    words: u32,
    who: u16,
    scene: u16,
    sentence: Sentence,
    op: FeedOp,
}

/// Some events that follow each other.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// Number of the first one.
    first: u64,
    entries: Vec<Entry>,
    texts: Vec<u8>,
    whos: Vec<FeedWho>,
    scenes: Vec<Scene>,
}

impl Block {
    /// Number of the first event that it has, or will have.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// How many it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the next event belongs into another one.
    pub fn is_full(&self) -> bool {
        self.len() >= FEED_BLOCK_EVENTS || self.texts.len() >= FEED_BLOCK_TEXT_BYTES
    }

    /// Memory that it holds, in bytes; names that others may have, too, are not counted.
    pub fn bytes_held(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.texts.capacity()
            + self.whos.capacity() * size_of::<FeedWho>()
            + self.scenes.capacity() * size_of::<Scene>()
    }

    /// Has no events, and begins with this number; what memory it has it keeps, unless that is much.
    pub fn begin(&mut self, first: u64) {
        self.first = first;
        self.entries.clear();
        self.texts.clear();
        self.texts.shrink_to(2 * FEED_BLOCK_TEXT_BYTES);
        self.whos.clear();
        self.scenes.clear();
    }

    /// Gives back memory that it would need for further events.
    pub fn fit(&mut self) {
        if self.texts.len() > FEED_BLOCK_TEXT_BYTES {
            self.texts.shrink_to_fit();
        }
        if self.len() < FEED_BLOCK_EVENTS {
            self.entries.shrink_to_fit();
        }
    }

    /// Takes a further event. Its number is that of its place.
    pub fn push(&mut self, event: &Told<'_>) {
        if self.entries.capacity() == 0 {
            self.entries.reserve_exact(FEED_BLOCK_EVENTS);
        }
        let text = self.texts.len();
        let entry = Entry {
            time_ns: event.time_ns,
            ino: event.ino,
            bytes: event.bytes,
            latency_ns: event.latency_ns,
            offset: event.detail.offset,
            size: event.detail.size,
            text,
            path: put(&mut self.texts, event.path),
            path2: put(&mut self.texts, event.path2),
            words: put(&mut self.texts, event.detail.words.as_bytes()),
            who: self.who(event.who),
            scene: self.scene(event),
            sentence: event.sentence,
            op: event.op,
        };
        self.entries.push(entry);
    }

    fn who(&mut self, who: &FeedWho) -> u16 {
        let known = self.whos.iter().rposition(|known| known == who);
        place(known, self.whos.len(), || self.whos.push(who.clone()))
    }

    fn scene(&mut self, event: &Told<'_>) -> u16 {
        let is_it = |scene: &Scene| {
            scene.teller == event.teller
                && scene.policy_version == event.policy_version
                && scene.call == event.call
                && scene.count == event.count
                && scene.branch_number == event.branch_number
                && *scene.branch == *event.branch
        };
        let known = self.scenes.iter().rposition(is_it);
        place(known, self.scenes.len(), || {
            self.scenes.push(Scene {
                branch: event.branch.into(),
                branch_number: event.branch_number,
                teller: event.teller,
                policy_version: event.policy_version,
                call: event.call,
                count: event.count,
            });
        })
    }

    /// A block that has the events from a place on, in no more memory than they need.
    pub fn part(&self, from: usize) -> Block {
        let entries = self.entries.get(from..).unwrap_or_default();
        let before = entries.first().map_or(self.texts.len(), |entry| entry.text);
        let moved = |entry: &Entry| Entry {
            text: entry.text - before,
            ..*entry
        };
        Block {
            first: self.first + from as u64,
            entries: entries.iter().map(moved).collect(),
            texts: self.texts.get(before..).unwrap_or_default().to_vec(),
            whos: self.whos.clone(),
            scenes: self.scenes.clone(),
        }
    }

    /// The event at a place.
    pub fn get(&self, at: usize) -> Option<Told<'_>> {
        let entry = self.entries.get(at)?;
        let scene = self.scenes.get(usize::from(entry.scene))?;
        let text = self.texts.get(entry.text..)?;
        let (path, text) = text.split_at_checked(entry.path as usize)?;
        let (path2, text) = text.split_at_checked(entry.path2 as usize)?;
        let words = std::str::from_utf8(text.get(..entry.words as usize)?).ok()?;
        Some(Told {
            seq: self.first + at as u64,
            time_ns: entry.time_ns,
            op: entry.op,
            branch: &scene.branch,
            branch_number: scene.branch_number,
            teller: scene.teller,
            ino: entry.ino,
            path,
            path2,
            who: self.whos.get(usize::from(entry.who))?,
            bytes: entry.bytes,
            count: scene.count,
            latency_ns: entry.latency_ns,
            call: scene.call,
            detail: ToldDetail {
                words,
                offset: entry.offset,
                size: entry.size,
            },
            sentence: entry.sentence,
            policy_version: scene.policy_version,
        })
    }
}

/// Appends a text; gives its length.
fn put(texts: &mut Vec<u8>, text: &[u8]) -> u32 {
    // Paths and what is said of events are far shorter.
    let len = u32::try_from(text.len()).unwrap_or(0);
    texts.extend_from_slice(&text[..len as usize]);
    len
}

/// Place in a list of what was found there, or is put at its end.
fn place(known: Option<usize>, len: usize, push: impl FnOnce()) -> u16 {
    let at = known.unwrap_or_else(|| {
        push();
        len
    });
    assert!(at < FEED_BLOCK_EVENTS, "one for each event at most");
    at as u16
}

#[cfg(test)]
mod tests {
    use super::super::event::FeedBackend;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// An event with texts of its own.
    #[derive(Clone, Debug)]
    struct Owned {
        op: FeedOp,
        sentence: Sentence,
        who: FeedWho,
        /// Branch and what else it says.
        texts: [String; 2],
        paths: [Vec<u8>; 2],
        /// Number of the branch, teller, count, version of the rules.
        scene: [u16; 4],
        /// Call, offset, size.
        given: [Option<u64>; 3],
        /// Time, inode, bytes, latency.
        numbers: [u64; 4],
    }

    impl Owned {
        fn told(&self, seq: u64) -> Told<'_> {
            Told {
                seq,
                time_ns: self.numbers[0],
                op: self.op,
                branch: &self.texts[0],
                branch_number: self.scene[0],
                teller: self.scene[1].into(),
                ino: self.numbers[1],
                path: &self.paths[0],
                path2: &self.paths[1],
                who: &self.who,
                bytes: self.numbers[2],
                count: self.scene[2].into(),
                latency_ns: self.numbers[3],
                call: self.given[0],
                detail: ToldDetail {
                    words: &self.texts[1],
                    offset: self.given[1],
                    size: self.given[2],
                },
                sentence: self.sentence,
                policy_version: self.scene[3].into(),
            }
        }
    }

    fn event() -> impl Strategy<Value = Owned> {
        let op = (0..FeedOp::ALL.len()).prop_map(|n| FeedOp::ALL[n]);
        let who = (0u32..3, 0u32..2, "[ab]").prop_map(|(pid, uid, comm)| FeedWho {
            pid,
            uid,
            gid: uid,
            comm: comm.into(),
            backend: FeedBackend::Front,
        });
        let sentence = prop_oneof![
            Just(Sentence::Allow),
            Just(Sentence::Watch),
            any::<i32>().prop_map(Sentence::Deny)
        ];
        let given = || prop_oneof![Just(None), any::<u64>().prop_map(Some)];
        let texts = ["[a-b]", "[a-zé ]{0,9}"];
        let paths = || vec(any::<u8>(), 0..9);
        let scene = [0u16..2, 0..2, 0..2, 0..2];
        let rest = ([paths(), paths()], scene, [given(), given(), given()]);
        (op, sentence, who, texts, rest, any::<[u64; 4]>()).prop_map(
            |(op, sentence, who, texts, (paths, scene, given), numbers)| Owned {
                op,
                sentence,
                who,
                texts,
                paths,
                scene,
                given,
                numbers,
            },
        )
    }

    proptest! {
        #[test]
        fn events_come_out_as_they_were_put_in(
            events in vec(event(), 0..40),
            before in vec(event(), 0..9),
            (first, from) in (0..u64::MAX / 2, 0usize..40),
        ) {
            let mut block = Block::default();
            // What a block had before it begins again does not show.
            before.iter().for_each(|event| block.push(&event.told(0)));
            block.begin(first);
            events.iter().for_each(|event| block.push(&event.told(0)));
            let from = from.min(events.len());
            for (block, from) in [(&block.part(from), from), (&block, 0)] {
                prop_assert_eq!(block.len(), events.len() - from);
                for (at, event) in events[from..].iter().enumerate() {
                    let seq = first + (from + at) as u64;
                    prop_assert_eq!(block.get(at), Some(event.told(seq)));
                }
                prop_assert!(block.get(events.len()).is_none());
            }
        }
    }
}
