//! What the poll thread and the kernel share: the lane table, the way out for events and the wish to stop. It never
//! waits for a broker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use core_delivery::ports::{Progress, StreamControl, StreamError, StreamEvent};
use core_delivery::record::{Assignment, Committable};
use tokio::sync::mpsc::UnboundedSender;
use tracing::{debug, error};

use crate::lanes::{LaneLimits, LaneTable, Report};

/// Shared by the poll thread, its rebalance callback and the control.
///
/// The channel has no bound of its own, because polling must never block on it: what it can hold is bounded by the
/// lanes' limits plus one burst, and a few events for each rebalance.
#[derive(Debug)]
pub(crate) struct Shared {
    table: Mutex<LaneTable>,
    released: Condvar,
    events: Mutex<Option<UnboundedSender<StreamEvent>>>,
    is_stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn new(limits: LaneLimits, events: UnboundedSender<StreamEvent>) -> Self {
        Self {
            table: Mutex::new(LaneTable::new(limits)),
            released: Condvar::new(),
            events: Mutex::new(Some(events)),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, LaneTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an event; a stream that was dropped or has ended takes none, which [`is_abandoned`](Self::is_abandoned)
    /// shows.
    pub(crate) fn send(&self, event: StreamEvent) {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(events) = events.as_ref() {
            drop(events.send(event));
        }
    }

    /// Tells the kernel that the stream cannot go on, and ends it as a stop would.
    pub(crate) fn fail(&self, reason: String) {
        error!(reason, "the record stream failed");
        self.send(StreamEvent::Failed(StreamError { reason }));
        self.begin_stop();
    }

    pub(crate) fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.as_ref().is_none_or(UnboundedSender::is_closed)
    }

    /// Ends the stream: what was sent is still delivered.
    pub(crate) fn close(&self) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Blocks until nothing of these lanes runs any more; false if the limit was over first. Returns at once when
    /// nobody listens: then nobody would release them.
    pub(crate) fn wait_released(&self, assignments: &[Assignment], limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut table = self.table();
        loop {
            if table.are_released(assignments) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_abandoned() {
                return false;
            }
            // Short waits, so that a stream dropped meanwhile is noticed.
            let wait = left.min(Duration::from_millis(100));
            table = self.released.wait_timeout(table, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl StreamControl for Shared {
    fn start(&self, assignment: &Assignment, position: Committable) {
        if !self.table().start(assignment, position.0) {
            debug!(lane = %assignment.lane, epoch = assignment.epoch.0, "a start that nobody waits for");
        }
    }

    /// It counts as a release as well: the kernel asks for it when nothing of the lane runs any more, and a rebalance
    /// that comes in between must not wait for it.
    fn restart(&self, assignment: &Assignment) {
        if self.table().restart(assignment) {
            self.released.notify_all();
        }
    }

    fn progress(&self, assignment: &Assignment, progress: Progress) {
        if self.table().progress(assignment, progress) == Report::Impossible {
            let position = progress.position.0;
            error!(lane = %assignment.lane, position, "a position beyond the delivered records was reported (D-3)");
        }
    }

    fn released(&self, assignment: &Assignment) {
        self.table().released(assignment);
        self.released.notify_all();
    }

    fn stop(&self) {
        self.begin_stop();
    }
}
