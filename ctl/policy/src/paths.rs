//! The path patterns of all rules as one automaton: a path is looked at once, however many rules there are.
//!
//! Paths are bytes, from the workspace's root, without a slash at the beginning. `*` and `?` do not stand for a slash,
//! `**` stands for any number of directories.

use crate::names::{builder, regex_of, too_large};
use crate::rule::ChangeRule;
use regex_automata::meta::{Cache, Regex};
use regex_automata::{Anchored, Input, MatchKind, PatternSet};

/// Patterns.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    regex: Option<Regex>,
    /// How each begins, up to its first special character.
    beginnings: Vec<Vec<u8>>,
}

/// What one thread needs to look at paths.
#[derive(Debug)]
pub(crate) struct Looks {
    cache: Option<Cache>,
}

/// Patterns that fit a path.
#[derive(Clone, Debug)]
pub(crate) struct Fits(PatternSet);

impl Paths {
    pub fn compile(patterns: &[String]) -> Result<Paths, String> {
        if patterns.is_empty() {
            return Ok(Paths::default());
        }
        let regexes: Result<Vec<String>, String> =
            patterns.iter().map(|p| regex_of(p, true)).collect();
        let config = Regex::config()
            .match_kind(MatchKind::All)
            .which_captures(regex_automata::nfa::thompson::WhichCaptures::None);
        let regex = builder().configure(config).build_many(&regexes?);
        let regex = regex.map_err(|e| too_large(&e))?;
        Ok(Paths {
            regex: Some(regex),
            beginnings: patterns.iter().map(|p| beginning(p)).collect(),
        })
    }

    pub fn looks(&self) -> Looks {
        Looks {
            cache: self.regex.as_ref().map(Regex::create_cache),
        }
    }

    /// Room for patterns that fit; none does.
    pub fn fits(&self) -> Fits {
        Fits(PatternSet::new(self.beginnings.len()))
    }

    /// Looks which patterns fit a path.
    pub fn look(&self, looks: &mut Looks, path: &[u8], fits: &mut Fits) {
        fits.0.clear();
        let (Some(regex), Some(cache)) = (&self.regex, &mut looks.cache) else {
            return;
        };
        let input = Input::new(path).anchored(Anchored::Yes);
        regex.which_overlapping_matches_with(cache, &input, &mut fits.0);
    }

    /// Whether a pattern of a rule may fit something below a directory. It may say so of one that cannot.
    pub fn reach_below(&self, rule: &ChangeRule, dir: &[u8]) -> bool {
        let Some(range) = rule.globs.clone() else {
            return true;
        };
        let may = |at: &Vec<u8>| {
            let below = dir.iter().chain((!dir.is_empty()).then_some(&b'/'));
            below.zip(at).all(|(a, b)| a == b)
        };
        self.beginnings[range].iter().any(may)
    }
}

impl Fits {
    /// Whether no pattern fits.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a rule's patterns have one of these, or it needs none.
    pub fn fit(&self, rule: &ChangeRule) -> bool {
        let Some(range) = &rule.globs else {
            return true;
        };
        let is_in = |n: usize| {
            let id = regex_automata::PatternID::new(n);
            id.is_ok_and(|id| self.0.contains(id))
        };
        range.clone().any(is_in)
    }
}

fn beginning(pattern: &str) -> Vec<u8> {
    let special = |c: char| matches!(c, '*' | '?' | '[' | '{' | '\\');
    let plain = pattern.find(special).unwrap_or(pattern.len());
    let plain = &pattern.as_bytes()[..plain];
    // `a/**/b` fits `a/b`, too: of what is before `/**` the slash need not be there a second time.
    plain.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(patterns: &[&str], path: &[u8]) -> Vec<usize> {
        let all: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        let paths = Paths::compile(&all).unwrap();
        let (mut looks, mut fits) = (paths.looks(), paths.fits());
        paths.look(&mut looks, path, &mut fits);
        fits.0.iter().map(|id| id.as_usize()).collect()
    }

    #[test]
    fn patterns_fit_whole_paths_of_bytes() {
        for (pattern, path, is_fit) in [
            ("**", &b""[..], true),
            ("**", b"a/b", true),
            ("**", b"a\xff\n/b", true),
            ("migrations/**", b"migrations/1.sql", true),
            ("migrations/**", b"migrations/a/b", true),
            ("migrations/**", b"migrations", false),
            ("migrations/**", b"xmigrations/1", false),
            ("migrations/**", b"Migrations/1", false),
            ("**/.env", b".env", true),
            ("**/.env", b"a/b/.env", true),
            ("**/.env", b"a/x.env", false),
            ("*.rs", b"main.rs", true),
            ("*.rs", b"src/main.rs", false),
            ("*.rs", b"\xff\xfe.rs", true),
            ("a/*/c", b"a/b/c", true),
            ("a/*/c", b"a/b/b/c", false),
            ("a/**/c", b"a/c", true),
            ("a/**/c", b"a/b/b/c", true),
            ("a?c", b"abc", true),
            ("a?c", b"a/c", false),
            ("[ab]c", b"bc", true),
            ("{x,y/**}", b"y/z", true),
            ("\\*", b"*", true),
            ("\\*", b"x", false),
            ("a.c", b"abc", false),
            ("a", b"a\n", false),
        ] {
            assert_eq!(
                !fits(&[pattern], path).is_empty(),
                is_fit,
                "{pattern} {path:?}"
            );
        }
        assert_eq!(fits(&["a/**", "b", "**/c"], b"a/c"), [0, 2]);
    }

    #[test]
    fn a_directory_is_left_out_only_if_nothing_below_it_can_fit() {
        for (pattern, dir, may) in [
            ("a/b/**", &b"a"[..], true),
            ("a/b/**", b"a/b", true),
            ("a/b/**", b"a/b/c", true),
            ("a/b/**", b"a/c", false),
            ("a/b/**", b"ab", false),
            ("**/x", b"a", true),
            ("a/*/x", b"a/c", true),
            ("{a,b}/x", b"b", true),
        ] {
            let text = format!("[[rule]]\nverdict = \"deny\"\npath = {pattern:?}\n");
            let policy = crate::Policy::load(&text).unwrap();
            assert_eq!(policy.reaches_below(dir), may, "{pattern} {dir:?}");
        }
    }

    #[test]
    fn costly_patterns_are_refused_or_stay_linear() {
        let wide = vec!["{a,b,c,d,e,f,g,h}".repeat(60); 2_000];
        assert!(Paths::compile(&wide).is_err());
        // Exponential for a reader that tries one way after the other.
        let stars = "*a".repeat(200);
        let path = vec![b'a'; 4_000];
        assert_eq!(fits(&[&stars, &(stars.clone() + "b")], &path), [0]);
    }
}
