//! Which deleted file became which added one, decided as git's merges decide it.
//!
//! In this order: files with the same content; files that kept their name in another directory and are
//! similar enough; and the most similar pairs of what is left. The last two steps look only at sources
//! that matter: files that the other side changed, and files that tell where a directory went that the
//! other side added to.

use super::Context;
use super::limits::{CANDIDATES_PER_TARGET, RENAME_LIMIT, SAME_CONTENT_MAX, SIMILARITY_BYTES_MAX};
use super::similarity::{Pieces, SCORE_BASENAME_MIN, SCORE_MIN, is_hopeless, score};
use super::version::{Content, Matter, Version, bytes_of};
use super::walk::{DirRelevance, Relevance, SideRenames, split};
use crate::error::Result;
use objstore::content::FileContent;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Stands for the place of a file that was not found yet.
const UNKNOWN: &[u8] = b"/";

/// Turns deletions and additions of a side into renames.
pub(super) fn detect(ctx: &Context<'_>, side: &mut SideRenames) -> Result<()> {
    if side.pairs.is_empty() || side.relevant.is_empty() {
        return Ok(());
    }
    let mut job = Search::new(ctx, side);
    if job.sources.is_empty() || job.targets.is_empty() {
        return Ok(());
    }
    job.exact();
    job.drop_used();
    job.count_exact();
    job.by_basename()?;
    job.drop_used();
    let relevant = &job.side.relevant;
    let paths = &job.files;
    job.sources
        .retain(|s| relevant.contains_key(&paths[*s].path));
    job.drop_settled_directories();
    job.by_similarity()?;
    job.finish();
    Ok(())
}

/// A deleted or added file.
struct File {
    path: Vec<u8>,
    version: Version,
    pair: usize,
    pieces: Option<Arc<Pieces>>,
    /// The file that it was, or became.
    other: Option<usize>,
}

/// What makes two files exact renames.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    File(FileContent),
    Symlink(Vec<u8>),
}

struct Search<'a> {
    ctx: &'a Context<'a>,
    side: &'a mut SideRenames,
    files: Vec<File>,
    /// Deleted files that are still candidates.
    sources: Vec<usize>,
    /// Added files.
    targets: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(ctx: &'a Context<'a>, side: &'a mut SideRenames) -> Search<'a> {
        let (mut files, mut sources, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (pair, p) in side.pairs.iter().enumerate() {
            let (list, (path, version)) = match (&p.old, &p.new) {
                (Some(old), None) => (&mut sources, old),
                (None, Some(new)) => (&mut targets, new),
                _ => continue,
            };
            // Empty files are all alike.
            if version.len() == 0 {
                continue;
            }
            list.push(files.len());
            files.push(File {
                path: path.clone(),
                version: version.clone(),
                pair,
                pieces: None,
                other: None,
            });
        }
        Search {
            ctx,
            side,
            files,
            sources,
            targets,
        }
    }

    fn exact(&mut self) {
        let mut by_content: HashMap<Key, Vec<usize>> = HashMap::new();
        for source in &self.sources {
            if let Some(key) = key_of(&self.files[*source].version) {
                by_content.entry(key).or_default().push(*source);
            }
        }
        for target in self.targets.clone() {
            let Some(key) = key_of(&self.files[target].version) else {
                continue;
            };
            let list = by_content.get(&key).map_or(&[][..], |list| list);
            let mut best: Option<(usize, bool)> = None;
            for source in list.iter().take(SAME_CONTENT_MAX) {
                if self.files[*source].other.is_some() {
                    continue;
                }
                let named = split(&self.files[*source].path).1 == split(&self.files[target].path).1;
                if best.is_none_or(|(_, had)| named && !had) {
                    best = Some((*source, named));
                }
                if named {
                    break;
                }
            }
            if let Some((source, _)) = best {
                self.pair(source, target);
            }
        }
    }

    fn pair(&mut self, source: usize, target: usize) {
        self.files[source].other = Some(target);
        self.files[target].other = Some(source);
    }

    fn drop_used(&mut self) {
        let files = &self.files;
        self.sources.retain(|s| files[*s].other.is_none());
    }

    fn count_exact(&mut self) {
        for target in self.targets.clone() {
            if let Some(source) = self.files[target].other {
                self.count(source, target);
            }
        }
    }

    /// Counts a rename for the directories that it moved between: where `a/b/c/x` became `d/b/c/x`,
    /// also for `a/b` and `a`.
    fn count(&mut self, source: usize, target: usize) {
        let (mut old, mut new) = (&self.files[source].path[..], &self.files[target].path[..]);
        let mut first = true;
        loop {
            let ((old_dir, old_name), (new_dir, new_name)) = (split(old), split(new));
            let Some(relevance) = self.side.dirs_removed.get(old_dir) else {
                return;
            };
            if !first && old_name != new_name {
                return;
            }
            if first || *relevance == DirRelevance::Own {
                let counts = self.side.counts.entry(old_dir.to_vec()).or_default();
                *counts.entry(new_dir.to_vec()).or_default() += 1;
            }
            if *relevance == DirRelevance::Not || old_dir.is_empty() || new_dir.is_empty() {
                return;
            }
            (old, new, first) = (old_dir, new_dir, false);
        }
    }

    /// Pairs files whose name is unique on both sides, or that went where their directory seems to have
    /// gone.
    fn by_basename(&mut self) -> Result<()> {
        let guesses = self.guesses();
        let unused: Vec<usize> = {
            let free = |t: &usize| self.files[*t].other.is_none();
            self.targets.iter().copied().filter(free).collect()
        };
        let by_path: HashMap<Vec<u8>, usize> = unused
            .iter()
            .map(|t| (self.files[*t].path.clone(), *t))
            .collect();
        let (sources, targets) = (self.unique(&self.sources), self.unique(&unused));
        for source in self.sources.clone() {
            let path = self.files[source].path.clone();
            let (dir, name) = split(&path);
            if !self.side.relevant.contains_key(&path) {
                continue;
            }
            let Some(unique) = targets.get(name) else {
                continue;
            };
            let found = match (unique, sources.get(name)) {
                (Some(target), Some(Some(_))) => Some(*target),
                _ => guesses
                    .get(dir)
                    .and_then(|to| by_path.get(&[to, &b"/"[..], name].concat()).copied()),
            };
            let Some(target) = found.filter(|t| self.files[*t].other.is_none()) else {
                continue;
            };
            if self.score(source, target, SCORE_BASENAME_MIN)? >= SCORE_BASENAME_MIN {
                self.pair(source, target);
                self.count(source, target);
            }
        }
        Ok(())
    }

    /// The directory to which most files of each removed one went.
    fn guesses(&self) -> HashMap<Vec<u8>, Vec<u8>> {
        let best = |counts: &BTreeMap<Vec<u8>, usize>| {
            let mut best: Option<(&Vec<u8>, usize)> = None;
            for (dir, count) in counts {
                if best.is_none_or(|(_, most)| *count > most) {
                    best = Some((dir, *count));
                }
            }
            best.map(|(dir, _)| dir.clone())
        };
        let all = self.side.counts.iter();
        all.filter_map(|(old, counts)| Some((old.clone(), best(counts)?)))
            .collect()
    }

    /// Names of files: the file where it is the only one of that name.
    fn unique(&self, list: &[usize]) -> HashMap<Vec<u8>, Option<usize>> {
        let mut names = HashMap::new();
        for index in list {
            let name = split(&self.files[*index].path).1.to_vec();
            names
                .entry(name)
                .and_modify(|only| *only = None)
                .or_insert(Some(*index));
        }
        names
    }

    /// Drops sources that would only tell where a directory went, if that is certain already.
    fn drop_settled_directories(&mut self) {
        for source in &self.sources {
            let mut dir = split(&self.files[*source].path).0;
            while !dir.is_empty() {
                match self.side.dirs_removed.get(dir) {
                    None | Some(DirRelevance::Not) => break,
                    Some(_) => {}
                }
                let counts = self.side.counts.entry(dir.to_vec()).or_default();
                *counts.entry(UNKNOWN.to_vec()).or_default() += 1;
                dir = split(dir).0;
            }
        }
        for (dir, counts) in &self.side.counts {
            let relevance = self.side.dirs_removed.get_mut(dir);
            if let Some(relevance) = relevance.filter(|r| **r == DirRelevance::Own)
                && is_settled(counts)
            {
                *relevance = DirRelevance::Ancestor;
            }
        }
        let (files, side) = (&self.files, &*self.side);
        self.sources.retain(|source| {
            let path = &files[*source].path;
            if side.relevant.get(path) != Some(&Relevance::Location) {
                return true;
            }
            let mut dir = split(path).0;
            loop {
                match side.dirs_removed.get(dir) {
                    None | Some(DirRelevance::Not) => return false,
                    Some(DirRelevance::Own) => return true,
                    Some(DirRelevance::Ancestor) if dir.is_empty() => return false,
                    Some(DirRelevance::Ancestor) => dir = split(dir).0,
                }
            }
        });
    }

    /// Pairs the most similar of what is left.
    fn by_similarity(&mut self) -> Result<()> {
        let free = |t: &usize| self.files[*t].other.is_none();
        let targets: Vec<usize> = self.targets.iter().copied().filter(free).collect();
        if targets.len().saturating_mul(self.sources.len()) > RENAME_LIMIT * RENAME_LIMIT {
            return Ok(());
        }
        let mut all = Vec::new();
        for target in targets {
            let mut best: [Option<Candidate>; CANDIDATES_PER_TARGET] = Default::default();
            for source in self.sources.clone() {
                let named = split(&self.files[source].path).1 == split(&self.files[target].path).1;
                let score = self.score(source, target, SCORE_MIN)?;
                keep_best(
                    &mut best,
                    Candidate {
                        score,
                        named,
                        source,
                        target,
                    },
                );
            }
            all.extend(best);
        }
        all.sort_by(worse);
        for candidate in all.into_iter().flatten() {
            let Candidate { source, target, .. } = candidate;
            let free = self.files[source].other.is_none() && self.files[target].other.is_none();
            if candidate.score >= SCORE_MIN && free {
                self.pair(source, target);
                self.count(source, target);
            }
        }
        Ok(())
    }

    fn score(&mut self, source: usize, target: usize, min: u64) -> Result<u64> {
        let (a, b) = (&self.files[source].version, &self.files[target].version);
        let (a_len, b_len) = (a.len(), b.len());
        let compared = a.is_file() && b.is_file() && a_len.max(b_len) <= SIMILARITY_BYTES_MAX;
        if !compared || is_hopeless(a_len, b_len, min) {
            return Ok(0);
        }
        let (from, to) = (self.pieces(source)?, self.pieces(target)?);
        Ok(score(&from, &to, a_len, b_len))
    }

    fn pieces(&mut self, index: usize) -> Result<Arc<Pieces>> {
        let file = &mut self.files[index];
        if let Some(pieces) = &file.pieces {
            return Ok(pieces.clone());
        }
        let pieces = match &file.version.matter {
            Matter::File(content) => Pieces::of(&bytes_of(self.ctx.store, content)?),
            _ => Pieces::default(),
        };
        Ok(file.pieces.insert(Arc::new(pieces)).clone())
    }

    /// Writes the renames into the pairs: each takes the place of its addition.
    fn finish(&mut self) {
        for target in &self.targets {
            let Some(source) = self.files[*target].other else {
                continue;
            };
            let old = self.side.pairs[self.files[source].pair].old.take();
            self.side.pairs[self.files[*target].pair].old = old;
        }
        self.side
            .pairs
            .retain(|pair| pair.old.is_some() || pair.new.is_some());
        let removed = &self.side.dirs_removed;
        self.side.counts.retain(|dir, counts| {
            counts.remove(UNKNOWN);
            removed.get(dir).is_some_and(|r| *r != DirRelevance::Not)
        });
    }
}

fn key_of(version: &Version) -> Option<Key> {
    match &version.matter {
        Matter::File(Content::Stored(content)) => Some(Key::File(*content)),
        Matter::Symlink(target) => Some(Key::Symlink(target.clone())),
        _ => None,
    }
}

/// True where no file that may still be found can change which directory has the most.
fn is_settled(counts: &BTreeMap<Vec<u8>, usize>) -> bool {
    let unknown = counts.get(UNKNOWN).copied().unwrap_or(0);
    let mut known: Vec<usize> = counts
        .iter()
        .filter(|(dir, _)| &dir[..] != UNKNOWN)
        .map(|(_, count)| *count)
        .collect();
    known.sort_unstable_by(|a, b| b.cmp(a));
    let at = |i: usize| known.get(i).copied().unwrap_or(0);
    at(0) > at(1) + unknown
}

/// A possible rename.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    score: u64,
    named: bool,
    source: usize,
    target: usize,
}

/// Best first; empty places last.
fn worse(a: &Option<Candidate>, b: &Option<Candidate>) -> std::cmp::Ordering {
    let rank = |c: &Option<Candidate>| c.as_ref().map(|c| (c.score, c.named));
    rank(b).cmp(&rank(a))
}

/// Puts a candidate in the place of the worst one, if it is better.
fn keep_best(best: &mut [Option<Candidate>], candidate: Candidate) {
    let mut worst = 0;
    for i in 1..best.len() {
        if worse(&best[i], &best[worst]).is_gt() {
            worst = i;
        }
    }
    let candidate = Some(candidate);
    if let Some(place) = best.get_mut(worst).filter(|p| worse(p, &candidate).is_gt()) {
        *place = candidate;
    }
}
