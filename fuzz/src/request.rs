//! Messages of the control protocol, both ways.

use agentvfs_client::protocol::{RequestId, encode_request, parse_from_daemon, parse_request};

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
