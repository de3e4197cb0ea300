//! The paths: how the world of each is brought to where it begins, how the process walks along it, and what must have
//! come of it in the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use core_delivery::crash::CrashPoint;
use core_delivery::event::{EventId, UnixMillis};
use core_order::{Order, OrderConfirmed};
use infra_postgres::{Partition, PartitionDay, ensure_partitions};
use sandbox::provider::{FaultKind, Provider, ProviderSettings};
use sqlx::postgres::PgPoolOptions;
use testbed::clients::{run_to_end, sample_orders};

use crate::matrix::Path;
use crate::trial::{stopped, succeeded};
use crate::world::{SOON, TIERS, World, header};

/// What all processes of this crate's trials have.
const SETTINGS: [(&str, &str); 4] = [
    // A dead member is missed after this long.
    ("KAFKA_SESSION_TIMEOUT", "4s"),
    ("DRAIN_LIMIT", "3s"),
    ("DATABASE_CONNECTIONS", "3"),
    ("CLAIM_RETENTION", "35d"),
];

/// How long ago the claim was made that expires.
const LONG_AGO: Duration = Duration::from_secs(50 * 86_400);

/// A world in which the events of a path are on their way.
pub(crate) struct Scene {
    pub(crate) world: World,
    path: Path,
    /// What is charged in the end.
    pub(crate) charged: Vec<OrderConfirmed>,
    /// Class of the dead letters in the end, by the offset of their origin.
    letters: BTreeMap<i64, &'static str>,
    settings: Vec<(&'static str, &'static str)>,
}

impl Scene {
    pub(crate) async fn prepare(path: Path) -> Result<Self> {
        let orders = sample_orders(3);
        let mut scene = Self {
            world: World::new(1, provider(path)).await?,
            path,
            charged: orders.clone(),
            letters: BTreeMap::new(),
            settings: vec![("STRAGGLER_DEADLINE", "20s")],
        };
        let copies =
            TIERS.map(|tier| scene.world.retry_topic(tier)).into_iter().chain([scene.world.dead_letter_topic()]);
        scene.world.creates_copies(copies).await?;
        match path {
            Path::Fresh | Path::Retry => scene.world.send(&orders).await?,
            Path::Duplicate => {
                scene.world.send(&orders).await?;
                scene.run_to_the_end().await?;
                scene.world.send(&orders).await?;
            }
            Path::DeadLetter => {
                let declined = [declined(&orders[0])?, declined(&orders[1])?];
                scene.world.send([&declined[0]]).await?;
                scene.world.kafka.produce(&scene.world.topic, "k", b"{no event").await?;
                scene.world.send([&declined[1]]).await?;
                scene.charged = Vec::new();
                scene.letters = [(0, "declined"), (1, "undecodable"), (2, "declined")].into();
            }
            Path::Replay | Path::Command => {
                scene.world.send(&orders).await?;
                scene.charged = Vec::new();
                scene.letters = [(0, "declined"), (1, "declined"), (2, "declined")].into();
                scene.run_to_the_end().await?;
                let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
                scene.world.provider = Provider::start(anywhere, ProviderSettings::default()).await?;
                scene.charged = orders;
                if path == Path::Replay {
                    scene.replay().await?;
                }
            }
            Path::Straggler => {
                scene.settings = vec![("STRAGGLER_DEADLINE", "300ms")];
                scene.world.send(&orders).await?;
            }
            Path::Stop => {
                // One event is left for the next start.
                scene.settings.push(("BATCH_MAX", "2"));
                scene.world.send(&orders).await?;
            }
            Path::Expiry => {
                scene.world.send(&orders).await?;
                scene.run_to_the_end().await?;
                scene.make_an_old_claim().await?;
            }
        }
        Ok(scene)
    }

    /// Runs with `CRASH_AT` until the process has ended, however it does; what it said.
    pub(crate) async fn walk_into(&self, crash_at: &str) -> Result<(ExitStatus, String)> {
        let armed = ("CRASH_AT", crash_at);
        if self.path == Path::Stop {
            let mut service = self.world.service_with(&self.with(armed)).await?;
            self.world.until("a call", async || self.world.provider.summary().calls > 0).await?;
            service.terminate()?;
            return Ok((service.wait(SOON).await?, service.log()));
        }
        let arguments: &[&str] = if self.path == Path::Command { &REPLAY } else { &["run"] };
        let (status, out, said) = self.program(arguments, Some(armed)).await?;
        Ok((status, out + &said))
    }

    /// Runs with `CRASH_AT` along the whole path, and ends as it should.
    pub(crate) async fn walk_past(&self, crash_at: &str) -> Result<()> {
        let armed = ("CRASH_AT", crash_at);
        if matches!(self.path, Path::Stop | Path::Command) {
            let (status, said) = self.walk_into(crash_at).await?;
            return succeeded(status, &said);
        }
        let service = self.world.service_with(&self.with(armed)).await?;
        self.settled().await?;
        stopped(service).await
    }

    /// What comes after the end of the process: whoever had it running does it again, until everything is settled.
    pub(crate) async fn go_on(&self) -> Result<()> {
        if self.path == Path::Command {
            self.replay().await?;
        }
        self.run_to_the_end().await
    }

    /// Whether a crash at this point left behind what it should, where that is certain: so a point is where it claims to
    /// be.
    pub(crate) async fn stands_at(&self, point: CrashPoint, hit: u32) -> Result<()> {
        use CrashPoint as P;
        if self.path != Path::Fresh || hit != 1 {
            return Ok(());
        }
        let calls = self.world.provider.summary().calls;
        ensure!((calls == 0) == matches!(point, P::AfterClaim | P::AfterAdmit), "{calls} calls");
        let committed = self.world.kafka.committed(&self.world.group, &self.world.topic, 1).await?[0];
        ensure!(committed.is_some() == (point == P::OffsetCommitted), "Kafka has {committed:?}");
        let charges = async || self.world.ledger.charge_count().await;
        match point {
            P::AfterClaim | P::AfterAdmit | P::AfterPerform | P::AfterRecord | P::BeforeCommit | P::CommitHeld => {
                ensure!(charges().await? == 0, "nothing is committed");
            }
            // The server does what it was sent, and nobody hears of it.
            P::CommitSent => self.world.until("the commit", async || charges().await.is_ok_and(|it| it > 0)).await?,
            _ => ensure!(charges().await? > 0, "it is committed"),
        }
        Ok(())
    }

    /// Each letter that should be is there, none else, and none more than twice.
    pub(crate) async fn letters_are_right(&self) -> Result<()> {
        let mut found: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for letter in self.world.dead_letters().await? {
            let origin = header(&letter, "delivery-origin-offset").and_then(|text| text.parse().ok()).unwrap_or(-1);
            found.entry(origin).or_default().push(header(&letter, "delivery-error-class").unwrap_or_default());
        }
        ensure!(found.keys().eq(self.letters.keys()), "letters {found:?}, expected {:?}", self.letters);
        let right = |(classes, expected): (&Vec<String>, &&str)| {
            classes.len() <= 2 && classes.iter().all(|class| class == expected)
        };
        ensure!(found.values().zip(self.letters.values()).all(right), "{found:?}, expected {:?}", self.letters);
        Ok(())
    }

    /// Runs a command of the program: its status, what it printed and what it said.
    pub(crate) async fn command(&self, arguments: &[&str]) -> Result<(ExitStatus, String, String)> {
        self.program(arguments, None).await
    }

    async fn program(
        &self,
        arguments: &[&str],
        more: Option<(&'static str, &str)>,
    ) -> Result<(ExitStatus, String, String)> {
        let all = self.world.settings();
        let mut variables: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
        variables.extend(SETTINGS.iter().chain(&self.settings).copied());
        variables.push(("HTTP_ADDR", "127.0.0.1:0"));
        variables.extend(more);
        let output = run_to_end(arguments, &variables, SOON).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status, text(&output.stdout), text(&output.stderr)))
    }

    async fn run_to_the_end(&self) -> Result<()> {
        let settings: Vec<(&str, &str)> = SETTINGS.iter().chain(&self.settings).copied().collect();
        let service = self.world.service_with(&settings).await?;
        self.settled().await?;
        stopped(service).await
    }

    async fn settled(&self) -> Result<()> {
        self.world.settled(self.charged.len()).await?;
        if self.path == Path::Expiry {
            let gone = async || self.tables_of_old_claims().await.is_ok_and(|count| count == 0);
            self.world.until("the old claims to be gone", gone).await?;
        }
        Ok(())
    }

    async fn replay(&self) -> Result<()> {
        let (status, _, said) = self.command(&REPLAY).await?;
        succeeded(status, &said)
    }

    fn with<'a>(&self, armed: (&'static str, &'a str)) -> Vec<(&'a str, &'a str)> {
        SETTINGS.iter().chain(&self.settings).copied().chain([armed]).collect()
    }

    /// A claim in a partition that may be dropped at the next start: old, and below a floor that has stood for long.
    async fn make_an_old_claim(&self) -> Result<()> {
        let pool = PgPoolOptions::new().max_connections(2).connect(&self.world.database_url).await?;
        let day = long_ago();
        ensure_partitions(&pool, [PartitionDay::of(day)]).await?;
        let claim = "insert into processed_event (event_id, consumer_group, processed_at) \
                     values ($1, $2, now() - interval '49 days')";
        let id = EventId::at(day, *b"long ago!!").as_uuid();
        sqlx::query(claim).bind(id).bind(&self.world.group).execute(&pool).await?;
        let floor =
            "insert into claim_floor (consumer_group, floor, advanced_at) values ($1, $2, now() - interval '2h')";
        let above = EventId::first_at(UnixMillis(day.0 + 2 * 86_400_000)).as_uuid();
        sqlx::query(floor).bind(&self.world.group).bind(above).execute(&pool).await?;
        pool.close().await;
        Ok(())
    }

    /// The table of the old claim's day, wherever it stands, and any that is no partition any more.
    async fn tables_of_old_claims(&self) -> Result<i64> {
        let pool = PgPoolOptions::new().max_connections(1).connect(&self.world.database_url).await?;
        let count = sqlx::query_scalar(
            "select count(*) from pg_class where relkind = 'r' and relname like 'processed\\_event\\_p%' \
             and (relname = $1 or not exists (select from pg_inherits where inhrelid = pg_class.oid))",
        );
        let count = count.bind(Partition::from(PartitionDay::of(long_ago())).name()).fetch_one(&pool).await?;
        pool.close().await;
        Ok(count)
    }
}

const REPLAY: [&str; 3] = ["dlq", "replay", "--all"];

fn provider(path: Path) -> ProviderSettings {
    let sound = ProviderSettings::default();
    match path {
        Path::Retry => ProviderSettings {
            fault_share: 1.0,
            fault_kinds: vec![FaultKind::ErrorBeforeCharge],
            max_faults_per_key: 1,
            ..sound
        },
        Path::Replay | Path::Command => ProviderSettings { decline_share: 1.0, ..sound },
        Path::Straggler | Path::Stop => ProviderSettings { latency_ms: 1_500, ..sound },
        Path::Fresh | Path::Duplicate | Path::DeadLetter | Path::Expiry => sound,
    }
}

/// The event of such an order, of a customer who is declined.
fn declined(event: &OrderConfirmed) -> Result<OrderConfirmed> {
    let customer = format!("declined-{}", event.customer_id()).parse()?;
    let order = Order { id: event.order_id().clone(), customer, total: event.total() };
    Ok(OrderConfirmed::from_order(&order, event.occurred_at())?)
}

fn long_ago() -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    UnixMillis(i64::try_from((now - LONG_AGO).as_millis()).expect("the clock is before the year 292 million"))
}
