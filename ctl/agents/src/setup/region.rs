//! Our part of the instructions that an agent reads (AGENTS.md, CLAUDE.md), between two markers.
//!
//! What is found and wanted is named by a sum of the region, so that one that an older version wrote is told from one
//! that the user changed.

use super::edit::{Change, Edited};
use super::record::{Entry, sum};
use super::undo::undone;
use std::collections::BTreeSet;
use std::ops::Range;

/// The first line of the region.
const BEGIN: &str = "<!-- agentvfs-begin -->";

/// The last line of the region.
const END: &str = "<!-- agentvfs-end -->";

/// Instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// What stands between the markers.
    pub text: &'static str,
}

impl Region {
    /// The region with these line ends.
    fn lines(&self, end: &str) -> String {
        let text = format!("{BEGIN}\n{}{END}\n", self.text);
        text.replace('\n', end)
    }
}

/// Where the region is in a text, with its last line end.
fn place(text: &str) -> Result<Option<Range<usize>>, String> {
    let at = |marker: &str| {
        let mut found = text.match_indices(marker).map(|(at, _)| at);
        match (found.next(), found.next()) {
            (at, None) => Ok(at),
            _ => Err(format!("it has {marker} more than once")),
        }
    };
    match (at(BEGIN)?, at(END)?) {
        (None, None) => Ok(None),
        (Some(begin), Some(end)) if begin < end => {
            let end = end + END.len();
            let rest = &text[end..];
            let newline = ["\r\n", "\n"].into_iter().find(|nl| rest.starts_with(nl));
            Ok(Some(begin..end + newline.map_or(0, str::len)))
        }
        _ => Err(format!("{BEGIN} and {END} do not belong together in it")),
    }
}

/// Names a region, whatever its line ends are.
fn name(region: &str) -> String {
    sum(region.replace("\r\n", "\n").trim_end())
}

impl Change for Region {
    fn found(&self, text: &str) -> Result<BTreeSet<String>, String> {
        let place = place(text)?;
        Ok(place.map(|place| name(&text[place])).into_iter().collect())
    }

    fn wanted(&self) -> BTreeSet<String> {
        BTreeSet::from([name(&self.lines("\n"))])
    }

    fn with(&self, text: &str, _program: &str) -> Result<Edited, String> {
        if place(text)?.is_some() {
            return Ok(Edited::added(text, text.to_owned(), BTreeSet::new()));
        }
        let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut after = text.to_owned();
        if !text.is_empty() {
            if !text.ends_with('\n') {
                after.push_str(end);
            }
            after.push_str(end);
        }
        after.push_str(&self.lines(end));
        Ok(Edited::added(text, after, self.wanted()))
    }

    fn without(&self, text: &str, entry: &Entry) -> Result<Edited, String> {
        let whole = |left: &str| match entry.created && left.trim().is_empty() {
            true => Edited::whole(""),
            false => Edited::whole(left),
        };
        let Some(place) = place(text)? else {
            return Ok(whole(text));
        };
        if !entry.items.contains(&name(&text[place.clone()])) {
            return Ok(Edited {
                whole: false,
                ..Edited::whole(text)
            });
        }
        let cut = [&text[..place.start], &text[place.end..]].concat();
        let is_right = |left: &String| {
            let words = |text: &str| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            words(left) == words(&cut)
        };
        let left = undone(text, &entry.undo).filter(is_right);
        Ok(whole(&left.unwrap_or(cut)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: Region = Region {
        text: "## agentvfs\n\nUse it.\n",
    };

    fn entry(before: &str, after: &Edited) -> Entry {
        Entry::of("claude", (before, after), before.is_empty())
    }

    #[test]
    fn what_an_older_version_wrote_is_told_from_what_the_user_changed() {
        let before = "# Mine\n";
        let after = OURS.with(before, "").unwrap();
        let entry = entry(before, &after);
        let newer = Region { text: "## new\n" };
        let found = newer.found(&after.text).unwrap();
        assert!(found == entry.items && found != newer.wanted());
        let changed = after.text.replace("Use it.", "Never use it.");
        let found = OURS.found(&changed).unwrap();
        assert!(found != entry.items && found != OURS.wanted());
        let left = OURS.without(&changed, &entry).unwrap();
        assert_eq!((left.text, left.whole), (changed, false));
    }

    #[test]
    fn markers_that_do_not_belong_together_are_left() {
        for text in [
            BEGIN,
            END,
            &format!("{END}\n{BEGIN}\n"),
            &format!("{BEGIN}{END}{BEGIN}{END}"),
        ] {
            assert!(OURS.with(text, "").is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_region_comes_and_goes_and_every_other_byte_stays(
            before in "([a-z#é ]{0,9}(\n|\r\n)){0,6}[a-z ]{0,9}",
            (first, last) in ("([a-z]{1,9}\n){0,3}", "(\n[a-z]{1,9}){0,3}"),
        ) {
            let after = OURS.with(&before, "").unwrap();
            prop_assert!(after.text.starts_with(&before));
            prop_assert_eq!(OURS.found(&after.text).unwrap(), OURS.wanted());
            let entry = entry(&before, &after);
            let left = OURS.without(&after.text, &entry).unwrap();
            prop_assert!(left.whole && left.text == before, "{:?}", left.text);
            let changed = format!("{first}{}{last}", after.text);
            let left = OURS.without(&changed, &entry).unwrap();
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert!(left.whole);
            prop_assert_eq!(words(&left.text), words(&format!("{first}{before}\n{last}")));
        }
    }
}
