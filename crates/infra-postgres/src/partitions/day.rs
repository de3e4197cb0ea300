//! The days of the claims table and their calendar. Pure; no partition is made here.

use core_delivery::event::{EventId, UnixMillis};

use super::span::Partition;

const MILLIS_OF_DAY: i64 = 86_400_000;

/// A day in UTC, which has a partition for the claims of all ids made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionDay(i64);

impl PartitionDay {
    /// The day of an instant; instants before 1970 have no id and count as its first day.
    pub fn of(instant: UnixMillis) -> Self {
        Self(instant.0.max(0).div_euclid(MILLIS_OF_DAY))
    }

    /// The name of the table that holds this day alone, such as `processed_event_p20261201`.
    pub fn name(self) -> String {
        Partition::from(self).name()
    }

    /// Such as `20261201`.
    pub(super) fn date(self) -> String {
        let (year, month, day) = self.civil();
        format!("{year:04}{month:02}{day:02}")
    }

    /// The day that is written so.
    pub(super) fn dated(digits: &str) -> Option<Self> {
        let (year, rest) = digits.split_at_checked(digits.len().checked_sub(4)?)?;
        let (month, day) = rest.split_at_checked(2)?;
        let dated = Self::of_civil(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
        (dated.date() == digits).then_some(dated)
    }

    /// So many days earlier; there is none before 1970.
    pub(super) fn minus(self, days: i64) -> Self {
        Self((self.0 - days).max(0))
    }

    /// The next day.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The day before; the first day has none.
    pub(super) fn previous(self) -> Option<Self> {
        (self.0 > 0).then(|| Self(self.0 - 1))
    }

    /// The first and the last day of its year.
    pub(super) fn year(self) -> (Self, Self) {
        let (year, ..) = self.civil();
        let first_of = |year| Self::of_civil(year, 1, 1).expect("a year from 1970 on");
        (first_of(year), Self(first_of(year + 1).0 - 1))
    }

    /// The smallest id of the day; none is left after the last day that an id can hold.
    pub(super) fn first_id(self) -> Option<EventId> {
        let begin = UnixMillis(self.0 * MILLIS_OF_DAY);
        let id = EventId::first_at(begin);
        (id.made_at() == begin).then_some(id)
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
            assert_eq!(PartitionDay::dated(date), Some(day(number)));
        }
        for other in ["", "x", "1", "2026120", "20260230", "20261301", "20260100", "+20260101"] {
            assert_eq!(PartitionDay::dated(other), None, "{other}");
        }
        for strange in ["é0101", "2026é01", "99999999999999999990101", "92233720368547758070101", "00010101"] {
            assert_eq!(PartitionDay::dated(strange), None, "{strange}");
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
    fn a_year_goes_from_its_first_day_to_its_last() {
        assert_eq!(day(20_788).year(), (day(20_454), day(20_818)));
        assert_eq!(day(11_016).year(), (day(10_957), day(11_322)), "a leap year");
        assert_eq!(day(0).year().0, day(0));
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
