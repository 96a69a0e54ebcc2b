//! Where events of workspaces come from.

use super::running::Running;
use super::{Mounts, Slot};
use crate::fanotify::{self, Hearing, Queue};
use crate::sessions::Sessions;
use crate::{audit, ebpf};
use agentvfs_client::protocol::{Fault, MountChoice, Source, Start, Telemetry};
use std::path::Path;
use std::sync::Arc;

/// Whether opens and reads are to be heard of by fanotify, if that can be. Where the kernel asks for each open, an open
/// would be told of twice.
fn wants_fanotify(options: &MountChoice) -> bool {
    options.telemetry.wants(Source::Fanotify) && !options.opens && !options.is_unmounted()
}

/// Whether what runs do is to be heard of, if that can be.
fn wants_ebpf(options: &MountChoice) -> bool {
    options.telemetry.wants(Source::Ebpf) && !options.is_unmounted()
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
        if options.telemetry.needs(Source::Ebpf) {
            ebpf::check().map_err(|error| {
                let why = format!("cannot hear of runs by ebpf: {error}");
                Fault::failed("not-permitted", why)
                    .hint("--telemetry auto uses what this user and this kernel can; ebpf needs root and a kernel with BTF")
            })?;
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
    pub fn deaf(&self, name: &str) -> Vec<String> {
        let slot = self.slots.lock().get(name).cloned();
        let deaf = |slot: Arc<Slot>| slot.running.lock().as_ref().map(Running::deaf);
        slot.and_then(deaf).unwrap_or_default()
    }

    /// Has a workspace's events told of from now on: in a file, and those that are heard of beside the front.
    pub(super) fn begin_telling(&self, running: &mut Running, audit: Option<audit::Begun>) {
        running.run_audit(audit);
        self.hear(running);
    }

    /// Hears of a workspace beside the front from now on, where that is wanted and can be. Else the log says why.
    pub(super) fn hear(&self, running: &mut Running) {
        running.hear();
        running.guard_opens();
        running.hear_of_runs(&self.sessions);
        if let Some(hearing) = &running.ebpf {
            hearing.take_up(&self.home);
        }
    }

    /// Another policy is in force: opens are asked about while it has rules about them.
    pub fn policy_changed(&self, name: &str) {
        let slot = self.slots.lock().get(name).cloned();
        if let Some(slot) = slot
            && let Some(running) = slot.running.lock().as_mut()
        {
            running.guard_opens();
        }
    }

    /// A run begins in a branch, by a process; `is_inside` if that is in a run's sandbox itself.
    pub fn run_begins(&self, name: &str, branch: &str, process: u32, is_inside: bool) {
        self.with_runs(name, |hearing| {
            hearing.begin_run(branch, process, is_inside)
        });
    }

    /// Control groups were registered for a workspace, or are no more.
    pub fn groups_changed(&self, name: &str) {
        self.with_runs(name, ebpf::Hearing::groups_changed);
    }

    fn with_runs(&self, name: &str, work: impl FnOnce(&ebpf::Hearing)) {
        let Some(slot) = self.slots.lock().get(name).cloned() else {
            return;
        };
        let running = slot.running.lock();
        if let Some(hearing) = running.as_ref().and_then(|running| running.ebpf.as_ref()) {
            work(hearing);
        }
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
    /// Hears of opens and reads from now on, where that is wanted and can be. Else the log says why.
    fn hear(&mut self) {
        if !wants_fanotify(&self.options) {
            return;
        }
        let begun = Hearing::begin(self.workspace.clone(), Queue::Told, &self.place);
        let workspace = self.workspace.name();
        self.hearing = begun
            .inspect_err(|error| match self.options.telemetry {
                Telemetry::Auto => tracing::info!(workspace, "events without fanotify: {error}"),
                _ => tracing::error!(workspace, "opens and reads are not heard of: {error}"),
            })
            .ok();
    }

    /// Is asked about opens from now on if rules are about them, and if fanotify is used; otherwise no more. Being asked
    /// costs each open.
    fn guard_opens(&mut self) {
        let is_wanted = self.hearing.is_some() && self.workspace.judges().want_opens();
        if is_wanted == self.asked.is_some() {
            return;
        }
        self.asked = None;
        if is_wanted {
            let begun = Hearing::begin(self.workspace.clone(), Queue::Asked, &self.place);
            let workspace = self.workspace.name();
            self.asked = begun
                .inspect_err(|error| tracing::error!(workspace, "opens are not denied: {error}"))
                .ok();
        }
    }

    /// Hears of what runs do from now on, where that is wanted and can be. Else the log says why.
    fn hear_of_runs(&mut self, sessions: &Arc<Sessions>) {
        if !wants_ebpf(&self.options) {
            return;
        }
        let mount = self.device().map(|device| ebpf::Mount {
            device: (device.major, device.minor),
            opens_are_told: self.hearing.is_some() || self.options.opens,
        });
        let begun = ebpf::Hearing::begin(self.workspace.clone(), mount, sessions.clone());
        let workspace = self.workspace.name();
        self.ebpf = begun
            .inspect_err(|error| match self.options.telemetry {
                Telemetry::Auto => tracing::info!(workspace, "events without ebpf: {error}"),
                _ => tracing::error!(workspace, "runs are not heard of: {error}"),
            })
            .ok();
    }

    /// What it was to hear of, and does not.
    fn deaf(&self) -> Vec<String> {
        let is_lacking = |source, is_there: bool| self.options.telemetry.needs(source) && !is_there;
        let fanotify = is_lacking(Source::Fanotify, self.hearing.is_some())
            .then_some("opens and reads are not heard of by fanotify");
        let ebpf = is_lacking(Source::Ebpf, self.ebpf.is_some())
            .then_some("runs are not heard of by ebpf");
        let said = |what| format!("{what}: agentvfs status --log says why");
        let is_unguarded =
            self.workspace.judges().want_opens() && self.asked.is_none() && !self.options.opens;
        let unguarded = is_unguarded.then(|| {
            "rules about opens are not in force: they need --telemetry fanotify or --audit opens"
                .to_owned()
        });
        let deaf = fanotify.into_iter().chain(ebpf).map(said);
        deaf.chain(unguarded).collect()
    }

    fn telemetry(&self) -> Vec<String> {
        let options = &self.options;
        let all = match options.telemetry {
            Telemetry::None => [Some("none"), None, None, None],
            _ => [
                Some("front"),
                options.opens.then_some("opens"),
                self.hearing.is_some().then_some("fanotify"),
                self.ebpf.is_some().then_some("ebpf"),
            ],
        };
        all.into_iter().flatten().map(str::to_owned).collect()
    }
}
