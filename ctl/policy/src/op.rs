//! Operations, as rules name them.

/// What a change does to a path, and an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A new file, directory or special file.
    Create,
    /// Bytes of a file change.
    Write,
    /// A file's length is set.
    Truncate,
    /// A name goes that is no directory's.
    Unlink,
    /// A directory goes.
    Rmdir,
    /// A name moves.
    Rename,
    /// A further name of a file.
    Link,
    /// A new symbolic link.
    Symlink,
    /// Mode, owner or times change.
    SetAttr,
    /// An extended attribute changes.
    SetXattr,
    /// A key changes.
    Kv,
    /// A file is opened: no change.
    Open,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 12] = [
        Op::Create,
        Op::Write,
        Op::Truncate,
        Op::Unlink,
        Op::Rmdir,
        Op::Rename,
        Op::Link,
        Op::Symlink,
        Op::SetAttr,
        Op::SetXattr,
        Op::Kv,
        Op::Open,
    ];

    /// Its word, which events have, too.
    pub fn word(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Write => "write",
            Op::Truncate => "truncate",
            Op::Unlink => "unlink",
            Op::Rmdir => "rmdir",
            Op::Rename => "rename",
            Op::Link => "link",
            Op::Symlink => "symlink",
            Op::SetAttr => "setattr",
            Op::SetXattr => "setxattr",
            Op::Kv => "kv",
            Op::Open => "open",
        }
    }

    /// The operation of a word.
    pub fn of(word: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.word() == word)
    }
}

/// Some operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ops(u16);

impl Ops {
    /// All changes.
    pub fn changes() -> Ops {
        let all = Op::ALL.into_iter().filter(|op| *op != Op::Open);
        all.fold(Ops::default(), Ops::with)
    }

    /// What a word in a rule stands for: `create` for every new name, `write` for every change of content.
    pub fn of_word(word: &str) -> Option<Ops> {
        let one = Ops::default().with(Op::of(word)?);
        Some(match word {
            "create" => one.with(Op::Symlink).with(Op::Link),
            "write" => one.with(Op::Truncate),
            _ => one,
        })
    }

    /// Those as which a move is judged, of what it moves.
    pub(crate) fn of_move() -> Ops {
        let all = [Op::Rename, Op::Unlink, Op::Rmdir, Op::Create, Op::Write];
        all.into_iter().fold(Ops::default(), Ops::with)
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, op: Op) -> Ops {
        Ops(self.0 | 1 << op as u16)
    }

    /// These and others.
    #[must_use]
    pub fn and(self, others: Ops) -> Ops {
        Ops(self.0 | others.0)
    }

    /// Whether one is among them.
    pub fn has(self, op: Op) -> bool {
        self.0 & (1 << op as u16) != 0
    }

    /// Whether they have one in common.
    pub fn meets(self, others: Ops) -> bool {
        self.0 & others.0 != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Op> {
        Op::ALL.into_iter().filter(move |op| self.has(*op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_for_all_that_has_the_same_effect() {
        let words = |word| -> Vec<&str> {
            let ops = Ops::of_word(word).unwrap();
            ops.iter().map(Op::word).collect()
        };
        assert_eq!(words("create"), ["create", "link", "symlink"]);
        assert_eq!(words("write"), ["write", "truncate"]);
        assert_eq!(words("rmdir"), ["rmdir"]);
        assert!(Ops::of_word("delete").is_none());
        for op in Op::ALL {
            assert_eq!(Op::of(op.word()), Some(op));
            assert!(!Ops::default().has(op));
            assert_eq!(Ops::changes().has(op), op != Op::Open);
        }
    }
}
