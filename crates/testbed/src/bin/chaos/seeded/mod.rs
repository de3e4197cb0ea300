//! `cargo xtask chaos --minutes M`: many kinds of faults, one after the other, from a schedule that a seed decides, while
//! a load goes through whose every record has its verdict fixed beforehand. Like the kills alone, it judges by what
//! others have written, never by what the service says of itself.

mod abilities;
mod auditing;
mod broker;
mod clocks;
mod commits;
mod database;
mod disk;
mod failover;
mod faults;
mod fleet;
mod inject;
mod judge;
mod load;
mod membership;
mod order;
mod positions;
mod progress;
mod report;
mod schedule;
mod settling;
mod timeline;
mod world;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use sandbox::{provider::ProviderSettings, samples::samples};
use testbed::{clients::ProviderOptions, wait_until};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use abilities::take_own_mounts;
pub(crate) use faults::Scenario;
pub(crate) use membership::Membership;

use abilities::Abilities;
use faults::Fault;
use fleet::Crews;
use judge::Judgement;
use load::Load;
use progress::Progress;
use schedule::{Rank, Step};
use world::{STEPS_TOPIC, TOPIC, World};

/// How long the next fault waits for the end of the last one.
const RECOVERY: Duration = Duration::from_secs(25);
/// The same in a run that is late.
const SHORT_RECOVERY: Duration = Duration::from_secs(8);
/// The pause of a run that is late.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
/// By how much a run may be late and still make the faults that it could do without.
const LATE: Duration = Duration::from_secs(10);
/// Numbered events for each hundred orders.
const STEPS_A_HUNDRED: usize = 16;
/// How long all may take to be ready once everything is settled.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Orders a minute, if their number is not given.
const ORDERS_A_MINUTE: f64 = 10_000.0;

/// What is to be tried.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) scenario: Scenario,
    pub(crate) membership: Membership,
    pub(crate) orders: Option<usize>,
    /// The share of charges that meet a fault of the provider, whatever the schedule brings.
    pub(crate) faults: f64,
    pub(crate) batch_max: u32,
    pub(crate) keep: bool,
    pub(crate) logs: PathBuf,
    pub(crate) json: Option<PathBuf>,
}

/// How a run ended.
pub(crate) enum Ended {
    /// A component could not start: nothing was tried.
    NotStarted(anyhow::Error),
    /// It was tried; whether nothing differs.
    Judged(bool),
}

/// Runs the schedule, waits until everything is settled, and audits.
pub(crate) async fn run(plan: &Plan) -> Ended {
    let abilities = Abilities::find(plan.membership);
    let faults = match abilities.faults(plan.scenario) {
        Ok(faults) => faults,
        Err(error) => return Ended::NotStarted(error),
    };
    let steps = schedule::draw(plan.seed, plan.time, plan.scenario, &faults);
    let (seed, time, membership) = (plan.seed, plan.time, plan.membership.as_str());
    println!("chaos: seed {seed}, {time:?}, members: {membership}, {} faults:", steps.len());
    steps.iter().for_each(|step| println!("  {step}"));
    let provider = ProviderOptions {
        latency_ms: 3,
        fault_share: plan.faults,
        max_faults_per_key: 2,
        decline_share: 0.0,
        seed: plan.seed,
    };
    let world = match World::start(plan, &provider).await {
        Ok(world) => world,
        Err(error) => return Ended::NotStarted(error),
    };
    if faults.contains(&Fault::LostTail)
        && let Err(error) = world.postgres.check_standby()
    {
        return Ended::NotStarted(error.into());
    }
    println!("where everything is:\n{world}");
    let passed = Run::new(plan, abilities, world).until_the_end(&steps).await.unwrap_or_else(|error| {
        println!("chaos: FAIL (seed {}): {error:?}", plan.seed);
        false
    });
    Ended::Judged(passed)
}

/// A run that goes on.
struct Run<'a> {
    plan: &'a Plan,
    orders: usize,
    abilities: Abilities,
    load: Load,
    // Before the world, which its processes need until they end.
    crews: Crews,
    world: World,
    begun: Instant,
    done: BTreeMap<Fault, usize>,
    judgement: Judgement,
    commits_without_verdict: usize,
    checks: usize,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, abilities: Abilities, world: World) -> Self {
        let settings = ProviderSettings { fault_share: plan.faults, seed: plan.seed, ..ProviderSettings::default() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of orders are small")]
        let orders = plan.orders.unwrap_or((plan.time.as_secs_f64() / 60.0 * ORDERS_A_MINUTE) as usize);
        Self {
            orders,
            load: Load::new(samples(orders, plan.seed, &settings)),
            abilities,
            crews: Crews::new(plan.membership, &world.logs),
            begun: Instant::now(),
            done: BTreeMap::new(),
            judgement: Judgement::default(),
            commits_without_verdict: 0,
            checks: 0,
            plan,
            world,
        }
    }

    async fn until_the_end(mut self, steps: &[Step]) -> Result<bool> {
        self.crews.complete(&self.world).await?;
        self.begun = Instant::now();
        let expected = self.load.expected();
        let progress = Progress::start(self.world.ledger.clone(), self.world.provider.clone(), expected.0);
        let orders =
            self.load.samples.iter().map(|sample| (sample.key.to_vec(), sample.payload.as_ref().map(|p| p.to_vec())));
        let numbered = order::steps(self.orders * STEPS_A_HUNDRED / 100, self.plan.seed);
        let numbered = numbered.into_iter().map(|(key, payload)| (key, Some(payload))).collect();
        let write =
            |topic, records| tokio::spawn(load::write(self.world.kafka.clone(), topic, records, self.plan.time));
        let (writing, writing_numbered) = (write(TOPIC, orders.collect()), write(STEPS_TOPIC, numbered));
        for (reached, step) in steps.iter().enumerate() {
            let late = self.begun.elapsed().saturating_sub(step.at);
            if step.rank == Rank::Extra && late > LATE {
                println!("{} left out, the run is {late:.0?} late: {step}", self.clock());
                continue;
            }
            self.recovered(step, late).await?;
            if self.begun.elapsed() > self.plan.time {
                println!("{} the last {} faults are left out: the time is over", self.clock(), steps.len() - reached);
                break;
            }
            self.step(step).await.with_context(|| format!("in the fault {step}"))?;
        }
        sleep_until(self.begun + self.plan.time).await;
        let written = writing.await.context("the load panicked")??;
        writing_numbered.await.context("the load panicked")??;
        println!("{} everything is written, no more faults", self.clock());
        let pending = settling::until_settled(&self.world, &self.crews.billing).await?;
        if pending > 0 {
            let said = self.crews.billing.readiness().await;
            self.judgement
                .add(None, format!("{pending} records were still before the group when patience ended: {said}"));
        }
        drop(progress);
        self.crews.billing.until_ready(READY_LIMIT).await;
        let took = self.begun.elapsed();
        self.crews.look_for_ended()?;
        self.crews.keep_logs()?;
        self.crews.stop_all().await?;
        self.check_commits().await?;
        self.check_least();
        let passed = self.audit(steps, &written, pending, took).await?;
        if self.plan.keep {
            println!("kept until Ctrl-C:\n{}", self.world);
            // Without a signal to wait for there is no keeping.
            drop(tokio::signal::ctrl_c().await);
        }
        Ok(passed)
    }

    /// Whether the last fault is over is seen by a new charge: a fault of a service that has not begun again shows
    /// nothing. It may take longer than we wait.
    async fn recovered(&mut self, step: &Step, late: Duration) -> Result<()> {
        // A pause is what is left over.
        let left = step.at.saturating_sub(self.begun.elapsed());
        sleep(left.max(SHORTEST_PAUSE).min(step.pause)).await;
        self.crews.look_for_ended()?;
        self.crews.complete(&self.world).await?;
        let patience = if late > LATE { SHORT_RECOVERY } else { RECOVERY };
        let before = self.world.ledger.charge_count().await?;
        let more = async || self.world.ledger.charge_count().await.is_ok_and(|now| now > before);
        if wait_until("a new charge", patience, more).await.is_err() {
            println!("{} no new charge in {patience:?}: {}", self.clock(), self.crews.billing.readiness().await);
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        println!("{} planned for {step}", self.clock());
        inject::inject(step, &mut self.world, &mut self.crews, &self.abilities).await?;
        if step.fault.leaves_nobody() {
            self.check_commits().await?;
        }
        *self.done.entry(step.fault).or_default() += 1;
        self.crews.look_for_ended()?;
        self.crews.complete(&self.world).await
    }

    fn clock(&self) -> String {
        format!("{:6.1} s ", self.begun.elapsed().as_secs_f32())
    }
}
