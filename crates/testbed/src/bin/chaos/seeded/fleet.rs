//! The processes of the service: started, killed, suspended, stopped; and whether one ended that nobody had ended.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng, rngs::StdRng};
use testbed::{clients::Service, wait_until};

use super::{membership::Membership, world::World};

/// How long a stop in order may take: the drain, and the end of everything else.
const STOP_LIMIT: Duration = Duration::from_secs(40);
/// The same where it does not matter how it ends.
const DISMISSAL: Duration = Duration::from_secs(10);
/// How many there are while nothing is done to them.
const SIZE: usize = 2;

/// How long a process may take to end once another one has its name.
const FENCED_LIMIT: Duration = Duration::from_secs(30);

/// Which service the processes are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crew {
    /// The one that charges orders.
    Billing,
    /// The one that journals the order of effects.
    Ordered,
}

/// The processes of one service.
pub(super) struct Fleet {
    crew: Crew,
    membership: Membership,
    members: Vec<Member>,
    logs: PathBuf,
    started: u32,
    /// How many were killed.
    pub(super) killed: usize,
    /// What must not have happened, one line each.
    pub(super) findings: Vec<String>,
}

struct Member {
    number: u32,
    /// The place that it has, with the name that belongs to it.
    slot: usize,
    log: &'static str,
    service: Service,
}

impl Fleet {
    pub(super) fn new(crew: Crew, membership: Membership, logs: PathBuf) -> Self {
        Self { crew, membership, members: Vec::new(), logs, started: 0, killed: 0, findings: Vec::new() }
    }

    /// Starts processes until there are as many as there should be.
    pub(super) async fn complete(&mut self, world: &World) -> Result<()> {
        while self.members.len() < SIZE {
            self.join(world).await?;
        }
        Ok(())
    }

    /// Starts one more.
    pub(super) async fn join(&mut self, world: &World) -> Result<()> {
        self.join_with(world, &[]).await
    }

    /// Starts one more, with these variables on top.
    pub(super) async fn join_with(&mut self, world: &World, more: &[(&'static str, String)]) -> Result<()> {
        let is_free = |slot: &usize| self.members.iter().all(|member| member.slot != *slot);
        let slot = (1..).find(is_free).expect("there are few");
        self.start(world, slot, more).await
    }

    /// Another process comes with the name of the oldest, which must end by itself, and not as if all were well.
    pub(super) async fn take_the_name_of_the_oldest(&mut self, world: &World) -> Result<()> {
        let older = self.members.remove(0);
        self.start(world, older.slot, &[]).await?;
        match older.service.wait(FENCED_LIMIT).await {
            Ok(status) if !status.success() => {}
            Ok(_) => self.findings.push(format!("process {} lost its name and ended with success", older.number)),
            Err(error) => self.findings.push(format!("process {} lost its name and goes on: {error:#}", older.number)),
        }
        older.keep_log(&self.logs)
    }

    async fn start(&mut self, world: &World, slot: usize, more: &[(&'static str, String)]) -> Result<()> {
        let properties = self.membership.properties(&format!("member-{slot}"));
        let (log, own, separator) = match self.crew {
            Crew::Billing => ("service", &world.variables, ","),
            Crew::Ordered => ("ordered", &world.ordered_variables, ";"),
        };
        let properties = properties.join(separator);
        let mut variables: Vec<_> = own.iter().chain(more).map(|(name, value)| (*name, value.as_str())).collect();
        variables.push(("KAFKA_PROPERTIES", &properties));
        let service = match self.crew {
            Crew::Billing => Service::start(&variables).await?,
            Crew::Ordered => Service::start_beside("ordered", &variables).await?,
        };
        self.started += 1;
        self.members.push(Member { number: self.started, slot, log, service });
        Ok(())
    }

    /// Kills one.
    pub(super) async fn kill_one(&mut self, random: &mut StdRng) -> Result<()> {
        if self.members.is_empty() {
            return Ok(());
        }
        let mut member = self.members.swap_remove(random.random_range(0..self.members.len()));
        member.service.kill9().await?;
        self.killed += 1;
        member.keep_log(&self.logs)
    }

    /// Kills all, side by side.
    pub(super) async fn kill_all(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.service.kill9().await?;
            self.killed += 1;
            member.keep_log(&self.logs)?;
        }
        self.members.clear();
        Ok(())
    }

    /// Makes one stand still, for this long.
    pub(super) async fn suspend_one(&mut self, random: &mut StdRng, lasts: Duration) -> Result<()> {
        let chosen = random.random_range(0..self.members.len());
        self.members[chosen].service.suspend()?;
        tokio::time::sleep(lasts).await;
        self.members[chosen].service.resume()
    }

    /// Stops the oldest in order; with another exit than 0 that is a finding.
    pub(super) async fn stop_oldest(&mut self) -> Result<()> {
        let member = self.members.remove(0);
        self.stopped(member).await
    }

    /// Stops the youngest in order.
    pub(super) async fn stop_youngest(&mut self) -> Result<()> {
        match self.members.pop() {
            Some(member) => self.stopped(member).await,
            None => Ok(()),
        }
    }

    /// Asks the youngest to stop, and kills it if it does not.
    pub(super) async fn dismiss_youngest(&mut self) -> Result<()> {
        let Some(mut member) = self.members.pop() else { return Ok(()) };
        if member.service.ended().is_none() {
            member.service.terminate()?;
            if member.service.wait(DISMISSAL).await.is_err() {
                println!("              process {} does not end and is killed", member.number);
                member.service.kill9().await?;
            }
        }
        member.keep_log(&self.logs)
    }

    /// Stops all in order.
    pub(super) async fn stop_all(&mut self) -> Result<()> {
        while let Some(member) = self.members.pop() {
            self.stopped(member).await?;
        }
        Ok(())
    }

    async fn stopped(&mut self, mut member: Member) -> Result<()> {
        member.service.terminate()?;
        match member.service.wait(STOP_LIMIT).await {
            Ok(status) if status.success() => {}
            Ok(status) => self.findings.push(format!(
                "process {} was asked to stop and ended with {status}; its log ends:\n{}",
                member.number,
                member.service.log_tail()
            )),
            Err(error) => self.findings.push(format!("process {} did not stop in order: {error:#}", member.number)),
        }
        member.keep_log(&self.logs)
    }

    /// Takes out those that ended by themselves: nothing that is done to the world may end the service.
    pub(super) fn look_for_ended(&mut self) -> Result<()> {
        let (alive, ended): (Vec<_>, Vec<_>) =
            self.members.drain(..).partition(|member| member.service.ended().is_none());
        self.members = alive;
        for member in ended {
            self.findings.push(format!(
                "process {} ended by itself ({}); its log ends:\n{}",
                member.number,
                member.service.ended().map_or_else(String::new, |status| status.to_string()),
                member.service.log_tail()
            ));
            member.keep_log(&self.logs)?;
        }
        Ok(())
    }

    /// Waits until all say that they are ready; if they do not, it is a finding.
    pub(super) async fn until_ready(&mut self, limit: Duration) {
        if self.crew == Crew::Ordered {
            return;
        }
        for member in &self.members {
            let ready = wait_until("/ready", limit, async || member.service.ready().await).await;
            if ready.is_err() {
                let said = member.service.readiness().await;
                self.findings.push(format!("process {} is not ready again: {said:?}", member.number));
            }
        }
    }

    /// What each says of itself, for progress and errors.
    pub(super) async fn readiness(&self) -> String {
        let mut said = Vec::new();
        for member in &self.members {
            let answer = member.service.readiness().await;
            said.push(
                answer.map_or_else(|_| "silent".to_owned(), |(status, text)| format!("{status} {}", text.trim())),
            );
        }
        said.join(" | ")
    }

    /// Keeps the logs of those that run.
    pub(super) fn keep_logs(&self) -> Result<()> {
        self.members.iter().try_for_each(|member| member.keep_log(&self.logs))
    }
}

impl Member {
    fn keep_log(&self, folder: &std::path::Path) -> Result<()> {
        let path = folder.join(format!("{}-{:03}.log", self.log, self.number));
        fs::write(&path, self.service.log()).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Both services.
pub(super) struct Crews {
    pub(super) billing: Fleet,
    pub(super) ordered: Fleet,
}

/// What is done to both, side by side where it takes time.
impl Crews {
    pub(super) fn new(membership: Membership, logs: &std::path::Path) -> Self {
        let fleet = |crew| Fleet::new(crew, membership, logs.to_owned());
        Self { billing: fleet(Crew::Billing), ordered: fleet(Crew::Ordered) }
    }

    fn each(&mut self) -> [&mut Fleet; 2] {
        [&mut self.billing, &mut self.ordered]
    }

    pub(super) async fn complete(&mut self, world: &World) -> Result<()> {
        tokio::try_join!(self.billing.complete(world), self.ordered.complete(world)).map(drop)
    }

    pub(super) async fn join(&mut self, world: &World) -> Result<()> {
        tokio::try_join!(self.billing.join(world), self.ordered.join(world)).map(drop)
    }

    pub(super) async fn kill_one(&mut self, random: &mut StdRng) -> Result<()> {
        self.billing.kill_one(random).await?;
        self.ordered.kill_one(random).await
    }

    pub(super) async fn kill_all(&mut self) -> Result<()> {
        tokio::try_join!(self.billing.kill_all(), self.ordered.kill_all()).map(drop)
    }

    pub(super) async fn suspend_one(&mut self, random: &mut StdRng, lasts: Duration) -> Result<()> {
        let [one, other] = [random.random(), random.random()].map(StdRng::seed_from_u64);
        let (one, other) = (&mut { one }, &mut { other });
        tokio::try_join!(self.billing.suspend_one(one, lasts), self.ordered.suspend_one(other, lasts)).map(drop)
    }

    pub(super) async fn stop_oldest(&mut self) -> Result<()> {
        tokio::try_join!(self.billing.stop_oldest(), self.ordered.stop_oldest()).map(drop)
    }

    pub(super) async fn stop_youngest(&mut self) -> Result<()> {
        tokio::try_join!(self.billing.stop_youngest(), self.ordered.stop_youngest()).map(drop)
    }

    pub(super) async fn stop_all(&mut self) -> Result<()> {
        tokio::try_join!(self.billing.stop_all(), self.ordered.stop_all()).map(drop)
    }

    pub(super) fn look_for_ended(&mut self) -> Result<()> {
        self.each().into_iter().try_for_each(Fleet::look_for_ended)
    }

    pub(super) fn keep_logs(&mut self) -> Result<()> {
        self.each().into_iter().try_for_each(|fleet| fleet.keep_logs())
    }

    /// What must not have happened to either.
    pub(super) fn findings(&self) -> impl Iterator<Item = &String> {
        self.billing.findings.iter().chain(&self.ordered.findings)
    }
}
