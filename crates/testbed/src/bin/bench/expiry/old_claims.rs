//! Claims of some weeks ago, as a consumer would have left them, and the floor above them. They are made by the server
//! and not by the kernel; nothing is removed here.

use std::time::Duration;

use anyhow::{Result, ensure};
use core_delivery::{
    claim::ConsumerGroup,
    event::{EventId, UnixMillis},
};
use infra_postgres::{FloorMove, PartitionDay, Retention, advance_floor, database_clock, ensure_partitions};
use sqlx::{Connection, Executor, PgConnection, PgPool};
use tokio::time::{Instant, sleep_until};

const DAY: Duration = Duration::from_secs(86_400);
/// Over how many days they are spread.
const DAYS: u32 = 5;
/// How many days ago the first of them begins. The partitions of the events of today are not among them.
const FIRST_DAY_BACK: u32 = 20;
/// What is older goes. One day lies between the claims and this.
const KEPT_DAYS: u32 = FIRST_DAY_BACK - DAYS - 2;
/// The shortest that makes sense: longer than any unit of the measurement runs.
const GRACE: Duration = Duration::from_secs(2);
/// How many claims one unit has stored at once.
const STORED_AT_ONCE: i64 = 2_000;

/// A v7 id begins with 48 bits of milliseconds; the version and the variant are set into the digits of a hash. The
/// claims of a unit lie side by side and were stored together, a second after the first of their events was made.
const INSERT: &str = "insert into processed_event (event_id, consumer_group, processed_at) \
    select overlay(overlay(lpad(to_hex($1::bigint + number * $2::bigint / $3::bigint), 12, '0') \
             || substr(md5(number::text), 1, 20) placing '7' from 13 for 1) placing 'a' from 17 for 1)::uuid, \
           $4, \
           to_timestamp(($1::bigint + (number / $5::bigint * $5::bigint) * $2::bigint / $3::bigint + 1000) / 1000.0) \
    from generate_series($6::bigint, $7::bigint) as number";

/// What was prepared.
#[derive(Debug)]
pub(super) struct OldClaims {
    /// By which it goes.
    pub(super) retention: Retention,
    /// How many there are.
    pub(super) stored: u64,
    /// All have smaller ids.
    until: EventId,
}

impl OldClaims {
    /// Empties the tables and stores `count` claims of the group, spread evenly over five old days, and one in the day
    /// after, which the deletion removes and for which the drop keeps its day: so the floor lies above the five, moved
    /// there by the same function as in production. Returns when it has stood for its grace period.
    pub(super) async fn prepare(url: &str, pool: &PgPool, group: &str, count: u64) -> Result<Self> {
        let begun = Instant::now();
        let now = database_clock(pool).await?;
        let today = UnixMillis(now.0 - now.0.rem_euclid(millis(DAY)));
        let first = today.minus(FIRST_DAY_BACK * DAY);
        let until = first.plus(DAYS * DAY);
        let mut session = PgConnection::connect(url).await?;
        session.execute("truncate processed_event, bench_ledger, consumer_position, claim_floor").await?;
        ensure_partitions(pool, (0..=DAYS).map(|day| PartitionDay::of(first.plus(day * DAY)))).await?;

        let count = i64::try_from(count)?;
        let mut insert = async |from: UnixMillis, numbers: (i64, i64)| {
            let insert = sqlx::query(INSERT).bind(from.0).bind(millis(DAYS * DAY)).bind(count).bind(group);
            insert.bind(STORED_AT_ONCE).bind(numbers.0).bind(numbers.1).execute(&mut session).await
        };
        let stored =
            insert(first, (0, count - 1)).await?.rows_affected() + insert(until, (0, 0)).await?.rows_affected();
        let retention = Retention { keep: KEPT_DAYS * DAY, grace: GRACE };
        let moved = advance_floor(pool, &ConsumerGroup::new(group), retention, now).await?;
        ensure!(matches!(moved, FloorMove::Moved { .. }), "the floor did not move: {moved:?}");
        let standing = Instant::now() + GRACE;
        session.execute("vacuum (analyze) processed_event").await?;
        session.close().await?;
        sleep_until(standing).await;
        println!("bench: stored {stored} old claims in {:.1} s", begun.elapsed().as_secs_f32());
        Ok(Self { retention, stored, until: EventId::first_at(until.plus(DAY)) })
    }

    /// How many are still there.
    pub(super) async fn left(&self, pool: &PgPool) -> Result<i64> {
        let count = sqlx::query_scalar("select count(*) from processed_event where event_id < $1");
        Ok(count.bind(self.until.as_uuid()).fetch_one(pool).await?)
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("some days")
}
