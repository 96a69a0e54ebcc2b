//! The right word for one that is not known.

/// Longest word that is compared with others, in characters.
const WORD_CHARS_MAX: usize = 32;
/// Most letters by which a word may be wrong to be meant.
const DISTANCE_MAX: usize = 3;

/// What is said of a value of `key` that is none of these.
pub fn unknown(key: &str, word: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(word, known) {
        Some(near) => format!("{key} {word:?} is not known; did you mean {near:?}? ({all})"),
        None => format!("{key} {word:?} is not known: use one of {all}"),
    }
}

/// The word among `known` that is most like this one, if one is.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|near| (distance(word, near), *near));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    let shorter = near.len().min(word.len());
    (distance <= DISTANCE_MAX && distance < shorter).then_some(near)
}

/// Letters that must be inserted, removed or replaced (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|text| text.chars().take(WORD_CHARS_MAX).collect::<Vec<char>>());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_near_if_few_letters_differ() {
        let known = ["path", "verdict", "op"];
        assert_eq!(nearest("paths", &known), Some("path"));
        assert_eq!(nearest("Verdict", &known), Some("verdict"));
        assert_eq!(nearest("ops", &known), Some("op"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
