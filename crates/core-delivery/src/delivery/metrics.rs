//! Every metric of the kernel, declared once. Labels are few and never an event id.

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::claim::ConsumerGroup;
use crate::ports::IgnoreReason;

use super::start::Alarm;
use super::verdict::Verdict;

const EVENTS: &str = "delivery_events_total";
const DEAD_LETTERS: &str = "delivery_dead_letters_total";
const UNITS: &str = "delivery_units_total";
const UNIT_SECONDS: &str = "delivery_unit_duration_seconds";
const UNIT_EVENTS: &str = "delivery_unit_events";
const INTERRUPTIONS: &str = "delivery_interruptions_total";
const COPY_FAILURES: &str = "delivery_copy_failures_total";
const START_ALARMS: &str = "delivery_start_alarms_total";
const UNCLEAN_STARTS: &str = "delivery_unclean_starts_total";
const STRUCK_OUT: &str = "delivery_struck_out_total";
const LANES: &str = "delivery_lanes";

/// Tells the installed recorder what the metrics mean. Call it once, after a recorder was installed.
pub fn describe_metrics() {
    describe_counter!(EVENTS, "Records that got their verdict, by verdict.");
    describe_counter!(DEAD_LETTERS, "Dead letters that the broker acknowledged, by class.");
    describe_counter!(UNITS, "Units of work that ended, by result.");
    describe_histogram!(UNIT_SECONDS, Unit::Seconds, "How long a unit of work took, its calls included.");
    describe_histogram!(UNIT_EVENTS, "How many deliveries a unit of work held.");
    describe_counter!(INTERRUPTIONS, "Times a lane paused because the store or the handler could not go on.");
    describe_counter!(COPY_FAILURES, "Tries of writing a retry or dead-letter copy that were not acknowledged.");
    describe_counter!(START_ALARMS, "Lanes that did not start where the group had left them, by kind.");
    describe_counter!(UNCLEAN_STARTS, "Lanes whose last owner had died while it owned them.");
    describe_counter!(STRUCK_OUT, "Records that became dead letters because they kill whoever handles them.");
    describe_gauge!(LANES, "Partitions that this process owns.");
}

/// The kernel's metrics of one group.
pub(super) struct DeliveryMetrics {
    group: String,
    applied: Counter,
    duplicate: Counter,
    retried: Counter,
    dead_lettered: Counter,
    tombstones: Counter,
    other_types: Counter,
    pub(super) committed_units: Counter,
    pub(super) interrupted_units: Counter,
    pub(super) unit_seconds: Histogram,
    pub(super) unit_events: Histogram,
    pub(super) interruptions: Counter,
    pub(super) copy_failures: Counter,
    pub(super) unclean_starts: Counter,
    pub(super) struck_out: Counter,
    pub(super) lanes: Gauge,
}

impl DeliveryMetrics {
    pub(super) fn new(group: &ConsumerGroup) -> Self {
        let group = group.as_str().to_owned();
        let events = |verdict: &'static str| counter!(EVENTS, "group" => group.clone(), "verdict" => verdict);
        let units = |result: &'static str| counter!(UNITS, "group" => group.clone(), "result" => result);
        Self {
            applied: events("applied"),
            duplicate: events("duplicate"),
            retried: events("retried"),
            dead_lettered: events("dead_lettered"),
            tombstones: events("ignored_tombstone"),
            other_types: events("ignored_other_type"),
            committed_units: units("committed"),
            interrupted_units: units("interrupted"),
            unit_seconds: histogram!(UNIT_SECONDS, "group" => group.clone()),
            unit_events: histogram!(UNIT_EVENTS, "group" => group.clone()),
            interruptions: counter!(INTERRUPTIONS, "group" => group.clone()),
            copy_failures: counter!(COPY_FAILURES, "group" => group.clone()),
            unclean_starts: counter!(UNCLEAN_STARTS, "group" => group.clone()),
            struck_out: counter!(STRUCK_OUT, "group" => group.clone()),
            lanes: gauge!(LANES, "group" => group.clone()),
            group,
        }
    }

    pub(super) fn start_alarm(&self, alarm: Alarm) {
        let kind = match alarm {
            Alarm::AnotherLog => "another_log",
            Alarm::StoreIsBehind { .. } => "store_is_behind",
            Alarm::PastTheEnd { .. } => "past_the_end",
            Alarm::Expired { .. } => "expired",
        };
        counter!(START_ALARMS, "group" => self.group.clone(), "kind" => kind).increment(1);
    }

    pub(super) fn count(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Applied => self.applied.increment(1),
            Verdict::Duplicate => self.duplicate.increment(1),
            Verdict::Retried => self.retried.increment(1),
            Verdict::Ignored(IgnoreReason::Tombstone) => self.tombstones.increment(1),
            Verdict::Ignored(IgnoreReason::OtherType) => self.other_types.increment(1),
            Verdict::DeadLettered(class) => {
                self.dead_lettered.increment(1);
                counter!(DEAD_LETTERS, "group" => self.group.clone(), "class" => class.as_str().to_owned())
                    .increment(1);
            }
        }
    }
}
