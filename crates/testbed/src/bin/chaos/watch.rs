//! Watches the progress from outside and says when there is none; it changes nothing.

use std::time::Duration;

use anyhow::{Result, bail};
use testbed::clients::Service;
use tokio::time::{Instant, sleep};

use crate::world::World;

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How often it is printed.
const PRINT: Duration = Duration::from_secs(2);
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines of the service's log in an error.
const TAIL: usize = 40;

/// The progress of one run.
pub(crate) struct Watch<'a> {
    world: &'a World,
    orders: usize,
    pub(crate) kills: u32,
    /// Charges in the ledger when last looked at.
    pub(crate) charged: usize,
    lag: Option<i64>,
    begun: Instant,
    changed: Instant,
    printed: (Instant, usize),
}

impl<'a> Watch<'a> {
    pub(crate) fn new(world: &'a World, orders: usize) -> Self {
        let now = Instant::now();
        Self { world, orders, kills: 0, charged: 0, lag: None, begun: now, changed: now, printed: (now, 0) }
    }

    /// Waits until the ledger has this many charges.
    pub(crate) async fn until_charged(&mut self, service: &Service, mark: usize) -> Result<()> {
        while self.look(service).await? < mark {
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until the group has nothing before it any more.
    pub(crate) async fn until_settled(&mut self, service: &Service) -> Result<()> {
        loop {
            let lag = self.world.lag().await?;
            if self.lag != Some(lag) {
                (self.lag, self.changed) = (Some(lag), Instant::now());
            }
            if lag == 0 {
                return Ok(());
            }
            self.look(service).await?;
            sleep(5 * LOOK).await;
        }
    }

    /// For how long this has gone on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    async fn look(&mut self, service: &Service) -> Result<usize> {
        let charged = self.world.ledger.charge_count().await?;
        if charged != self.charged {
            (self.charged, self.changed) = (charged, Instant::now());
        }
        if let Some(status) = service.ended() {
            bail!("the service ended by itself ({status}); its log ends:\n{}", tail(service));
        }
        if self.changed.elapsed() > PATIENCE {
            let (status, reasons) = service.readiness().await.unwrap_or_else(|error| (0, error.to_string()));
            bail!(
                "no progress for {PATIENCE:?} at {charged} of {} charges, lag {:?}, /ready says {status} {reasons}; the \
                 service's log ends:\n{}",
                self.orders,
                self.lag,
                tail(service)
            );
        }
        if self.printed.0.elapsed() > PRINT {
            self.print().await?;
        }
        Ok(charged)
    }

    async fn print(&mut self) -> Result<()> {
        let provider = self.world.provider.summary().await?;
        let (when, before) = std::mem::replace(&mut self.printed, (Instant::now(), self.charged));
        #[expect(clippy::cast_precision_loss, reason = "counts of orders are small")]
        let rate = (self.charged - before) as f64 / when.elapsed().as_secs_f64();
        let lag = self.lag.map(|lag| format!(", lag {lag}")).unwrap_or_default();
        println!(
            "{:4.0} s: {:2} kills, {:7} of {} charged ({rate:5.0}/s), provider charged {} in {} calls{lag}",
            self.begun.elapsed().as_secs_f32(),
            self.kills,
            self.charged,
            self.orders,
            provider.charges,
            provider.calls,
        );
        Ok(())
    }
}

fn tail(service: &Service) -> String {
    let log = service.log();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}
