//! The port of the store: one transaction that holds the claim and the business change (R-KFK-IDEM-3). No SQL and
//! no driver's type may appear here.

use async_trait::async_trait;

use crate::claim::{Claim, DedupKey};

/// Opens units of work.
#[async_trait]
pub trait UnitOfWorkFactory: Send + Sync + 'static {
    /// The unit that this store opens. The application's own port (its tables) is implemented on the same type.
    type Unit: UnitOfWork;

    /// Opens a unit. Not cancel safe: the kernel runs it in a task that is never dropped half-way.
    async fn begin(&self) -> Result<Self::Unit, StoreError>;
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
