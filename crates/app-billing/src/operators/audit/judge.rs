//! What became of each unit, from everything that is known of it. Pure.

use core_delivery::event::{EventId, UnixMillis};
use uuid::Uuid;

use super::report::{FindingKind, Findings, Report};
use super::{Audit, Horizons, Trace, fact};

/// What became of a unit; every unit is exactly one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Claimed and charged. A dead letter beside it is no contradiction: a replay or a later delivery succeeded, or a
    /// crash came between the letter and the offset and the redelivery succeeded.
    Applied,
    /// Given up, or discarded by an operator, who claims it so that it can never be charged.
    DeadLettered,
    /// Still to be read, from the source or from a tier.
    Pending,
    /// Passed, and what became of it was removed by age.
    Expired,
    /// Passed, and nowhere.
    Lost(&'static str),
}

fn fate(trace: Trace, horizons: Horizons) -> Fate {
    let (claimed, letter) = (trace.is(fact::CLAIMED), trace.is(fact::LETTER));
    if trace.is(fact::CHARGED) || (claimed && trace.is(fact::TAKEN_OVER)) {
        return Fate::Applied;
    }
    if letter {
        return Fate::DeadLettered;
    }
    if claimed {
        return Fate::Lost("claimed, and not in the ledger: a redelivery would be a duplicate, so nobody charges it");
    }
    if trace.is(fact::WAITS) {
        return Fate::Pending;
    }
    match horizons.letters {
        Some(horizon) if UnixMillis(trace.made) <= horizon => Fate::Expired,
        _ => Fate::Lost("below the group's position, and neither claimed nor a dead letter nor waiting in a tier"),
    }
}

/// What contradicts itself about an event, whatever became of it.
fn contradiction(id: EventId, trace: Trace, horizons: Horizons, provider_was_asked: bool) -> Option<FindingKind> {
    let expired = horizons.claims.is_some_and(|floor| id < floor);
    if trace.is(fact::CHARGED) && !trace.is(fact::CLAIMED) && !expired {
        return Some(FindingKind::ClaimMissing);
    }
    // The reservation of an event whose outcome is unknown stays, so that no other event charges its order meanwhile.
    if trace.is(fact::UNFINISHED) && !trace.is(fact::WAITS | fact::IN_DOUBT) {
        return Some(FindingKind::Unfinished);
    }
    if !provider_was_asked {
        return None;
    }
    let must_be_paid = trace.is(fact::CHARGED) && !trace.is(fact::FREE);
    match (must_be_paid, trace.is(fact::PROVIDER)) {
        (true, false) => Some(FindingKind::NotAtProvider),
        // A call whose answer is still to come, one that the letter itself doubts, and those of whoever consumed before.
        (false, true)
            if !trace.is(fact::CHARGED | fact::WAITS | fact::IN_DOUBT | fact::TAKEN_OVER | fact::UNFINISHED) =>
        {
            Some(FindingKind::NotInLedger)
        }
        _ => None,
    }
}

impl Audit {
    /// Judges everything that was taken in.
    pub fn report(self) -> Report {
        let Self { horizons, produced, ignored, lag, events, places, expired, unexpected, twice, .. } = self;
        let mut lost = Findings::default();
        let mut unexpected = unexpected;
        let mut report = Report { produced, ignored, lag, expired, distinct_produced: ignored, ..Report::default() };
        for (bits, trace) in &events {
            let id = EventId::try_from(Uuid::from_u128(*bits)).expect("the key was made of an event id");
            count(&mut report, &mut lost, *trace, horizons, || format!("event {id}"));
            if let Some(kind) = contradiction(id, *trace, horizons, self.provider_was_asked) {
                unexpected.add(kind, || format!("event {id}"));
            }
        }
        for ((partition, offset), trace) in &places {
            count(&mut report, &mut lost, *trace, horizons, || format!("partition {partition}, offset {offset}"));
        }
        report.lost = lost.count();
        report.charged_twice = twice.count();
        report.unexpected = unexpected.count();
        report.findings = [lost, twice, unexpected].into_iter().flat_map(Findings::into_named).collect();
        report.provider_was_asked = self.provider_was_asked;
        report
    }
}

fn count(report: &mut Report, lost: &mut Findings, trace: Trace, horizons: Horizons, name: impl Fn() -> String) {
    report.distinct_produced += 1;
    report.duplicates += u64::from(trace.deliveries.saturating_sub(1));
    report.retried += u64::from(trace.is(fact::RETRIED));
    match fate(trace, horizons) {
        Fate::Applied => report.applied += 1,
        Fate::DeadLettered => report.dead_lettered += 1,
        Fate::Pending => report.pending += 1,
        Fate::Expired => report.unknown += 1,
        Fate::Lost(why) => lost.add(FindingKind::Lost, || format!("{}: {why}", name())),
    }
}
