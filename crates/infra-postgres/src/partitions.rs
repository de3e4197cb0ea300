//! The days of the claims table. Pure rules of names and bounds, and the one function that makes partitions; none
//! is dropped here.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;

use core_delivery::event::{EventId, UnixMillis};
use core_delivery::ports::StoreError;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

use crate::errors::store_error;

/// The advisory lock of everyone who changes the partitions of the claims table: the ASCII codes of "delivery".
pub const MAINTENANCE_LOCK: i64 = 0x6465_6c69_7665_7279;

/// The comment on a table that is detached in order to be dropped.
pub(crate) const EXPIRING: &str = "delivery: detached to be dropped";

const MILLIS_OF_DAY: i64 = 86_400_000;

/// How many partitions one transaction makes: each takes a handful of entries in the server's lock table, which
/// holds 64 a connection.
const MADE_AT_ONCE: usize = 32;

/// A day in UTC, and the partition that holds the claims of all ids made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionDay(i64);

impl PartitionDay {
    /// The day of an instant; instants before 1970 have no id and count as its first day.
    pub fn of(instant: UnixMillis) -> Self {
        Self(instant.0.max(0).div_euclid(MILLIS_OF_DAY))
    }

    /// The table's name, such as `processed_event_p20261201`.
    pub fn name(self) -> String {
        let (year, month, day) = self.civil();
        format!("processed_event_p{year:04}{month:02}{day:02}")
    }

    /// The day whose partition has this name.
    pub(crate) fn named(table: &str) -> Option<Self> {
        let digits = table.strip_prefix("processed_event_p")?;
        let (year, rest) = digits.split_at_checked(digits.len().checked_sub(4)?)?;
        let (month, day) = rest.split_at_checked(2)?;
        let named = Self::of_civil(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
        (named.name() == table).then_some(named)
    }

    /// The smallest id of the day.
    fn from(self) -> EventId {
        EventId::first_at(UnixMillis(self.0 * MILLIS_OF_DAY))
    }

    /// The smallest id of the next day; the last day that an id can hold has none.
    pub(crate) fn until(self) -> Option<EventId> {
        let next = UnixMillis((self.0 + 1) * MILLIS_OF_DAY);
        let id = EventId::first_at(next);
        (id.made_at() == next).then_some(id)
    }

    /// Year, month and day of the Gregorian calendar. The years are counted from March, so that the leap day is the
    /// last of its year: then 400 of them have 146,097 days, and the months repeat in fives of 153.
    fn civil(self) -> (i64, i64, i64) {
        let days = self.0 + 719_468; // From 0000-03-01 to 1970-01-01.
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        (year, month, day)
    }

    /// The inverse of [`Self::civil`]; what is no date may become any day.
    fn of_civil(year: i64, month: i64, day: i64) -> Option<Self> {
        let year = year.checked_sub(i64::from(month <= 2))?;
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era.checked_mul(146_097)?.checked_add(day_of_era)?.checked_sub(719_468)?;
        (days >= 0).then_some(Self(days))
    }

    /// The statements that make the day's partition, or take its table back.
    pub(crate) fn definition(self) -> String {
        let mut sql = String::new();
        self.write_definition(&mut sql).expect("a String takes every write");
        sql
    }

    /// Made apart and then attached: `create table … partition of` takes an exclusive lock on the parent and would
    /// wait behind every open unit, with every later unit behind it; ATTACH takes one that inserts do not mind.
    ///
    /// The table is empty, so ATTACH has nothing to scan and needs no CHECK constraint that would spare it. Only a
    /// table that was detached and not yet dropped is scanned, while writers go on: it is taken back with its
    /// claims, which is the safe side (D-9).
    fn write_definition(self, sql: &mut String) -> fmt::Result {
        let name = self.name();
        writeln!(
            sql,
            "create table if not exists {name} (like processed_event including defaults including constraints);"
        )?;
        write!(sql, "alter table processed_event attach partition {name} for values from ('{}') to ", self.from())?;
        match self.until() {
            Some(id) => writeln!(sql, "('{id}');")?,
            None => writeln!(sql, "(maxvalue);")?,
        }
        // Whoever meant to drop it has to decide anew.
        writeln!(sql, "comment on table {name} is null;")
    }
}

/// Which days have a partition before any event asks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionPlan {
    /// Days before today: the retention. Older ones are made on demand.
    pub back: u32,
    /// Days after today, so that no unit has to make one at midnight even if maintenance stands still for a while.
    pub ahead: u32,
}

impl Default for PartitionPlan {
    fn default() -> Self {
        Self { back: 7, ahead: 7 }
    }
}

impl PartitionPlan {
    /// The days around an instant, today included.
    pub fn days(self, now: UnixMillis) -> impl Iterator<Item = PartitionDay> {
        let today = PartitionDay::of(now).0;
        let first = (today - i64::from(self.back)).max(0);
        (first..=today + i64::from(self.ahead)).map(PartitionDay)
    }
}

/// Makes the partitions of these days where they are missing, and says how many it made.
///
/// Any number of processes may do it at once: they take turns by [`MAINTENANCE_LOCK`], and who comes later finds
/// the work done. Usually nothing is missing, and one query says so. Cancel safe: each transaction is whole or not
/// there.
///
/// # Errors
///
/// [`StoreError::Conflict`] if a lock was not granted in time; otherwise [`StoreError::Unavailable`].
pub async fn ensure_partitions(
    pool: &PgPool,
    days: impl IntoIterator<Item = PartitionDay>,
) -> Result<usize, StoreError> {
    let asked: BTreeSet<PartitionDay> = days.into_iter().collect();
    let mut connection = pool.acquire().await.map_err(|error| store_error("reach the partitions", error))?;
    let missing = missing(&mut connection, asked).await.map_err(|error| store_error("read the partitions", error))?;
    drop(connection);
    let missing: Vec<PartitionDay> = missing.into_iter().collect();
    let mut made = 0;
    for days in missing.chunks(MADE_AT_ONCE) {
        made += make(pool, days).await.map_err(|error| {
            store_error(&format!("make the partitions {} to {}", days[0].name(), days[days.len() - 1].name()), error)
        })?;
    }
    Ok(made)
}

async fn make(pool: &PgPool, days: &[PartitionDay]) -> sqlx::Result<usize> {
    let mut transaction = pool.begin().await?;
    // Whatever the pool's sessions are held to: neither the turn nor the table may be waited for without an end.
    sqlx::raw_sql("set local lock_timeout = '5s'").execute(&mut *transaction).await?;
    sqlx::query("select pg_advisory_xact_lock($1)").bind(MAINTENANCE_LOCK).execute(&mut *transaction).await?;
    // Somebody else may have made them while this one waited for its turn.
    let missing = missing(&mut transaction, days.iter().copied().collect()).await?;
    if missing.is_empty() {
        return transaction.rollback().await.map(|()| 0);
    }
    let mut sql = String::new();
    for day in &missing {
        if half_detached(&mut transaction, *day).await? {
            writeln!(sql, "alter table processed_event detach partition {} finalize;", day.name())
                .expect("a String takes every write");
        }
        sql.push_str(&day.definition());
    }
    // The text is made of a constant, digits and ids of our own.
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await?;
    transaction.commit().await?;
    for day in &missing {
        tracing::info!(partition = day.name(), "partition made");
    }
    Ok(missing.len())
}

/// A partition whose detaching was begun and not finished counts as missing: it takes no rows any more.
async fn missing(connection: &mut PgConnection, asked: BTreeSet<PartitionDay>) -> sqlx::Result<BTreeSet<PartitionDay>> {
    let present: BTreeSet<String> = sqlx::query_scalar(
        "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid \
         where i.inhparent = to_regclass('processed_event') and not i.inhdetachpending",
    )
    .fetch_all(connection)
    .await?
    .into_iter()
    .collect();
    Ok(asked.into_iter().filter(|day| !present.contains(&day.name())).collect())
}

/// Whether the day's table has to be detached to the end before it can be attached: who began it was cut off, for
/// [`MAINTENANCE_LOCK`] is not held by anybody else.
async fn half_detached(connection: &mut PgConnection, day: PartitionDay) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "select exists (select from pg_inherits where inhparent = to_regclass('processed_event') \
         and inhrelid = to_regclass($1) and inhdetachpending)",
    )
    .bind(day.name())
    .fetch_one(connection)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(number: i64) -> PartitionDay {
        PartitionDay::of(UnixMillis(number * MILLIS_OF_DAY))
    }

    #[test]
    fn a_partition_is_named_after_its_day() {
        for (number, date) in [
            (0, "19700101"),
            (58, "19700228"),
            (59, "19700301"),
            (10_956, "19991231"),
            (11_016, "20000229"),
            (19_782, "20240229"),
            (19_783, "20240301"),
            (20_788, "20261201"),
            (47_540, "21000228"),
            (47_541, "21000301"),
            (2_932_896, "99991231"),
            (2_932_897, "100000101"),
        ] {
            assert_eq!(day(number).name(), format!("processed_event_p{date}"), "day {number}");
            assert_eq!(PartitionDay::named(&format!("processed_event_p{date}")), Some(day(number)));
        }
        for other in ["", "x", "_p", "_p1", "_p2026120", "_p20260230", "_p20261301", "_p20260100", "_p+20260101"] {
            assert_eq!(PartitionDay::named(&format!("processed_event{other}")), None, "{other}");
        }
        for strange in ["_pé0101", "_p2026é01", "_p99999999999999999990101", "_p92233720368547758070101", "_p00010101"]
        {
            assert_eq!(PartitionDay::named(&format!("processed_event{strange}")), None, "{strange}");
        }
    }

    #[test]
    fn the_calendar_has_no_gap_in_800_years() {
        let mut expected = (1970, 1, 1);
        for number in 0..292_194 {
            assert_eq!(day(number).civil(), expected, "day {number}");
            let (year, month, day) = expected;
            assert_eq!(PartitionDay::of_civil(year, month, day), Some(PartitionDay(number)));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
            expected = match (day == last, month) {
                (false, _) => (year, month, day + 1),
                (true, 12) => (year + 1, 1, 1),
                (true, _) => (year, month + 1, 1),
            };
        }
    }

    #[test]
    fn days_lie_side_by_side_and_hold_every_id_of_theirs() {
        let today = day(20_788);
        assert_eq!(today.until(), Some(day(20_789).from()));
        let last = EventId::at(UnixMillis(20_789 * MILLIS_OF_DAY - 1), [255; 10]);
        assert!(today.from() <= last && last < day(20_789).from());
        assert_eq!(PartitionDay::of(last.made_at()), today);
    }

    #[test]
    fn the_last_day_of_all_ids_has_no_upper_bound() {
        let last = PartitionDay::of(UnixMillis((1 << 48) - 1));
        let sql = last.definition();
        assert!(sql.contains("processed_event_p108890802 ") && sql.contains("to (maxvalue);\n"), "{sql}");
        assert_eq!(PartitionDay::of(UnixMillis(-1)), day(0));
    }

    #[test]
    fn a_plan_reaches_back_and_ahead() {
        let now = UnixMillis(20_788 * MILLIS_OF_DAY + 5);
        let days: Vec<_> = PartitionPlan { back: 1, ahead: 2 }.days(now).collect();
        assert_eq!(days, [day(20_787), day(20_788), day(20_789), day(20_790)]);
        assert_eq!(PartitionPlan::default().days(now).count(), 15);
        assert_eq!(PartitionPlan { back: 9, ahead: 0 }.days(UnixMillis(0)).count(), 1);
    }
}
