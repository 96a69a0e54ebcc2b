//! Which requests can be cancelled, the notifications by which one is, and by which that is answered.

use super::{Call, Diff, RequestId};
use serde::{Deserialize, Serialize};

/// Says that a request is to be cancelled; whoever sends it hears that as the answer, or as a notification
/// that it came too late.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// The request's id.
    pub id: RequestId,
}

/// Says whether a request will be cancelled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelHeard {
    /// The request's id.
    pub id: RequestId,
    /// False: it is past its point of no return and is worked on to its end.
    pub cancelled: bool,
}

impl Call {
    /// Whether its answer may never come of itself, so that it ends with what its client sends.
    pub fn is_endless(&self) -> bool {
        matches!(self, Call::Subscribe(_))
    }

    /// Whether it can be cancelled while it is worked on: by a notification, or by whoever asked for it
    /// leaving.
    pub fn can_be_cancelled(&self) -> bool {
        matches!(
            self,
            Call::Apply(_)
                | Call::ApplyPatch(_)
                | Call::Update(_)
                | Call::BranchMerge(_)
                | Call::Export(_)
                | Call::Import(_)
                | Call::RemotePush(_)
                | Call::RemoteFetch(_)
                | Call::RemoteClone(_)
                | Call::RemotePrefetch(_)
                | Call::RemoteGc(_)
                | Call::Patch(_)
                | Call::Fsck(_)
                | Call::Subscribe(_)
                | Call::Diff(Diff { stat: true, .. })
        )
    }
}
