//! Removal by whole partitions: one goes when no claim in it can be needed. No single row is deleted here.

use core_delivery::claim::ConsumerGroup;
use core_delivery::crash::{CrashPoint, reached};
use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::StoreError;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use tokio::time::Instant;

use super::floor::{StandingFloor, standing_floors};
use super::{Removal, Retention, Turn, rest_after};
use crate::clock;
use crate::errors::store_error;
use crate::partitions::{EXPIRING, MAINTENANCE_LOCK, Partition};

/// The pages of a piece that is read at once: 16 MiB with pages of the usual size.
const PIECE: usize = 2_048;

/// What became of the partitions that are old enough.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedPartitions {
    /// Those that are gone, the oldest first.
    pub dropped: Vec<Partition>,
    /// Those that are still needed.
    pub kept: Vec<KeptPartition>,
}

/// A partition that is old enough and still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPartition {
    /// Which.
    pub partition: Partition,
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

/// Drops the partitions whose last day ended longer ago than `retention.keep`, and which nobody needs: every claim in them is
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
    for (partition, state) in states.map_err(|error| store_error("read the partitions", error))? {
        if state == State::Foreign || !rule.is_old(partition) {
            continue;
        }
        let kept = remove(&mut turn.session, &rule, partition, state).await;
        match kept.map_err(|error| store_error(&format!("drop partition {}", partition.name()), error))? {
            None => {
                tracing::info!(partition = partition.name(), "partition dropped");
                outcome.dropped.push(partition);
            }
            Some(reason) => {
                tracing::info!(partition = partition.name(), ?reason, "partition kept");
                outcome.kept.push(KeptPartition { partition, reason });
            }
        }
    }
    turn.end().await;
    Ok(Removal::Done(outcome))
}

/// Where a partition's table stands on its way out.
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

/// Removes the table, or says why it stays.
async fn remove(
    session: &mut PgConnection,
    rule: &Rule,
    partition: Partition,
    state: State,
) -> sqlx::Result<Option<Kept>> {
    if state == State::Attached
        && let Some(reason) = rule.needed(session, partition).await?
    {
        return Ok(Some(reason));
    }
    // Held from here on, so that nobody makes or attaches the partition while its table is on its way out. A
    // claim that asks for it is a conflict, and finds it made anew when it is run again.
    sqlx::query("select pg_advisory_lock($1)").bind(MAINTENANCE_LOCK).execute(&mut *session).await?;
    let removed = remove_in_turn(session, rule, partition, state).await;
    if removed.is_ok() {
        sqlx::query("select pg_advisory_unlock($1)").bind(MAINTENANCE_LOCK).execute(session).await?;
    }
    // After an error the session is closed, and its locks with it.
    removed
}

async fn remove_in_turn(
    session: &mut PgConnection,
    rule: &Rule,
    partition: Partition,
    state: State,
) -> sqlx::Result<Option<Kept>> {
    if !states(session).await?.contains(&(partition, state)) {
        return Ok(Some(Kept::Changed));
    }
    let name = partition.name();
    match state {
        State::Attached => {
            // The mark comes first: if the work is cut off behind it, the next run knows the table for ours.
            run(session, format!("comment on table {name} is '{EXPIRING}'")).await?;
            run(session, format!("alter table processed_event detach partition {name} concurrently")).await?;
            reached(CrashPoint::PartitionDetached);
        }
        State::HalfDetached => {
            run(session, format!("alter table processed_event detach partition {name} finalize")).await?;
        }
        State::Detached | State::Foreign => {}
    }
    // Nobody can write to it any more. What was written since it was looked at was written lately: no unit is open for
    // as long as claims are kept. One whose detaching was cut off in an earlier run was not looked at in this one.
    let reason = match state {
        State::Attached if rule.written_lately(session, partition).await? => Some(Kept::WrittenLately),
        State::Attached => None,
        State::HalfDetached | State::Detached | State::Foreign => rule.needed(session, partition).await?,
    };
    if let Some(reason) = reason {
        run(session, partition.definition()).await?;
        return Ok(Some(reason));
    }
    run(session, format!("drop table {name}")).await?;
    Ok(None)
}

/// The text is made of constants and a partition's name.
async fn run(session: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(session).await.map(|_| ())
}

/// All tables that are named like a partition, the oldest first.
async fn states(session: &mut PgConnection) -> sqlx::Result<Vec<(Partition, State)>> {
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
    let partition =
        |(name, half_detached, ours): (String, _, _)| Some((Partition::named(&name)?, state(half_detached, ours)));
    let mut states: Vec<(Partition, State)> = rows.into_iter().filter_map(partition).collect();
    states.sort_by_key(|(partition, _)| *partition);
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

    fn is_old(&self, partition: Partition) -> bool {
        partition.until().is_some_and(|until| until <= EventId::first_at(self.cutoff))
    }

    /// Why the table is needed, if it is. The second question reads the whole table, once in its life if it may
    /// go: claims are not counted by group anywhere.
    async fn needed(&self, session: &mut PgConnection, partition: Partition) -> sqlx::Result<Option<Kept>> {
        if self.written_lately(session, partition).await? {
            return Ok(Some(Kept::WrittenLately));
        }
        Ok(self.held_by(session, partition).await?.map(Kept::NeededBy))
    }

    /// A look into the index of `processed_at`.
    async fn written_lately(&self, session: &mut PgConnection, partition: Partition) -> sqlx::Result<bool> {
        let name = partition.name();
        let lately =
            format!("select exists (select from {name} where processed_at >= to_timestamp($1::bigint / 1000.0))");
        sqlx::query_scalar(AssertSqlSafe(lately)).bind(self.cutoff.0).fetch_one(session).await
    }

    /// A group that has a claim in the table and whose floor does not stand above it. The table is read in
    /// pieces, with a rest after each: whoever consumes meanwhile keeps its processors.
    async fn held_by(&self, session: &mut PgConnection, partition: Partition) -> sqlx::Result<Option<ConsumerGroup>> {
        let until = partition.until().expect("an old partition has an end").as_uuid();
        let above = self.floors.iter().filter(|standing| standing.floor >= until);
        let groups: Vec<&str> = above.map(|standing| standing.group.as_str()).collect();
        let name = partition.name();
        let size = format!("select pg_relation_size('{name}') / current_setting('block_size')::bigint");
        let pages: i64 = sqlx::query_scalar(AssertSqlSafe(size)).fetch_one(&mut *session).await?;
        let other = format!(
            "select consumer_group from {name} where ctid >= $2::text::tid and ctid < $3::text::tid \
             and consumer_group <> all($1::text[]) limit 1"
        );
        for page in (0..pages).step_by(PIECE) {
            let begun = Instant::now();
            let (from, to) = (format!("({page},0)"), format!("({},0)", page.saturating_add(PIECE as i64)));
            let piece = sqlx::query_scalar(AssertSqlSafe(other.as_str())).bind(&groups).bind(from).bind(to);
            let group: Option<String> = piece.fetch_optional(&mut *session).await?;
            if let Some(group) = group {
                return Ok(Some(ConsumerGroup::new(group)));
            }
            rest_after(begun.elapsed()).await;
        }
        Ok(None)
    }
}
