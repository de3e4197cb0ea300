//! The port of the store: one transaction that holds the claim and the business change (R-KFK-IDEM-3). No SQL and
//! no driver's type may appear here.

use async_trait::async_trait;

use crate::claim::{Claim, ConsumerGroup, DedupKey};
use crate::event::UnixMillis;
use crate::record::{Committable, LaneId, LogIdentity};

use super::{LaneLog, LaneMark, MarkAnswer, Owner};

/// Opens units of work.
#[async_trait]
pub trait UnitOfWorkFactory: Send + Sync + 'static {
    /// The unit that this store opens. The application's own port (its tables) is implemented on the same type.
    type Unit: UnitOfWork;

    /// Opens a unit. Not cancel safe: the kernel runs it in a task that is never dropped half-way.
    async fn begin(&self) -> Result<Self::Unit, StoreError>;

    /// The store's clock. Where it and this machine's disagree, nobody can say which event lies in the future.
    async fn now(&self) -> Result<UnixMillis, StoreError>;

    /// The positions that are stored for a lane of a group, one for each log that ever had its name.
    async fn positions(&self, group: &ConsumerGroup, lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError>;

    /// The lane's mark; `None` if nobody has ever owned it.
    async fn mark(&self, lane: &LaneLog) -> Result<Option<LaneMark>, StoreError>;

    /// Writes the lane's mark, at once and durably, if the one that is there is `from`'s and no newer than this one; with
    /// `None`, if there is none. Writing the same mark twice is writing it once.
    async fn set_mark(&self, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> Result<MarkAnswer, StoreError>;
}

/// How far a group has come in a lane, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// The log that the position belongs to.
    pub identity: LogIdentity,
    /// The next offset to be read.
    pub next: Committable,
}

/// A move of a lane's stored position, by compare-and-set (D-11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionStep {
    /// The group.
    pub group: ConsumerGroup,
    /// The lane.
    pub lane: LaneId,
    /// The log that the lane is.
    pub identity: LogIdentity,
    /// What the store must hold: what this lane stored last, or nothing.
    pub from: Option<Committable>,
    /// What it holds afterwards.
    pub to: Committable,
}

/// One transaction. Dropping it rolls everything back.
#[async_trait]
pub trait UnitOfWork: Send + Sized + 'static {
    /// Claims the keys, which are distinct and sorted; one answer for each, in the order asked.
    ///
    /// A key that another open unit holds is waited for: if that unit commits the answer is
    /// [`Claim::AlreadyProcessed`], if it rolls back or releases the key it is [`Claim::Fresh`].
    async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError>;

    /// Takes claims of this unit back, in the same transaction.
    async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError>;

    /// Moves a lane's position. A lane that another open unit moves is waited for, and what that one left is what counts.
    /// If the store does not hold `from`, it went back to an earlier state, or another owner
    /// of the lane writes: [`StoreError::Moved`], and the unit cannot commit any more (D-11).
    async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError>;

    /// Makes everything durable and visible, or nothing. Must fail if an earlier statement of the unit failed,
    /// even when the caller swallowed that failure.
    async fn commit(self) -> Result<(), StoreError>;
}

/// What went wrong in the store, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Infrastructure: no connection, read-only, full, timed out. Pause, back off, try again; no event moves.
    #[error("the store is unavailable: {context}")]
    Unavailable {
        /// What was tried.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// Serialization failure, deadlock, lock timeout: run the same unit again.
    #[error("the unit conflicts with another one: {context}")]
    Conflict {
        /// What was tried.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// The store refuses this data. Trying it again changes nothing.
    #[error("the store refuses the data: {context}")]
    Rejected {
        /// What was tried.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
    /// A stored position is not what this lane stored last: the lane must start anew from what is stored.
    #[error("the stored position is not the one this lane left: {context}")]
    Moved {
        /// The lane, what was expected and what was found.
        context: String,
    },
    /// The commit was sent and its answer is unknown. Deliver again and let the claim decide.
    #[error("the outcome of the commit is unknown: {context}")]
    CommitUnknown {
        /// What was tried.
        context: String,
        /// The driver's error.
        #[source]
        source: Option<BoxError>,
    },
}

/// Any error, as a source.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl StoreError {
    /// An [`StoreError::Unavailable`] without a source.
    pub fn unavailable(context: impl Into<String>) -> Self {
        Self::Unavailable { context: context.into(), source: None }
    }

    /// A [`StoreError::Conflict`] without a source.
    pub fn conflict(context: impl Into<String>) -> Self {
        Self::Conflict { context: context.into(), source: None }
    }

    /// A [`StoreError::Rejected`] without a source.
    pub fn rejected(context: impl Into<String>) -> Self {
        Self::Rejected { context: context.into(), source: None }
    }

    /// A [`StoreError::CommitUnknown`] without a source.
    pub fn commit_unknown(context: impl Into<String>) -> Self {
        Self::CommitUnknown { context: context.into(), source: None }
    }
}

/// An error with all its causes in one line, for logs and dead letters.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
