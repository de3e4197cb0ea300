//! The rules of partitions, from the days that are asked for and the tables that are there.

use core_delivery::event::UnixMillis;
use proptest::prelude::*;

use super::*;

fn day(date: &str) -> PartitionDay {
    PartitionDay::dated(date).expect("a date")
}

fn span(first: &str, last: &str) -> Partition {
    Partition { first: day(first), last: day(last) }
}

fn asked(dates: &[&str]) -> BTreeSet<PartitionDay> {
    dates.iter().map(|date| day(date)).collect()
}

fn attached(partition: Partition) -> Table {
    Table { partition, state: State::Attached }
}

const TODAY: &str = "20261201";

fn made(dates: &[&str], tables: &[Table]) -> Vec<Partition> {
    missing(&asked(dates), tables, day(TODAY), Grain::Shared)
}

#[test]
fn a_partition_is_found_again_by_its_name() {
    for partition in [day("20261201").into(), span("20190101", "20191231"), span("99991231", "100000101")] {
        assert_eq!(Partition::named(&partition.name()), Some(partition));
    }
    assert_eq!(span("20190101", "20191231").name(), "processed_event_p20190101_20191231");
    for other in ["", "_p", "_p2026120", "_p20190101_", "_p20190101_2019", "_p20191231_20190101", "_p20190101_20190101"]
    {
        assert_eq!(Partition::named(&format!("processed_event{other}")), None, "{other}");
    }
}

#[test]
fn partitions_lie_side_by_side_and_hold_every_id_of_theirs() {
    let (year, next) = (span("20190101", "20191231"), Partition::from(day("20200101")));
    assert_eq!(year.until(), next.first.first_id());
    let last = EventId::at(UnixMillis(next.first.first_id().expect("one").made_at().0 - 1), [255; 10]);
    assert!(year.first.first_id() <= Some(last) && Some(last) < year.until());
    assert!(year.holds(PartitionDay::of(last.made_at())) && !next.holds(PartitionDay::of(last.made_at())));
}

#[test]
fn the_last_day_of_all_ids_has_no_upper_bound() {
    let last = Partition::from(PartitionDay::of(UnixMillis((1 << 48) - 1)));
    let sql = last.definition();
    assert!(sql.contains("processed_event_p108890802 ") && sql.contains("to (maxvalue);\n"), "{sql}");
}

#[test]
fn recent_days_and_days_to_come_have_a_partition_each() {
    let dates = ["20261002", "20261130", "20261201", "20261202"];
    let days: Vec<Partition> = dates.iter().map(|date| day(date).into()).collect();
    assert_eq!(made(&dates, &[]), days);
    assert_eq!(made(&dates, &[attached(days[1])]), [days[0], days[2], days[3]]);
}

#[test]
fn a_day_long_past_shares_the_rest_of_its_year() {
    assert_eq!(made(&["20190305", "20190711"], &[]), [span("20190101", "20191231")]);
    assert_eq!(made(&["20181231", "20190101"], &[]), [span("20180101", "20181231"), span("20190101", "20191231")]);
    // Not the days that have one of their own.
    assert_eq!(made(&["20261001", "20261002"], &[]), [span("20260101", "20261001"), day("20261002").into()]);
    let there = [attached(day("20190305").into()), attached(span("20190401", "20190630"))];
    assert_eq!(made(&["20190304"], &there), [span("20190101", "20190304")]);
    assert_eq!(made(&["20190306"], &there), [span("20190306", "20190331")]);
    assert_eq!(made(&["20190305", "20190501", "20190701"], &there), [span("20190701", "20191231")]);
    let days = missing(&asked(&["20190305", "20190711"]), &[], day(TODAY), Grain::Days);
    assert_eq!(days, [day("20190305").into(), day("20190711").into()]);
}

#[test]
fn a_table_that_is_no_partition_any_more_is_taken_back() {
    for state in [State::Detached, State::HalfDetached] {
        let there = [Table { partition: span("20190401", "20190630"), state }];
        assert_eq!(made(&["20190501"], &there), [span("20190401", "20190630")]);
        assert_eq!(made(&["20190306"], &there), [span("20190101", "20190331")]);
    }
}

proptest! {
    /// Whatever is asked for day after day, with days that were made alone: nothing overlaps, everything has its
    /// partition, and there are no more than the years and the days of their own.
    #[test]
    fn partitions_never_overlap_and_stay_few(
        runs in prop::collection::vec((0_i64..900, prop::collection::vec(0_i64..9_000, 1..60), any::<bool>()), 1..12),
    ) {
        let (mut tables, mut alone) = (Vec::<Table>::new(), 0);
        let mut today = 12_000;
        for (passed, days, shared) in runs {
            today += passed;
            let of = |number: i64| PartitionDay::of(UnixMillis(number * 86_400_000));
            let asked: BTreeSet<PartitionDay> = days.iter().map(|ago| of(today - ago)).collect();
            let grain = if shared { Grain::Shared } else { Grain::Days };
            let new = missing(&asked, &tables, of(today), grain);
            alone += new.iter().filter(|partition| partition.first == partition.last).count();
            tables.extend(new.into_iter().map(attached));
            for day in asked {
                prop_assert_eq!(tables.iter().filter(|table| table.partition.holds(day)).count(), 1);
            }
            tables.sort_by_key(|table| table.partition);
            for pair in tables.windows(2) {
                prop_assert!(pair[0].partition.last < pair[1].partition.first, "{:?}", pair);
            }
        }
        // Of a year's pieces, each but one ends where a day made alone or a run's horizon cut it off.
        let shared = tables.iter().filter(|table| table.partition.first < table.partition.last).count();
        prop_assert!(shared <= 62 + alone + 12, "{} shared, {} alone", shared, alone);
    }
}
