//! Which facts mean what, case by case.

use super::*;

fn id(millis: i64, random: u8) -> EventId {
    EventId::at(UnixMillis(millis), [random; 10])
}

const NOW: i64 = 1_000_000;

fn event() -> EventId {
    id(NOW, 1)
}

/// An audit that saw one event of the source.
fn seen(passed: Passed) -> Audit {
    let mut audit = Audit::default();
    audit.source(Unit::Event(event()), Some(UnixMillis(NOW)), passed);
    audit
}

fn charge(event: EventId, order: &str) -> Charge<'_> {
    Charge { event, order, is_free: false, is_complete: true }
}

fn apply(audit: &mut Audit) {
    audit.claim(event(), false);
    audit.charge(charge(event(), "o-1"));
}

fn kinds(report: &Report) -> Vec<FindingKind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn each_unit_has_one_fate_and_they_add_up() {
    let mut audit = Audit::default();
    let ids: Vec<EventId> = (0..6).map(|number| id(NOW, number)).collect();
    for id in &ids {
        audit.source(Unit::Event(*id), None, Passed::Yes);
    }
    audit.source(Unit::Event(ids[0]), None, Passed::Yes);
    audit.source(Unit::Event(id(NOW, 9)), None, Passed::NotYet);
    audit.source(Unit::Place(0, 7), Some(UnixMillis(NOW)), Passed::Yes);
    audit.ignored(Passed::Yes);
    for (number, id) in ids[..3].iter().enumerate() {
        audit.claim(*id, false);
        audit.charge(charge(*id, &format!("o-{number}")));
    }
    audit.tier(Unit::Event(ids[2]), Passed::Yes);
    audit.tier(Unit::Event(ids[3]), Passed::NotYet);
    audit.letter(Unit::Event(ids[4]), false);
    audit.letter(Unit::Place(0, 7), false);
    let report = audit.report();
    let expected = Report {
        produced: 10,
        distinct_produced: 9,
        applied: 3,
        duplicates: 1,
        retried: 2,
        dead_lettered: 2,
        ignored: 1,
        pending: 2,
        lag: 2,
        lost: 1,
        ..Report::default()
    };
    assert_eq!(Report { findings: vec![], ..report.clone() }, expected);
    assert_eq!(kinds(&report), [FindingKind::Lost]);
    assert!(report.findings[0].what.starts_with(&format!("event {}", ids[5])) && !report.is_clean());
}

#[test]
fn a_clean_run_has_no_finding() {
    let mut audit = seen(Passed::Yes);
    apply(&mut audit);
    let report = audit.report();
    assert!(report.is_clean() && report.findings.is_empty());
    assert_eq!((report.applied, report.lost), (1, 0));
    assert!(report.to_text().contains("lost               0\n"));
    assert_eq!(report.to_json()["clean"], true);
}

/// A letter and a charge: replayed, delivered again, or a crash came between the letter and the offset.
#[test]
fn a_letter_beside_a_charge_is_applied() {
    let mut audit = seen(Passed::Yes);
    audit.letter(Unit::Event(event()), true);
    apply(&mut audit);
    let report = audit.report();
    assert_eq!((report.applied, report.dead_lettered, report.is_clean()), (1, 0, true));
}

#[test]
fn a_deleted_row_of_the_ledger_is_lost() {
    for passed in [Passed::Yes, Passed::NotYet] {
        let mut audit = seen(passed);
        audit.claim(event(), false);
        let report = audit.report();
        assert_eq!((report.lost, report.applied), (1, 0), "{passed:?}");
        assert!(report.findings[0].what.contains("claimed, and not in the ledger"));
    }
}

#[test]
fn a_claim_beside_a_letter_is_one_that_an_operator_discarded() {
    let mut audit = seen(Passed::Yes);
    audit.letter(Unit::Event(event()), false);
    audit.claim(event(), false);
    let report = audit.report();
    assert_eq!((report.dead_lettered, report.is_clean()), (1, true));
}

#[test]
fn a_claim_from_before_the_ledger_needs_no_row_in_it() {
    let mut audit = seen(Passed::Yes);
    audit.claim(event(), true);
    let report = audit.report();
    assert_eq!((report.applied, report.is_clean()), (1, true));
}

#[test]
fn a_lost_claim_is_found_unless_it_is_below_the_floor() {
    let judged = |claims| {
        let mut audit = seen(Passed::Yes);
        audit.charge(charge(event(), "o-1"));
        audit.set_horizons(Horizons { claims, ..Horizons::default() });
        audit.report()
    };
    assert_eq!(kinds(&judged(None)), [FindingKind::ClaimMissing]);
    assert_eq!(kinds(&judged(Some(id(NOW - 1, 0)))), [FindingKind::ClaimMissing]);
    let below = judged(Some(id(NOW + 1, 0)));
    assert_eq!((below.applied, below.is_clean()), (1, true));
}

#[test]
fn what_was_done_for_an_event_that_the_topic_never_held_is_unexpected() {
    let judged = |source| {
        let mut audit = Audit::new(Horizons { source, ..Horizons::default() });
        apply(&mut audit);
        audit.report()
    };
    assert_eq!(kinds(&judged(None)), [FindingKind::ForeignClaim, FindingKind::ForeignCharge]);
    assert_eq!(judged(Some(UnixMillis(NOW - 1))).unexpected, 2);
    let expired = judged(Some(UnixMillis(NOW)));
    assert_eq!((expired.expired, expired.is_clean()), (2, true), "the topic may have held it");
}

#[test]
fn what_was_passed_before_the_oldest_letter_is_not_called_lost() {
    let judged = |letters, unit| {
        let mut audit = Audit::new(Horizons { letters, ..Horizons::default() });
        audit.source(unit, Some(UnixMillis(NOW)), Passed::Yes);
        let report = audit.report();
        (report.lost, report.unknown)
    };
    for unit in [Unit::Event(event()), Unit::Place(0, 3)] {
        assert_eq!(judged(None, unit), (1, 0));
        assert_eq!(judged(Some(UnixMillis(NOW - 1)), unit), (1, 0));
        assert_eq!(judged(Some(UnixMillis(NOW)), unit), (0, 1));
    }
}

#[test]
fn an_unfinished_row_is_unexpected_unless_its_event_waits_or_is_in_doubt() {
    let judged = |letter_in_doubt, passed| {
        let mut audit = seen(passed);
        audit.charge(Charge { is_complete: false, ..charge(event(), "o-1") });
        if let Some(in_doubt) = letter_in_doubt {
            audit.letter(Unit::Event(event()), in_doubt);
        }
        kinds(&audit.report())
    };
    assert_eq!(judged(None, Passed::NotYet), vec![]);
    assert_eq!(judged(Some(true), Passed::Yes), vec![]);
    assert_eq!(judged(Some(false), Passed::Yes), vec![FindingKind::Unfinished]);
}

#[test]
fn two_charges_of_an_order_are_found_in_the_ledger_and_at_the_provider() {
    let mut audit = seen(Passed::Yes);
    audit.source(Unit::Event(id(NOW, 2)), None, Passed::Yes);
    apply(&mut audit);
    audit.claim(id(NOW, 2), false);
    audit.charge(charge(id(NOW, 2), "o-1"));
    audit.provider_was_asked();
    for _ in 0..3 {
        audit.provider_charge(&event().to_string(), "o-1");
    }
    let report = audit.report();
    assert_eq!(report.charged_twice, 3, "one in the ledger, two at the provider");
}

#[test]
fn the_provider_and_the_ledger_must_agree() {
    let judged = |charged: Option<bool>, at_provider: bool, passed, doubt| {
        let mut audit = seen(passed);
        if let Some(is_free) = charged {
            audit.claim(event(), false);
            audit.charge(Charge { is_free, ..charge(event(), "o-1") });
        } else {
            audit.letter(Unit::Event(event()), doubt);
        }
        audit.provider_was_asked();
        if at_provider {
            audit.provider_charge(&event().to_string().to_uppercase(), "o-1");
        }
        kinds(&audit.report())
    };
    let none = [] as [FindingKind; 0];
    assert_eq!(judged(Some(false), true, Passed::Yes, false), none);
    assert_eq!(judged(Some(true), false, Passed::Yes, false), none, "a zero amount");
    assert_eq!(judged(Some(false), false, Passed::Yes, false), [FindingKind::NotAtProvider]);
    assert_eq!(judged(None, true, Passed::Yes, false), [FindingKind::NotInLedger]);
    assert_eq!(judged(None, true, Passed::Yes, true), none, "the letter says that it may have been charged");
    assert_eq!(judged(None, true, Passed::NotYet, false), none, "its answer may be on the way");
}

#[test]
fn charges_of_others_at_the_provider_are_not_ours_to_judge() {
    let mut audit = seen(Passed::Yes);
    apply(&mut audit);
    audit.provider_was_asked();
    audit.provider_charge(&event().to_string(), "o-1");
    audit.provider_charge("somebody-else", "o-1");
    audit.provider_charge(&id(NOW, 77).to_string(), "o-77");
    assert!(audit.report().is_clean());
}

#[test]
fn many_findings_are_counted_and_some_are_named() {
    let mut audit = Audit::default();
    for offset in 0..1_000 {
        audit.source(Unit::Place(0, offset), None, Passed::Yes);
    }
    let report = audit.report();
    assert_eq!((report.lost, report.findings.len()), (1_000, 20));
}

#[test]
fn a_trace_is_small() {
    assert!(size_of::<(u128, Trace)>() <= 32, "a million events must fit into memory easily");
}
