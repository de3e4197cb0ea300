//! The position of a lane in the store: what may be reported to Kafka because it is there, what must still be written,
//! and whether it is still what the lane left (D-11).

use std::sync::Arc;

use futures::future::FutureExt;

use crate::event::Event;
use crate::ports::{EventHandler, UnitOfWorkFactory};

use super::{LOOK_INTERVAL, LaneDriver, Look};
use crate::delivery::lane_start::stored_positions;
use crate::delivery::start::of_log;

impl<E, F, H> LaneDriver<E, F, H>
where
    E: Event,
    F: UnitOfWorkFactory,
    H: EventHandler<E, F::Unit>,
{
    /// Reports what is settled and stored: Kafka's offset never passes the position in the store (D-11).
    pub(super) fn report(&mut self) {
        let Some(stored) = self.stored else {
            return;
        };
        if let Some(progress) = self.lane.report(stored) {
            self.pipeline.control.progress(&self.assignment, progress);
        }
    }

    /// Whether records are settled whose position the store does not hold: those that got their verdict outside of a
    /// unit.
    pub(super) fn unstored(&self) -> bool {
        self.lane.position().is_some() && (self.lane.position() > self.stored || self.stored_is_void)
    }

    pub(super) fn store_now(&mut self) {
        self.store_soon = None;
        if self.unit.is_none() && self.pause.is_none() && self.unstored() && !self.waits_for_solitude() {
            self.run_unit(vec![]);
        }
    }

    /// Looks at the stored position again after a while: a lane to which nothing is delivered runs no unit that would
    /// notice that the store went back (D-11).
    pub(super) fn look_later(&mut self) {
        let (pipeline, assignment, left) = (Arc::clone(&self.pipeline), self.assignment.clone(), self.stored);
        let look = async move {
            pipeline.runtime.sleep(LOOK_INTERVAL).await;
            Look { left, found: stored_positions(&pipeline, &assignment).await }
        };
        self.look = look.boxed();
    }

    /// Whether the store holds another position than the lane left there. While a unit runs, or after one has moved the
    /// position, its own compare-and-set tells.
    pub(super) fn went_back(&self, look: &Look) -> bool {
        let Ok(positions) = &look.found else {
            return false;
        };
        if self.unit.is_some() || look.left != self.stored {
            return false;
        }
        let found = of_log(positions, &self.arrival.identity);
        if found == self.stored {
            return false;
        }
        tracing::error!(lane = %self.lane.id(), left = ?self.stored, ?found,
            "the stored position is not the one this lane left, it starts anew");
        true
    }
}
