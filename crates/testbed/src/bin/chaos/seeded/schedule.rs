//! What is done when, drawn up front from a seed, so that a run that failed can be made again. Pure.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};

use super::faults::{Fault, Scenario};

/// How long the world is left alone before a fault, in seconds: from, to.
const PAUSE: (f64, f64) = (1.0, 4.0);

/// One fault.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// When it would begin if ending a fault took no time.
    pub(super) at: Duration,
    /// How long nothing is done before it.
    pub(super) pause: Duration,
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
    /// What it draws its details from.
    pub(super) seed: u64,
}

/// Faults for this long. Each kind of the scenario comes before one comes again.
pub(super) fn draw(seed: u64, total: Duration, scenario: Scenario) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let seconds = |(from, to): (f64, f64), random: &mut StdRng| Duration::from_secs_f64(random.random_range(from..to));
    let mut deck = Vec::new();
    let mut steps = Vec::new();
    let mut now = Duration::ZERO;
    loop {
        if deck.is_empty() {
            deck = scenario.faults();
            deck.shuffle(&mut random);
        }
        let Some(fault) = deck.pop() else { return steps };
        let (pause, lasts) = (seconds(PAUSE, &mut random), seconds(fault.lasts(), &mut random));
        let at = now + pause;
        now = at + lasts;
        if now > total {
            return steps;
        }
        steps.push(Step { at, pause, fault, lasts, seed: random.random() });
    }
}

impl Step {
    pub(super) fn to_json(&self) -> Value {
        json!({ "at": self.at.as_secs_f64(), "fault": self.fault.as_str(), "seconds": self.lasts.as_secs_f64() })
    }
}

impl Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:6.1} s  {} ({:.1} s)",
            self.at.as_secs_f32(),
            self.fault.as_str(),
            self.lasts.as_secs_f32()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_one_schedule() {
        let drawn = |seed| draw(seed, Duration::from_secs(300), Scenario::All);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn each_kind_comes_before_one_comes_again_and_none_outlasts_the_run() {
        let total = Duration::from_secs(600);
        let steps = draw(3, total, Scenario::All);
        let first: BTreeSet<_> = steps[..Fault::ALL.len()].iter().map(|step| step.fault).collect();
        assert_eq!(first.len(), Fault::ALL.len());
        assert!(steps.iter().all(|step| step.at + step.lasts <= total));
    }

    #[test]
    fn every_scenario_has_faults_of_its_own_only() {
        use clap::ValueEnum;
        for scenario in Scenario::value_variants().iter().filter(|scenario| **scenario != Scenario::All) {
            let steps = draw(1, Duration::from_secs(60), *scenario);
            assert!(!steps.is_empty(), "{scenario:?}");
            assert!(steps.iter().all(|step| step.fault.scenario() == *scenario));
        }
    }
}
