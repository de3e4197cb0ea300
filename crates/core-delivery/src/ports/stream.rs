//! The port of the broker's consumer side: assignments and records in, progress out. Rebalance protocols, polling
//! and commits belong to the adapter.

use async_trait::async_trait;

use crate::record::{Assignment, Committable, LogIdentity, Record};

/// Delivers records of the lanes that this process owns.
#[async_trait]
pub trait RecordStream: Send + 'static {
    /// The next event; `None` when the stream has ended after [`StreamControl::stop`]. Cancel safe.
    async fn next(&mut self) -> Option<StreamEvent>;
}

/// What happens on the stream. For one assignment the order is: `Assigned`, any number of `Records`, then
/// `Revoked` and `Lost`, or `Lost` alone.
#[derive(Debug)]
pub enum StreamEvent {
    /// A lane is owned from now on. Nothing of it is delivered before [`StreamControl::start`].
    Assigned(Assignment, Arrival),
    /// Records of an owned lane, in offset order.
    Records(Assignment, Vec<Record>),
    /// The lane is about to be given away: let the running unit finish, start no other, then call
    /// [`StreamControl::released`]. The adapter waits for it, up to its drain limit.
    Revoked(Assignment),
    /// The lane is gone. Whatever still runs for it changes nothing any more.
    Lost(Assignment),
    /// The stream can not go on.
    Failed(StreamError),
}

/// What the broker knows of a lane when it is assigned. A stream that cannot learn it yet goes on asking and announces
/// the lane later: unreachable is not unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Which log the lane is.
    pub identity: LogIdentity,
    /// What the group has committed; `None` if it has committed nothing, or the broker has forgotten it.
    pub committed: Option<Committable>,
    /// The first offset that can still be read.
    pub first: Committable,
    /// The offset after the last one.
    pub end: Committable,
}

/// The kernel's words to the stream. Every call returns at once; calls for an older epoch are ignored (D-5).
pub trait StreamControl: Send + Sync + 'static {
    /// Delivers the lane's records from this position on.
    fn start(&self, assignment: &Assignment, position: Committable);

    /// Gives the lane up and assigns it anew, in the same process: `Lost`, then `Assigned` in another epoch. For a
    /// lane whose stored position is not what this process left.
    fn restart(&self, assignment: &Assignment);

    /// The lane has moved on.
    fn progress(&self, assignment: &Assignment, progress: Progress);

    /// Nothing of a revoked lane runs any more.
    fn released(&self, assignment: &Assignment);

    /// Take no more records, drain and commit all lanes, leave the group, then end the stream.
    fn stop(&self);
}

/// How far a lane has come since the last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Everything below has a verdict (D-2, D-3).
    pub position: Committable,
    /// How many records the position has passed since the last report.
    pub records: usize,
    /// What those records weighed, in bytes.
    pub bytes: usize,
}

/// The stream ended for a reason that this process cannot repair.
#[derive(Debug, thiserror::Error)]
#[error("the record stream failed: {reason}")]
pub struct StreamError {
    /// What happened and what to do.
    pub reason: String,
}
