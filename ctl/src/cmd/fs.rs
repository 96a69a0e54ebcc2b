//! `agentvfs fs`: files of a commit or of the live tree, without a mount.

mod names;

use super::{Context, path_or_root};
use crate::cli::{FsFindArgs, FsListArgs, FsPathArgs, FsTreeArgs, FsVerb, FsWriteArgs, KindArg};
use crate::output::{Facts, Rows, bar, print, print_json, stdout_style, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::files::TreeAt;
use agentvfs_client::glob::matches;
use agentvfs_client::protocol::{
    Bytes, Call, FileKind, FileNode, PIECE_BYTES, WriteAnswer, WriteFile,
};
use agentvfs_client::quote::{base64, quoted};
use agentvfs_client::render::insert_bytes;
use agentvfs_client::when::rfc3339;
use rustix::fs::Mode;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

/// Runs one of the verbs.
pub fn run(verb: FsVerb, context: &mut Context) -> Result<u8, Failure> {
    match verb {
        FsVerb::Ls(args) => list(&args, context),
        FsVerb::Cat(args) => cat(&args, context),
        FsVerb::Write(args) => write(&args, context),
        FsVerb::Mkdir(args) => names::mkdir(&args, context),
        FsVerb::Rm(args) => names::remove(&args, context),
        FsVerb::Mv(args) => names::rename(&args, context),
        FsVerb::Stat(args) => stat(&args, context),
        FsVerb::Tree(args) => tree(&args, context),
        FsVerb::Find(args) => find(&args, context),
    }?;
    Ok(0)
}

fn at(
    reference: Option<&str>,
    path: Option<&Path>,
    context: &mut Context,
) -> Result<(TreeAt, Vec<u8>), Failure> {
    let state = TreeAt::find(reference, context)?;
    let path = match path {
        Some(path) => path_or_root(path, &state.workspace, context)?,
        None => Vec::new(),
    };
    Ok((state, path))
}

fn list(args: &FsListArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, path) = at(
        args.state.reference.as_deref(),
        args.path.as_deref(),
        context,
    )?;
    let node = state.stat(&path, context)?;
    let entries = match node.kind {
        FileKind::Directory => state.list(&path, context)?,
        _ => vec![node],
    };
    if context.json() {
        let object = |node: &FileNode| {
            let mut object = node_object(node);
            insert_bytes(&mut object, "name", &node.name.0);
            Value::Object(object)
        };
        return print_json(&json!({ "entries": entries.iter().map(object).collect::<Vec<_>>() }));
    }
    let mut rows = Rows::new(&["MODE", "SIZE", "TIME", "NAME"]);
    for node in entries {
        let mut row = vec![
            mode_text(&node).into_bytes(),
            node.size.to_string().into_bytes(),
            rfc3339(node.mtime).into_bytes(),
            node.name.0,
        ];
        row.extend(node.target.map(|target| target.0));
        rows.push(row);
    }
    rows.print(args.rows.nul)
}

fn cat(args: &FsPathArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, path) = at(args.state.reference.as_deref(), Some(&args.path), context)?;
    let mut at = 0;
    let size = state.read(&path, context, &mut |offset, bytes| {
        print_zeros(offset - at)?;
        std::io::stdout().lock().write_all(bytes)?;
        at = offset + bytes.len() as u64;
        Ok(())
    })?;
    print_zeros(size.saturating_sub(at))?;
    Ok(std::io::stdout().lock().flush()?)
}

/// What a hole reads as.
fn print_zeros(count: u64) -> Result<(), Failure> {
    let zeros = vec![0; count.min(PIECE_BYTES as u64) as usize];
    let mut left = count;
    while left > 0 {
        let n = left.min(zeros.len() as u64);
        std::io::stdout().lock().write_all(&zeros[..n as usize])?;
        left -= n;
    }
    Ok(())
}

fn write(args: &FsWriteArgs, context: &mut Context) -> Result<(), Failure> {
    let state = TreeAt::to_change(context)?;
    let path = path_or_root(&args.path, &state.workspace, context)?;
    if std::io::stdin().is_terminal() {
        talk("reading standard input; end it with Ctrl-D");
    }
    // The mask can only be read by setting it.
    let mask = rustix::process::umask(Mode::empty());
    let mut input = std::io::stdin().lock();
    let what = format!("cannot write in {}", state.workspace);
    let mut offset = 0;
    let mut size = 0;
    let mut piece = read_piece(&mut input)?;
    loop {
        let next = match piece.len() {
            PIECE_BYTES => read_piece(&mut input)?,
            _ => Vec::new(),
        };
        let call = Call::FsWrite(WriteFile {
            workspace: state.workspace.clone(),
            branch: state.branch.clone(),
            path: Bytes(path.clone()),
            offset: (!args.append).then_some(offset),
            b64: base64(&piece),
            last: next.is_empty(),
            perm: 0o666 & !mask.bits(),
            parents: args.parents,
            unsynced: false,
        });
        let answer: WriteAnswer = context.ask(&what, &call)?;
        offset += piece.len() as u64;
        size = size.max(answer.size);
        if next.is_empty() {
            break;
        }
        piece = next;
    }
    let name = names::given(&args.path);
    let done = format!(
        "{offset} bytes written to {name}; `agentvfs restore {name}` takes it from the head"
    );
    names::say(&state, &done, context);
    if context.json() {
        let mut object = Map::new();
        insert_bytes(&mut object, "path", &path);
        object.insert("written".into(), offset.into());
        object.insert("size".into(), size.into());
        print_json(&Value::Object(object))?;
    }
    Ok(())
}

/// As much of the input as one request takes; less only at its end.
fn read_piece(input: &mut impl Read) -> Result<Vec<u8>, Failure> {
    let mut piece = Vec::new();
    let mut part = input.take(PIECE_BYTES as u64);
    part.read_to_end(&mut piece)
        .map_err(|e| Failure::new("cannot read standard input", e.to_string()))?;
    Ok(piece)
}

fn stat(args: &FsPathArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, path) = at(args.state.reference.as_deref(), Some(&args.path), context)?;
    let node = state.stat(&path, context)?;
    if context.json() {
        let mut object = node_object(&node);
        insert_bytes(&mut object, "path", &path);
        return print_json(&Value::Object(object));
    }
    let mut facts = Facts::default();
    facts
        .line("path", &path)
        .line("type", kind_word(node.kind).as_bytes())
        .line("mode", format!("{:04o}", node.perm).as_bytes());
    for (key, number) in [
        ("size", node.size),
        ("uid", node.uid.into()),
        ("gid", node.gid.into()),
        ("links", node.nlink.into()),
    ] {
        facts.line(key, number.to_string().as_bytes());
    }
    facts.line("mtime", rfc3339(node.mtime).as_bytes());
    if let Some(target) = &node.target {
        facts.line("target", &target.0);
    }
    if let Some(device) = device(&node) {
        facts.line("device", device.as_bytes());
    }
    for (name, _) in &node.xattrs {
        facts.line("xattr", &name.0);
    }
    facts.print(false)
}

fn tree(args: &FsTreeArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, path) = at(
        args.state.reference.as_deref(),
        args.path.as_deref(),
        context,
    )?;
    let depth = args.depth.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    let waiting = bar("listing");
    state.walk(&path, depth, context, &mut |path, node| {
        found.push((path.to_vec(), node.clone()));
        Ok(())
    })?;
    drop(waiting);
    if context.json() || args.rows.nul || !std::io::stdout().is_terminal() {
        // The directory itself is what was asked about.
        return print_found(found.into_iter().skip(1), context.json(), args.rows.nul);
    }
    print(&drawing(&path, &found, stdout_style().unicode))
}

/// The tree as a person sees it: a line for each name, drawn below its directory.
fn drawing(top: &[u8], found: &[(Vec<u8>, FileNode)], unicode: bool) -> Vec<u8> {
    let (line, last, other) = match unicode {
        true => ("│   ", "└── ", "├── "),
        false => ("|   ", "`-- ", "|-- "),
    };
    let mut text = match top {
        b"" => b".".to_vec(),
        top => quoted(top).into_owned(),
    };
    text.push(b'\n');
    let level = |path: &[u8]| path.iter().filter(|b| **b == b'/').count();
    let base = found.get(1).map_or(0, |(path, _)| level(path));
    // Whether the last name of each level was its directory's last one.
    let mut ended: Vec<bool> = Vec::new();
    for (i, (path, node)) in found.iter().enumerate().skip(1) {
        let depth = level(path) - base;
        let later = found[i + 1..].iter().map(|(path, _)| level(path) - base);
        let is_last = later.take_while(|l| *l >= depth).all(|level| level > depth);
        ended.truncate(depth);
        for end in &ended {
            text.extend_from_slice(if *end { "    " } else { line }.as_bytes());
        }
        ended.push(is_last);
        text.extend_from_slice(if is_last { last } else { other }.as_bytes());
        text.extend_from_slice(&quoted(&node.name.0));
        if let Some(target) = &node.target {
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(&quoted(&target.0));
        }
        text.extend_from_slice(if node.kind == FileKind::Directory {
            b"/\n"
        } else {
            b"\n"
        });
    }
    text
}

fn find(args: &FsFindArgs, context: &mut Context) -> Result<(), Failure> {
    let (state, top) = at(
        args.state.reference.as_deref(),
        args.path.as_deref(),
        context,
    )?;
    let mut found = Vec::new();
    let pattern = args.name.as_ref().map(|name| name.as_bytes());
    let waiting = bar("listing");
    state.walk(&top, usize::MAX, context, &mut |path, node| {
        let is_named = pattern.is_none_or(|pattern| matches(pattern, &node.name.0));
        if path != top && is_named && args.kind.is_none_or(|kind| is_kind(node, kind)) {
            found.push((path.to_vec(), node.clone()));
        }
        Ok(())
    })?;
    drop(waiting);
    print_found(found.into_iter(), context.json(), args.rows.nul)
}

fn is_kind(node: &FileNode, wanted: KindArg) -> bool {
    match node.kind {
        FileKind::File => wanted == KindArg::F,
        FileKind::Directory => wanted == KindArg::D,
        FileKind::Symlink => wanted == KindArg::L,
        _ => wanted == KindArg::O,
    }
}

/// Paths as rows, or as one object.
fn print_found(
    found: impl Iterator<Item = (Vec<u8>, FileNode)>,
    json: bool,
    nul: bool,
) -> Result<(), Failure> {
    if json {
        let object = |(path, node): (Vec<u8>, FileNode)| {
            let mut object = node_object(&node);
            insert_bytes(&mut object, "path", &path);
            Value::Object(object)
        };
        return print_json(&json!({ "entries": found.map(object).collect::<Vec<_>>() }));
    }
    let mut rows = Rows::new(&["PATH"]);
    for (path, _) in found {
        rows.push(vec![path]);
    }
    rows.print(nul)
}

fn node_object(node: &FileNode) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("type".into(), kind_word(node.kind).into());
    object.insert("mode".into(), format!("{:04o}", node.perm).into());
    for (key, number) in [
        ("size", node.size),
        ("uid", node.uid.into()),
        ("gid", node.gid.into()),
        ("links", node.nlink.into()),
        ("inode", node.inode),
    ] {
        object.insert(key.into(), number.into());
    }
    object.insert("mtime".into(), rfc3339(node.mtime).into());
    if let Some(target) = &node.target {
        insert_bytes(&mut object, "target", &target.0);
    }
    if let Some(device) = device(node) {
        object.insert("device".into(), device.into());
    }
    if !node.xattrs.is_empty() {
        let mut xattrs = Map::new();
        for (name, value) in &node.xattrs {
            insert_bytes(&mut xattrs, &String::from_utf8_lossy(&name.0), &value.0);
        }
        object.insert("xattrs".into(), Value::Object(xattrs));
    }
    object
}

fn device(node: &FileNode) -> Option<String> {
    let is_device = matches!(node.kind, FileKind::CharacterDevice | FileKind::BlockDevice);
    let number = u64::from(node.rdev);
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    is_device.then(|| format!("{major}:{minor}"))
}

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharacterDevice => "character-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// Type and permissions as ls(1) shows them.
fn mode_text(node: &FileNode) -> String {
    let mut text = String::from(match node.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = node.perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (node.perm & special != 0, bits & 1 != 0) {
            (false, true) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentvfs_client::files::joined;
    use agentvfs_client::protocol::Moment;

    fn node(name: &str, kind: FileKind, perm: u32) -> FileNode {
        FileNode {
            name: Bytes(name.into()),
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            mtime: Moment { sec: 0, nsec: 0 },
            inode: 1,
            target: None,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn permissions_are_shown_as_ls_does() {
        for (kind, perm, text) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::File, 0o4711, "-rws--x--x"),
            (FileKind::File, 0o6640, "-rwSr-S---"),
        ] {
            assert_eq!(mode_text(&node("x", kind, perm)), text);
        }
    }

    #[test]
    fn tree_is_drawn_below_its_directory() {
        let found: Vec<(Vec<u8>, FileNode)> = [
            ("d", FileKind::Directory),
            ("d/a", FileKind::Directory),
            ("d/a/x", FileKind::File),
            ("d/b", FileKind::File),
        ]
        .into_iter()
        .map(|(path, kind)| {
            let name = path.rsplit('/').next().unwrap();
            (path.as_bytes().to_vec(), node(name, kind, 0o755))
        })
        .collect();
        assert_eq!(
            String::from_utf8(drawing(b"d", &found, true)).unwrap(),
            "d\n├── a/\n│   └── x\n└── b\n"
        );
        assert_eq!(joined(b"d", b"a"), b"d/a");
    }
}
