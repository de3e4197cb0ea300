//! The processes of the service: started, killed, suspended, stopped; and whether one ended that nobody had ended.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use rand::{Rng, rngs::StdRng};
use testbed::{clients::Service, wait_until};

use super::world::World;

/// How long a stop in order may take: the drain, and the end of everything else.
const STOP_LIMIT: Duration = Duration::from_secs(40);
/// How many there are while nothing is done to them.
const SIZE: usize = 2;

/// The processes.
pub(super) struct Fleet {
    members: Vec<Member>,
    logs: PathBuf,
    started: u32,
    /// What must not have happened, one line each.
    pub(super) findings: Vec<String>,
}

struct Member {
    number: u32,
    service: Service,
}

impl Fleet {
    pub(super) fn new(logs: PathBuf) -> Self {
        Self { members: Vec::new(), logs, started: 0, findings: Vec::new() }
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
        let variables: Vec<_> = world.variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let service = Service::start(&variables).await?;
        self.started += 1;
        self.members.push(Member { number: self.started, service });
        Ok(())
    }

    /// Kills one.
    pub(super) async fn kill_one(&mut self, random: &mut StdRng) -> Result<()> {
        let mut member = self.members.swap_remove(random.random_range(0..self.members.len()));
        member.service.kill9().await?;
        member.keep_log(&self.logs)
    }

    /// Kills all, side by side.
    pub(super) async fn kill_all(&mut self) -> Result<()> {
        for member in &mut self.members {
            member.service.kill9().await?;
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
        let path = folder.join(format!("service-{:03}.log", self.number));
        fs::write(&path, self.service.log()).with_context(|| format!("cannot write {}", path.display()))
    }
}
