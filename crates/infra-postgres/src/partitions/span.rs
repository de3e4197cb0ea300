//! The partitions of the claims table: what they hold, their names and bounds, and which ones are to be made. Pure.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;

use core_delivery::event::EventId;

use super::day::PartitionDay;

/// How many days back an id's day has a partition of its own. Claims are dropped by the partition, and those that are
/// kept longer than this are as rare as the events that are older.
const DAYS_OF_THEIR_OWN: i64 = 60;

/// A partition: the table that holds the claims of all ids made in one day, or in several days that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    first: PartitionDay,
    last: PartitionDay,
}

impl From<PartitionDay> for Partition {
    fn from(day: PartitionDay) -> Self {
        Self { first: day, last: day }
    }
}

impl Partition {
    /// The table's name: `processed_event_p20261201`, or `processed_event_p20190101_20191231` for several days.
    pub fn name(self) -> String {
        match self.first == self.last {
            true => format!("processed_event_p{}", self.first.date()),
            false => format!("processed_event_p{}_{}", self.first.date(), self.last.date()),
        }
    }

    /// The partition that has this name.
    pub(crate) fn named(table: &str) -> Option<Self> {
        let dates = table.strip_prefix("processed_event_p")?;
        match dates.split_once('_') {
            None => PartitionDay::dated(dates).map(Self::from),
            Some((first, last)) => {
                let (first, last) = (PartitionDay::dated(first)?, PartitionDay::dated(last)?);
                (first < last).then_some(Self { first, last })
            }
        }
    }

    pub(super) fn holds(self, day: PartitionDay) -> bool {
        self.first <= day && day <= self.last
    }

    /// The smallest id above it; there is none above the last day that an id can hold.
    pub(crate) fn until(self) -> Option<EventId> {
        self.last.next().first_id()
    }

    /// The statements that make the partition, or take its table back.
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
        let from = self.first.first_id().expect("the day of an id has a first one");
        writeln!(
            sql,
            "create table if not exists {name} (like processed_event including defaults including constraints);"
        )?;
        write!(sql, "alter table processed_event attach partition {name} for values from ('{from}') to ")?;
        match self.until() {
            Some(id) => writeln!(sql, "('{id}');")?,
            None => writeln!(sql, "(maxvalue);")?,
        }
        // Whoever meant to drop it has to decide anew.
        writeln!(sql, "comment on table {name} is null;")
    }
}

/// A table that is named like a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) partition: Partition,
    pub(super) state: State,
}

/// Whether a table takes rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It does.
    Attached,
    /// It does not any more: who began to detach it has not come to the end, or was cut off.
    HalfDetached,
    /// It is no partition.
    Detached,
}

/// How old days are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grain {
    /// In one piece with the days around them.
    Shared,
    /// Each alone.
    Days,
}

/// What has to be attached so that each of these days has a partition. A table that holds a day already is taken back,
/// whatever became of it: its claims count.
///
/// A day that is long past shares one with all days of its year around it that have none, so that ids of every age, as
/// a producer with a wrong clock makes them, cost a partition for each year and not for each day.
pub(super) fn missing(
    asked: &BTreeSet<PartitionDay>,
    tables: &[Table],
    today: PartitionDay,
    grain: Grain,
) -> Vec<Partition> {
    let mut made: Vec<Partition> = Vec::new();
    for &day in asked {
        if made.iter().any(|partition| partition.holds(day)) {
            continue;
        }
        let mut holders = tables.iter().filter(|table| table.partition.holds(day));
        match holders.clone().find(|table| table.state == State::Attached).or_else(|| holders.next()) {
            Some(Table { state: State::Attached, .. }) => {}
            Some(table) => made.push(table.partition),
            None if grain == Grain::Days || day >= today.minus(DAYS_OF_THEIR_OWN) => made.push(day.into()),
            None => made.push(gap(day, tables, today.minus(DAYS_OF_THEIR_OWN + 1))),
        }
    }
    made
}

/// The days around this one, of its year and up to `end`, that no table holds.
fn gap(day: PartitionDay, tables: &[Table], end: PartitionDay) -> Partition {
    let (first, last) = day.year();
    let below = tables.iter().map(|table| table.partition.last).filter(|other| *other < day).max();
    let above = tables.iter().map(|table| table.partition.first).filter(|other| *other > day).min();
    Partition {
        first: below.map_or(first, |below| first.max(below.next())),
        last: above.and_then(PartitionDay::previous).map_or(last, |above| last.min(above)).min(end),
    }
}

#[cfg(test)]
#[path = "span_tests.rs"]
mod tests;
