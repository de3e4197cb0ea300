//! The operators' commands put together: which adapter answers which question, and in which order things are asked and
//! done. The rules are in the modules beside it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use adapters_kafka::{
    KafkaSettings, LaneFacts, OffsetsError, TopicPlan, commit_offsets, ensure_topics, find_topics, group_members,
    lane_facts,
};
use adapters_tokio::TokioRuntime;
use anyhow::{Error, anyhow};
use core_delivery::claim::ConsumerGroup;
use core_delivery::delivery::Topology;
use core_delivery::ports::{Runtime, StoreError, StoredPosition};
use core_delivery::record::{Committable, LaneId, Topic};
use infra_postgres::{ImportedClaims, import_claims, positions as stored};
use sqlx::PgPool;

use super::commands::{Claims, Dlq, Operate, Positions};
use super::letters::Selection;
use super::lock::ReplayLock;
use super::positions::{LaneState, importable, settable, to_json, to_table};
use super::provider::{NoAnswer, Questions};
use super::table::{Progress, or_dash, show};
use super::{audit, check, dlq};
use crate::cli::Failure;
use crate::compose::{kafka_settings, open_database, topics_failure, topology};
use crate::config::Settings;

/// Claims of one transaction of an import.
const IMPORT_BATCH: u32 = 10_000;

/// Runs an operator's command.
pub async fn operate(command: Operate, settings: Settings) -> Result<(), Failure> {
    let desk = Desk::new(settings)?;
    match command {
        Operate::Dlq(Dlq::List { letters, limit, json }) => {
            dlq::list(&desk.kafka, &desk.topology.dead_letters, &letters.selection(), limit, json).await
        }
        Operate::Dlq(Dlq::Replay { letters, all, dry_run, yes }) => {
            desk.replay(letters.selection(), all, dry_run, yes).await
        }
        Operate::Positions(Positions::Show { json }) => desk.show_positions(json).await,
        Operate::Positions(Positions::Set { topic, partition, offset }) => {
            desk.set_position(LaneId { topic: Topic::new(topic), partition }, Committable(offset)).await
        }
        Operate::Positions(Positions::Import) => desk.import_positions().await,
        Operate::Claims(Claims::Import { table, group }) => desk.import_claims(&table, group).await,
        Operate::Audit { json, provider } => audit::compose::run(&desk, json, provider).await,
        Operate::Check { json } => check::compose::run(&desk, json).await,
    }
}

/// What every command has before it.
pub struct Desk {
    pub(crate) settings: Settings,
    pub(crate) kafka: KafkaSettings,
    pub(crate) topology: Topology,
}

impl Desk {
    /// Checks what Kafka's client would refuse.
    pub(crate) fn new(settings: Settings) -> Result<Self, Failure> {
        let kafka = kafka_settings(&settings);
        kafka.validate().map_err(|error| Failure::Configuration(Error::new(error).context("Kafka")))?;
        let topology = topology(&settings.config);
        Ok(Self { settings, kafka, topology })
    }

    async fn replay(&self, selection: Selection, all: bool, dry_run: bool, yes: bool) -> Result<(), Failure> {
        if selection.is_everything() && !all {
            let error = anyhow!("no letter is named: use --id, --class, --since or --until, or --all for every letter");
            return Err(Failure::Configuration(error));
        }
        let Some(tier) = self.topology.tiers.first().map(|tier| &tier.topic) else {
            let error = anyhow!(
                "RETRY_TIERS names no tier: a replay goes through the first one, because a copy in the source topic \
                 would be seen by every other group. Set one, restart the service, and replay then"
            );
            return Err(Failure::Configuration(error));
        };
        let letters = &self.topology.dead_letters;
        if dry_run {
            let chosen = dlq::choose(&self.kafka, letters, &selection, true).await?;
            dlq::show_plan(&chosen, tier);
            return Ok(());
        }
        let (_, maintenance) = open_database(&self.settings.database).await?;
        let lock = ReplayLock::take(&maintenance, &self.topology.group).await.map_err(database)?;
        let Some(lock) = lock else {
            let error = anyhow!("another replay of this group is running: wait for its end; nothing was sent");
            return Err(Failure::Configuration(error));
        };
        let outcome = self.replay_alone(&selection, tier, yes).await;
        lock.release().await;
        outcome
    }

    async fn replay_alone(&self, selection: &Selection, tier: &Topic, yes: bool) -> Result<(), Failure> {
        let letters = &self.topology.dead_letters;
        let report = match self.settings.config.kafka_check_topics {
            true => ensure_topics(&self.kafka, &self.plan(), false).await,
            false => find_topics(&self.kafka, &self.plan()).await,
        };
        let report = report.map_err(topics_failure)?;
        let message_bytes_max = report.copy_bytes_max().unwrap_or(self.kafka.message_bytes_max);
        let kafka = KafkaSettings { message_bytes_max, ..self.kafka.clone() };
        let chosen = dlq::choose(&kafka, letters, selection, yes).await?;
        dlq::resend(&kafka, letters, tier, &chosen, TokioRuntime::current().now()).await
    }

    async fn show_positions(&self, json: bool) -> Result<(), Failure> {
        let (_, maintenance) = open_database(&self.settings.database).await?;
        let lanes = self.lanes(&maintenance).await?;
        show(&if json { format!("{:#}\n", to_json(&lanes)) } else { to_table(&lanes) });
        Ok(())
    }

    async fn set_position(&self, lane: LaneId, next: Committable) -> Result<(), Failure> {
        let (_, maintenance) = open_database(&self.settings.database).await?;
        self.refuse_members().await?;
        let before = self.lanes(&maintenance).await?;
        let state = settable(&before, &lane, next).map_err(Failure::Configuration)?;
        self.show_lane("before", &before, &lane);
        // Kafka first: it refuses while somebody consumes, and a lane starts from the lower of both, so that nothing is
        // skipped if the second write fails.
        commit_offsets(&self.kafka, self.topology.group.as_str(), &[(lane.clone(), next)]).await.map_err(offsets)?;
        self.store(&maintenance, state, next, "position set by an operator").await?;
        self.show_lane("after", &self.lanes(&maintenance).await?, &lane);
        Ok(())
    }

    async fn import_positions(&self) -> Result<(), Failure> {
        let (_, maintenance) = open_database(&self.settings.database).await?;
        self.refuse_members().await?;
        let before = self.lanes(&maintenance).await?;
        show(&format!("before:\n{}", to_table(&before)));
        let importable = importable(&before);
        for (state, next) in &importable {
            self.store(&maintenance, state, *next, "position imported by an operator").await?;
        }
        show(&format!("after:\n{}", to_table(&self.lanes(&maintenance).await?)));
        show(&format!("{} positions taken over from Kafka\n", importable.len()));
        Ok(())
    }

    async fn store(&self, pool: &PgPool, state: &LaneState, next: Committable, what: &str) -> Result<(), Failure> {
        let (group, lane) = (&self.topology.group, &state.lane);
        let before = stored::set(pool, group, lane, &state.arrival.identity, next).await.map_err(store_failure)?;
        let committed = state.arrival.committed.map(|next| next.0);
        let before = before.map(|next| next.0);
        tracing::warn!(%group, %lane, stored_before = before, committed_before = committed, after = next.0, "{what}");
        Ok(())
    }

    fn show_lane(&self, when: &str, lanes: &[LaneState], lane: &LaneId) {
        if let Some(state) = lanes.iter().find(|state| state.lane == *lane) {
            let (committed, stored) = (state.arrival.committed, state.stored_here());
            let (committed, stored) = (or_dash(committed.map(|next| next.0)), or_dash(stored.map(|next| next.0)));
            show(&format!("{when}: {lane} committed in Kafka {committed}, stored {stored}\n"));
        }
    }

    async fn refuse_members(&self) -> Result<(), Failure> {
        let group = self.topology.group.as_str();
        match group_members(&self.kafka, group).await.map_err(dlq::failure)? {
            0 => Ok(()),
            members => Err(Failure::Configuration(anyhow!(
                "the group {group} has {members} members, which would go on from where they are: stop the service \
                 first (a process that was killed counts until its session ends); nothing was changed"
            ))),
        }
    }

    async fn import_claims(&self, table: &str, group: Option<String>) -> Result<(), Failure> {
        let group = group.map_or_else(|| self.topology.group.clone(), ConsumerGroup::new);
        let (_, maintenance) = open_database(&self.settings.database).await?;
        let mut progress = Progress::of(format!("claims read from {table}"));
        let imported = import_claims(&maintenance, table, &group, IMPORT_BATCH, |so_far| {
            progress.reach(so_far.read / 64 * 64);
            ControlFlow::Continue(())
        });
        let ImportedClaims { read, imported, present, refused, named } = imported.await.map_err(store_failure)?;
        show(&format!(
            "group {group}: {read} claims read from {table}, {imported} imported, {present} were there already\n"
        ));
        if refused == 0 {
            return Ok(());
        }
        for id in &named {
            show(&format!("left out: {} {}\n", id.id, id.reason));
        }
        Err(Failure::Finding(anyhow!("{refused} ids are no event ids and were left out: no event can carry them")))
    }

    async fn lanes(&self, pool: &PgPool) -> Result<Vec<LaneState>, Failure> {
        Ok(states(self.facts(&self.topology.consumed()).await?, self.stored(pool).await?))
    }

    pub(crate) async fn facts(&self, topics: &[Topic]) -> Result<Vec<LaneFacts>, Failure> {
        lane_facts(&self.kafka, self.topology.group.as_str(), topics).await.map_err(dlq::failure)
    }

    pub(super) async fn stored(&self, pool: &PgPool) -> Result<HashMap<LaneId, Vec<StoredPosition>>, Failure> {
        let mut positions: HashMap<LaneId, Vec<StoredPosition>> = HashMap::new();
        for found in stored::all(pool, &self.topology.group).await.map_err(store_failure)? {
            positions.entry(found.lane).or_default().push(found.position);
        }
        Ok(positions)
    }

    pub(super) fn questions(&self) -> Result<Questions, NoAnswer> {
        let Settings { payment_url, payment_api_key, config, .. } = &self.settings;
        let limits = (config.payment_connect_timeout, config.payment_call_timeout);
        Questions::new(payment_url, payment_api_key.as_ref(), limits.0, limits.1)
    }

    pub(super) fn plan(&self) -> TopicPlan {
        TopicPlan::new(&self.topology.source, self.topology.group.as_str(), &self.settings.config.retry_tiers)
    }
}

pub(super) fn states(lanes: Vec<LaneFacts>, mut stored: HashMap<LaneId, Vec<StoredPosition>>) -> Vec<LaneState> {
    let state = |LaneFacts { lane, arrival }| {
        let stored = stored.remove(&lane).unwrap_or_default();
        LaneState { lane, arrival, stored }
    };
    lanes.into_iter().map(state).collect()
}

pub(crate) fn database(error: sqlx::Error) -> Failure {
    Failure::Dependency(Error::new(error).context("the database"))
}

fn store_failure(error: StoreError) -> Failure {
    match error {
        StoreError::Rejected { .. } => Failure::Configuration(Error::new(error)),
        _ => Failure::Dependency(Error::new(error)),
    }
}

fn offsets(error: OffsetsError) -> Failure {
    match error {
        OffsetsError::Failed { .. } => Failure::Dependency(Error::new(error)),
        OffsetsError::Settings(_) | OffsetsError::HasMembers { .. } => Failure::Configuration(Error::new(error)),
    }
}
