//! Messages of the control protocol, both ways.

use agentvfs_client::protocol::{
    Bytes, Call, CopyPath, Diff, Expected, Hello, KvSet, Log, LogCursor, METHODS, Moment, Nothing,
    OpenPath, PROTOCOL_VERSION, ReadHandle, RemovePath, RequestId, Rollback, SandboxOf, Side,
    Target, WriteFile, WriteHandle, encode_request, parse_from_daemon, parse_request,
};

/// A line gives a request or a refusal that can be sent; a request sent on is understood as the same.
pub fn check(bytes: &[u8]) {
    let _ = parse_from_daemon(bytes);
    match parse_request(bytes) {
        Err(refusal) => assert!(!refusal.fault.message.is_empty()),
        Ok(request) => {
            let line = encode_request(7, &request.call);
            let again = parse_request(&line);
            let again = again.map(|r| (r.id, r.call)).map_err(|r| r.fault.message);
            assert_eq!(again, Ok((RequestId::Number(7), request.call)));
        }
    }
}

/// Requests of several shapes, and each method with next to nothing.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let (workspace, branch) = ("w".to_owned(), "main".to_owned());
    let rollback = Call::Rollback(Rollback {
        workspace: workspace.clone(),
        branch: branch.clone(),
        target: Target::Before(Moment { sec: -5, nsec: 7 }),
        paths: vec![Bytes(b"src".to_vec())],
        keep_kv: true,
    });
    let set = Call::KvSet(KvSet {
        workspace: workspace.clone(),
        branch: branch.clone(),
        key: "key".into(),
        value: "{\"a\":1}".into(),
        unsynced: false,
    });
    let write = Call::FsWrite(WriteFile {
        workspace: workspace.clone(),
        branch: branch.clone(),
        path: Bytes(b"a/b".to_vec()),
        offset: Some(3),
        b64: "eA==".into(),
        last: true,
        perm: 0o600,
        parents: true,
        unsynced: false,
    });
    let log = Call::Log(Log {
        workspace: workspace.clone(),
        branch: branch.clone(),
        all: true,
        limit: Some(256),
        after: Some(LogCursor {
            number: 9,
            time: Moment { sec: 5, nsec: 1 },
        }),
        digits: true,
        count: false,
    });
    let diff = Call::Diff(Diff {
        workspace,
        branch,
        from: Side::Base,
        to: Side::Ref("@~1".into()),
        paths: vec![Bytes(b"\xff".to_vec())],
        stat: true,
    });
    let calls = [Call::List(Nothing {}), rollback, set, write, diff];
    let lines = calls.iter().map(|call| encode_request(7, call));
    let bare = METHODS.iter().map(|method| bare(method));
    // Appended, so that the seeds before keep their numbers.
    let later = [encode_request(7, &log), from_a_sandbox(None)];
    let shown = from_a_sandbox(Some(Bytes(b"/p".to_vec())));
    lines
        .chain(bare)
        .chain(later)
        .chain(about_open_files())
        .chain([shown])
        .collect()
}

/// The first message of a connection of a command in a sandbox.
fn from_a_sandbox(at: Option<Bytes>) -> Vec<u8> {
    let hello = Call::Hello(Hello {
        protocol: PROTOCOL_VERSION,
        client: "agentvfs".into(),
        sandbox: Some(SandboxOf {
            workspace: "w".into(),
            branch: "main".into(),
            created: Moment { sec: 5, nsec: 7 },
            process: Some(1),
            at,
        }),
        in_flight: None,
    });
    encode_request(7, &hello)
}

/// Requests about open files, and others that say more than the least.
fn about_open_files() -> Vec<Vec<u8>> {
    let (workspace, branch) = ("w".to_owned(), "main".to_owned());
    let path = Bytes(b"a/\xff".to_vec());
    let hello = Call::Hello(Hello {
        protocol: PROTOCOL_VERSION,
        client: "many".into(),
        sandbox: None,
        in_flight: Some(16),
    });
    let open = Call::FsOpen(OpenPath {
        workspace: workspace.clone(),
        branch: branch.clone(),
        state: Side::Live,
        path: path.clone(),
        create: true,
        exclusive: true,
        truncate: true,
        perm: 0o600,
    });
    let write = Call::FsPwrite(WriteHandle {
        handle: 1 << 52,
        offset: None,
        b64: "eA==".into(),
    });
    let read = Call::FsPread(ReadHandle {
        handle: 3,
        offset: 7,
        length: Some(9),
    });
    let copy = Call::FsCopy(CopyPath {
        workspace: workspace.clone(),
        branch: branch.clone(),
        from: path.clone(),
        to: Bytes(b"b".to_vec()),
        overwrite: false,
    });
    let remove = Call::FsRemove(RemovePath {
        workspace,
        branch,
        path,
        recursive: true,
        expect: Some(Expected::Directory),
    });
    let calls = [hello, open, write, read, copy, remove];
    calls.iter().map(|call| encode_request(7, call)).collect()
}

/// A request with nothing but what most methods need.
fn bare(method: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"workspace":"w","branch":"main"}}}}"#
    )
    .into_bytes()
}
