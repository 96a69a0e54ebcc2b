//! Asking for what an interrupt cancels.

use super::Context;
use crate::output::{bar, warn};
use crate::signals::{Interrupted, on_interrupt};
use agentvfs_client::connection::{ClientError, Heard};
use agentvfs_client::failure::{Failure, INTERRUPTED};
use agentvfs_client::launch::failed;
use agentvfs_client::protocol::{CANCELLED, Call};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Context {
    /// Asks for what can be cancelled: an interrupt has the daemon cancel it. Where that comes too late
    /// it is said, and the answer waited for. `take` gets what comes in parts before the answer.
    pub fn ask_cancellable<R: DeserializeOwned>(
        &mut self,
        what: &str,
        call: &Call,
        doing: &'static str,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<R, Failure> {
        let unheard =
            |e: std::io::Error| Failure::new(what, format!("cannot watch for interrupts: {e}"));
        let canceller = self.client()?.canceller().map_err(unheard)?;
        let (over, interrupted) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (ended, seen): (_, Arc<AtomicBool>) = (over.clone(), Arc::clone(&interrupted));
        on_interrupt(move || match ended.load(Ordering::Acquire) {
            true => Interrupted::End,
            false => {
                seen.store(true, Ordering::Release);
                // Where the daemon is gone the answer says so.
                let _ = canceller.cancel();
                Interrupted::GoOn
            }
        })
        .map_err(unheard)?;
        let mut bar = bar(doing);
        let mut told = false;
        let answer = self.client()?.call_hearing(call, &mut |heard| match heard {
            Heard::Progress(done, total) => bar.set(done, total),
            Heard::Data(bytes) => take(&bytes),
            Heard::TooLate if !told => {
                told = true;
                bar.suspend(|| warn("too late to cancel; it continues until it is done"));
            }
            Heard::TooLate => {}
        });
        drop(bar);
        over.store(true, Ordering::Release);
        answer.map_err(|error| {
            let cancelled = matches!(&error, ClientError::Fault(fault) if fault.kind == CANCELLED);
            let failure = failed(what, error);
            match cancelled && interrupted.load(Ordering::Acquire) {
                true => Failure {
                    exit: INTERRUPTED,
                    ..failure
                },
                false => failure,
            }
        })
    }
}
