//! What every seed must give.

use std::collections::BTreeSet;

use super::*;

fn all(seed: u64, seconds: u64) -> Vec<Step> {
    draw(seed, Duration::from_secs(seconds), Scenario::All, &Scenario::All.faults())
}

fn times(steps: &[Step], is_one: fn(Fault) -> bool) -> usize {
    steps.iter().filter(|step| is_one(step.fault)).count()
}

#[test]
fn a_seed_gives_one_schedule() {
    assert_eq!(all(1, 300), all(1, 300));
    assert_ne!(all(1, 300), all(2, 300));
}

#[test]
fn ten_minutes_hold_what_they_must_whatever_the_seed() {
    for seed in 0..500 {
        let mut steps = all(seed, 600);
        let kinds: BTreeSet<_> = steps.iter().map(|step| step.fault).collect();
        assert_eq!(kinds, BTreeSet::from_iter(Scenario::All.faults()), "seed {seed}: every kind");
        let last = steps.last().map(|step| step.at + step.lasts).expect("there are some");
        assert!(last <= Duration::from_secs(600), "seed {seed}: the last one ends after {last:?}");
        // Without what a late run leaves out.
        steps.retain(|step| step.rank == Rank::Needed);
        let kills: usize = steps.iter().map(Step::kills).sum();
        assert!(kills >= 20, "seed {seed}: {kills} kills");
        assert!(times(&steps, Fault::stops_broker) >= 5, "seed {seed}");
        assert!(times(&steps, Fault::stops_postgres) >= 5, "seed {seed}");
        assert!(times(&steps, |fault| fault == Fault::LostTail) >= 1, "seed {seed}");
    }
}

#[test]
fn another_time_holds_its_share() {
    for (seconds, kills, interruptions) in [(60, 2, 1), (120, 4, 1), (300, 10, 3), (1_200, 40, 10)] {
        for seed in 0..200 {
            let steps = all(seed, seconds);
            assert!(steps.iter().all(|step| step.at + step.lasts <= Duration::from_secs(seconds)), "seed {seed}");
            assert!(steps.iter().map(Step::kills).sum::<usize>() >= kills, "seed {seed}, {seconds} s");
            assert!(times(&steps, Fault::stops_broker) >= interruptions, "seed {seed}, {seconds} s");
            assert!(times(&steps, Fault::stops_postgres) >= interruptions, "seed {seed}, {seconds} s");
        }
    }
}

#[test]
fn a_process_is_killed_only_beside_faults_that_leave_processes_alone() {
    for step in (0..100).flat_map(|seed| all(seed, 600)).filter(|step| step.kill.is_some()) {
        assert!(step.fault.leaves_processes_alone(), "{step}");
        assert!(step.kill.is_some_and(|after| after <= step.lasts), "{step}");
    }
}

#[test]
fn every_scenario_has_faults_of_its_own_only() {
    use clap::ValueEnum;
    for scenario in Scenario::value_variants().iter().filter(|scenario| **scenario != Scenario::All) {
        let steps = draw(1, Duration::from_secs(60), *scenario, &scenario.faults());
        assert!(!steps.is_empty(), "{scenario:?}");
        assert!(steps.iter().all(|step| step.fault.scenario() == *scenario));
    }
}
