//! The notifications by which a request is cancelled, and by which that is answered.

use super::RequestId;
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
