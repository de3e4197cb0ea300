//! One run: a schedule decides who goes on and what fails; when it is over, everything heals, and the group must come to
//! rest with nothing lost.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use core_delivery::delivery::Health;
use core_delivery::record::Header;
use futures::channel::oneshot;

use crate::broker::{Broker, identity};
use crate::executor::{Executor, Life};
use crate::member::{self, FOREIGN_HEADER};
use crate::probe::{CONSUMED, Content, KINDS, Kind, PARTITIONS, lane_id};
use crate::schedule::Choices;
use crate::store::{Store, first_position};
use crate::truth::{Broken, Truth};

pub const SCRIPTED_PANIC: &str = "a panic of the model";

/// How long the group may take to come to rest once nothing fails any more, in steps and in virtual time.
/// What kills whoever performs it takes three minutes of rests if nothing else is there.
const REST_STEPS: usize = 60_000;
const REST_TIME: Duration = Duration::from_secs(3_600);
const RECORDS: u32 = 40;
const MEMBERS: usize = 2;
/// How many events of a run may kill whoever performs them.
const DEADLY: usize = 2;

/// How often what goes wrong in this run, of 256 occasions.
#[derive(Clone, Copy)]
pub struct Profile {
    pub store: usize,
    pub unknown: usize,
    pub handler: usize,
    pub slow: usize,
    pub panics: usize,
    pub publisher: usize,
    odd: usize,
    duplicates: usize,
    rebalances: usize,
    crashes: usize,
    restores: usize,
    resets: usize,
}

impl Profile {
    fn drawn(choices: &Choices) -> Self {
        let rate = |rates: [usize; 4]| rates[choices.pick(4)];
        Self {
            store: rate([0, 2, 8, 30]),
            unknown: rate([0, 4, 20, 80]),
            handler: rate([0, 10, 50, 160]),
            slow: rate([0, 10, 40, 120]),
            panics: rate([0, 0, 2, 12]),
            publisher: rate([0, 10, 60, 150]),
            odd: rate([0, 20, 60, 150]),
            duplicates: rate([0, 20, 60, 150]),
            rebalances: rate([0, 40, 120, 255]),
            crashes: rate([0, 20, 60, 200]),
            restores: rate([0, 0, 20, 120]),
            resets: rate([0, 0, 40, 160]),
        }
    }
}

/// What everything in a run shares.
#[derive(Clone)]
pub struct Context {
    pub choices: Choices,
    pub executor: Executor,
    pub truth: Truth,
    pub profile: Profile,
}

struct World {
    context: Context,
    broker: Broker,
    store: Store,
    members: BTreeMap<Life, (Health, Option<oneshot::Sender<()>>)>,
    lives: Life,
    produced: Vec<Content>,
    records: u32,
    is_closing: bool,
}

/// What a run came to.
pub struct Outcome {
    pub steps: usize,
    pub broken: Option<Broken>,
}

/// Runs a schedule. One that is drawn from a seed ends after `steps` steps.
pub fn run(choices: &Choices, steps: usize) -> Outcome {
    let profile = Profile::drawn(choices);
    let context = Context { choices: choices.clone(), executor: Executor::default(), truth: Truth::default(), profile };
    let (broker, store) = (Broker::new(context.clone()), Store::new(context.clone()));
    let mut world = World {
        context,
        broker,
        store,
        members: BTreeMap::new(),
        lives: 0,
        produced: vec![],
        records: 0,
        is_closing: false,
    };
    (0..=choices.pick(12)).for_each(|_| world.produce());
    let taken = world.go(steps);
    let broken = world.context.truth.broken();
    world.lives().into_iter().for_each(|life| world.bury(life));
    world.context.executor.kill(|_| true);
    Outcome { steps: taken, broken }
}

impl World {
    fn go(&mut self, limit: usize) -> usize {
        let Context { choices, truth, executor, .. } = self.context.clone();
        let (mut steps, mut rest) = (0, None);
        loop {
            if truth.broken().is_some() {
                return steps;
            }
            if steps >= limit {
                choices.end();
            }
            if choices.are_over() {
                let (first_step, since) = *rest.get_or_insert((steps, executor.elapsed()));
                if steps - first_step > REST_STEPS || executor.elapsed() - since > REST_TIME {
                    self.is_stuck("it does not come to rest");
                    return steps;
                }
            }
            steps += 1;
            if self.step() {
                return steps;
            }
        }
    }

    /// One decision. True when the run is over.
    fn step(&mut self) -> bool {
        let Context { choices, executor, profile, .. } = self.context.clone();
        match choices.pick(64) {
            46..=49 => drop(executor.pass_time()),
            50..=54 => self.broker.work(),
            55..=56 => self.produce(),
            57..=59 if choices.chance(profile.rebalances) => self.broker.rebalance(),
            60 => self.upheaval(),
            61 if choices.chance(profile.restores) => self.store.restore(),
            62 if choices.chance(profile.resets) => self.broker.reset(),
            _ if executor.ready() > 0 => self.poll(choices.pick(executor.ready())),
            _ => return self.idle(),
        }
        false
    }

    fn poll(&mut self, place: usize) {
        let step = self.context.executor.poll(place);
        if let Some(panic) = step.panic.filter(|panic| panic != SCRIPTED_PANIC) {
            self.context.truth.report("panics", format!("{} of process {}: {panic}", step.name, step.life));
        }
        while let Some(life) = self.context.truth.take_dying() {
            self.bury(life);
        }
        while let Some((life, how)) = self.broker.take_ended() {
            self.context.choices.note(|| format!("process {life} has ended: {how:?}"));
            self.context.truth.ended(life, how);
            self.bury(life);
        }
    }

    /// Nothing is ready: what is due is done, or time passes. True when the run is over.
    fn idle(&mut self) -> bool {
        if !self.is_closing && self.members.is_empty() {
            self.start();
        } else if !self.broker.turn() && !self.operate() {
            return self.rests() || !self.context.executor.pass_time() && self.is_stuck("nothing will ever happen");
        }
        false
    }

    /// Whether the group has come to rest: then it is stopped, and then the run is over.
    fn rests(&mut self) -> bool {
        let truth = &self.context.truth;
        if !self.context.choices.are_over() || truth.open().is_some() || !self.is_closing && !self.broker.is_done() {
            return false;
        }
        if self.is_closing {
            if !self.members.is_empty() {
                return false;
            }
            if let Some(lost) = truth.lost() {
                truth.report("lost", lost);
            }
            if let Some(leaked) = truth.leaked(&self.store.reserved()) {
                truth.report("reservations", leaked);
            }
            return true;
        }
        self.is_closing = true;
        self.members.values_mut().for_each(|(_, stop)| drop(stop.take()));
        false
    }

    fn is_stuck(&self, what: &str) -> bool {
        let reasons: Vec<String> = self.members.values().flat_map(|(health, _)| health.reasons()).collect();
        let open = self.context.truth.open();
        let tasks = self.context.executor.unfinished();
        let text =
            format!("{what}; closing: {}; open: {open:?}; health: {reasons:?}; tasks: {tasks:?}", self.is_closing);
        self.context.truth.report("rest", text);
        true
    }

    /// A process comes, goes or breaks.
    fn upheaval(&mut self) {
        let Context { choices, profile, .. } = self.context.clone();
        let lives = self.lives();
        if lives.len() < MEMBERS && choices.pick(2) == 0 {
            return self.start();
        }
        let victim = lives.get(choices.pick(lives.len())).copied().filter(|_| choices.chance(profile.crashes));
        let Some(life) = victim else { return };
        let crashes = choices.pick(2) == 1;
        choices.note(|| format!("process {life} {}", if crashes { "crashes" } else { "is asked to stop" }));
        match self.members.get_mut(&life) {
            _ if crashes => self.bury(life),
            Some((_, stop)) => drop(stop.take()),
            None => {}
        }
    }

    fn lives(&self) -> Vec<Life> {
        self.members.keys().copied().collect()
    }

    fn start(&mut self) {
        self.lives += 1;
        self.context.choices.note(|| format!("process {} starts", self.lives));
        let (health, stop) = member::start(&self.context, &self.broker, &self.store, self.lives);
        self.members.insert(self.lives, (health, Some(stop)));
    }

    fn bury(&mut self, life: Life) {
        self.context.truth.dies(life);
        self.members.remove(&life);
        self.context.executor.kill(|owner| owner == life);
        self.broker.leave(life);
    }

    /// An operator reads what is held up, and names the position of a lane that has none.
    fn operate(&self) -> bool {
        let reasons: Vec<String> = self.members.values().flat_map(|(health, _)| health.reasons()).collect();
        let asks = |lane: &usize| {
            let place = format!("{}: ", lane_id(*lane));
            reasons.iter().any(|reason| reason.starts_with(&place) && reason.contains("positions set"))
        };
        (0..CONSUMED).filter(asks).any(|lane| self.store.set_first_position(lane, first_position(identity())))
    }

    fn produce(&mut self) {
        if self.records >= RECORDS {
            return;
        }
        self.records += 1;
        let Context { choices, profile, .. } = &self.context;
        let again = choices.chance(profile.duplicates).then(|| self.produced.get(choices.pick(self.produced.len())));
        let content = again.flatten().copied().unwrap_or_else(|| {
            let kind = if choices.chance(profile.odd) { choices.pick(KINDS.len()) } else { 0 };
            let deadly = self.produced.iter().filter(|content| content.kind() == Kind::Deadly).count();
            let kind = if KINDS[kind] == Kind::Deadly && deadly >= DEADLY { 0 } else { kind };
            Content { number: self.records, kind, key: choices.pick(3) as u8 }
        });
        self.produced.push(content);
        let header = Header { key: FOREIGN_HEADER.to_owned(), value: Some(Bytes::from_static(b"1")) };
        self.broker.write(choices.pick(PARTITIONS), content, vec![header]);
    }
}
