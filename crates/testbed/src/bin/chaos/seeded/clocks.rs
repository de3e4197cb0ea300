//! A process whose clock is not ours: libfaketime gives it one, which jumps while it works. Only the clock that tells the
//! time jumps, as on a real machine, not the one that measures it.
//!
//! The threads of Kafka's client wait by the clock that tells the time: one that began before a jump back can last for as
//! long as the jump. So such a process may not end by itself, and then it is killed; what matters is what it has done.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use rand::{rngs::StdRng, seq::IndexedRandom};
use tokio::time::sleep;

use super::{fleet::Fleet, world::World};

/// How far it jumps, in seconds: within what is tolerated and beyond it, both ways, and back past every retention. Not ahead
/// by a day and more: until the service has looked at the database's clock again, it then takes ids of tomorrow, which the
/// load has, for those of today.
const JUMPS: [&str; 6] = ["+30", "-30", "+600", "-600", "+72000", "-3456000"];
/// How long a process works before and after it.
const WORKS: Duration = Duration::from_secs(3);

/// A third process joins, its clock jumps and comes back, and it leaves.
pub(super) async fn jump(
    world: &World,
    fleet: &mut Fleet,
    library: &Path,
    lasts: Duration,
    random: &mut StdRng,
) -> Result<()> {
    let clock = world.scratch.path().join("clock");
    let set = |offset: &str| fs::write(&clock, format!("{offset}\n")).context("cannot set a clock");
    let jump = JUMPS.choose(random).expect("there are six");
    set("+0")?;
    let variables = [
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", clock.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    fleet.join_with(world, &variables).await?;
    sleep(WORKS).await;
    println!("              by {jump} s");
    set(jump)?;
    sleep(lasts).await;
    set("+0")?;
    sleep(WORKS).await;
    fleet.dismiss_youngest().await
}
