//! Times of the engine as the protocol tells them, and back.

use agentvfs_client::protocol::Moment;
use engine::Time;

/// The moment that a time is.
pub fn moment(time: Time) -> Moment {
    Moment {
        sec: time.sec,
        nsec: time.nsec,
    }
}

/// The time that a moment is; nanoseconds that a client sent beyond a second are cut.
pub fn time(moment: Moment) -> Time {
    Time {
        sec: moment.sec,
        nsec: moment.nsec.min(999_999_999),
    }
}
