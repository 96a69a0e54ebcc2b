//! The tree of a database as a list of directories, checked before anything of it is stored.
//!
//! Invariant: each directory has one name, each name an inode, all of them hang together with the root,
//! and a directory stands in the list before those in it.

use crate::check::Shape;
use crate::error::Result;
use crate::facts::Facts;
use crate::inodes::{Inodes, Kind, article, integer};
use crate::overlay::{BaseNode, Overlay};
use crate::schema::ROOT_INO;
use crate::source::Source;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use std::collections::{HashMap, HashSet};

/// Longest name of an entry, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;
/// Most names of one inode.
const LINKS_MAX: i64 = 65_000;
/// Directories within one another: more than any path can name.
const DEPTH_MAX: u32 = 4096;
/// Name in the root that belongs to agentvfs.
const RESERVED_NAME: &[u8] = b".agentvfs";

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Target {
    /// The inode at this place.
    Inode(usize),
    /// The directory at this place of the list.
    Dir(usize),
    /// What shows through from an overlay's base.
    Base(Box<BaseNode>),
}

/// A directory.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    /// Its inode; `None` where it is of an overlay's base alone.
    pub inode: Option<usize>,
    /// Where it lies in the base, where that shows through.
    pub below: Option<Vec<u8>>,
    /// What is in it.
    pub entries: Vec<(Vec<u8>, Target)>,
    depth: u32,
}

/// All directories, and what is to be stored.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The root first.
    pub dirs: Vec<Dir>,
    /// Places of files that have a name, ascending.
    pub files: Vec<usize>,
    /// Their bytes.
    pub bytes: u64,
    /// Names.
    pub names: u64,
    /// Inodes with more than one name.
    pub linked: HashSet<i64>,
}

/// What it takes to read the tree.
pub(crate) struct Reader<'a> {
    pub source: &'a Source,
    pub db: &'a Connection,
    pub shape: &'a Shape,
    pub inodes: &'a Inodes,
    pub facts: &'a Facts<'a>,
    pub overlay: Option<&'a Overlay>,
    pub sparse: bool,
}

impl Reader<'_> {
    /// Reads the names and checks what they lead to.
    pub fn plan(&self) -> Result<Plan> {
        let mut plan = Plan {
            linked: self.linked()?,
            ..Plan::default()
        };
        let root = self.inodes.find(ROOT_INO);
        let Some(root) = root.filter(|root| self.inodes.at(*root).kind() == Kind::Dir) else {
            return Err(self.source.refused("it has no root directory (inode 1)"));
        };
        plan.dirs.push(Dir {
            inode: Some(root),
            below: self.overlay.map(|_| Vec::new()),
            ..Dir::default()
        });
        let mut seen = vec![false; self.inodes.len()];
        seen[root] = true;
        let mut rows = 0;
        let mut at = 0;
        while at < plan.dirs.len() {
            rows += self.directory(&mut plan, at, &mut seen)?;
            at += 1;
        }
        let all = self.count("SELECT count(*) FROM fs_dentry")?;
        if rows != all {
            let why = format!(
                "{} of its names cannot be reached from the root directory",
                all - rows
            );
            return Err(self.source.refused(why));
        }
        let is_file = |place: &usize| seen[*place] && self.inodes.at(*place).kind() == Kind::File;
        plan.files = (0..self.inodes.len()).filter(is_file).collect();
        let size = |place: &usize| self.inodes.at(*place).size as u64;
        plan.bytes += plan.files.iter().map(size).sum::<u64>();
        Ok(plan)
    }

    fn count(&self, sql: &str) -> Result<i64> {
        let found = self.db.query_row(sql, [], |row| row.get(0));
        found.map_err(|e| self.source.sql(e))
    }

    /// Inodes with more than one name.
    fn linked(&self) -> Result<HashSet<i64>> {
        let sql = "SELECT ino, count(*) FROM fs_dentry GROUP BY ino HAVING count(*) > 1";
        let mut select = self.db.prepare(sql).map_err(|e| self.source.sql(e))?;
        let mut rows = select.query([]).map_err(|e| self.source.sql(e))?;
        let mut linked = HashSet::new();
        while let Some(row) = rows.next().map_err(|e| self.source.sql(e))? {
            let refused = |why: String| self.source.refused(why);
            let ino = integer(row, 0, "the inode of a name").map_err(refused)?;
            let count = integer(row, 1, "a count").map_err(refused)?;
            if count > LINKS_MAX {
                return Err(self
                    .source
                    .refused(format!("inode {ino} has {count} names")));
            }
            linked.insert(ino);
        }
        Ok(linked)
    }

    /// Reads one directory; gives how many rows of `fs_dentry` it has.
    fn directory(&self, plan: &mut Plan, at: usize, seen: &mut [bool]) -> Result<i64> {
        let mut entries = Vec::new();
        if let Some(place) = plan.dirs[at].inode {
            for (name, ino) in self.rows(self.inodes.at(place).ino)? {
                self.check_name(&name, at == 0)?;
                let node = self.node(plan, at, &name, ino, seen)?;
                entries.push((name, node));
            }
        }
        let rows = entries.len() as i64;
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = String::from_utf8_lossy(&twice[0].0).into_owned();
            return Err(self
                .source
                .refused(format!("the name {name:?} occurs twice in one directory")));
        }
        if let (Some(overlay), Some(below)) = (self.overlay, plan.dirs[at].below.clone()) {
            overlay.show_through(plan, at, &below, &mut entries)?;
        }
        plan.names += entries.len() as u64;
        plan.dirs[at].entries = entries;
        Ok(rows)
    }

    /// Names and inode numbers of a directory.
    fn rows(&self, parent: i64) -> Result<Vec<(Vec<u8>, i64)>> {
        let raw = self.facts.names(parent)?;
        let id = self.shape.column("fs_dentry", "id", "0");
        let sql = format!("SELECT name, ino, {id} FROM fs_dentry WHERE parent_ino = ?");
        let mut select = self
            .db
            .prepare_cached(&sql)
            .map_err(|e| self.source.sql(e))?;
        let mut rows = select.query([parent]).map_err(|e| self.source.sql(e))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.source.sql(e))? {
            let name = match row.get_ref(0).map_err(|e| self.source.sql(e))? {
                ValueRef::Text(name) => name.to_vec(),
                other => {
                    let why = format!("a name in directory {parent} is {}", article(other));
                    return Err(self.source.refused(why));
                }
            };
            let refused = |why: String| self.source.refused(why);
            let ino = integer(row, 1, "the inode of a name").map_err(refused)?;
            let id = integer(row, 2, "the number of a name").map_err(refused)?;
            found.push((raw.get(&id).cloned().unwrap_or(name), ino));
        }
        Ok(found)
    }

    fn check_name(&self, name: &[u8], in_root: bool) -> Result<()> {
        let plain = !name.iter().any(|byte| matches!(byte, 0 | b'/'));
        let sound = plain && !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES_MAX;
        if sound && !(in_root && name == RESERVED_NAME) {
            return Ok(());
        }
        let shown: String = String::from_utf8_lossy(name).chars().take(64).collect();
        Err(self
            .source
            .refused(format!("{shown:?} is not a valid file name")))
    }

    /// What a name stands for; a directory is added to the list.
    fn node(
        &self,
        plan: &mut Plan,
        at: usize,
        name: &[u8],
        ino: i64,
        seen: &mut [bool],
    ) -> Result<Target> {
        let shown = || String::from_utf8_lossy(name).into_owned();
        let Some(place) = self.inodes.find(ino) else {
            let why = format!(
                "the name {:?} refers to inode {ino}, which does not exist",
                shown()
            );
            return Err(self.source.refused(why));
        };
        let before = std::mem::replace(&mut seen[place], true);
        match self.inodes.at(place).kind() {
            Kind::Dir if before => {
                return Err(self
                    .source
                    .refused(format!("directory {ino} has more than one name")));
            }
            Kind::Dir => {
                let depth = plan.dirs[at].depth + 1;
                if depth > DEPTH_MAX {
                    let why = format!("directories are nested more than {DEPTH_MAX} deep");
                    return Err(self.source.refused(why));
                }
                let below = self
                    .overlay
                    .and_then(|o| o.below(plan.dirs[at].below.as_deref(), name));
                plan.dirs.push(Dir {
                    inode: Some(place),
                    below,
                    depth,
                    ..Dir::default()
                });
                return Ok(Target::Dir(plan.dirs.len() - 1));
            }
            Kind::Symlink if !before => self.check_target(ino)?,
            Kind::File if !before => {
                if let Some(why) = self.inodes.bad_data(place, self.sparse) {
                    return Err(self.source.refused(why));
                }
            }
            _ => {}
        }
        Ok(Target::Inode(place))
    }

    fn check_target(&self, ino: i64) -> Result<()> {
        let target = match self.shape.has("fs_symlink") {
            true => self.facts.target(ino)?,
            false => None,
        };
        match target {
            Some(t) if !t.is_empty() && t.len() <= TARGET_BYTES_MAX && !t.contains(&0) => Ok(()),
            _ => Err(self
                .source
                .refused(format!("symbolic link {ino} has no valid target"))),
        }
    }
}

impl Plan {
    /// Adds a directory of an overlay's base; gives its place.
    pub fn add_base_dir(&mut self, at: usize, below: Vec<u8>) -> usize {
        let depth = self.dirs[at].depth + 1;
        self.dirs.push(Dir {
            inode: None,
            below: Some(below),
            depth,
            ..Dir::default()
        });
        self.dirs.len() - 1
    }
}

/// Numbers of hard-link groups for inodes that have none.
pub(crate) struct Groups {
    next: u64,
    given: HashMap<i64, u64>,
    used: HashSet<u64>,
    recorded: HashSet<u64>,
}

impl Groups {
    /// Numbers that are not among those that are recorded.
    pub fn beside(recorded: HashSet<u64>) -> Groups {
        // Below are the numbers of files of a base.
        const FIRST: u64 = 1 << 39;
        Groups {
            next: FIRST,
            given: HashMap::new(),
            used: HashSet::new(),
            recorded,
        }
    }

    /// The group of an inode: as recorded, unless another one has that.
    pub fn of(&mut self, ino: i64, recorded: Option<u64>) -> u64 {
        if let Some(number) = self.given.get(&ino) {
            return *number;
        }
        let number = match recorded.filter(|number| self.used.insert(*number)) {
            Some(number) => number,
            None => self.fresh(),
        };
        self.given.insert(ino, number);
        number
    }

    /// A number that none has.
    pub fn fresh(&mut self) -> u64 {
        loop {
            self.next += 1;
            if !self.recorded.contains(&self.next) {
                return self.next;
            }
        }
    }
}
