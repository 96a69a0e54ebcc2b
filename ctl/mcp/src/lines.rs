//! Messages on a stream of lines: bounded, and each either understood or refused with a clear error.
//!
//! A call of a tool that cannot be understood is answered as a call that failed: its client waits for that, and its
//! model reads it. Invariant: [`receive`] is total; any bytes give a message or something that can be sent back, and it
//! holds no more of a line than a message may have.

use super::limits::MESSAGE_BYTES_MAX;
use super::scan::Scan;
use agentvfs_client::failure::Failure;
use rmcp::model::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData,
    GetExtensions, InitializeRequestParams, RequestId,
};
use serde_json::Value;
use std::io::{self, BufRead};
use std::sync::Arc;

/// The tool whose value is kept as it was written.
const KEEPS_VALUE: &str = "kv_set";
/// The method of all calls of tools.
const CALL: &str = "tools/call";
/// Longest id and name of a method that are looked for in what cannot be understood, in bytes.
const ID_BYTES_MAX: usize = 256;

/// What came on a line.
#[derive(Debug)]
pub enum Received {
    /// A message.
    Message(Box<ClientJsonRpcMessage>),
    /// A call of a tool that cannot be understood; it is to fail with this text.
    Failed(RequestId, String),
    /// Something else, to be answered so.
    Refused(Option<RequestId>, ErrorData),
}

/// The parameter `value` of a call of `kv_set` as it was written: what decodes it forgets how numbers looked, and
/// members that came twice. It goes with the request.
#[derive(Clone, Debug)]
pub struct RawValue(pub Arc<str>);

/// The next message of `input`; `None` at its end, where what has no newline is not complete.
pub fn receive(input: &mut impl BufRead) -> io::Result<Option<Received>> {
    loop {
        let mut line = Vec::new();
        match read_line(input, &mut line)? {
            Line::End => return Ok(None),
            Line::TooLong(scan) => return Ok(Some(too_long(&scan))),
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
    TooLong(Box<Scan>),
    End,
}

fn scan() -> Scan {
    Scan::new(&["id", "method"], ID_BYTES_MAX)
}

/// Reads up to a newline; what goes beyond the longest message is looked through for its id.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    let mut beyond: Option<Box<Scan>> = None;
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
        match &mut beyond {
            Some(scan) => scan.feed(&part[..taken]),
            None if line.len() + taken <= MESSAGE_BYTES_MAX => {
                line.extend_from_slice(&part[..taken])
            }
            None => {
                let mut scan = Box::new(scan());
                scan.feed(line);
                scan.feed(&part[..taken]);
                *line = Vec::new();
                beyond = Some(scan);
            }
        }
        input.consume(taken);
        if newline.is_some() {
            return Ok(beyond.map_or(Line::Whole, Line::TooLong));
        }
    }
}

fn too_long(scan: &Scan) -> Received {
    let why = format!("the message is longer than {MESSAGE_BYTES_MAX} bytes");
    let failure = Failure::usage(why).hint("write large files in parts, with append");
    refuse(scan, ErrorCode::INVALID_REQUEST, &failure)
}

/// Refuses a message of which no more is known than what a scan found.
fn refuse(scan: &Scan, code: ErrorCode, failure: &Failure) -> Received {
    let id = scan.value("id");
    let id = id.and_then(|id| serde_json::from_slice::<RequestId>(id).ok());
    let is_call = scan
        .value("method")
        .is_some_and(|method| method == b"\"tools/call\"");
    match id {
        Some(id) if is_call => Received::Failed(id, told(failure)),
        id => Received::Refused(id, error(code, failure)),
    }
}

fn told(failure: &Failure) -> String {
    failure.plain().trim_end().to_owned()
}

fn error(code: ErrorCode, failure: &Failure) -> ErrorData {
    let hint = failure.hint.as_ref().map(|hint| format!("; {hint}"));
    let text = format!("{}{}", failure.why, hint.unwrap_or_default());
    ErrorData::new(code, text, None)
}

fn understand(text: &[u8]) -> Received {
    let error = match serde_json::from_slice::<ClientJsonRpcMessage>(text) {
        Ok(mut message) if !is_misread(&message) => {
            keep_value(&mut message, text);
            return Received::Message(Box::new(message));
        }
        Ok(_) => "its parameters do not match the method".to_owned(),
        Err(error) => error.to_string(),
    };
    match serde_json::from_slice::<Value>(text) {
        Ok(value) => malformed(&value, &error),
        Err(error) => {
            let mut scan = scan();
            scan.feed(text);
            refuse(&scan, ErrorCode::PARSE_ERROR, &not_json(&error, text))
        }
    }
}

/// True where the library took a request with wrong parameters for one of a method that it does not know.
fn is_misread(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else {
        return false;
    };
    match &request.request {
        ClientRequest::CustomRequest(custom) => {
            [CALL, "initialize"].contains(&custom.method.as_str())
        }
        _ => false,
    }
}

/// Keeps the value that is to be stored as it was written.
fn keep_value(message: &mut ClientJsonRpcMessage, text: &[u8]) {
    let ClientJsonRpcMessage::Request(request) = message else {
        return;
    };
    match &request.request {
        ClientRequest::CallToolRequest(call) if call.params.name == KEEPS_VALUE => {}
        _ => return,
    }
    let member = |bytes: Option<Vec<u8>>, name: &'static [&'static str]| {
        let scan = Scan::of(&bytes?, name, MESSAGE_BYTES_MAX);
        scan.value(name[0]).map(<[u8]>::to_vec)
    };
    let params = member(Some(text.to_vec()), &["params"]);
    let value = member(member(params, &["arguments"]), &["value"]);
    if let Some(value) = value.and_then(|value| String::from_utf8(value).ok()) {
        let extensions = request.request.extensions_mut();
        extensions.insert(RawValue(value.into()));
    }
}

/// Why bytes are no JSON, and what to do.
fn not_json(error: &serde_json::Error, text: &[u8]) -> Failure {
    let base64 = "send bytes that are not text with encoding base64";
    if let Err(e) = std::str::from_utf8(text) {
        let why = format!("the message is not UTF-8 at byte {}", e.valid_up_to());
        return Failure::usage(why).hint(base64);
    }
    let why = error.to_string();
    let hint = if why.contains("surrogate") || why.contains("escape") || why.contains("code point")
    {
        "a text must not contain half of a surrogate pair (\\ud800 to \\udfff); send bytes that are not text \
         with encoding base64"
    } else if why.contains("out of range") {
        "the largest number is 1.7e308; send larger ones as texts"
    } else if why.contains("recursion") {
        "values may be nested up to 127 deep; send deeper ones as texts, or store them in a file"
    } else {
        "a message must be one line of JSON"
    };
    Failure::usage(format!("not JSON: {why}")).hint(hint)
}

/// Refuses what is JSON, but no message.
fn malformed(value: &Value, why: &str) -> Received {
    if value.is_array() {
        let failure = Failure::usage("send messages one by one, not as a batch");
        return Received::Refused(None, error(ErrorCode::INVALID_REQUEST, &failure));
    }
    let id = value
        .get("id")
        .and_then(|id| serde_json::from_value(id.clone()).ok());
    let params = value.get("params").cloned().unwrap_or_default();
    let wrong = match value.get("method").and_then(Value::as_str) {
        Some(CALL) => wrong_call(&params),
        Some("initialize") => serde_json::from_value::<InitializeRequestParams>(params.clone())
            .err()
            .map(|e| format!("initialize: params: {e}")),
        _ => None,
    };
    let Some(wrong) = wrong else {
        let failure = Failure::usage(format!("not a message of this protocol: {why}"));
        return Received::Refused(id, error(ErrorCode::INVALID_REQUEST, &failure));
    };
    let failure = Failure::usage(wrong);
    match id {
        Some(id) if params.get("name").is_some_and(Value::is_string) => {
            let failure = failure.hint("the tool's input schema lists its parameters");
            Received::Failed(id, told(&failure))
        }
        id => Received::Refused(id, error(ErrorCode::INVALID_PARAMS, &failure)),
    }
}

/// What is wrong with the parameters of a call.
fn wrong_call(params: &Value) -> Option<String> {
    let arguments = params.get("arguments");
    if arguments.is_some_and(|a| !a.is_object() && !a.is_null()) {
        return Some("tools/call: arguments is not an object of parameters".to_owned());
    }
    let read = serde_json::from_value::<CallToolRequestParams>(params.clone());
    read.err().map(|e| format!("tools/call: params: {e}"))
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
            Received::Failed(..) => 1,
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

    fn failed(text: &[u8]) -> (RequestId, String) {
        match &all(text)[..] {
            [Received::Failed(id, text)] => (id.clone(), text.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// A call of a tool with an argument, its id behind it as official clients write it.
    fn call(argument: &[u8]) -> Vec<u8> {
        let before =
            br#"{"method":"tools/call","params":{"name":"kv_set","arguments":{"key":"k","value":"#;
        let after = b"}},\"jsonrpc\":\"2.0\",\"id\":7}\n";
        [&before[..], argument, after].concat()
    }

    #[test]
    fn a_call_that_cannot_be_decoded_fails_under_its_id() {
        let deep = ["[".repeat(200), "]".repeat(200)].concat();
        let long = format!("\"{}\"", "x".repeat(MESSAGE_BYTES_MAX));
        for (argument, why, hint) in [
            (&br#""\ud800""#[..], "not JSON", "base64"),
            (b"1e400", "out of range", "as texts"),
            (deep.as_bytes(), "recursion", "127"),
            (b"\"\xff\"", "not UTF-8", "base64"),
            (long.as_bytes(), "longer than", "append"),
        ] {
            let (id, text) = failed(&call(argument));
            assert_eq!(id, RequestId::Number(7), "{text}");
            let lines: Vec<&str> = text.lines().collect();
            assert!(lines[0].contains(why) && lines[1].contains(hint), "{text}");
        }
        let (_, text) = failed(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"log\",\"arguments\":[]}}\n");
        assert!(text.contains("arguments is not an object"), "{text}");
    }

    #[test]
    fn an_initialize_that_is_garbage_says_what_is_wrong() {
        let found = all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":7}}\n");
        let [Received::Refused(Some(_), error)] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(error.message.contains("initialize: params: "), "{error:?}");
    }

    #[test]
    fn a_value_that_is_to_be_stored_is_kept_as_it_was_written() {
        let written = br#"{"a": 1.50, "a": 12345678901234567890123, "b": [1e2, -0]}"#;
        let found = all(&call(written));
        let [Received::Message(message)] = &found[..] else {
            panic!("{found:?}")
        };
        let ClientJsonRpcMessage::Request(request) = &**message else {
            panic!("{message:?}")
        };
        let raw = request.request.extensions().get::<RawValue>().unwrap();
        assert_eq!(raw.0.as_bytes(), written);
    }
}
