//! One trial: a world is brought to where the path begins, a process runs into its end there, and another one makes it
//! good.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::{Context, Result, bail, ensure};
use core_delivery::crash::CrashPoint;
use serde_json::Value;
use testbed::clients::Service;

use crate::look::no_offset_is_ahead_of_its_verdicts;
use crate::matrix::Path;
use crate::scene::Scene;
use crate::world::SOON;

const SIGABRT: i32 = 6;

/// What is tried on which path.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) path: Path,
    pub(crate) armed: Armed,
}

/// What `CRASH_AT` names.
#[derive(Debug, Clone)]
pub(crate) enum Armed {
    /// A point that is on the path, and which hit of it ends the process.
    Fatal(CrashPoint, u32),
    /// All points that are not on the path: the process ends by itself.
    Harmless(Vec<CrashPoint>),
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.armed {
            Armed::Fatal(point, hit) => write!(f, "{}/{}:{hit}", self.path.name(), point.name()),
            Armed::Harmless(_) => write!(f, "{}/points that are not on it", self.path.name()),
        }
    }
}

impl Trial {
    pub(crate) async fn run(&self) -> Result<()> {
        let scene = Scene::prepare(self.path).await.context("before the path begins")?;
        match &self.armed {
            Armed::Fatal(point, hit) => {
                let armed = format!("{}:{hit}", point.name());
                let (status, said) = scene.walk_into(&armed).await.context("until the process ends")?;
                ensure!(status.signal() == Some(SIGABRT), "it did not end at {armed}, but with {status}:\n{said}");
                ensure!(said.contains(&format!("crash point {}:", point.name())), "{said}");
                no_offset_is_ahead_of_its_verdicts(&scene.world).await.context("while it is dead")?;
                scene.stands_at(*point, *hit).await.context("while it is dead")?;
            }
            Armed::Harmless(points) => {
                let names: Vec<&str> = points.iter().map(|point| point.name()).collect();
                scene.walk_past(&names.join(",")).await.context("with points that are not on the path")?;
            }
        }
        scene.go_on().await.context("after the restart")?;
        audited(&scene).await.context("after everything")
    }
}

/// Charged, claimed and given up is exactly what should be.
async fn audited(scene: &Scene) -> Result<()> {
    let world = &scene.world;
    world.charged_exactly(&scene.charged).await?;
    scene.letters_are_right().await?;
    let (status, out, said) = scene.command(&["audit", "--json", "--provider"]).await?;
    ensure!(status.success(), "the audit ends with {status}: {out}\n{said}");
    let audit: Value = serde_json::from_str(&out).with_context(|| out.clone())?;
    let clean = ["pending", "lost", "charged_twice", "unexpected", "lag"].iter().all(|name| audit[name] == 0);
    ensure!(clean && audit["applied"] == scene.charged.len(), "{audit}");
    Ok(())
}

/// SIGTERM ends it with 0.
pub(crate) async fn stopped(mut service: Service) -> Result<()> {
    service.terminate()?;
    succeeded(service.wait(SOON).await?, &service.log_tail())
}

pub(crate) fn succeeded(status: ExitStatus, said: &str) -> Result<()> {
    if !status.success() {
        bail!("it ended with {status}:\n{said}");
    }
    Ok(())
}
