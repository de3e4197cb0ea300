//! What a backend cannot do, and the tests that need it. Only that is a reason to leave a test out: one that fails for
//! another reason is a failure on every backend.

use std::iter;

use anyhow::{Result, bail};

/// Something that a backend cannot do.
#[derive(Debug)]
pub(super) struct Gap {
    /// What it is, as the reason of each skip.
    pub(super) reason: &'static str,
    /// The tests that cannot run without it, by their full names.
    pub(super) tests: &'static [&'static str],
}

/// What librdkafka's broker cannot do. A test is named by the first thing that it stops at.
pub(super) const EMBEDDED: &[Gap] = &[
    Gap {
        reason: "the embedded broker keeps no settings of topics and describes none",
        tests: &[
            "clients::what_is_written_is_read_in_order",
            "operators::audits::a_check_is_clean_after_a_run_and_names_what_is_missing",
            "publish::a_record_that_the_broker_finds_too_large_is_told_apart",
            "publish::many_small_records_at_once_are_never_too_large_together",
            "topics::a_topic_that_would_lose_copies_is_refused_with_what_to_change",
            "topics::copies_get_the_partitions_of_the_source_and_room_for_headers",
            "topics::missing_copies_are_listed_with_the_command_for_each",
        ],
    },
    Gap {
        reason: "the embedded broker deletes neither topics nor records",
        tests: &[
            "arrival::a_lane_that_jumps_back_is_lost_and_told_anew",
            "arrival::a_topic_that_is_made_anew_is_another_log",
            "arrival::the_arrival_tells_the_committed_the_first_and_the_end_offset",
            "expired_records::a_position_below_an_empty_log_starts_at_its_end_with_an_alarm",
            "expired_records::a_position_below_the_first_record_starts_there_with_an_alarm",
            "expired_records::records_that_expire_before_a_paused_partition_reads_on_are_passed_with_a_warning",
            "failures::the_offset_does_not_move_while_the_dead_letter_cannot_be_written",
        ],
    },
    Gap {
        reason: "the embedded broker writes no markers of transactions and shows what is aborted or open",
        tests: &[
            "arrival::the_end_is_the_logs_and_the_lag_reaches_zero_where_only_markers_follow_the_start",
            "consume::the_lag_reaches_zero_behind_transaction_markers",
            "inspect::the_reading_ends_behind_markers_and_before_an_open_transaction",
        ],
    },
    Gap {
        reason: "the embedded broker does not tell who is in a group",
        tests: &[
            "inspect::the_members_of_a_group_are_counted",
            "membership::a_lane_that_comes_back_has_another_epoch_under_eager_assignors",
            "membership::a_lane_that_comes_back_has_another_epoch_where_the_broker_assigns",
            "membership::a_member_whose_name_another_one_takes_fails_and_says_what_to_do",
            "membership::by_the_broker::what_is_given_up_is_drained_and_committed",
            "membership::by_the_broker::what_is_not_released_in_time_has_no_verdict",
            "membership::cooperative::what_is_given_up_is_drained_and_committed",
            "membership::cooperative::what_is_not_released_in_time_has_no_verdict",
            "membership::eager::what_is_given_up_is_drained_and_committed",
            "membership::eager::what_is_not_released_in_time_has_no_verdict",
            "membership::named::what_is_given_up_is_drained_and_committed",
            "membership::named::what_is_not_released_in_time_has_no_verdict",
            "operators::a_taken_over_group_starts_once_its_claims_and_positions_are_imported",
            "operators::positions_are_set_only_while_nobody_consumes_and_then_both_ways",
            "outages::a_database_outage_at_full_intake_moves_no_event_and_is_caught_up",
            "outages::a_database_outage_moves_no_event_and_is_caught_up",
        ],
    },
    Gap {
        reason: "the embedded broker takes offsets of a group that it knows from members only",
        tests: &[
            "delivery::offsets_reset_to_earliest_charge_nobody_again",
            "old_events::an_event_older_than_the_providers_memory_is_not_charged_blindly",
        ],
    },
    Gap {
        reason: "the embedded broker takes any session timeout",
        tests: &["consume::a_session_timeout_that_the_broker_refuses_fails_the_stream_with_what_to_do"],
    },
    Gap {
        reason: "the embedded broker keeps 5 MiB of a partition and drops what is older",
        tests: &["pressure::bytes_have_a_limit_too"],
    },
    Gap {
        reason: "the embedded broker misses a member that died only after its session timeout, which a hundred deaths outlast",
        tests: &["a_crash_at_any_point_of_any_path_loses_nothing_and_does_nothing_twice"],
    },
    Gap {
        reason: "a rebalance on the embedded broker takes the whole session timeout but a second, whoever is there",
        tests: &[
            "groups::a_rebalance_with_work_in_flight_loses_and_repeats_nothing",
            "pressure::lanes_that_are_taken_away_while_they_are_paused_or_led_break_no_member",
        ],
    },
];

/// A test that does not run, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) test: &'static str,
    pub(super) reason: &'static str,
}

impl Skip {
    fn all(gaps: &'static [Gap]) -> impl Iterator<Item = Self> {
        gaps.iter().flat_map(|gap| iter::repeat(gap.reason).zip(gap.tests).map(|(reason, test)| Self { test, reason }))
    }
}

/// What is left out of a run whose filter lets these tests through, `listed` being the names of all tests there are.
///
/// # Errors
/// When the gaps name a test that is not there, that several binaries have, or that is named twice; or when leaving it
/// out would leave out another one, for libtest skips every test whose name contains the text.
pub(super) fn left_out(gaps: &'static [Gap], listed: &[String], filter: Option<&str>) -> Result<Vec<Skip>> {
    let skips: Vec<Skip> = Skip::all(gaps).collect();
    for (at, Skip { test, .. }) in skips.iter().enumerate() {
        match listed.iter().filter(|name| name == test).count() {
            0 => bail!("{test} is to be skipped, and there is no such test"),
            1 => {}
            several => bail!("{test} is to be skipped, and {several} tests have that name"),
        }
        if skips[..at].iter().any(|skip| skip.test == *test) {
            bail!("{test} is to be skipped for two reasons");
        }
        if let Some(other) = listed.iter().find(|name| name.contains(test) && name != test) {
            bail!("{test} is to be skipped, which would leave out {other} as well");
        }
    }
    Ok(skips.into_iter().filter(|skip| filter.is_none_or(|text| skip.test.contains(text))).collect())
}

/// The names in what test binaries print with `--list`.
pub(super) fn names(listing: &str) -> Vec<String> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAPS: &[Gap] = &[
        Gap { reason: "no deletes", tests: &["a::one", "a::two"] },
        Gap { reason: "no groups", tests: &["b::three"] },
    ];

    fn listed(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn refusal(gaps: &'static [Gap], names: &[&str]) -> String {
        left_out(gaps, &listed(names), None).unwrap_err().to_string()
    }

    #[test]
    fn the_named_tests_are_left_out_as_far_as_the_filter_would_let_them_run() {
        let listed = listed(&["a::one", "a::two", "b::three", "b::four"]);
        let tests = |filter| -> Vec<_> {
            left_out(GAPS, &listed, filter).unwrap().iter().map(|skip| (skip.test, skip.reason)).collect()
        };
        assert_eq!(tests(None), [("a::one", "no deletes"), ("a::two", "no deletes"), ("b::three", "no groups")]);
        assert_eq!(tests(Some("two")), [("a::two", "no deletes")]);
        assert_eq!(tests(Some("four")), []);
    }

    #[test]
    fn a_name_that_is_not_exactly_one_tests_is_refused() {
        assert_eq!(refusal(GAPS, &["a::one", "b::three"]), "a::two is to be skipped, and there is no such test");
        let twice = refusal(GAPS, &["a::one", "a::two", "b::three", "a::two"]);
        assert_eq!(twice, "a::two is to be skipped, and 2 tests have that name");
        let collides = refusal(GAPS, &["a::one", "a::two", "b::three", "a::one_more"]);
        assert_eq!(collides, "a::one is to be skipped, which would leave out a::one_more as well");
        const DOUBLED: &[Gap] = &[Gap { reason: "x", tests: &["a::one"] }, Gap { reason: "y", tests: &["a::one"] }];
        assert_eq!(refusal(DOUBLED, &["a::one"]), "a::one is to be skipped for two reasons");
    }

    #[test]
    fn only_tests_are_read_from_a_listing() {
        let listing = "a::one: test\nb: benchmark\n\n2 tests, 1 benchmark\n     Running tests/it (x): tests\n";
        assert_eq!(names(listing), ["a::one"]);
    }
}
