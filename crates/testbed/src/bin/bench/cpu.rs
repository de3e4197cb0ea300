//! Processor time by component, from /proc; it measures and never judges.

use std::fs;

use anyhow::{Context, Result};
use testbed::{LocalKafka, PrivatePostgres, clients::ProviderProcess};

/// Ticks a second of /proc, which Linux keeps at 100 for its users.
const TICKS: f64 = 100.0;

/// Whose processor time is told apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Processes {
    /// The process that consumes.
    pub(crate) consumer: u32,
    pub(crate) postgres: u32,
    pub(crate) kafka: u32,
    pub(crate) provider: u32,
}

impl Processes {
    /// With ourselves as the consumer.
    pub(crate) fn of(postgres: &PrivatePostgres, kafka: &LocalKafka, provider: &ProviderProcess) -> Result<Self> {
        Ok(Self {
            consumer: std::process::id(),
            postgres: postgres.process_id().context("PostgreSQL has no process")?,
            kafka: kafka.process_id().context("Kafka has no process")?,
            provider: provider.process_id().context("the provider has no process")?,
        })
    }
}

/// Seconds of one core, by component.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) consumer: f64,
    pub(crate) postgres: f64,
    pub(crate) kafka: f64,
    pub(crate) provider: f64,
    /// Everything that ran on this machine, ours included.
    pub(crate) machine: f64,
}

impl Cpu {
    /// What was used since each started.
    pub(crate) fn now(processes: &Processes) -> Result<Self> {
        Ok(Self {
            consumer: of_process(processes.consumer)?.own,
            postgres: with_children(processes.postgres)?,
            kafka: of_process(processes.kafka)?.own,
            provider: of_process(processes.provider)?.own,
            machine: of_machine()?,
        })
    }

    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            consumer: self.consumer - earlier.consumer,
            postgres: self.postgres - earlier.postgres,
            kafka: self.kafka - earlier.kafka,
            provider: self.provider - earlier.provider,
            machine: self.machine - earlier.machine,
        }
    }

    /// What others used: the system's own work for us, and whoever else is on this machine.
    pub(crate) fn others(&self) -> f64 {
        self.machine - self.consumer - self.postgres - self.kafka - self.provider
    }
}

struct Usage {
    parent: u32,
    own: f64,
    /// Of children that have ended.
    ended: f64,
}

fn of_process(id: u32) -> Result<Usage> {
    let path = format!("/proc/{id}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse(&text).with_context(|| format!("cannot understand {path}"))
}

/// A process with its children, those that live and those that have ended.
fn with_children(id: u32) -> Result<f64> {
    let root = of_process(id)?;
    let ids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // A child may end while we look.
    let children = ids.filter_map(|id| of_process(id).ok()).filter(|usage| usage.parent == id);
    Ok(root.own + root.ended + children.map(|usage| usage.own).sum::<f64>())
}

/// The name in parentheses may hold anything, so the fields are those after the last one.
fn parse(stat: &str) -> Option<Usage> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some(Usage {
        parent: fields.get(1)?.parse().ok()?,
        own: (ticks(11)? + ticks(12)?) / TICKS,
        ended: (ticks(13)? + ticks(14)?) / TICKS,
    })
}

fn of_machine() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let first = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<f64> = first.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; idle and iowait is nobody's work, steal another machine's.
    let busy = ticks.iter().take(7).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks);
    Ok(busy.sum::<f64>() / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let usage = parse("7 (a (b) c) S 5 7 7 0 -1 4194560 1 2 3 4 150 50 20 10 20 0 1 0 9").unwrap();
        assert_eq!((usage.parent, usage.own, usage.ended), (5, 2.0, 0.3));
    }
}
