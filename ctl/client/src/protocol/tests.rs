//! Tests of the wire format.

use super::*;

fn refused(line: &[u8]) -> (RequestId, i32) {
    let refusal = parse_request(line).unwrap_err();
    (refusal.id, refusal.fault.code)
}

#[test]
fn request_survives_the_wire() {
    let rollback = Call::Rollback(Rollback {
        workspace: "w".into(),
        branch: "main".into(),
        target: Target::Before(Moment { sec: -5, nsec: 7 }),
        paths: vec![Bytes(b"src".to_vec())],
        keep_kv: true,
    });
    let diff = Call::Diff(Diff {
        workspace: "w".into(),
        branch: "main".into(),
        from: Side::Base,
        to: Side::Ref("x".into()),
        paths: vec![Bytes(b"a".to_vec()), Bytes(b"\xff".to_vec())],
        stat: true,
    });
    for call in [rollback, diff] {
        let request = parse_request(&encode_request(7, &call)).unwrap();
        let id = RequestId::Number(7);
        assert_eq!(
            request,
            Request {
                id,
                call,
                progress: false
            }
        );
    }
}

#[test]
fn defaults_fill_what_is_left_out() {
    let line =
        br#"{"jsonrpc":"2.0","id":"x","method":"workspace.stop","params":{"workspace":"w"}}"#;
    let Call::Stop(stop) = parse_request(line).unwrap().call else {
        panic!("not a stop")
    };
    assert!(stop.checkpoint && !stop.force);
    let line = br#"{"jsonrpc":"2.0","id":1,"method":"workspace.list"}"#;
    assert_eq!(parse_request(line).unwrap().call, Call::List(Nothing {}));
}

#[test]
fn malformed_requests_are_refused_with_the_right_code() {
    let null = RequestId::Null;
    let one = RequestId::Number(1);
    assert_eq!(refused(b""), (null.clone(), code::PARSE));
    assert_eq!(refused(b"{"), (null.clone(), code::PARSE));
    assert_eq!(refused(b"\xff"), (null.clone(), code::PARSE));
    assert_eq!(refused(b"[]"), (null.clone(), code::INVALID_REQUEST));
    assert_eq!(
        refused(br#"{"jsonrpc":"2.0","method":"hello"}"#),
        (null, code::INVALID_REQUEST)
    );
    assert_eq!(
        refused(br#"{"jsonrpc":"1.0","id":1,"method":"hello"}"#),
        (one.clone(), code::INVALID_REQUEST)
    );
    assert_eq!(
        refused(br#"{"jsonrpc":"2.0","id":1,"method":"x"}"#),
        (one.clone(), code::NO_METHOD)
    );
    let line = br#"{"jsonrpc":"2.0","id":1,"method":"workspace.list","params":{"extra":1}}"#;
    assert_eq!(refused(line), (one.clone(), code::INVALID_PARAMS));
    let line = br#"{"jsonrpc":"2.0","id":1,"method":"workspace.stop","params":{}}"#;
    assert_eq!(refused(line), (one, code::INVALID_PARAMS));
}

#[test]
fn longest_request_is_bounded() {
    let line = vec![b' '; REQUEST_BYTES_MAX + 1];
    assert_eq!(refused(&line), (RequestId::Null, code::INVALID_REQUEST));
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let line = vec![b'['; 500_000];
    assert_eq!(refused(&line).1, code::PARSE);
}

#[test]
fn answers_survive_the_wire() {
    let id = RequestId::Number(3);
    for answer in [
        Ok(serde_json::json!({"a": 1})),
        Err(Fault::failed("no-such-ref", "no x").hint("try y")),
        Err(Fault::protocol(code::PARSE, "bad")),
    ] {
        let line = encode_answer(&id, &answer);
        assert_eq!(
            parse_from_daemon(&line),
            Some(FromDaemon::Answer(id.clone(), answer))
        );
    }
}

#[test]
fn progress_survives_the_wire() {
    let progress = Progress {
        id: 2,
        done: 5,
        total: 10,
    };
    let line = encode_progress(&progress);
    assert_eq!(
        parse_from_daemon(&line),
        Some(FromDaemon::Progress(progress))
    );
}

#[test]
fn data_survives_the_wire() {
    let bytes = b"\x00\xff and more".to_vec();
    assert_eq!(
        parse_from_daemon(&encode_data(4, &bytes)),
        Some(FromDaemon::Data(4, bytes))
    );
}

#[test]
fn every_method_is_documented() {
    let text = include_str!("../../../../docs/protocol.md");
    for method in METHODS {
        assert!(
            text.contains(&format!("`{method}`")),
            "{method} is missing in docs/protocol.md"
        );
    }
}
