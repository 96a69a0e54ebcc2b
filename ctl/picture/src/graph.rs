//! The graph of a log: commits with lines to their parents, newest first, automatic ones folded.
//!
//! Rows come one after the other and are drawn as soon as they can be, so that the first is shown before the last is
//! known. A chain of automatic commits that nothing else refers to is drawn as one row, just before the commit that it
//! leads to. Tool calls and runs stand beside the commit that has what they did, or the row that it is folded into.
//! Invariant: a commit is drawn after all that refer to it, and once; where clocks had the rows come in
//! another order, the line to a parent that was drawn before is left out.

use crate::ago::when;
use crate::columns::id_cell;
use crate::line::{Paint, Style, fit};
use agentvfs_client::protocol::LogRow;
use agentvfs_client::quote::shown;
use renderdag::{Ancestor, GraphRowRenderer, Renderer};
use std::collections::{HashMap, HashSet};

/// Kind of a commit that another branch made.
const OTHER_BRANCH: &str = "other-branch";

/// Kinds of commits that go without saying.
const PLAIN_KINDS: [&str; 2] = ["checkpoint", OTHER_BRANCH];

/// Names of tools that are shown of the calls of one row.
const NAMES_MAX: usize = 3;

/// A commit as it is drawn.
pub type Row = LogRow;

/// A chain of automatic commits that is drawn as one.
struct Fold {
    newest: String,
    time: String,
    count: u64,
    parent: Option<String>,
    done: Done,
}

/// What was done in some commits, the newest first.
#[derive(Default)]
struct Done {
    /// Names of the tools that were called.
    calls: Vec<String>,
    /// Commands that were run, and how they ended.
    runs: Vec<String>,
}

/// A log as it is drawn.
pub struct Graph {
    style: Style,
    folding: bool,
    lines: Box<dyn Renderer<String, Output = String>>,
    /// Branches by the commit that is their head.
    heads: HashMap<String, Vec<String>>,
    drawn: HashSet<String>,
    /// Parents of what was drawn.
    wanted: HashSet<String>,
    /// Names of tools by the commit that a call of them led to, the newest first.
    calls: HashMap<String, Vec<String>>,
    folds: Vec<Fold>,
    commits: u64,
    /// How many commits without an id there were.
    pending: u64,
}

impl Graph {
    /// Nothing is drawn yet. `heads` are branches' names with their heads; with `folding`, chains of automatic
    /// commits are one row.
    pub fn new(style: Style, folding: bool, heads: Vec<(String, String)>) -> Graph {
        let lines = GraphRowRenderer::new().output().with_min_row_height(1);
        let mut by_commit: HashMap<String, Vec<String>> = HashMap::new();
        for (name, commit) in heads {
            by_commit.entry(commit).or_default().push(name);
        }
        Graph {
            style,
            folding,
            lines: match style.unicode {
                true => Box::new(lines.build_box_drawing()),
                false => Box::new(lines.build_ascii()),
            },
            heads: by_commit,
            drawn: HashSet::new(),
            wanted: HashSet::new(),
            calls: HashMap::new(),
            folds: Vec::new(),
            commits: 0,
            pending: 0,
        }
    }

    /// How many commits were drawn, those that are folded left out.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Notes a call of a tool that led to a commit, the newest call first. A commit that was drawn stays as it is.
    pub fn add_call(&mut self, commit: String, tool: String) {
        self.calls.entry(commit).or_default().push(tool);
    }

    /// Takes the next commit and gives what can be drawn now.
    pub fn push(&mut self, row: &Row) -> String {
        let id = match &row.commit {
            Some(id) => id.clone(),
            None => {
                self.pending += 1;
                format!("pending {}", self.pending)
            }
        };
        if self.drawn.contains(&id) {
            return String::new();
        }
        let leading: Vec<usize> = (0..self.folds.len())
            .filter(|at| self.folds[*at].parent.as_ref() == Some(&id))
            .collect();
        let can_fold = self.can_fold(row);
        if let [only] = leading[..]
            && can_fold
            && !self.wanted.contains(&id)
        {
            let done = self.done_in(&id, row);
            let fold = &mut self.folds[only];
            fold.count += 1;
            fold.parent = row.parents.first().cloned();
            fold.done.calls.extend(done.calls);
            fold.done.runs.extend(done.runs);
            return String::new();
        }
        let mut text = String::new();
        for at in leading.into_iter().rev() {
            let fold = self.folds.remove(at);
            text.insert_str(0, &self.draw_fold(fold));
        }
        if can_fold {
            let done = self.done_in(&id, row);
            self.folds.push(Fold {
                newest: id,
                done,
                time: self.time(row),
                count: 1,
                parent: row.parents.first().cloned(),
            });
            return text;
        }
        self.commits += 1;
        text.push_str(&self.draw(&id, row));
        text
    }

    /// What is left to draw when there are no more commits.
    pub fn finish(&mut self) -> String {
        let folds = std::mem::take(&mut self.folds);
        folds.into_iter().map(|fold| self.draw_fold(fold)).collect()
    }

    fn can_fold(&self, row: &Row) -> bool {
        let is_named = |id: &String| self.heads.contains_key(id);
        // A commit of another branch counts as automatic, too; one that somebody asked for often says why.
        let is_told = row.kind == OTHER_BRANCH && !row.message.is_empty();
        self.folding
            && row.automatic
            && !is_told
            && !row.head
            && row.labels.is_empty()
            && row.parents.len() <= 1
            && row.commit.as_ref().is_some_and(|id| !is_named(id))
    }

    fn draw(&mut self, id: &str, row: &Row) -> String {
        let parents = match row.commit {
            // Its parents are not known either.
            None => vec![Ancestor::Anonymous],
            Some(_) => self.lines_to(row.parents.iter()),
        };
        let glyph = match (row.head, row.parents.len() > 1, self.style.unicode) {
            (true, ..) => "@",
            (_, true, true) => "◆",
            (_, true, false) => "*",
            (_, false, true) => "○",
            (_, false, false) => "o",
        };
        let glyph = match row.head {
            true => Paint::Branch.on(glyph, self.style),
            false => glyph.to_owned(),
        };
        let mut parts = self.parts(row);
        parts.extend(self.done_in(id, row).parts(self.style));
        self.row(id.to_owned(), parents, glyph, &parts)
    }

    fn draw_fold(&mut self, fold: Fold) -> String {
        let parents = self.lines_to(fold.parent.iter());
        let glyph = if self.style.unicode { "·" } else { "." };
        let many = match fold.count {
            1 => "1 automatic commit".to_owned(),
            count => format!("{count} automatic commits"),
        };
        let mut parts = vec![(Paint::Dim, format!("{many}, {}", fold.time))];
        parts.extend(fold.done.parts(self.style));
        self.row(fold.newest, parents, glyph.to_owned(), &parts)
    }

    /// The lines to parents; one that was drawn already cannot be reached any more.
    fn lines_to<'a>(&mut self, ids: impl Iterator<Item = &'a String>) -> Vec<Ancestor<String>> {
        let mut lines = Vec::new();
        for id in ids {
            if self.drawn.contains(id) {
                lines.push(Ancestor::Anonymous);
            } else {
                self.wanted.insert(id.clone());
                lines.push(Ancestor::Parent(id.clone()));
            }
        }
        lines
    }

    fn row(
        &mut self,
        id: String,
        parents: Vec<Ancestor<String>>,
        glyph: String,
        parts: &[(Paint, String)],
    ) -> String {
        let columns = self.lines.width(Some(&id), Some(&parents));
        let columns = usize::try_from(columns).unwrap_or(usize::MAX);
        let left = self.style.width.saturating_sub(columns.saturating_add(1));
        let text = fit(parts, left, self.style);
        self.wanted.remove(&id);
        self.drawn.insert(id.clone());
        self.lines.next_row(id, parents, glyph, text)
    }

    /// What is said of a commit.
    fn parts(&self, row: &Row) -> Vec<(Paint, String)> {
        let mut parts = match &row.commit {
            Some(id) => id_cell(id, row.digits),
            None => vec![(Paint::Dim, "pending".to_owned())],
        };
        let mut add = |paint, text: String| {
            parts.push((Paint::Plain, "  ".to_owned()));
            parts.push((paint, text));
        };
        add(Paint::Time, self.time(row));
        let branches = row.commit.as_ref().and_then(|id| self.heads.get(id));
        for branch in branches.into_iter().flatten() {
            add(Paint::Branch, format!("[{}]", shown(branch.as_bytes())));
        }
        if !row.labels.is_empty() {
            let labels = row.labels.join(", ");
            add(Paint::Label, shown(labels.as_bytes()));
        }
        let message = row.message.lines().next().unwrap_or("");
        if !message.is_empty() {
            add(Paint::Plain, shown(message.as_bytes()));
        } else if !PLAIN_KINDS.contains(&row.kind.as_str()) {
            add(Paint::Dim, format!("({})", row.kind));
        }
        parts
    }

    fn time(&self, row: &Row) -> String {
        when(row.time, self.style)
    }

    fn done_in(&mut self, id: &str, row: &Row) -> Done {
        Done {
            calls: self.calls.remove(id).unwrap_or_default(),
            runs: run_of(row).into_iter().collect(),
        }
    }
}

/// The command of a run that ended with this commit.
fn run_of(row: &Row) -> Option<String> {
    let value = |key: &str| {
        let found = row.meta.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    };
    value("run-end")?;
    let command = shown(value("command")?.as_bytes());
    match value("exit").filter(|exit| *exit != "0") {
        Some(exit) => Some(format!("{command} (exit {})", shown(exit.as_bytes()))),
        None => Some(command),
    }
}

impl Done {
    fn parts(&self, style: Style) -> Vec<(Paint, String)> {
        let more = if style.unicode { "…" } else { "..." };
        let mut parts = Vec::new();
        let mut add = |paint, text: String| {
            parts.push((Paint::Plain, "  ".to_owned()));
            parts.push((paint, text));
        };
        match self.runs.as_slice() {
            [] => {}
            [only] => add(Paint::Added, format!("run: {only}")),
            [newest, ..] => add(
                Paint::Added,
                format!("{} runs: {newest}, {more}", self.runs.len()),
            ),
        }
        if !self.calls.is_empty() {
            add(Paint::Added, self.calls_in_words(more));
        }
        parts
    }

    fn calls_in_words(&self, more: &str) -> String {
        let mut names: Vec<String> = Vec::new();
        for name in &self.calls {
            let name = shown(name.as_bytes());
            if names.len() <= NAMES_MAX && !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() > NAMES_MAX {
            names[NAMES_MAX] = more.to_owned();
        }
        let many = match self.calls.len() {
            1 => "1 call".to_owned(),
            count => format!("{count} calls"),
        };
        format!("{many}: {}", names.join(", "))
    }
}
