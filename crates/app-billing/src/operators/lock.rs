//! One operator at a time: a lock of the database that is held by a session, and ends with it. What is done under it
//! is not known here.

use core_delivery::claim::ConsumerGroup;
use sqlx::{Connection, PgConnection, PgPool};

/// The lock of a group's replays, for as long as this is held. A process that dies lets it go.
#[derive(Debug)]
pub struct ReplayLock {
    session: PgConnection,
}

impl ReplayLock {
    /// Takes the lock; `None` if another session holds it. The pool must open direct sessions.
    pub async fn take(pool: &PgPool, group: &ConsumerGroup) -> sqlx::Result<Option<Self>> {
        let mut session = pool.acquire().await?.detach();
        let is_taken: bool = sqlx::query_scalar("select pg_try_advisory_lock(hashtextextended($1, 0))")
            .bind(format!("replay of dead letters of {group}"))
            .fetch_one(&mut session)
            .await?;
        Ok(is_taken.then_some(Self { session }))
    }

    /// Lets it go.
    pub async fn release(self) {
        if let Err(error) = self.session.close().await {
            tracing::debug!(%error, "the session of the replay lock did not end orderly");
        }
    }
}
