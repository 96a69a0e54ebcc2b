//! Where events of workspaces come from.

use super::Mounts;
use super::running::Running;
use crate::audit;
use crate::fanotify::{self, Hearing};
use agentvfs_client::protocol::{Fault, MountChoice, Source, Start, Telemetry};
use std::path::Path;

/// Whether opens and reads are to be heard of by fanotify, if that can be. Where the kernel asks for each open, an open
/// would be told of twice.
fn wants_fanotify(options: &MountChoice) -> bool {
    options.telemetry.wants(Source::Fanotify) && !options.opens && !options.is_unmounted()
}

impl Mounts {
    /// Refuses sources of events that do not go together, and a file that events cannot be appended to.
    pub(super) fn check_telling(
        &self,
        ask: &Start,
        base: &Path,
        place: &Path,
    ) -> Result<(), Fault> {
        Mounts::check_unmounted(ask)?;
        Mounts::check_telemetry(ask)?;
        self.check_audit(ask, base, place)
    }

    /// Refuses sources that cannot be had or do not go together. What is only wanted if it can be had is never refused.
    fn check_telemetry(ask: &Start) -> Result<(), Fault> {
        let options = &ask.options;
        let refused = |why: &str, hint: &str| Err(Fault::failed("bad-request", why).hint(hint));
        let is_told = options.opens || options.audit.is_some();
        if options.telemetry == Telemetry::None && is_told {
            return refused(
                "there are no events with --telemetry none, which --audit needs",
                "leave out one: agentvfs start --telemetry none, or agentvfs start --audit FILE",
            );
        }
        if !options.telemetry.needs(Source::Fanotify) {
            return Ok(());
        }
        if options.opens {
            return refused(
                "--audit opens and fanotify both tell of opens",
                "leave out one: agentvfs start --telemetry fanotify, or agentvfs start --audit opens",
            );
        }
        fanotify::check().map_err(|error| {
            let why = format!("cannot hear of opens and reads by fanotify: {error}");
            Fault::failed("not-permitted", why)
                .hint("--telemetry auto uses what this user may; fanotify needs root")
        })
    }

    /// What a start of a running workspace did not do about its events.
    pub(super) fn telling_warnings(&self, ask: &Start) -> impl Iterator<Item = String> {
        let all = [self.audit_warning(ask), self.telemetry_warning(ask)];
        all.into_iter().flatten()
    }

    fn telemetry_warning(&self, ask: &Start) -> Option<String> {
        let asked = &ask.options;
        let differs = |running: &Running| {
            let telemetry =
                !asked.telemetry.is_default() && asked.telemetry != running.options.telemetry;
            telemetry || (asked.opens && !running.options.opens)
        };
        let slot = self.slots.lock().get(&ask.workspace).cloned()?;
        let differs = slot.running.lock().as_ref().is_some_and(differs);
        differs.then(|| {
            format!(
                "{} is already running, and its events come from {}; stop it first",
                ask.workspace,
                self.telemetry(&ask.workspace).join(", ")
            )
        })
    }

    /// Where events of a running workspace come from.
    pub fn telemetry(&self, name: &str) -> Vec<String> {
        let slot = self.slots.lock().get(name).cloned();
        let told = |running: &Running| running.telemetry();
        slot.and_then(|slot| slot.running.lock().as_ref().map(told))
            .unwrap_or_default()
    }

    /// What is wrong with the sources of a running workspace.
    pub fn deaf(&self, name: &str) -> Option<String> {
        let slot = self.slots.lock().get(name).cloned()?;
        let is_deaf = slot.running.lock().as_ref().is_some_and(Running::is_deaf);
        let trouble =
            "opens and reads are not heard of by fanotify: agentvfs status --log says why";
        is_deaf.then(|| trouble.to_owned())
    }

    /// An error where nobody can follow a workspace.
    pub fn check_told(&self, name: &str) -> Result<(), Fault> {
        if self.telemetry(name) != ["none"] {
            return Ok(());
        }
        let why = format!("{name} was started with --telemetry none: it has no events");
        let hint = format!("agentvfs stop {name}; agentvfs start {name}");
        Err(Fault::failed("no-events", why).hint(hint))
    }
}

impl Running {
    /// Has its events told of from now on: in a file, and those that are heard of beside the front.
    pub(super) fn begin_telling(&mut self, audit: Option<audit::Begun>) {
        self.run_audit(audit);
        self.hear();
    }

    /// Hears of opens and reads from now on, where that is wanted and can be. Else the log says why.
    pub(super) fn hear(&mut self) {
        if !wants_fanotify(&self.options) {
            return;
        }
        let begun = Hearing::begin(self.workspace.clone(), &self.place);
        let workspace = self.workspace.name();
        self.hearing = begun
            .inspect_err(|error| match self.options.telemetry {
                Telemetry::Auto => tracing::info!(workspace, "events without fanotify: {error}"),
                _ => tracing::error!(workspace, "opens and reads are not heard of: {error}"),
            })
            .ok();
    }

    /// Whether it does not hear of what it was to hear of.
    fn is_deaf(&self) -> bool {
        self.options.telemetry.needs(Source::Fanotify) && self.hearing.is_none()
    }

    fn telemetry(&self) -> Vec<String> {
        let options = &self.options;
        let all = match options.telemetry {
            Telemetry::None => [Some("none"), None, None],
            _ => [
                Some("front"),
                options.opens.then_some("opens"),
                self.hearing.is_some().then_some("fanotify"),
            ],
        };
        all.into_iter().flatten().map(str::to_owned).collect()
    }
}
