//! The unit of work: one transaction that holds the claims and the application's change. No retry is here, and
//! no way to commit a transaction in which any statement failed.

use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::{Claim, ConsumerGroup, DedupKey};
use core_delivery::crash::{self, CrashPoint};
use core_delivery::event::UnixMillis;
use core_delivery::ports::{
    LaneLog, LaneMark, MarkAnswer, Owner, PositionStep, StoreError, StoredPosition, UnitOfWork, UnitOfWorkFactory,
};
use core_delivery::record::{Committable, LaneId};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::runtime::Handle;

use crate::claims;
use crate::clock;
use crate::connect::within;
use crate::errors::{StoreErrorClass, class_of, commit_error, is_missing_partition, store_error};
use crate::marks;
use crate::partitions::{PartitionDay, ensure_within};
use crate::positions::{self, Step};

/// Opens units on a pool.
#[derive(Debug, Clone)]
pub struct PgStore {
    units: PgPool,
    maintenance: PgPool,
    limits: UnitLimits,
}

/// How long a unit waits for an answer before it counts as lost. Longer than the server's own limits, which give a
/// better answer; these are for a network that swallows it.
#[derive(Debug, Clone, Copy)]
pub struct UnitLimits {
    /// For begin and each statement of the unit itself. The application bounds its own.
    pub statement: Duration,
    /// For COMMIT; afterwards its outcome is unknown.
    pub commit: Duration,
}

impl Default for UnitLimits {
    fn default() -> Self {
        Self { statement: Duration::from_secs(35), commit: Duration::from_secs(30) }
    }
}

impl PgStore {
    /// Units on the one pool; partitions that turn out to be missing are made through the other, whose role owns
    /// the tables. Two pools, because a unit holds its connection while it waits for the partition: with one pool
    /// for both, units could take each other's last connection.
    ///
    /// # Panics
    ///
    /// If both are the same pool.
    pub fn new(units: PgPool, maintenance: PgPool) -> Self {
        let same = std::ptr::eq(units.options(), maintenance.options());
        assert!(!same, "units and maintenance need a pool each");
        Self { units, maintenance, limits: UnitLimits::default() }
    }

    /// With other limits.
    pub fn with_limits(self, limits: UnitLimits) -> Self {
        Self { limits, ..self }
    }
}

#[async_trait]
impl UnitOfWorkFactory for PgStore {
    type Unit = PgUnit;

    async fn begin(&self) -> Result<PgUnit, StoreError> {
        let store = self.clone();
        // In a task of its own: a begin that is dropped half-way leaves the session in a transaction (sqlx#4385). If
        // the caller goes away the task still finishes, and the unit it made is dropped, which rolls it back.
        let begun = tokio::spawn(async move {
            let transaction = within(store.limits.statement, store.units.begin()).await?;
            Ok(PgUnit {
                transaction: Some(transaction),
                standing: Standing::Sound,
                maintenance: store.maintenance,
                limits: store.limits,
                runtime: Handle::current(),
            })
        });
        match begun.await {
            Ok(result) => result.map_err(|error| store_error("begin", error)),
            Err(stopped) => Err(StoreError::Unavailable { context: "begin".to_owned(), source: Some(stopped.into()) }),
        }
    }

    async fn now(&self) -> Result<UnixMillis, StoreError> {
        let answer = within(self.limits.statement, clock::read(&self.units)).await;
        answer.map_err(|error| store_error("read the database's clock", error))
    }

    async fn positions(&self, group: &ConsumerGroup, lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError> {
        let answer = within(self.limits.statement, positions::of_lane(&self.units, group, lane)).await;
        answer.map_err(|error| store_error(&format!("read the positions of {lane}"), error))
    }

    async fn mark(&self, lane: &LaneLog) -> Result<Option<LaneMark>, StoreError> {
        let answer = within(self.limits.statement, marks::read(&self.units, lane)).await;
        answer.map_err(|error| store_error(&format!("read the mark of {}", lane.lane), error))
    }

    async fn set_mark(&self, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> Result<MarkAnswer, StoreError> {
        let answer = within(self.limits.statement, marks::write(&self.units, lane, from, to)).await;
        answer.map_err(|error| store_error(&format!("mark {}", lane.lane), error))
    }
}

/// An open transaction. Dropped, it is rolled back at once, from any thread: the connection's way back into the
/// pool carries the ROLLBACK, so locks do not outlive the unit by more than that.
#[derive(Debug)]
pub struct PgUnit {
    /// `None` only while the unit is being consumed.
    transaction: Option<Transaction<'static, Postgres>>,
    standing: Standing,
    maintenance: PgPool,
    limits: UnitLimits,
    runtime: Handle,
}

/// What is known of the transaction.
#[derive(Debug, Clone, Copy)]
enum Standing {
    /// The last statement was the unit's own, and it succeeded.
    Sound,
    /// The application had the connection since; a failure there may have been swallowed.
    HandedOut,
    /// A statement failed, or was cut off before its answer came.
    Failed(StoreErrorClass),
}

impl PgUnit {
    /// The connection, for the application's own tables, in this transaction. Turn its errors into the port's with
    /// [`store_error`]. A savepoint (`Connection::begin`) is allowed and must be ended before the unit goes on.
    pub fn connection(&mut self) -> &mut PgConnection {
        if let Standing::Sound = self.standing {
            self.standing = Standing::HandedOut;
        }
        self.transaction()
    }

    fn transaction(&mut self) -> &mut Transaction<'static, Postgres> {
        self.transaction.as_mut().expect("a unit has its transaction until it is consumed")
    }

    /// The connection for one statement of the unit's own. It counts as failed until [`Self::settle`] has seen its
    /// answer, so a caller that drops the future half-way cannot commit what it did not hear of.
    fn statement(&mut self) -> Result<&mut PgConnection, StoreError> {
        if let Standing::Failed(class) = self.standing {
            return Err(class.error("an earlier statement of the unit failed"));
        }
        self.standing = Standing::Failed(StoreErrorClass::Unavailable);
        Ok(self.transaction())
    }

    fn settle<T>(&mut self, context: &str, answer: sqlx::Result<T>) -> Result<T, StoreError> {
        let error = match answer {
            Ok(value) => {
                self.standing = Standing::Sound;
                return Ok(value);
            }
            Err(error) => error,
        };
        self.standing = Standing::Failed(class_of(&error));
        Err(store_error(context, error))
    }

    /// Makes what the claim found missing, and asks for the unit to be run again. The server has undone this one
    /// already and let go of its locks, so the new partition waits for nobody. None made is no fault: another unit
    /// made them, or this transaction began before they were there and could not see them.
    async fn make_partitions(&mut self, keys: &[DedupKey]) -> StoreError {
        self.standing = Standing::Failed(StoreErrorClass::Conflict);
        let days = keys.iter().map(|key| PartitionDay::of(key.event_id().made_at())).collect();
        match ensure_within(self.limits.statement, &self.maintenance, days).await {
            Ok(made) => StoreErrorClass::Conflict.error(format!("claim events: partitions were missing, {made} made")),
            Err(error) => error,
        }
    }
}

#[async_trait]
impl UnitOfWork for PgUnit {
    async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let limit = self.limits.statement;
        let answer = within(limit, claims::insert(self.statement()?, keys)).await;
        match answer {
            Err(error) if is_missing_partition(&error) => Err(self.make_partitions(keys).await),
            answer => self.settle("claim events", answer),
        }
    }

    async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let limit = self.limits.statement;
        let answer = within(limit, claims::delete(self.statement()?, keys)).await;
        let released = self.settle("release claims", answer)?;
        if released != keys.len() as u64 {
            // A mistake of the caller, and no event's fault: stop loudly, store nothing.
            self.standing = Standing::Failed(StoreErrorClass::Unavailable);
            let text = format!("release claims: the unit holds {released} of the {} asked for", keys.len());
            return Err(StoreError::unavailable(text));
        }
        Ok(())
    }

    async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError> {
        let limit = self.limits.statement;
        let answer = within(limit, positions::step(self.statement()?, step)).await;
        let Step::Refused { found } = self.settle("advance the position", answer)? else { return Ok(()) };
        self.standing = Standing::Failed(StoreErrorClass::Moved);
        let (lane, expected, found) = (&step.lane, in_words(step.from), in_words(found));
        let text = format!("{lane} of group {}: expected {expected}, found {found}", step.group);
        Err(StoreErrorClass::Moved.error(text))
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        if let Standing::HandedOut | Standing::Failed(_) = self.standing {
            // COMMIT of an aborted transaction is answered with ROLLBACK, and sqlx says Ok. Any statement fails
            // there (25P02), so an error that the application swallowed cannot pass for a success.
            let limit = self.limits.statement;
            let connection = self.statement()?;
            let answer = within(limit, sqlx::raw_sql("select").execute(connection)).await;
            self.settle("check the unit before commit", answer)?;
        }
        let transaction = self.transaction.take().expect("a unit has its transaction until it is consumed");
        let limit = self.limits.commit;
        // In a task of its own: dropping the future would not stop a COMMIT that is under way, and one whose reply
        // never comes would hang in sqlx for ever. After the limit the connection is given up, not waited for.
        let answer = crash::sent(CrashPoint::CommitSent, transaction.commit());
        let answer = crash::held(CrashPoint::CommitHeld, answer);
        let commit = tokio::spawn(async move { within(limit, answer).await });
        match commit.await {
            Ok(result) => result.map_err(|error| commit_error("commit", error)),
            Err(stopped) => {
                Err(StoreError::CommitUnknown { context: "commit".to_owned(), source: Some(stopped.into()) })
            }
        }
    }
}

fn in_words(position: Option<Committable>) -> String {
    position.map_or_else(|| "no position".to_owned(), |next| next.0.to_string())
}

/// The drop of a sqlx transaction only queues its ROLLBACK. It is sent by the task that takes the connection back
/// into the pool, and to start that task sqlx needs the runtime, which is not current on every thread.
impl Drop for PgUnit {
    fn drop(&mut self) {
        let _current = self.runtime.enter();
        drop(self.transaction.take());
    }
}
