//! What is done when, drawn up front from a seed, so that a run that failed can be made again. Pure.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use rand::{
    Rng, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};
use serde_json::{Value, json};

use super::faults::{Fault, Scenario};

/// How long the world is left alone before a fault, in seconds: from, to. In a run of all kinds it is what is left over.
const PAUSE: (f64, f64) = (1.0, 4.0);
/// What is reckoned for the way back from a fault.
const RECOVERY: f64 = 4.0;
/// The share of the time that faults and the ways back from them may take.
const BUSY: f64 = 0.85;
/// The share of the kills, of those that must be, that are planned beyond them.
const SPARE_KILLS: f64 = 0.2;

/// One fault.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// When it begins if every way back takes what is reckoned for it.
    pub(super) at: Duration,
    /// How long nothing is done before it.
    pub(super) pause: Duration,
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
    /// How long after its beginning a process is killed beside it, if one is.
    pub(super) kill: Option<Duration>,
    pub(super) rank: Rank,
    /// What it draws its details from.
    pub(super) seed: u64,
}

/// Whether a run that is late may do without a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Without it there would be too little of something, or none of a kind.
    Needed,
    /// It may be left out.
    Extra,
}

/// What a run of all kinds must have met: in ten minutes 20 kills, and 5 interruptions each of the broker and of the
/// database; in another time proportionally as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Least {
    pub(super) kills: usize,
    pub(super) broker: usize,
    pub(super) postgres: usize,
}

impl Least {
    pub(super) fn of(scenario: Scenario, total: Duration) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few a minute")]
        let a_minute = |times: f64| (times * total.as_secs_f64() / 60.0).ceil() as usize;
        match scenario {
            Scenario::All => Self { kills: a_minute(2.0), broker: a_minute(0.5), postgres: a_minute(0.5) },
            _ => Self { kills: 0, broker: 0, postgres: 0 },
        }
    }
}

/// Faults for this long, out of these. Of all kinds there are at least as many as there must be, and each kind once if
/// there is time for it; of one kind, its faults in turn.
pub(super) fn draw(seed: u64, total: Duration, scenario: Scenario, faults: &[Fault]) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    match scenario {
        Scenario::All => spread(total, choose(total, faults, &mut random), &mut random),
        _ => in_turn(total, faults, &mut random),
    }
}

fn in_turn(total: Duration, faults: &[Fault], random: &mut StdRng) -> Vec<Step> {
    let (mut deck, mut steps, mut now) = (Vec::new(), Vec::new(), Duration::ZERO);
    loop {
        if deck.is_empty() {
            deck = faults.to_vec();
            deck.shuffle(random);
        }
        let Some(fault) = deck.pop() else { return steps };
        let (pause, mut step) = (seconds(PAUSE, random), Step::draw(fault, Rank::Needed, random));
        (step.pause, step.at) = (pause, now + pause);
        now = step.at + step.lasts;
        if now > total {
            return steps;
        }
        steps.push(step);
    }
}

/// The steps of a run of all kinds, in no order yet.
fn choose(total: Duration, faults: &[Fault], random: &mut StdRng) -> Vec<Step> {
    let least = Least::of(Scenario::All, total);
    let mut steps = Vec::new();
    for (is_wanted, times) in
        [(Fault::stops_broker as fn(Fault) -> bool, least.broker), (Fault::stops_postgres, least.postgres)]
    {
        let mut kinds: Vec<_> = faults.iter().copied().filter(|fault| is_wanted(*fault)).collect();
        kinds.shuffle(random);
        steps.extend(kinds.into_iter().cycle().take(times).map(|fault| Step::draw(fault, Rank::Needed, random)));
    }
    let mut others: Vec<_> = faults.iter().copied().filter(|f| steps.iter().all(|step| step.fault != *f)).collect();
    others.shuffle(random);
    for fault in others {
        steps.push(Step::draw(fault, Rank::Needed, random));
        if busy(&steps) > BUSY * total.as_secs_f64() {
            steps.pop();
        }
    }
    add_kills(least.kills, &mut steps, faults, random);
    while let Some(fault) = faults.choose(random) {
        steps.push(Step::draw(*fault, Rank::Extra, random));
        if busy(&steps) > BUSY * total.as_secs_f64() {
            steps.pop();
            break;
        }
    }
    steps
}

/// Kills beside other faults cost no time, and find the service in more states than kills of their own.
fn add_kills(least: usize, steps: &mut Vec<Step>, faults: &[Fault], random: &mut StdRng) {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few")]
    let wanted = (least as f64 * (1.0 + SPARE_KILLS)).ceil() as usize;
    let mut planned: usize = steps.iter().map(Step::kills).sum();
    let mut places: Vec<usize> =
        (0..steps.len()).filter(|place| steps[*place].fault.leaves_processes_alone()).collect();
    places.shuffle(random);
    for place in places {
        if planned >= wanted {
            return;
        }
        let share = random.random_range(0.0..1.0);
        steps[place].kill = Some(steps[place].lasts.mul_f64(share));
        planned += 1;
    }
    while planned < wanted && faults.contains(&Fault::KillAll) {
        let step = Step::draw(Fault::KillAll, Rank::Needed, random);
        planned += step.kills();
        steps.push(step);
    }
}

/// In some order, with pauses that fill the time.
fn spread(total: Duration, mut steps: Vec<Step>, random: &mut StdRng) -> Vec<Step> {
    steps.shuffle(random);
    let idle = (total.as_secs_f64() - busy(&steps)).max(0.0);
    let weights: Vec<f64> = steps.iter().map(|_| random.random_range(0.5..1.5)).collect();
    let sum: f64 = weights.iter().sum();
    let mut now = Duration::ZERO;
    for (step, weight) in steps.iter_mut().zip(weights) {
        step.pause = Duration::from_secs_f64(idle * weight / sum);
        step.at = now + step.pause;
        now = step.at + step.lasts + Duration::from_secs_f64(RECOVERY);
    }
    steps
}

/// How many seconds these take, pauses aside.
fn busy(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.lasts.as_secs_f64() + RECOVERY).sum()
}

fn seconds((from, to): (f64, f64), random: &mut StdRng) -> Duration {
    Duration::from_secs_f64(random.random_range(from..to))
}

impl Step {
    fn draw(fault: Fault, rank: Rank, random: &mut StdRng) -> Self {
        let lasts = seconds(fault.lasts(), random);
        let seed = random.random();
        Self { at: Duration::ZERO, pause: Duration::ZERO, fault, lasts, kill: None, rank, seed }
    }

    /// How many processes it kills.
    pub(super) fn kills(&self) -> usize {
        self.fault.kills() + usize::from(self.kill.is_some())
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "at": self.at.as_secs_f64(),
            "fault": self.fault.as_str(),
            "seconds": self.lasts.as_secs_f64(),
            "kill_after": self.kill.map(|after| after.as_secs_f64()),
            "needed": self.rank == Rank::Needed,
        })
    }
}

impl Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, fault, lasts) = (self.at.as_secs_f32(), self.fault.as_str(), self.lasts.as_secs_f32());
        write!(formatter, "{at:6.1} s  {fault} ({lasts:.1} s)")?;
        match self.kill {
            Some(after) => write!(formatter, ", and after {:.1} s a process is killed", after.as_secs_f32()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
