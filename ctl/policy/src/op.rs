//! Operations, as rules name them.

use engine::judge::FeedOp;

/// Those that a rule may name: the changes, and opens.
pub const RULED: [FeedOp; 12] = [
    FeedOp::Create,
    FeedOp::Write,
    FeedOp::Truncate,
    FeedOp::Unlink,
    FeedOp::Rmdir,
    FeedOp::Rename,
    FeedOp::Link,
    FeedOp::Symlink,
    FeedOp::SetAttr,
    FeedOp::SetXattr,
    FeedOp::Kv,
    FeedOp::Open,
];

/// The operation of a word, if a rule may name it.
pub fn ruled(word: &str) -> Option<FeedOp> {
    RULED.into_iter().find(|op| op.word() == word)
}

/// Some operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ops(u32);

const _: () = assert!(FeedOp::ALL.len() <= u32::BITS as usize);

impl Ops {
    /// All changes.
    pub fn changes() -> Ops {
        let all = RULED.into_iter().filter(|op| *op != FeedOp::Open);
        all.fold(Ops::default(), Ops::with)
    }

    /// What a word in a rule stands for: `create` for every new name, `write` for every change of content.
    pub fn of_word(word: &str) -> Option<Ops> {
        let one = Ops::default().with(ruled(word)?);
        Some(match word {
            "create" => one.with(FeedOp::Symlink).with(FeedOp::Link),
            "write" => one.with(FeedOp::Truncate),
            _ => one,
        })
    }

    /// Those as which a move is judged, of what it moves.
    pub(crate) fn of_move() -> Ops {
        let all = [
            FeedOp::Rename,
            FeedOp::Unlink,
            FeedOp::Rmdir,
            FeedOp::Create,
            FeedOp::Write,
        ];
        all.into_iter().fold(Ops::default(), Ops::with)
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, op: FeedOp) -> Ops {
        Ops(self.0 | 1 << op as u32)
    }

    /// These and others.
    #[must_use]
    pub fn and(self, others: Ops) -> Ops {
        Ops(self.0 | others.0)
    }

    /// Whether one is among them.
    pub fn has(self, op: FeedOp) -> bool {
        self.0 & (1 << op as u32) != 0
    }

    /// Whether they have one in common.
    pub fn meets(self, others: Ops) -> bool {
        self.0 & others.0 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = FeedOp> {
        RULED.into_iter().filter(move |op| self.has(*op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_all_that_has_the_same_effect() {
        let words = |word| -> Vec<&str> {
            let ops = Ops::of_word(word).unwrap();
            ops.iter().map(FeedOp::word).collect()
        };
        assert_eq!(words("create"), ["create", "link", "symlink"]);
        assert_eq!(words("write"), ["write", "truncate"]);
        assert_eq!(words("rmdir"), ["rmdir"]);
        assert!(Ops::of_word("delete").is_none());
        for op in RULED {
            assert_eq!(ruled(op.word()), Some(op));
            assert!(!Ops::default().has(op));
            assert_eq!(Ops::changes().has(op), op != FeedOp::Open);
        }
    }
}
