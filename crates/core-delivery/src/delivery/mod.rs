//! From records to verdicts. First the machines, which know no waiting: they are told the time and answer with
//! what is to be done. Then the drivers, which wait: one for a batch, one for a lane, one for the consumer.

mod backoff;
mod batch;
mod calls;
mod clock;
mod consumer;
mod courier;
mod doubts;
mod health;
mod lane;
mod lane_driver;
mod lane_mark;
mod lane_start;
mod metrics;
mod perform;
mod question;
mod retry;
mod routing;
mod search;
mod start;
mod storm;
mod topology;
mod verdict;
mod watermark;

pub use backoff::Backoff;
pub use batch::{Batch, BatchReport, Interruption, Outcome, PositionPlan, Unrecorded};
pub use calls::Calls;
pub use clock::{CLOCKS_APART, check_clocks};
pub use consumer::{Consumer, ConsumerError, ConsumerSettings};
pub use doubts::Doubts;
pub use health::{Health, Place};
pub use lane::{Admitted, Delivery, Lane};
pub use metrics::describe_metrics;
pub use perform::Straggler;
pub use retry::{RetrySchedule, Route};
pub use search::{Held, Ran, STRIKES, Step, Treatment};
pub use start::{Alarm, Start, start};
pub use storm::{Call, StormGuard, StormLimits};
pub use topology::{Stage, Tier, Topology};
pub use verdict::{Failure, Retry, Verdict};
pub use watermark::{Outlook, Settled, Ticket, Watermark};
