//! From the name of a fault to what is done. Each ends with everything as it was, and the services left to recover.

use std::time::Duration;

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng, rngs::StdRng};
use testbed::Mode;
use tokio::time::sleep;

use super::{
    abilities::Abilities,
    broker, clocks, database, disk, failover,
    faults::Fault,
    fleet::Crews,
    schedule::Step,
    world::{Stop, World, dead_letter_topic, retry_topics},
};

/// Does one step, the pause before it aside, and ends when it is over. Some leave no process: what is looked at
/// then is the caller's.
pub(super) async fn inject(step: &Step, world: &mut World, crews: &mut Crews, abilities: &Abilities) -> Result<()> {
    let random = &mut StdRng::seed_from_u64(step.seed);
    match step.kill {
        Some(after) => {
            let chooses = &mut StdRng::seed_from_u64(step.seed ^ 1);
            let kill = async {
                sleep(after).await;
                crews.kill_one(chooses).await
            };
            // Both to their ends: a fault that is left half-way would last for ever.
            let (done, killed) = tokio::join!(at_world(step, world, random), kill);
            done.and(killed)
        }
        None if step.fault.leaves_processes_alone() => at_world(step, world, random).await,
        None => at_processes(step, world, crews, abilities, random).await,
    }
}

/// What is done to processes.
async fn at_processes(
    step: &Step,
    world: &mut World,
    crews: &mut Crews,
    abilities: &Abilities,
    random: &mut StdRng,
) -> Result<()> {
    let lasts = step.lasts;
    match step.fault {
        Fault::KillOne => {
            sleep(lasts).await;
            crews.kill_one(random).await
        }
        Fault::KillAll => {
            sleep(lasts).await;
            crews.kill_all().await
        }
        Fault::KillInOutage if random.random() => {
            world.stop_broker(Stop::AtOnce).await?;
            sleep(lasts).await;
            crews.kill_all().await?;
            world.broker.restart().await
        }
        Fault::KillInOutage => {
            world.stop_postgres(Stop::AtOnce).await?;
            sleep(lasts).await;
            crews.kill_all().await?;
            Ok(world.postgres.restart().await?)
        }
        Fault::Zombie => crews.suspend_one(random, lasts).await,
        Fault::JoinAndLeave => {
            crews.join(world).await?;
            sleep(lasts).await;
            crews.stop_youngest().await
        }
        Fault::RollingRestart => {
            for _ in 0..2 {
                crews.stop_oldest().await?;
                sleep(lasts).await;
                crews.join(world).await?;
            }
            Ok(())
        }
        Fault::ClockJump => {
            let library = abilities.faketime.as_deref().context("a clock that jumps needs libfaketime")?;
            clocks::jump(world, &mut crews.billing, library, lasts, random).await
        }
        Fault::Twin => {
            sleep(lasts).await;
            crews.billing.take_the_name_of_the_oldest(world).await?;
            crews.ordered.take_the_name_of_the_oldest(world).await
        }
        other => unreachable!("{other:?} does nothing to processes"),
    }
}

/// What is done to everything else.
async fn at_world(step: &Step, world: &mut World, random: &mut StdRng) -> Result<()> {
    let lasts = step.lasts;
    match step.fault {
        Fault::AddPartition => broker::add_partition(world, lasts).await,
        Fault::BrokerStop => broker::stop(world, Stop::InOrder, lasts).await,
        Fault::BrokerKill => broker::stop(world, Stop::AtOnce, lasts).await,
        Fault::PostgresStop => database::stop(world, Stop::InOrder, lasts).await,
        Fault::PostgresCrash => database::stop(world, Stop::AtOnce, lasts).await,
        Fault::PostgresReadOnly => database::read_only(world, lasts).await,
        Fault::LostTail => failover::lose_tail(world, lasts).await,
        Fault::DiskFull => disk::fill(world, lasts).await,
        Fault::ConnectionReset => database::proxy(world, Mode::Reset, lasts).await,
        Fault::ConnectionRefused => database::proxy(world, Mode::Refuse, lasts).await,
        Fault::ConnectionBlackhole => database::proxy(world, Mode::Blackhole, lasts).await,
        Fault::RepliesDropped => database::proxy(world, Mode::DropReplies, lasts).await,
        Fault::CommitsLost => database::lost_commits(world, lasts, random).await,
        Fault::SessionsTerminated => database::signal(world, "pg_terminate_backend", lasts).await,
        Fault::StatementsCancelled => database::signal(world, "pg_cancel_backend", lasts).await,
        Fault::TableLock => database::table_lock(world, lasts, random).await,
        Fault::Deadlock => database::deadlock(world, lasts).await,
        Fault::FullPool => database::full_pool(world, lasts).await,
        Fault::ProviderErrors => bad_day(world, ERRORS, lasts).await,
        Fault::ProviderOutage => bad_day(world, OUTAGE, lasts).await,
        Fault::ProviderSlow => bad_day(world, SLOW, lasts).await,
        Fault::ProviderFlood => bad_day(world, FLOOD, lasts).await,
        Fault::ProviderUnauthorized => bad_day(world, STRANGERS, lasts).await,
        Fault::DeadLettersRefused => broker::refuse(world, &[dead_letter_topic()], lasts).await,
        Fault::RetriesRefused => {
            let topics: Vec<_> = retry_topics().take(2).collect();
            broker::refuse(world, &topics, lasts).await
        }
        other => unreachable!("{other:?} is done to processes"),
    }
}

// A key meets at most two of them, however often the weather is bad: no event may run out of tries.
const ERRORS: &str = r#"{"kinds":["error_before_charge","error_after_charge","reset_before_charge",
    "reset_after_charge","cut_body","unavailable"],"share":0.6,"per_key":2}"#;
const OUTAGE: &str = r#"{"kinds":["unavailable","reset_before_charge","error_before_charge"],"per_key":2}"#;
const SLOW: &str = r#"{"kinds":["slow_answer"],"share":0.1,"per_key":1,"slow_ms":30000}"#;
const FLOOD: &str = r#"{"kinds":["too_many_requests"],"per_key":2}"#;
const STRANGERS: &str = r#"{"kinds":["unauthorized"]}"#;

async fn bad_day(world: &World, faults: &str, lasts: Duration) -> Result<()> {
    world.provider.set_faults(faults).await?;
    sleep(lasts).await;
    world.provider.set_faults("{}").await
}
