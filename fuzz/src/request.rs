//! Messages of the control protocol, both ways.

use agentvfs_client::protocol::{
    Bytes, Call, Diff, Hello, KvSet, Log, LogCursor, METHODS, Moment, Nothing, PROTOCOL_VERSION,
    RequestId, Rollback, SandboxOf, Side, Target, WriteFile, encode_request, parse_from_daemon,
    parse_request,
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
    let later = [encode_request(7, &log), from_a_sandbox()];
    lines.chain(bare).chain(later).collect()
}

/// The first message of a connection of a command in a sandbox.
fn from_a_sandbox() -> Vec<u8> {
    let hello = Call::Hello(Hello {
        protocol: PROTOCOL_VERSION,
        client: "agentvfs".into(),
        sandbox: Some(SandboxOf {
            workspace: "w".into(),
            branch: "main".into(),
            created: Moment { sec: 5, nsec: 7 },
            process: Some(1),
        }),
    });
    encode_request(7, &hello)
}

/// A request with nothing but what most methods need.
fn bare(method: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"workspace":"w","branch":"main"}}}}"#
    )
    .into_bytes()
}
