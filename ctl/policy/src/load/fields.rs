//! The keys of a table, with where their values stand.

use super::{At, near};
use std::ops::Range;
use toml_edit::{Item, TableLike, Value};

/// Values of one key in a list, at most.
const LIST_MAX: usize = 1_000;

/// Something, with where it stands.
pub type Placed<T> = (T, Range<usize>);

/// What a key has, if it is there.
type Found<T> = Result<Option<T>, At>;

/// Texts, with where they stand.
pub type Texts = [Placed<String>];

/// A table.
pub struct Fields<'a> {
    table: &'a dyn TableLike,
    span: Range<usize>,
}

impl<'a> Fields<'a> {
    pub fn of(table: &'a dyn TableLike, span: Option<Range<usize>>) -> Fields<'a> {
        let span = span.unwrap_or_default();
        Fields { table, span }
    }

    /// Where the table stands.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Where a key stands.
    fn span_of(&self, key: &str) -> Range<usize> {
        let known = self.table.key(key).and_then(|key| key.span());
        known.unwrap_or_else(|| self.span())
    }

    /// Fails if there are other keys.
    pub fn only(&self, known: &[&str], place: &str) -> Result<(), At> {
        let mut keys = self.table.iter().map(|(key, _)| key);
        let Some(key) = keys.find(|key| !known.contains(key)) else {
            return Ok(());
        };
        let why = match near::nearest(key, known) {
            Some(near) => format!("{key:?} is no key {place}; did you mean {near:?}?"),
            None => format!("{key:?} is no key {place}: use one of {}", known.join(", ")),
        };
        Err((self.span_of(key), why))
    }

    /// Fails if one of these keys is there, for they do not go with others.
    pub fn none_of(&self, keys: &[&str], why: &str) -> Result<(), At> {
        match keys.iter().find(|key| self.has(key)) {
            Some(key) => Err((
                self.span_of(key),
                format!("{why}, where {key:?} means nothing"),
            )),
            None => Ok(()),
        }
    }

    /// A value, with where it stands.
    fn value(&self, key: &str) -> Found<Placed<&'a Value>> {
        match self.table.get(key) {
            None => Ok(None),
            Some(Item::Value(value)) => {
                let span = value.span().unwrap_or_else(|| self.span_of(key));
                Ok(Some((value, span)))
            }
            Some(_) => Err((self.span_of(key), format!("{key} is a table"))),
        }
    }

    pub fn integer(&self, key: &str) -> Found<Placed<i64>> {
        let Some((value, span)) = self.value(key)? else {
            return Ok(None);
        };
        match value.as_integer() {
            Some(number) => Ok(Some((number, span))),
            None => Err((span, format!("{key} must be a number"))),
        }
    }

    pub fn text(&self, key: &str) -> Found<Placed<String>> {
        let Some((value, span)) = self.value(key)? else {
            return Ok(None);
        };
        match value.as_str() {
            Some(text) => Ok(Some((text.to_owned(), span))),
            None => Err((span, format!("{key} must be a text"))),
        }
    }

    pub fn needed_text(&self, key: &str) -> Result<Placed<String>, At> {
        let missing = || (self.span(), format!("the rule has no {key:?}"));
        self.text(key)?.ok_or_else(missing)
    }

    /// One value or a list of them.
    fn list(&self, key: &str) -> Found<Vec<Placed<&'a Value>>> {
        let Some((value, span)) = self.value(key)? else {
            return Ok(None);
        };
        let Some(array) = value.as_array() else {
            return Ok(Some(vec![(value, span)]));
        };
        if array.is_empty() || array.len() > LIST_MAX {
            return Err((span, format!("{key} must have 1 to {LIST_MAX} values")));
        }
        let placed = |value: &'a Value| (value, value.span().unwrap_or_else(|| span.clone()));
        Ok(Some(array.iter().map(placed).collect()))
    }

    /// One text or a list of them.
    pub fn texts(&self, key: &str) -> Found<Vec<Placed<String>>> {
        let Some(list) = self.list(key)? else {
            return Ok(None);
        };
        let text = |(value, span): (&Value, Range<usize>)| match value.as_str() {
            Some("") => Err((span, format!("{key} has an empty text"))),
            Some(text) => Ok((text.to_owned(), span)),
            None => Err((span, format!("{key} must be a text or a list of texts"))),
        };
        list.into_iter()
            .map(text)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// One user or a list of them.
    pub fn uids(&self) -> Found<Vec<u32>> {
        let Some(list) = self.list("uid")? else {
            return Ok(None);
        };
        let uid = |(value, span): (&Value, Range<usize>)| {
            let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
            number.ok_or_else(|| {
                (
                    span,
                    "uid must be a user's number or a list of them".to_owned(),
                )
            })
        };
        list.into_iter()
            .map(uid)
            .collect::<Result<_, _>>()
            .map(Some)
    }
}
