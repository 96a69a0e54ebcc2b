//! Messages on a stream of lines: bounded, and each either understood or refused with a clear error.
//!
//! Invariant: [`receive`] is total; any bytes give a message or an error that can be sent back, and it
//! holds no more of a line than a message may have.

use super::limits::MESSAGE_BYTES_MAX;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId};
use std::io::{self, BufRead};

/// What came on a line.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Box<ClientJsonRpcMessage>),
    /// Something else, to be answered so.
    Refused(Option<RequestId>, ErrorData),
}

/// The next message of `input`; `None` at its end, where what has no newline is not complete.
pub fn receive(input: &mut impl BufRead) -> io::Result<Option<Received>> {
    loop {
        let mut line = Vec::new();
        match read_line(input, &mut line)? {
            Line::End => return Ok(None),
            Line::TooLong => return Ok(Some(too_long())),
            Line::Whole => {}
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            return Ok(Some(understand(text)));
        }
    }
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads up to a newline; what goes beyond the longest message is passed over.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    let mut length = 0usize;
    loop {
        let part = match input.fill_buf() {
            Ok(part) => part,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if part.is_empty() {
            return Ok(Line::End);
        }
        let newline = part.iter().position(|b| *b == b'\n');
        let taken = newline.map_or(part.len(), |at| at + 1);
        length = length.saturating_add(taken);
        if length <= MESSAGE_BYTES_MAX {
            line.extend_from_slice(&part[..taken]);
        } else {
            line.clear();
        }
        input.consume(taken);
        if newline.is_some() {
            return Ok(match length <= MESSAGE_BYTES_MAX {
                true => Line::Whole,
                false => Line::TooLong,
            });
        }
    }
}

fn too_long() -> Received {
    let why = format!(
        "the message is longer than {MESSAGE_BYTES_MAX} bytes; write large files in parts, with append"
    );
    refuse(None, ErrorCode::INVALID_REQUEST, why)
}

fn refuse(id: Option<RequestId>, code: ErrorCode, why: String) -> Received {
    Received::Refused(id, ErrorData::new(code, why, None))
}

fn understand(text: &[u8]) -> Received {
    let error = match serde_json::from_slice::<ClientJsonRpcMessage>(text) {
        Ok(message) => return Received::Message(Box::new(message)),
        Err(error) => error,
    };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) else {
        return refuse(None, ErrorCode::PARSE_ERROR, format!("not JSON: {error}"));
    };
    if value.is_array() {
        let why = "messages are sent one by one, not as a batch".to_owned();
        return refuse(None, ErrorCode::INVALID_REQUEST, why);
    }
    let id = value
        .get("id")
        .and_then(|id| serde_json::from_value(id.clone()).ok());
    let why = format!("not a message of this protocol: {error}");
    refuse(id, ErrorCode::INVALID_REQUEST, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn all(bytes: &[u8]) -> Vec<Received> {
        let mut input = BufReader::with_capacity(7, bytes);
        std::iter::from_fn(|| receive(&mut input).unwrap()).collect()
    }

    fn code(received: &Received) -> i32 {
        match received {
            Received::Refused(_, error) => error.code.0,
            Received::Message(_) => 0,
        }
    }

    #[test]
    fn messages_come_one_by_one_and_empty_lines_are_nothing() {
        let found = all(
            b"\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n{\"jsonrpc\"",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            matches!(&found[0], Received::Message(m) if matches!(**m, ClientJsonRpcMessage::Request(_)))
        );
        assert!(
            matches!(&found[1], Received::Message(m) if matches!(**m, ClientJsonRpcMessage::Notification(_)))
        );
    }

    #[test]
    fn garbage_is_refused_and_what_follows_is_heard() {
        let found = all(
            b"\xff\xfe\n{\n[]\n[1,2]\n7\n{\"id\":4}\n{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"ping\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n",
        );
        let codes: Vec<i32> = found.iter().map(code).collect();
        assert_eq!(
            codes,
            [-32700, -32700, -32600, -32600, -32600, -32600, -32600, 0]
        );
        let Received::Refused(id, _) = &found[5] else {
            panic!("{found:?}")
        };
        assert_eq!(*id, Some(RequestId::Number(4)));
    }

    #[test]
    fn endless_line_is_refused_without_being_held() {
        let mut bytes = vec![b'['; MESSAGE_BYTES_MAX + 10];
        bytes.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        let found = all(&bytes);
        assert_eq!(found.iter().map(code).collect::<Vec<_>>(), [-32600, 0]);
        let deep = [vec![b'['; 100_000], vec![b'\n']].concat();
        assert_eq!(all(&deep).iter().map(code).collect::<Vec<_>>(), [-32700]);
    }
}
