//! The stored positions of lanes: read, moved by compare-and-set, and set by an operator. A position is where reading
//! goes on; nothing here may decide whether an event was handled.

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::UnixMillis;
use core_delivery::ports::{PositionStep, StoreError, StoredPosition};
use core_delivery::record::{Committable, LaneId, LogIdentity, Topic};
use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::errors::store_error;

/// A stored position and the lane it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanePosition {
    /// The lane.
    pub lane: LaneId,
    /// The log and the next offset to be read.
    pub position: StoredPosition,
    /// When it was last moved, by the database's clock.
    pub moved_at: UnixMillis,
}

/// Every position of a group, of logs that are gone too, sorted by topic and partition.
pub async fn all(pool: &PgPool, group: &ConsumerGroup) -> Result<Vec<LanePosition>, StoreError> {
    type Row = (String, i32, String, String, i64, i64);
    let rows: Vec<Row> = sqlx::query_as(
        "select topic, partition, cluster_id, topic_id, next_offset, (extract(epoch from moved_at) * 1000)::bigint \
         from consumer_position where consumer_group = $1 order by topic, partition, moved_at",
    )
    .bind(group.as_str())
    .fetch_all(pool)
    .await
    .map_err(|error| store_error("read the group's positions", error))?;
    let position = |(topic, partition, cluster, topic_id, next, moved_at): Row| LanePosition {
        lane: LaneId { topic: Topic::new(topic), partition },
        position: stored(cluster, topic_id, next),
        moved_at: UnixMillis(moved_at),
    };
    Ok(rows.into_iter().map(position).collect())
}

/// Sets a position to what an operator says, forwards or back, and answers what was there before.
///
/// An owner of the lane notices at its next step and starts anew. A lane starts from the lower of this and the offset
/// that the group has committed in the broker, so skipping forwards takes both.
///
/// # Errors
///
/// [`StoreError::Conflict`] if an open unit holds the row for longer than `lock_timeout`.
pub async fn set(
    pool: &PgPool,
    group: &ConsumerGroup,
    lane: &LaneId,
    identity: &LogIdentity,
    next: Committable,
) -> Result<Option<Committable>, StoreError> {
    let written = async {
        let mut transaction = pool.begin().await?;
        // Made first where it is missing, so that there is always a row to lock: what is answered is then exactly
        // what is replaced. A made one has an offset that no log has.
        sqlx::query(
            "insert into consumer_position (consumer_group, cluster_id, topic, topic_id, partition, next_offset) \
             values ($1, $2, $3, $4, $5, $6) on conflict do nothing",
        )
        .bind(group.as_str())
        .bind(&*identity.cluster)
        .bind(lane.topic.as_str())
        .bind(&*identity.topic)
        .bind(lane.partition)
        .bind(NOT_YET)
        .execute(&mut *transaction)
        .await?;
        let before: i64 = sqlx::query_scalar(
            "select next_offset from consumer_position where consumer_group = $1 and cluster_id = $2 \
             and topic = $3 and topic_id = $4 and partition = $5 for update",
        )
        .bind(group.as_str())
        .bind(&*identity.cluster)
        .bind(lane.topic.as_str())
        .bind(&*identity.topic)
        .bind(lane.partition)
        .fetch_one(&mut *transaction)
        .await?;
        let found = (before != NOT_YET).then_some(Committable(before));
        let step =
            PositionStep { group: group.clone(), lane: lane.clone(), identity: identity.clone(), from: None, to: next };
        update(&mut transaction, &step, before).await?;
        transaction.commit().await?;
        Ok(found)
    };
    written.await.map_err(|error| store_error(&format!("set the position of {lane}"), error))
}

/// No log has it; only inside the transaction of [`set`].
const NOT_YET: i64 = i64::MIN;

/// The lane's positions, one for each log that ever had its name.
pub(crate) async fn of_lane(
    executor: impl PgExecutor<'_>,
    group: &ConsumerGroup,
    lane: &LaneId,
) -> sqlx::Result<Vec<StoredPosition>> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "select cluster_id, topic_id, next_offset from consumer_position \
         where consumer_group = $1 and topic = $2 and partition = $3 order by moved_at",
    )
    .bind(group.as_str())
    .bind(lane.topic.as_str())
    .bind(lane.partition)
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|(cluster, topic, next)| stored(cluster, topic, next)).collect())
}

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The row held what was expected, and holds the new offset now.
    Made,
    /// It did not, and was left as it is.
    Refused { found: Option<Committable> },
}

/// One statement that compares and sets. It waits for another open transaction that moves the same row, up to
/// `lock_timeout`, and then compares with what that one left.
pub(crate) async fn step(connection: &mut PgConnection, step: &PositionStep) -> sqlx::Result<Step> {
    let moved = match step.from {
        Some(from) => update(connection, step, from.0).await?,
        None => insert(connection, step).await?,
    };
    if moved == 1 {
        return Ok(Step::Made);
    }
    let positions = of_lane(connection, &step.group, &step.lane).await?;
    let found = positions.into_iter().find(|position| position.identity == step.identity);
    Ok(Step::Refused { found: found.map(|position| position.next) })
}

async fn insert(connection: &mut PgConnection, step: &PositionStep) -> sqlx::Result<u64> {
    let done = sqlx::query(
        "insert into consumer_position (consumer_group, cluster_id, topic, topic_id, partition, next_offset) \
         values ($1, $2, $3, $4, $5, $6) on conflict do nothing",
    )
    .bind(step.group.as_str())
    .bind(&*step.identity.cluster)
    .bind(step.lane.topic.as_str())
    .bind(&*step.identity.topic)
    .bind(step.lane.partition)
    .bind(step.to.0)
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

async fn update(connection: &mut PgConnection, step: &PositionStep, from: i64) -> sqlx::Result<u64> {
    let done = sqlx::query(
        "update consumer_position set next_offset = $6, moved_at = now() \
         where consumer_group = $1 and cluster_id = $2 and topic = $3 and topic_id = $4 and partition = $5 \
         and next_offset = $7",
    )
    .bind(step.group.as_str())
    .bind(&*step.identity.cluster)
    .bind(step.lane.topic.as_str())
    .bind(&*step.identity.topic)
    .bind(step.lane.partition)
    .bind(step.to.0)
    .bind(from)
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

fn stored(cluster: String, topic: String, next: i64) -> StoredPosition {
    StoredPosition { identity: LogIdentity { cluster: cluster.into(), topic: topic.into() }, next: Committable(next) }
}
