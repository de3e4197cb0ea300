//! `cargo xtask chaos --minutes M`: many kinds of faults, one after the other, from a schedule that a seed decides, while
//! a load goes through whose every record has its verdict fixed beforehand. Like the kills alone, it judges by what
//! others have written, never by what the service says of itself.

mod broker;
mod commits;
mod database;
mod faults;
mod fleet;
mod inject;
mod judge;
mod load;
mod progress;
mod report;
mod schedule;
mod settling;
mod timeline;
mod world;

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use sandbox::{provider::ProviderSettings, samples::samples};
use testbed::{
    clients::{Books, ProviderOptions},
    wait_until,
};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) use faults::Scenario;

use faults::Fault;
use fleet::Fleet;
use judge::{Judgement, judge};
use load::Load;
use progress::Progress;
use report::Report;
use schedule::Step;
use timeline::Topics;
use world::{GROUP, World, dead_letter_topic};

/// How long the next fault waits for the end of the last one.
const RECOVERY: Duration = Duration::from_secs(25);
/// How long all may take to be ready once everything is settled.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Orders a minute, if their number is not given.
const ORDERS_A_MINUTE: f64 = 4_000.0;

/// What is to be tried.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    pub(crate) scenario: Scenario,
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
    let steps = schedule::draw(plan.seed, plan.time, plan.scenario);
    println!("chaos: seed {}, {:?}, {} faults:", plan.seed, plan.time, steps.len());
    steps.iter().for_each(|step| println!("  {step}"));
    let provider = ProviderOptions {
        latency_ms: 3,
        fault_share: plan.faults,
        max_faults_per_key: 2,
        decline_share: 0.0,
        seed: plan.seed,
    };
    let world = match World::start(&plan.logs, &provider, plan.batch_max).await {
        Ok(world) => world,
        Err(error) => return Ended::NotStarted(error),
    };
    println!("where everything is:\n{world}");
    let passed = Run::new(plan, world).until_the_end(&steps).await.unwrap_or_else(|error| {
        println!("chaos: FAIL (seed {}): {error:?}", plan.seed);
        false
    });
    Ended::Judged(passed)
}

/// A run that goes on.
struct Run<'a> {
    plan: &'a Plan,
    orders: usize,
    load: Load,
    // Before the world, which its processes need until they end.
    fleet: Fleet,
    world: World,
    begun: Instant,
    done: BTreeMap<Fault, usize>,
    judgement: Judgement,
    commits_without_verdict: usize,
    checks: usize,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, world: World) -> Self {
        let settings = ProviderSettings { fault_share: plan.faults, seed: plan.seed, ..ProviderSettings::default() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of orders are small")]
        let orders = plan.orders.unwrap_or((plan.time.as_secs_f64() / 60.0 * ORDERS_A_MINUTE) as usize);
        Self {
            orders,
            load: Load::new(samples(orders, plan.seed, &settings)),
            fleet: Fleet::new(world.logs.clone()),
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
        self.fleet.complete(&self.world).await?;
        self.begun = Instant::now();
        let expected = self.load.expected();
        let progress = Progress::start(self.world.ledger.clone(), self.world.provider.clone(), expected.0);
        let samples = self.load.samples.clone();
        let writing = tokio::spawn(load::write(self.world.kafka.clone(), samples, self.plan.time));
        for (reached, step) in steps.iter().enumerate() {
            self.recovered(step).await?;
            if self.begun.elapsed() > self.plan.time {
                println!("{} the last {} faults are left out: the time is over", self.clock(), steps.len() - reached);
                break;
            }
            self.step(step).await.with_context(|| format!("in the fault {step}"))?;
        }
        sleep_until(self.begun + self.plan.time).await;
        let written = writing.await.context("the load panicked")??;
        println!("{} everything is written, no more faults", self.clock());
        let pending = settling::until_settled(&self.world, &self.fleet).await?;
        if pending > 0 {
            let said = self.fleet.readiness().await;
            self.judgement
                .add(None, format!("{pending} records were still before the group when patience ended: {said}"));
        }
        drop(progress);
        self.fleet.until_ready(READY_LIMIT).await;
        let took = self.begun.elapsed();
        self.fleet.look_for_ended()?;
        self.fleet.keep_logs()?;
        self.fleet.stop_all().await?;
        self.check_commits().await?;
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
    async fn recovered(&mut self, step: &Step) -> Result<()> {
        sleep(step.pause).await;
        self.fleet.look_for_ended()?;
        self.fleet.complete(&self.world).await?;
        let before = self.world.ledger.charge_count().await?;
        let more = async || self.world.ledger.charge_count().await.is_ok_and(|now| now > before);
        if wait_until("a new charge", RECOVERY, more).await.is_err() {
            println!("{} no new charge in {RECOVERY:?}: {}", self.clock(), self.fleet.readiness().await);
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        println!("{} {} ({:.1} s)", self.clock(), step.fault.as_str(), step.lasts.as_secs_f32());
        inject::inject(step, &mut self.world, &mut self.fleet).await?;
        if step.fault.leaves_nobody() {
            self.check_commits().await?;
        }
        *self.done.entry(step.fault).or_default() += 1;
        self.fleet.look_for_ended()?;
        self.fleet.complete(&self.world).await
    }

    /// With no process alive.
    async fn check_commits(&mut self) -> Result<()> {
        let passed = commits::check(&self.world, &self.load).await?;
        self.checks += 1;
        self.commits_without_verdict += passed.len();
        for passed in passed {
            self.judgement.add(passed.subject, format!("commit without verdict: {}", passed.what));
        }
        Ok(())
    }

    async fn audit(&mut self, steps: &[Step], written: &[(i32, i64)], pending: i64, took: Duration) -> Result<bool> {
        let world = &self.world;
        let provider = world.provider.summary().await?;
        let books = Books {
            provider: world.provider.all_charges().await?,
            key_reuses: provider.key_reuses,
            ledger: world.ledger.charges().await?,
            claims: world.ledger.claims(GROUP).await?,
            dead_letters: world.kafka.read_all(&dead_letter_topic()).await?,
        };
        let topics = Topics::read(world).await?;
        let Judgement { findings, lost, charged_twice, applied, dead_lettered } = judge(&self.load, &books);
        let mut judgement = Judgement { findings: Vec::new(), lost, charged_twice, applied, dead_lettered };
        judgement.findings.append(&mut self.judgement.findings);
        judgement.findings.extend(findings);
        let there: HashSet<_> = topics.source().iter().map(|record| (record.partition, record.offset)).collect();
        for (partition, offset) in written.iter().filter(|place| !there.contains(place)) {
            judgement.add(None, format!("the broker acknowledged {partition}/{offset} of the source and lost it"));
        }
        for finding in &self.fleet.findings {
            judgement.add(None, finding.clone());
        }
        let report = Report {
            plan: self.plan,
            steps,
            done: &self.done,
            seconds: took.as_secs_f64(),
            orders: self.orders,
            records: written.len(),
            expected: self.load.expected(),
            judgement: &judgement,
            pending,
            rebalances: world.rebalances()?,
            checks: self.checks,
            commits_without_verdict: self.commits_without_verdict,
            provider: &provider,
            complaints: world.complaints()?,
            tiers: topics.tiers().collect(),
        };
        report.print();
        if let Some(path) = &self.plan.json {
            let text = format!("{:#}\n", report.to_json());
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let concerned = report::concerned(&judgement.findings);
        let timelines = concerned.into_iter().map(|of| timeline::of(of, &self.load, &topics, &books, &world.logs));
        Ok(report.verdict(&timelines.collect::<Result<Vec<_>>>()?))
    }

    fn clock(&self) -> String {
        format!("{:6.1} s ", self.begun.elapsed().as_secs_f32())
    }
}
