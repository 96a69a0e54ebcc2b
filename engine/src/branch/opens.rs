//! Asking the workspace's rules before a file is opened, where somebody can refuse that.
//!
//! An open changes nothing: it is in no journal, is not counted, and no program is asked about it. Whoever asks for the kernel
//! says how long it may take. Invariant: what is not answered in time is not refused here.
//!
//! Tests: `engine/tests/judging/opens.rs`, `tests/tests/telemetry_denied.rs`.

use super::judging::{each_name, since_start};
use super::telling::Draft;
use super::{Branch, Inner, acting};
use crate::error::{Error, Result};
use crate::feed::{FeedOp, FeedWho};
use crate::judge::{Ruling, Sentence, Touch};
use crate::types::Nid;
use std::time::{Duration, Instant};

/// How the kernel is answered that asks before it opens a file by itself.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long the branch is waited for.
    pub at_most: Duration,
    /// The only error that can be told.
    pub errno: i32,
}

impl Branch {
    /// Whether a file may be opened by whom this thread acts for; true if a rule watches that. Without terms the branch
    /// is waited for.
    ///
    /// # Errors
    /// [`Error::Denied`] if a rule denies it, [`Error::WouldBlock`] if that could not be found out in time.
    pub fn may_open(&self, nid: Nid, terms: Option<Terms>) -> Result<bool> {
        if self.read_only || !self.judges.want_opens() {
            return Ok(false);
        }
        if self.wants_names() && acting::is_nameless() {
            acting::find_name();
        }
        let mut inner = match terms {
            None => self.inner.lock(),
            Some(Terms { at_most, .. }) => {
                let locked = self.inner.try_lock_for(at_most);
                locked.ok_or(Error::WouldBlock)?
            }
        };
        if inner.live.get(nid).is_none() {
            return Ok(false);
        }
        self.take_rules(&mut inner);
        let (who, since) = acting::who();
        if inner.judging.remembers(nid, FeedOp::Open, &who) {
            return Ok(false);
        }
        let mut ruling = self.rule_on_open(&mut inner, nid, (&who, since));
        if let (Sentence::Deny(code), Some(terms)) = (&mut ruling.sentence, terms) {
            *code = terms.errno;
        }
        if ruling.sentence != Sentence::Allow && self.feed.is_on() {
            let draft = Draft {
                nid: Some(nid),
                path: inner.live.path(nid).unwrap_or_default(),
                ..Draft::new(FeedOp::Open)
            };
            self.tell_ruling(&inner, draft, &ruling);
        }
        match ruling.sentence {
            Sentence::Deny(code) => {
                let rule = ruling.rule.map(|(_, name)| name).unwrap_or_default();
                Err(Error::Denied { code, rule })
            }
            Sentence::Watch => Ok(true),
            Sentence::Allow | Sentence::Ask => {
                if ruling.lasts {
                    inner.judging.remember(nid, FeedOp::Open, who);
                }
                Ok(false)
            }
        }
    }

    fn rule_on_open(
        &self,
        inner: &mut Inner,
        nid: Nid,
        (who, since): (&FeedWho, Option<Instant>),
    ) -> Ruling {
        let Inner { judging, live, .. } = inner;
        let (rules, run) = judging.at_work();
        let Some(bench) = rules else {
            return Ruling::default();
        };
        let branch = self.shared_name();
        let inode = live.get(nid).map(|inode| &**inode);
        let asker = self.asker((who, since), (&branch, run), inode);
        bench.begin(&asker, since_start());
        each_name(live, nid, &mut |path| {
            bench.touch(Touch::At(FeedOp::Open, path));
        });
        bench.end()
    }
}
