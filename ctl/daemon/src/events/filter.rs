//! Which events a subscriber wants.

use agentvfs_client::glob::matches;
use agentvfs_client::protocol::{EventFilter, FILTER_MAX, Fault, OPS, PATTERN_BYTES_MAX, code};
use engine::feed::Told;

/// A filter that was checked.
pub struct Filter<'a>(&'a EventFilter);

impl<'a> Filter<'a> {
    /// Refuses operations that there are not, and what is too long.
    pub fn new(ask: &'a EventFilter) -> Result<Filter<'a>, Fault> {
        let refused = |why: String| Err(Fault::protocol(code::INVALID_PARAMS, why));
        let longest = ask.branches.len().max(ask.ops.len()).max(ask.paths.len());
        if longest > FILTER_MAX {
            return refused(format!("a filter has {FILTER_MAX} of each at most"));
        }
        if let Some(op) = ask.ops.iter().find(|op| !OPS.contains(&op.as_str())) {
            return refused(format!("no event has op {op:?}: {}", OPS.join(", ")));
        }
        if ask.paths.iter().any(|path| path.len() > PATTERN_BYTES_MAX) {
            return refused(format!("a pattern has {PATTERN_BYTES_MAX} bytes at most"));
        }
        Ok(Filter(ask))
    }

    /// Whether the event is wanted.
    pub fn fits(&self, event: &Told<'_>) -> bool {
        let EventFilter {
            branches,
            ops,
            paths,
        } = self.0;
        let paths_fit = || {
            [event.path, event.path2]
                .into_iter()
                .any(|path| self.fits_path(path))
        };
        (branches.is_empty() || branches.iter().any(|name| **name == *event.branch))
            && (ops.is_empty() || ops.iter().any(|op| op == event.op.word()))
            && (paths.is_empty() || paths_fit())
    }

    /// Whether a pattern fits the path, or a directory that it is in.
    fn fits_path(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends = ends.map(|(at, _)| at).chain([path.len()]);
        let mut fronts = ends
            .filter_map(|end| path.get(..end))
            .filter(|front| !front.is_empty());
        fronts.any(|front| {
            self.0
                .paths
                .iter()
                .any(|pattern| matches(pattern.as_bytes(), front))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(paths: &[&str], ops: &[&str]) -> EventFilter {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        EventFilter {
            branches: Vec::new(),
            ops: texts(ops),
            paths: texts(paths),
        }
    }

    #[test]
    fn a_pattern_fits_a_path_and_what_is_below_it() {
        let asked = filter(&["src", "*.rs", "a/?"], &[]);
        let filter = Filter::new(&asked).unwrap();
        for path in [
            "src", "src/x", "src/x/y", "lib/x.rs", "x.rs/y", "a/b", "a/b/c",
        ] {
            assert!(filter.fits_path(path.as_bytes()), "{path}");
        }
        for path in ["", "srcs", "x/src", "a", "a/bc", "x.rst"] {
            assert!(!filter.fits_path(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn what_no_event_has_is_refused() {
        assert!(Filter::new(&filter(&[], &["create", "lost"])).is_ok());
        let refused = Filter::new(&filter(&[], &["chmod"])).err().unwrap();
        assert_eq!(refused.code, code::INVALID_PARAMS);
        assert!(refused.message.contains("chmod") && refused.message.contains("setattr"));
        assert!(Filter::new(&filter(&["x"; FILTER_MAX + 1], &[])).is_err());
        let long = "x".repeat(PATTERN_BYTES_MAX + 1);
        assert!(Filter::new(&filter(&[&long], &[])).is_err());
    }
}
