//! Answers that never arrive, of a database and of a broker that did what they were asked: what is not known is found
//! out, and neither lost nor done twice.

use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use core_order::{Event, OrderConfirmed};
use sandbox::provider::{FaultKind, ProviderSettings};
use testbed::clients::{Service, sample_orders};
use testbed::{Backend, KafkaOptions, LocalKafka, Loss, Proxy, wait_until};

use crate::world::{TIERS, World, header, verdicts};

/// The message that ends a transaction, as it goes over the wire.
const COMMIT: &[u8] = b"COMMIT\0";

/// A copy that is not acknowledged is given up by the client after 30 s, and then sent again.
const GIVEN_UP: Duration = Duration::from_secs(120);

/// A proxy before the world's database, and the URL that leads through it.
async fn before_the_database(world: &World) -> Result<(Proxy, String)> {
    let (head, tail) = world.database_url.rsplit_once('@').context("the URL names a user")?;
    let (authority, database) = tail.split_once('/').context("the URL names a database")?;
    let server = tokio::net::lookup_host(authority).await?.next().context("the server has an address")?;
    let proxy = Proxy::start(server).await?;
    let url = format!("{head}@{}/{database}", proxy.addr());
    Ok((proxy, url))
}

/// What a service that ran through a lost commit owes: nothing moved, nobody charged twice, the same process, ready.
async fn recovered(world: &World, service: &Service, orders: &[OrderConfirmed]) -> Result<()> {
    world.settled(orders.len()).await?;
    world.charged_exactly(orders).await?;
    ensure!(world.moved_nothing().await?);
    ensure!(service.ended().is_none(), "the same process");
    world.until("ready", async || service.ready().await).await
}

/// D3: the database has committed and nobody learns it. The events come again, and their claims answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_acknowledgement_is_lost_makes_its_events_duplicates() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let (proxy, url) = before_the_database(&world).await?;
    let service = world.service_with(&[("DATABASE_URL", &url)]).await?;
    let mut orders = sample_orders(10);
    world.send(&orders).await?;
    world.settled(10).await?;
    ensure!(verdicts(&service, "applied").await? == 10 && verdicts(&service, "duplicate").await? == 0);

    for round in 1..=3 {
        let more = sample_orders(10);
        proxy.set_tripwire(COMMIT, Loss::Reply);
        world.send(&more).await?;
        world.until("the lost commit", async || proxy.trips() == round).await?;
        orders.extend(more);
        world.settled(orders.len()).await?;
    }
    recovered(&world, &service, &orders).await?;
    let (applied, duplicate) = (verdicts(&service, "applied").await?, verdicts(&service, "duplicate").await?);
    ensure!(duplicate >= 3, "each lost commit held an event: {duplicate}");
    ensure!(applied + duplicate == 40, "one verdict each: {applied} applied, {duplicate} duplicates");
    ensure!(world.provider.record().summary.calls == 40, "the claim answers, not the provider");
    Ok(())
}

/// D3, the other way it can have gone: the commit never reached the database. To the service it looks the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_lost_itself_is_made_again() -> Result<()> {
    let world = World::new(1, ProviderSettings::default()).await?;
    let (proxy, url) = before_the_database(&world).await?;
    let service = world.service_with(&[("DATABASE_URL", &url)]).await?;
    let mut orders = sample_orders(10);
    world.send(&orders).await?;
    world.settled(10).await?;

    for round in 1..=3 {
        let more = sample_orders(10);
        proxy.set_tripwire(COMMIT, Loss::Request);
        world.send(&more).await?;
        world.until("the lost commit", async || proxy.trips() == round).await?;
        orders.extend(more);
        world.settled(orders.len()).await?;
    }
    recovered(&world, &service, &orders).await?;
    ensure!(verdicts(&service, "applied").await? == 40 && verdicts(&service, "duplicate").await? == 0);
    let record = world.provider.record();
    ensure!(record.summary.calls > 40, "what was charged was asked for again: {:?}", record.summary);
    ensure!(record.summary.charges == 40, "and not charged again: {:?}", record.summary);
    Ok(())
}

/// A broker that clients reach directly, or through a proxy that it advertises to whoever came through it.
struct ProxiedKafka {
    _broker: LocalKafka,
    direct: String,
    proxy: Proxy,
}

impl ProxiedKafka {
    async fn start() -> Result<Self> {
        let [direct, controller, proxied] = free_addresses()?;
        let proxy = Proxy::start(proxied).await?;
        let properties = vec![
            format!("controller.quorum.bootstrap.servers={controller}"),
            format!("listeners=PLAINTEXT://{direct},CONTROLLER://{controller},PROXIED://{proxied}"),
            format!("advertised.listeners=PLAINTEXT://{direct},PROXIED://{}", proxy.addr()),
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT".to_owned(),
            "inter.broker.listener.name=PLAINTEXT".to_owned(),
        ];
        let broker = LocalKafka::start(KafkaOptions { properties, ..KafkaOptions::default() }).await?;
        Ok(Self { _broker: broker, direct: direct.to_string(), proxy })
    }

    /// A world on it whose charges fail once, and a service that reaches it through the proxy.
    async fn world(&self) -> Result<(World, Service)> {
        let provider = ProviderSettings {
            fault_share: 1.0,
            fault_kinds: vec![FaultKind::ErrorBeforeCharge],
            max_faults_per_key: 1,
            ..ProviderSettings::default()
        };
        let world = World::on(&self.direct, &Backend::from_env()?.database_url, 1, provider).await?;
        let service = world.service_with(&[("KAFKA_BROKERS", &self.proxy.addr().to_string())]).await?;
        Ok((world, service))
    }
}

/// Addresses that were free a moment ago, all different.
fn free_addresses() -> Result<[SocketAddr; 3]> {
    let listen = || TcpListener::bind("127.0.0.1:0");
    let listeners = [listen()?, listen()?, listen()?];
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); 3];
    for (address, listener) in addresses.iter_mut().zip(&listeners) {
        *address = listener.local_addr()?;
    }
    Ok(addresses)
}

/// The copies of one origin.
async fn copies(world: &World, topic: &str, offset: i64) -> Result<usize> {
    let offset = offset.to_string();
    let all = world.kafka.read_all(topic).await?;
    Ok(all.iter().filter(|copy| header(copy, "delivery-origin-offset").as_deref() == Some(offset.as_str())).count())
}

/// R3 for a dead letter and a retry, whose writing is known to the broker alone: neither is lost, the offset moves, and
/// each is there as often as is allowed.
async fn copies_without_an_acknowledgement(loss: Loss, allowed: RangeInclusive<usize>) -> Result<()> {
    let kafka = ProxiedKafka::start().await?;
    let (world, service) = kafka.world().await?;
    world.until("ready", async || service.ready().await).await?;

    kafka.proxy.set_tripwire(*b"a poison of its own", loss);
    world.kafka.produce(&world.topic, "k", b"{a poison of its own").await?;
    world.until("the lost acknowledgement", async || kafka.proxy.trips() == 1).await?;
    let is_committed = async |next| {
        world.kafka.committed(&world.group, &world.topic, 1).await.is_ok_and(|offsets| offsets == [Some(next)])
    };
    wait_until("the offset behind the dead letter", GIVEN_UP, async || is_committed(1).await).await?;
    let letters = world.dead_letters().await?;
    ensure!(allowed.contains(&letters.len()), "{letters:?}");
    ensure!(letters.iter().all(|letter| letter.payload.as_deref() == Some(b"{a poison of its own".as_slice())));

    let order = sample_orders(1).remove(0);
    kafka.proxy.set_tripwire(order.id().to_string(), loss);
    world.send([&order]).await?;
    world.until("the second one", async || kafka.proxy.trips() == 2).await?;
    wait_until("the offset behind the retry", GIVEN_UP, async || is_committed(2).await).await?;
    world.settled(1).await?;
    ensure!(allowed.contains(&copies(&world, &world.retry_topic(TIERS[0]), 1).await?));
    ensure!(allowed.contains(&copies(&world, &world.dead_letter_topic(), 0).await?));
    ensure!(copies(&world, &world.dead_letter_topic(), 1).await? == 0, "the second copy is no failure");
    ensure!(service.ended().is_none(), "the same process");
    world.charged_exactly(&[order]).await
}

/// R3: the connection is cut before the acknowledgement arrives. The producer sends the copy again, and the broker knows
/// it by its number.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_acknowledgement_is_cut_off_is_there_once() -> Result<()> {
    copies_without_an_acknowledgement(Loss::Reply, 1..=1).await
}

/// R3: the acknowledgement never comes, and the producer gives the copy up, though it was written. The next try is a copy
/// of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_times_out_and_was_written_is_there_at_most_twice() -> Result<()> {
    copies_without_an_acknowledgement(Loss::Silence, 1..=2).await
}
