//! The main job without a mount: start on a base, change, checkpoint, roll back, undo, close, reopen.
#![allow(clippy::unwrap_used)]

use engine::verbs;
use engine::*;
use std::path::Path;
use std::sync::Arc;

fn open(home: &Path) -> Arc<Engine> {
    Engine::open(EngineConfig {
        root: home.to_owned(),
        author: "test".into(),
    })
    .unwrap()
}

fn read(w: &Workspace, path: &str) -> Result<Vec<u8>> {
    let mut node = NodeId::ROOT;
    for part in path.split('/') {
        node = w.lookup(node, part.as_bytes(), Wait::Allowed)?.node;
    }
    w.read(node, 0, 1 << 20, Wait::Allowed)
}

fn write(w: &Workspace, name: &str, data: &[u8]) {
    let who = Caller::default();
    let made = w.mknod(
        &who,
        NodeId::ROOT,
        name.as_bytes(),
        mode::REG | 0o644,
        0,
        Wait::Allowed,
    );
    let node = match made {
        Ok(a) => a.node,
        Err(Error::Exists) => {
            w.lookup(NodeId::ROOT, name.as_bytes(), Wait::Allowed)
                .unwrap()
                .node
        }
        Err(e) => panic!("{e}"),
    };
    w.write(node, 0, data, WriteFlags::default(), Wait::Allowed)
        .unwrap();
}

fn checkpoint(w: &Workspace, label: &str) -> Checkpointed {
    let req = CheckpointRequest {
        label: Some(label.into()),
        wait: true,
        ..Default::default()
    };
    verbs::checkpoint(w, "main", req, &|_, _| ()).unwrap()
}

#[test]
fn the_main_job() {
    let base = tempfile::tempdir().unwrap();
    std::fs::create_dir(base.path().join("src")).unwrap();
    std::fs::write(base.path().join("src/a.rs"), b"fn a() {}").unwrap();
    std::fs::hard_link(base.path().join("src/a.rs"), base.path().join("linked")).unwrap();
    let home = tempfile::tempdir().unwrap();
    let e = open(home.path());
    e.create("w", base.path(), None).unwrap();
    let w = e.open_workspace("w").unwrap();
    assert_eq!(read(&w, "src/a.rs").unwrap(), b"fn a() {}");
    write(&w, "new", b"one");
    let first = checkpoint(&w, "first");
    assert!(first.new_commit && first.files_changed == 1, "{first:?}");
    assert_eq!(checkpoint(&w, "again").commit, first.commit);
    write(&w, "new", b"two");
    write(&w, "other", b"x");
    let back = verbs::rollback(&w, "main", &Target::Head).unwrap();
    assert_eq!(back.commit, first.commit);
    assert_eq!(read(&w, "new").unwrap(), b"one");
    assert!(matches!(read(&w, "other"), Err(Error::NotFound)));
    verbs::undo(&w, "main").unwrap();
    assert_eq!(read(&w, "new").unwrap(), b"two");
    assert_eq!(read(&w, "other").unwrap(), b"x");
    verbs::redo(&w, "main").unwrap();
    assert_eq!(read(&w, "new").unwrap(), b"one");
    write(&w, "late", b"kept");
    let closed = e
        .close_workspace("w", CloseMode::Checkpoint, &|_, _| ())
        .unwrap();
    assert!(closed.new_commit);
    drop(w);
    let w = e.open_workspace("w").unwrap();
    assert_eq!(read(&w, "late").unwrap(), b"kept");
    assert_eq!(read(&w, "src/a.rs").unwrap(), b"fn a() {}");
    verbs::rollback(&w, "main", &Target::Ref("first".into())).unwrap();
    assert!(matches!(read(&w, "late"), Err(Error::NotFound)));
    assert_eq!(read(&w, "new").unwrap(), b"one");
    let linked = w.lookup(NodeId::ROOT, b"linked", Wait::Allowed).unwrap();
    assert_eq!(linked.nlink, 2);
    assert!(verbs::log(&w, "main", true).unwrap().len() >= 4);
}
