//! The inodes of a database, checked, with how much data each has.
//!
//! All are held in memory, some 60 bytes each. Data is only counted here; its bytes are not read.

use crate::check::Shape;
use crate::error::Result;
use crate::source::Source;
use objstore::Meta;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

/// Largest file that is taken: what agentvfs stores at most.
const FILE_BYTES_MAX: i64 = (16 << 40) - 4096;

const TYPE_BITS: u32 = 0o170000;
const DIR: u32 = 0o040000;
const FILE: u32 = 0o100000;
const SYMLINK: u32 = 0o120000;
/// Fifo, character device, block device, socket.
const SPECIAL: [u32; 4] = [0o010000, 0o020000, 0o060000, 0o140000];

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dir,
    File,
    Symlink,
    Special,
}

/// A row of `fs_inode`.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub ino: i64,
    mode: u32,
    uid: u32,
    gid: u32,
    pub size: i64,
    mtime_sec: i64,
    mtime_nsec: u32,
    rdev: u32,
    /// Bytes of data that there are; with gaps up to the end of the last piece.
    data: i64,
    /// Pieces are missing, or shorter than a chunk.
    gaps: bool,
}

impl Inode {
    /// What it is.
    pub fn kind(&self) -> Kind {
        match self.mode & TYPE_BITS {
            DIR => Kind::Dir,
            FILE => Kind::File,
            SYMLINK => Kind::Symlink,
            _ => Kind::Special,
        }
    }

    /// Its attributes as a commit has them, but for links and extended attributes.
    pub fn meta(&self) -> Meta {
        Meta {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            mtime_sec: self.mtime_sec,
            mtime_nsec: self.mtime_nsec,
            rdev: u64::from(self.rdev),
            link_group: 0,
            xattrs: Vec::new(),
        }
    }
}

/// All inodes, by number.
#[derive(Debug)]
pub(crate) struct Inodes {
    rows: Vec<Inode>,
}

impl Inodes {
    /// Reads and checks all rows, and counts their data. With `sparse` pieces of files may be missing.
    pub fn read(source: &Source, db: &Connection, shape: &Shape, sparse: bool) -> Result<Inodes> {
        let column = |name, otherwise| shape.column("fs_inode", name, otherwise);
        let sql = format!(
            "SELECT ino, mode, uid, gid, size, mtime, {}, {} FROM fs_inode ORDER BY ino",
            column("mtime_nsec", "0"),
            column("rdev", "0")
        );
        let mut inodes = Inodes { rows: Vec::new() };
        let mut select = db.prepare(&sql).map_err(|e| source.sql(e))?;
        let mut rows = select.query([]).map_err(|e| source.sql(e))?;
        while let Some(row) = rows.next().map_err(|e| source.sql(e))? {
            let inode = inode(row).map_err(|why| source.refused(why))?;
            if inodes.rows.last().is_some_and(|last| last.ino >= inode.ino) {
                return Err(source.refused(format!("inode {} occurs twice", inode.ino)));
            }
            inodes.rows.push(inode);
        }
        inodes.count_data(source, db, shape.chunk as i64, sparse)?;
        Ok(inodes)
    }

    /// The place of an inode among all.
    pub fn find(&self, ino: i64) -> Option<usize> {
        self.rows.binary_search_by_key(&ino, |i| i.ino).ok()
    }

    /// The inode at a place.
    pub fn at(&self, place: usize) -> &Inode {
        &self.rows[place]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True where no piece of a file is missing.
    pub fn is_whole(&self, ino: i64) -> bool {
        let whole = |i: &Inode| !i.gaps && i.data == i.size;
        self.find(ino).is_none_or(|place| whole(self.at(place)))
    }

    /// Why a file's data cannot be what it should be.
    pub fn bad_data(&self, place: usize, sparse: bool) -> Option<String> {
        let i = self.at(place);
        let whole = i.kind() != Kind::File || i.data == i.size || (sparse && i.data <= i.size);
        (!whole).then(|| {
            format!(
                "inode {} is {} bytes long and has {} bytes of data",
                i.ino, i.size, i.data
            )
        })
    }

    fn count_data(
        &mut self,
        source: &Source,
        db: &Connection,
        chunk: i64,
        sparse: bool,
    ) -> Result<()> {
        let sql = "SELECT ino, chunk_index, typeof(data), length(data) FROM fs_data
            ORDER BY ino, chunk_index";
        let mut select = db.prepare(sql).map_err(|e| source.sql(e))?;
        let mut rows = select.query([]).map_err(|e| source.sql(e))?;
        let mut last = (i64::MIN, -1, 0);
        while let Some(row) = rows.next().map_err(|e| source.sql(e))? {
            let piece = piece(row).map_err(|why| source.refused(why))?;
            let before = if last.0 == piece.ino {
                last
            } else {
                (piece.ino, -1, chunk)
            };
            let fits = match sparse {
                false => piece.index == before.1 + 1 && before.2 == chunk,
                true => piece.index > before.1,
            };
            if !fits || !(1..=chunk).contains(&piece.len) {
                return Err(source.refused_hint(
                    format!(
                        "data of inode {} is missing or too short before or in chunk {}",
                        piece.ino, piece.index
                    ),
                    (!sparse).then_some(SPARSE_HINT),
                ));
            }
            let gap = piece.index != before.1 + 1 || before.2 != chunk;
            last = (piece.ino, piece.index, piece.len);
            let noted = self.note(&piece, chunk, gap);
            noted.map_err(|why| source.refused(why))?;
        }
        Ok(())
    }

    /// Adds a piece of data to its inode. What belongs to an inode that is not there is left alone.
    fn note(&mut self, piece: &Piece, chunk: i64, gap: bool) -> Result<(), String> {
        let Some(place) = self.find(piece.ino) else {
            return Ok(());
        };
        let inode = &mut self.rows[place];
        if inode.kind() == Kind::Dir {
            return Err(format!("directory {} has file data", piece.ino));
        }
        inode.gaps |= gap;
        let end = piece
            .index
            .checked_mul(chunk)
            .and_then(|s| s.checked_add(piece.len));
        inode.data = end.ok_or_else(|| format!("inode {} has data beyond all files", piece.ino))?;
        Ok(())
    }
}

/// What to try where pieces of files are missing.
const SPARSE_HINT: &str = "--sparse reads missing data as holes, which AgentFS's own mount leaves";

/// A row of `fs_data`, without its bytes.
struct Piece {
    ino: i64,
    index: i64,
    len: i64,
}

fn piece(row: &Row<'_>) -> Result<Piece, String> {
    let ino = integer(row, 0, "the inode of some data")?;
    let index = integer(row, 1, "a chunk's number")?;
    let kind = row.get_ref(2).map_err(|e| e.to_string())?;
    if kind.as_str() != Ok("blob") {
        return Err(format!("chunk {index} of inode {ino} is not made of bytes"));
    }
    let len = integer(row, 3, "a chunk's length")?;
    Ok(Piece { ino, index, len })
}

fn inode(row: &Row<'_>) -> Result<Inode, String> {
    let ino = integer(row, 0, "an inode's number")?;
    let what = |name: &str| format!("{name} of inode {ino}");
    let bits = |column, name: &str| -> Result<u32, String> {
        let value = integer(row, column, &what(name))?;
        u32::try_from(value).map_err(|_| format!("{} is {value}", what(name)))
    };
    let inode = Inode {
        ino,
        mode: bits(1, "the mode")?,
        uid: bits(2, "the owner")?,
        gid: bits(3, "the group")?,
        size: integer(row, 4, &what("the size"))?,
        mtime_sec: integer(row, 5, &what("the time"))?,
        mtime_nsec: bits(6, "the time's fraction")?,
        rdev: bits(7, "the device number")?,
        data: 0,
        gaps: false,
    };
    let type_bits = inode.mode & TYPE_BITS;
    let known = [DIR, FILE, SYMLINK].contains(&type_bits) || SPECIAL.contains(&type_bits);
    if !known || inode.mode > 0o177777 {
        return Err(format!("{} is {:o}", what("the mode"), inode.mode));
    }
    if !(0..=FILE_BYTES_MAX).contains(&inode.size) {
        return Err(format!("{} is {}", what("the size"), inode.size));
    }
    if inode.mtime_nsec >= 1_000_000_000 {
        return Err(format!(
            "{} is {}",
            what("the time's fraction"),
            inode.mtime_nsec
        ));
    }
    Ok(inode)
}

/// An integer of a row; anything else is an error.
pub(crate) fn integer(row: &Row<'_>, column: usize, what: &str) -> Result<i64, String> {
    match row.get_ref(column).map_err(|e| e.to_string())? {
        ValueRef::Integer(value) => Ok(value),
        other => Err(format!("{what} is {}, not an integer", article(other))),
    }
}

/// What a value is, for messages.
pub(crate) fn article(value: ValueRef<'_>) -> &'static str {
    match value {
        ValueRef::Null => "missing",
        ValueRef::Integer(_) => "an integer",
        ValueRef::Real(_) => "a fraction",
        ValueRef::Text(_) => "text",
        ValueRef::Blob(_) => "bytes",
    }
}
