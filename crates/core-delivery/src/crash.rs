//! Named points in the life of an event at which a test ends the process. Nothing here ends one: what happens at a
//! point is the application's, and without the feature `crash-points` reaching one is nothing at all.
//!
//! An optimised build with the feature does not compile, so no release can have it.

#[cfg(all(feature = "crash-points", not(debug_assertions)))]
compile_error!("crash points are for tests of unoptimised builds: switch off the feature crash-points");

/// The one table of points: how the code, a test and the guarantees call each.
macro_rules! points {
    ($($(#[doc = $meaning:literal])+ $point:ident = $name:literal,)+) => {
        /// A point in the life of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum CrashPoint {
            $($(#[doc = $meaning])+ $point,)+
        }

        #[cfg(feature = "crash-points")]
        impl CrashPoint {
            /// All points, in the order in which an event meets them.
            pub const ALL: &[Self] = &[$(Self::$point,)+];

            /// Its name, in snake case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$point => $name,)+
                }
            }

            /// What has happened when it is reached, and what has not.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$point => concat!($($meaning),+).trim_start(),)+
                }
            }
        }
    };
}

points! {
    /// The claim statement was answered, and its unit is open.
    AfterClaim = "after_claim",
    /// The handler's reservations are made in the open unit.
    AfterAdmit = "after_admit",
    /// The calls of the unit have ended or outlived it, and nothing is recorded.
    AfterPerform = "after_perform",
    /// What was done is recorded in the open unit.
    AfterRecord = "after_record",
    /// The unit is whole, with its position, and COMMIT is not sent.
    BeforeCommit = "before_commit",
    /// COMMIT is about to be sent and stays that way, while everything that does not wait for it goes on.
    CommitHeld = "commit_held",
    /// COMMIT is written to the socket, and its answer is not read.
    CommitSent = "commit_sent",
    /// The unit is committed, and no ticket of it is settled.
    AfterCommit = "after_commit",
    /// A call outlives its unit: the claim is released, the call runs on.
    StragglerReleased = "straggler_released",
    /// A unit that claimed the event again took up the receipt of such a call, to record it.
    StragglerTakenUp = "straggler_taken_up",
    /// A copy is about to be handed to the broker's client and stays that way, while everything else goes on.
    CopyHeld = "copy_held",
    /// A copy is handed to the broker's client, and its acknowledgement is not seen.
    CopySent = "copy_sent",
    /// A copy is acknowledged, and its ticket is not settled.
    CopyAcknowledged = "copy_acknowledged",
    /// A ticket is settled, and the progress is not reported.
    AfterSettle = "after_settle",
    /// The position of verdicts outside of units is stored, and Kafka has not heard of it.
    PositionOutsideUnit = "position_outside_unit",
    /// The broker has confirmed committed offsets.
    OffsetCommitted = "offset_committed",
    /// A lane was told to drain while a unit of it runs.
    DuringDrain = "during_drain",
    /// A partition of old claims is detached, and not dropped.
    PartitionDetached = "partition_detached",
    /// A replayed letter is acknowledged, and the operator is not told.
    ReplaySent = "replay_sent",
}

/// The process is at the point.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn reached(_: CrashPoint) {}

/// What leaves the process when the future is first polled is on its way, and its outcome is not known.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn sent<F: Future>(_: CrashPoint, future: F) -> impl Future<Output = F::Output> {
    future
}

/// The future is not begun yet. Where the process ends at the point, it never is, and whoever waits for it waits until
/// the end.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn held<F: Future>(_: CrashPoint, future: F) -> impl Future<Output = F::Output> {
    future
}

#[cfg(feature = "crash-points")]
pub use armed::{Then, arm, held, reached, sent};

#[cfg(feature = "crash-points")]
mod armed {
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::sync::OnceLock;
    use std::task::Poll;

    use super::CrashPoint;

    /// What becomes of whoever has reached a point.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Then {
        /// It goes on.
        GoOn,
        /// It goes no further, because the process is about to end.
        Wait,
    }

    type AtPoint = Box<dyn Fn(CrashPoint) -> Then + Send + Sync>;

    static AT_POINT: OnceLock<AtPoint> = OnceLock::new();

    /// What is done at every point from now on, on the thread that reaches it. [`Then::Wait`] counts where a future is
    /// held. False if that was said before.
    pub fn arm(at_point: impl Fn(CrashPoint) -> Then + Send + Sync + 'static) -> bool {
        AT_POINT.set(Box::new(at_point)).is_ok()
    }

    /// The process is at the point.
    pub fn reached(point: CrashPoint) {
        at(point);
    }

    fn at(point: CrashPoint) -> Then {
        AT_POINT.get().map_or(Then::GoOn, |at_point| at_point(point))
    }

    /// The future is not begun yet. Where the process ends at the point, it never is, and whoever waits for it waits
    /// until the end.
    pub async fn held<F: Future>(point: CrashPoint, future: F) -> F::Output {
        match at(point) {
            Then::GoOn => future.await,
            Then::Wait => pending().await,
        }
    }

    /// What leaves the process when the future is first polled is on its way, and its outcome is not known.
    pub async fn sent<F: Future>(point: CrashPoint, future: F) -> F::Output {
        let mut future = pin!(future);
        let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        reached(point);
        match first {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => future.await,
        }
    }
}
