//! Patterns for names: `*`, `?`, `[abc]`, `[a-z]`, `[!…]`, and `\` before any of them.

/// Whether all of `name` fits the pattern. Takes at most pattern times name steps.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where the last `*` stands, and how much of the name it takes so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
            continue;
        }
        if let Some(next) = one(&pattern[p..], name[n]) {
            p += next;
            n += 1;
            continue;
        }
        let Some((at, taken)) = star else {
            return false;
        };
        star = Some((at, taken + 1));
        (p, n) = (at + 1, taken + 1);
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// How much of the pattern stands for this byte; `None` where it does not fit.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', rest @ ..] => set(rest, byte).unwrap_or((byte == b'[').then_some(1)),
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// A set behind its bracket; `None` where it does not end, so that the bracket stands for itself.
fn set(pattern: &[u8], byte: u8) -> Option<Option<usize>> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let start = usize::from(negated);
    // A closing bracket in first place stands for itself.
    let end = pattern.iter().skip(start + 1).position(|b| *b == b']')? + start + 1;
    let mut rest = &pattern[start..end];
    let mut found = false;
    while let [from, tail @ ..] = rest {
        (found, rest) = match tail {
            [b'-', to, tail @ ..] => (found || (from..=to).contains(&&byte), tail),
            tail => (found || *from == byte, tail),
        };
    }
    Some((found != negated).then_some(end + 2))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, fits) in [
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rsx", false),
            ("a*b*c", "a-b-b-c", true),
            ("?", "", false),
            ("*", "", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("**a", "bba", true),
            ("a", "ab", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), name.as_bytes()),
                fits,
                "{pattern} {name}"
            );
        }
    }
}
