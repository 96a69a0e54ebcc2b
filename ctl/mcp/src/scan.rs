//! The members of a JSON object, found without understanding what is in them.
//!
//! For messages that cannot be decoded: half a surrogate pair, a number that no float holds, very deep nesting,
//! bytes that are no text, a length beyond all bounds. Whoever sent one waits for an answer with its id, which may
//! stand behind everything else. Invariant: any bytes are taken, in pieces of any size; no more is kept of them than
//! the values that are wanted, each up to a length.

/// Longest name of a member that is kept.
const NAME_BYTES_MAX: usize = 32;

/// A scan under way.
#[derive(Debug, Default)]
pub struct Scan {
    wanted: &'static [&'static str],
    most: usize,
    /// Objects and arrays that are open.
    depth: u64,
    in_text: bool,
    is_escaped: bool,
    /// The member's name, once its value has begun.
    name: Option<Vec<u8>>,
    /// The name or the value that is being read.
    part: Vec<u8>,
    is_too_long: bool,
    found: Vec<(&'static str, Vec<u8>)>,
}

impl Scan {
    /// One that keeps the values of these members of the outermost object, up to `most` bytes each.
    pub fn new(wanted: &'static [&'static str], most: usize) -> Scan {
        Scan {
            wanted,
            most,
            ..Scan::default()
        }
    }

    /// The same of all these bytes.
    pub fn of(bytes: &[u8], wanted: &'static [&'static str], most: usize) -> Scan {
        let mut scan = Scan::new(wanted, most);
        scan.feed(bytes);
        scan
    }

    /// Takes more bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }

    /// The value of a member, as it was written; of several the last one.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let found = self.found.iter().rev().find(|(n, _)| *n == name);
        found.map(|(_, value)| value.trim_ascii())
    }

    fn byte(&mut self, byte: u8) {
        if self.in_text {
            self.keep(byte);
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return;
        }
        match byte {
            b'"' => {
                self.in_text = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth > 1 {
                    self.keep(byte);
                } else {
                    self.part.clear();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end();
                } else {
                    self.keep(byte);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 && self.name.is_none() => {
                self.name = Some(std::mem::take(&mut self.part));
                self.is_too_long = false;
            }
            b',' if self.depth == 1 => self.end(),
            _ => self.keep(byte),
        }
    }

    /// Keeps a byte of a name, or of a value that is wanted.
    fn keep(&mut self, byte: u8) {
        let most = match &self.name {
            None => NAME_BYTES_MAX,
            Some(name) if self.wanted_name(name).is_some() => self.most,
            Some(_) => return,
        };
        if self.part.len() < most {
            self.part.push(byte);
        } else {
            self.is_too_long = true;
        }
    }

    fn wanted_name(&self, name: &[u8]) -> Option<&'static str> {
        let name = name.trim_ascii();
        let name = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let wanted = self.wanted.iter().find(|w| w.as_bytes() == name);
        wanted.copied()
    }

    /// The end of a member.
    fn end(&mut self) {
        let value = std::mem::take(&mut self.part);
        let name = self.name.take();
        let wanted = name.and_then(|name| self.wanted_name(&name));
        if let Some(name) = wanted.filter(|_| !self.is_too_long) {
            self.found.retain(|(n, _)| *n != name);
            self.found.push((name, value));
        }
        self.is_too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &[u8]) -> Option<String> {
        let whole = Scan::of(text, &["id"], 40);
        let mut pieces = Scan::new(&["id"], 40);
        text.iter().for_each(|b| pieces.feed(&[*b]));
        assert_eq!(whole.value("id"), pieces.value("id"));
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        whole.value("id").map(text)
    }

    #[test]
    fn members_are_found_behind_what_cannot_be_read() {
        let deep = ["[".repeat(500), "]".repeat(500)].concat();
        for odd in [
            r#""\ud800""#,
            "1e400",
            &deep,
            r#"{"id": 1, "b": "}\\\"],{"}"#,
            "\"\u{fffd}\"",
        ] {
            let text = format!(r#"{{"method":"x", "params" : {odd} ,"id": "a-7"}}"#);
            assert_eq!(id(text.as_bytes()).as_deref(), Some("\"a-7\""), "{text}");
            let text = format!(r#"{{"id":12,"params":{odd}}}"#);
            assert_eq!(id(text.as_bytes()).as_deref(), Some("12"), "{text}");
        }
        assert_eq!(
            id(b"{\"a\": \"\xff\xfe\", \"id\": 3}").as_deref(),
            Some("3")
        );
    }

    #[test]
    fn what_is_no_member_of_the_outermost_object_is_not_found() {
        for text in [
            &b"{\"params\": {\"id\": 1}}"[..],
            b"[{\"id\": 1}]",
            b"\"id\": 1",
            b"{\"a\": \"id\", \"b\": 1}",
            b"GET / HTTP/1.1",
            b"}}}{{{\"id\"",
            b"",
        ] {
            assert_eq!(id(text), None, "{text:?}");
        }
        let long = format!("{{\"id\": \"{}\"}}", "x".repeat(100));
        assert_eq!(id(long.as_bytes()), None);
        assert_eq!(id(b"{\"id\": 1, \"id\": 2}").as_deref(), Some("2"));
    }
}
