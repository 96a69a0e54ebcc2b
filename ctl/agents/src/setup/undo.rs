//! Taking a change of a text back, also where the text was changed elsewhere since.
//!
//! Settings may be on one line, so the patch is made of words and not of lines.

/// Pieces around a change that must be as they were, so that it can be undone.
const CONTEXT_PIECES: usize = 4;

/// A patch from `after` to `before`, by pieces: settings may be on one line.
pub fn undo(after: &str, before: &str) -> String {
    let mut options = diffy::DiffOptions::new();
    options.set_context_len(CONTEXT_PIECES);
    let (after, before) = (pieces(after), pieces(before));
    options.create_patch(&after, &before).to_string()
}

/// A text with what such a patch undoes undone, if that is still there.
pub fn undone(text: &str, undo: &str) -> Option<String> {
    let patch = diffy::Patch::from_str(undo).ok()?;
    joined(&diffy::apply(&pieces(text), &patch).ok()?)
}

/// A text with each word and each other character on a line of its own.
fn pieces(text: &str) -> String {
    let mut out = String::with_capacity(2 * text.len());
    let mut in_word = false;
    for c in text.chars() {
        let is_word = c.is_alphanumeric();
        if !(out.is_empty() || in_word && is_word) {
            out.push('\n');
        }
        in_word = is_word;
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// The text of pieces.
fn joined(pieces: &str) -> Option<String> {
    let mut out = String::with_capacity(pieces.len());
    let mut chars = pieces.chars().filter(|c| *c != '\n');
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_what_they_were() {
        for text in ["", "\n", "a\\n\r\nü 12_3\\", "\\\\n\n\n", "{\"a\": 1}\n"] {
            assert_eq!(joined(&pieces(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_was_changed_elsewhere_stays() {
        let before = "{\"a\": 1, \"c\": {\"d\": 3}, \"b\": 2}";
        let after = "{\"a\": 1, \"c\": {\"d\": 3, \"x\": []}, \"b\": 2}";
        let patch = undo(after, before);
        let changed = after.replace('1', "one");
        assert_eq!(undone(&changed, &patch), Some(before.replace('1', "one")));
        assert_eq!(undone("{}", &patch), None);
    }
}
