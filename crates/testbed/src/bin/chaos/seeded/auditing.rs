//! The end of a run: everything that was written is collected, judged and reported. What is right is the judges' matter.

use std::{collections::HashSet, time::Duration};

use anyhow::{Context, Result};
use testbed::clients::Books;

use super::{
    Run, commits,
    judge::{Judgement, judge},
    order::{self, Order},
    report::{self, Report},
    schedule::{Least, Step},
    timeline::{self, Topics},
    world::{GROUP, dead_letter_topic},
};

impl Run<'_> {
    /// Whether the run has met what it must: one that has not shows less than it says.
    pub(super) fn check_least(&mut self) {
        let least = Least::of(self.plan.scenario, self.plan.time);
        let is = Least {
            kills: self.crews.billing.killed,
            broker: self.world.stops.broker,
            postgres: self.world.stops.postgres,
        };
        if is.kills < least.kills || is.broker < least.broker || is.postgres < least.postgres {
            self.judgement.add(None, format!("the run met too little: {is:?}, and not {least:?}"));
        }
    }

    /// With no process alive.
    pub(super) async fn check_commits(&mut self) -> Result<()> {
        let passed = commits::check(&self.world, &self.load).await?;
        self.checks += 1;
        self.commits_without_verdict += passed.len();
        for passed in passed {
            self.judgement.add(passed.subject, format!("commit without verdict: {}", passed.what));
        }
        Ok(())
    }

    pub(super) async fn audit(
        &mut self,
        steps: &[Step],
        written: &[(i32, i64)],
        pending: i64,
        took: Duration,
    ) -> Result<bool> {
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
        let order = order::judge(&world.journals().await?);
        let Judgement { findings, lost, charged_twice, applied, dead_lettered } = judge(&self.load, &books);
        let mut judgement = Judgement { findings: Vec::new(), lost, charged_twice, applied, dead_lettered };
        judgement.findings.append(&mut self.judgement.findings);
        judgement.findings.extend(findings);
        let there: HashSet<_> = topics.source().iter().map(|record| (record.partition, record.offset)).collect();
        for (partition, offset) in written.iter().filter(|place| !there.contains(place)) {
            judgement.add(None, format!("the broker acknowledged {partition}/{offset} of the source and lost it"));
        }
        for finding in self.crews.findings().chain(&order.violations) {
            judgement.add(None, finding.clone());
        }
        let Order { lost, doubled, .. } = order;
        if lost + doubled > 0 {
            judgement.add(None, format!("of the numbered events {lost} had no effect, and {doubled} more than one"));
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
            killed: (self.crews.billing.killed, self.crews.ordered.killed),
            stops: world.stops,
            lost_tails: &world.lost_tails,
            order: &order,
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
}
