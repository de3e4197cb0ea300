//! Removal by whole partitions: a day goes when no claim in it can be needed. No single row is deleted here.

use core_delivery::claim::ConsumerGroup;
use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::StoreError;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use super::floor::{StandingFloor, standing_floors};
use super::{Removal, Retention, Turn};
use crate::clock;
use crate::errors::store_error;
use crate::partitions::{EXPIRING, MAINTENANCE_LOCK, PartitionDay};

/// What became of the partitions that are old enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedPartitions {
    /// Those that are gone, the oldest first.
    pub dropped: Vec<PartitionDay>,
    /// Those that are still needed.
    pub kept: Vec<KeptPartition>,
}

/// A partition that is old enough and still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPartition {
    /// Its day.
    pub day: PartitionDay,
    /// Why.
    pub reason: Kept,
}

/// Why a partition is still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// A claim was stored in it not longer ago than the retention: a backlog was read, or a retry took its time.
    WrittenLately,
    /// It holds claims of this group, whose floor does not lie above it, has not stood for a grace period, or does not
    /// exist. If the group is gone for good, its floor has to be moved for it ([`advance_floor`](super::advance_floor)).
    NeededBy(ConsumerGroup),
    /// Another process attached or detached it meanwhile.
    Changed,
}

/// Drops the partitions whose day ended longer ago than `retention.keep`, and which nobody needs: every claim in them is
/// of a group whose floor has stood at or above the partition's end for a grace period, and none was stored within
/// the retention. A group without a floor keeps every partition that holds a claim of it; one that has no claim in a
/// partition does not keep it, for there is nothing of it to forget.
///
/// Claims go on meanwhile. A partition is detached with CONCURRENTLY, which waits for the units that are open and holds
/// up none; then nobody can write to it, so it is looked at once more, and attached again if a claim got in. A run that
/// was cut off is taken up by the next one, wherever it stopped; tables that somebody else detached are left alone.
///
/// # Errors
///
/// [`StoreError::Conflict`] if a unit stayed open for too long. What was dropped before an error stays dropped.
pub async fn drop_expired_partitions(
    pool: &PgPool,
    retention: Retention,
) -> Result<Removal<DroppedPartitions>, StoreError> {
    let Some(mut turn) = Turn::take(pool).await? else { return Ok(Removal::HeldElsewhere) };
    let mut outcome = DroppedPartitions::default();
    let rule = Rule::read(&mut turn.session, retention).await;
    let rule = rule.map_err(|error| store_error("read the floors", error))?;
    let states = states(&mut turn.session).await;
    for (day, state) in states.map_err(|error| store_error("read the partitions", error))? {
        if state == State::Foreign || !rule.is_old(day) {
            continue;
        }
        let kept = remove(&mut turn.session, &rule, day, state).await;
        match kept.map_err(|error| store_error(&format!("drop partition {}", day.name()), error))? {
            None => {
                tracing::info!(partition = day.name(), "partition dropped");
                outcome.dropped.push(day);
            }
            Some(reason) => {
                tracing::info!(partition = day.name(), ?reason, "partition kept");
                outcome.kept.push(KeptPartition { day, reason });
            }
        }
    }
    turn.end().await;
    Ok(Removal::Done(outcome))
}

/// Where a day's table stands on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A partition like any other.
    Attached,
    /// Our detaching was cut off: it takes no rows any more, and is still there.
    HalfDetached,
    /// Detached by us, to be dropped.
    Detached,
    /// Detached by somebody else, or about to be.
    Foreign,
}

/// Removes the day's table, or says why it stays.
async fn remove(
    session: &mut PgConnection,
    rule: &Rule,
    day: PartitionDay,
    state: State,
) -> sqlx::Result<Option<Kept>> {
    if state == State::Attached
        && let Some(reason) = rule.needed(session, day).await?
    {
        return Ok(Some(reason));
    }
    // Held from here on, so that nobody makes or attaches the day's partition while its table is on its way out. A
    // claim that asks for it is a conflict, and finds it made anew when it is run again.
    sqlx::query("select pg_advisory_lock($1)").bind(MAINTENANCE_LOCK).execute(&mut *session).await?;
    let removed = remove_in_turn(session, rule, day, state).await;
    if removed.is_ok() {
        sqlx::query("select pg_advisory_unlock($1)").bind(MAINTENANCE_LOCK).execute(session).await?;
    }
    // After an error the session is closed, and its locks with it.
    removed
}

async fn remove_in_turn(
    session: &mut PgConnection,
    rule: &Rule,
    day: PartitionDay,
    state: State,
) -> sqlx::Result<Option<Kept>> {
    if !states(session).await?.contains(&(day, state)) {
        return Ok(Some(Kept::Changed));
    }
    let name = day.name();
    match state {
        State::Attached => {
            // The mark comes first: if the work is cut off behind it, the next run knows the table for ours.
            run(session, format!("comment on table {name} is '{EXPIRING}'")).await?;
            run(session, format!("alter table processed_event detach partition {name} concurrently")).await?;
        }
        State::HalfDetached => {
            run(session, format!("alter table processed_event detach partition {name} finalize")).await?;
        }
        State::Detached | State::Foreign => {}
    }
    // Nobody can write to it any more; what was written since it was looked at counts.
    if let Some(reason) = rule.needed(session, day).await? {
        run(session, day.definition()).await?;
        return Ok(Some(reason));
    }
    run(session, format!("drop table {name}")).await?;
    Ok(None)
}

/// The text is made of constants and a day's name.
async fn run(session: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(session).await.map(|_| ())
}

/// All tables that are named like a day's partition, the oldest first.
async fn states(session: &mut PgConnection) -> sqlx::Result<Vec<(PartitionDay, State)>> {
    let rows: Vec<(String, Option<bool>, bool)> = sqlx::query_as(
        "select c.relname::text, i.inhdetachpending, coalesce(obj_description(c.oid, 'pg_class') = $1, false) \
         from pg_class c left join pg_inherits i on i.inhrelid = c.oid and i.inhparent = 'processed_event'::regclass \
         where c.relkind = 'r' and c.relname like 'processed\\_event\\_p%' \
         and c.relnamespace = (select relnamespace from pg_class where oid = 'processed_event'::regclass)",
    )
    .bind(EXPIRING)
    .fetch_all(session)
    .await?;
    let state = |half_detached, ours| match (half_detached, ours) {
        (Some(false), _) => State::Attached,
        (Some(true), true) => State::HalfDetached,
        (None, true) => State::Detached,
        (Some(true) | None, false) => State::Foreign,
    };
    let day =
        |(name, half_detached, ours): (String, _, _)| Some((PartitionDay::named(&name)?, state(half_detached, ours)));
    let mut states: Vec<(PartitionDay, State)> = rows.into_iter().filter_map(day).collect();
    states.sort_by_key(|(day, _)| *day);
    Ok(states)
}

/// What may go, as it was when the run began. Floors only rise, so what was allowed once stays allowed.
struct Rule {
    cutoff: UnixMillis,
    floors: Vec<StandingFloor>,
}

impl Rule {
    async fn read(session: &mut PgConnection, retention: Retention) -> sqlx::Result<Self> {
        let cutoff = retention.cutoff(clock::read(&mut *session).await?);
        Ok(Self { cutoff, floors: standing_floors(session, retention).await? })
    }

    fn is_old(&self, day: PartitionDay) -> bool {
        day.until().is_some_and(|until| until <= EventId::first_at(self.cutoff))
    }

    /// Why the day's table is needed, if it is. The first question is a look into the index of `processed_at`. The
    /// second reads the whole table, once in its life if it may go: claims are not counted by group anywhere.
    async fn needed(&self, session: &mut PgConnection, day: PartitionDay) -> sqlx::Result<Option<Kept>> {
        let name = day.name();
        let lately =
            format!("select exists (select from {name} where processed_at >= to_timestamp($1::bigint / 1000.0))");
        if sqlx::query_scalar(AssertSqlSafe(lately)).bind(self.cutoff.0).fetch_one(&mut *session).await? {
            return Ok(Some(Kept::WrittenLately));
        }
        let until = day.until().expect("an old day has an end").as_uuid();
        let above = self.floors.iter().filter(|standing| standing.floor >= until);
        let groups: Vec<&str> = above.map(|standing| standing.group.as_str()).collect();
        let other = format!("select consumer_group from {name} where consumer_group <> all($1::text[]) limit 1");
        let group: Option<String> =
            sqlx::query_scalar(AssertSqlSafe(other)).bind(groups).fetch_optional(session).await?;
        Ok(group.map(|group| Kept::NeededBy(ConsumerGroup::new(group))))
    }
}
