//! Migrations: any number at once, forwards only, tolerant of a newer release.

use futures::future::join_all;
use infra_postgres::{MigrationError, PartitionPlan, PgSettings, connect, migrate, migrate_delivery};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection, PgConnection, SqlSafeStr};

use crate::world::*;

#[tokio::test]
async fn eight_instances_migrate_and_make_partitions_at_once() {
    let world = World::empty(|settings| settings).await;
    let instances = (0..8).map(|_| {
        let url = world.url.clone();
        tokio::spawn(async move {
            let pool = connect(&PgSettings::new(url)).await.expect("connect");
            migrate_delivery(&pool, PartitionPlan::default(), now()).await
        })
    });
    for instance in tokio::time::timeout(std::time::Duration::from_secs(60), join_all(instances)).await.expect("limit")
    {
        instance.expect("no panic").expect("migrated");
    }
    let partitions: i64 =
        sqlx::query_scalar("select count(*) from pg_inherits where inhparent = 'processed_event'::regclass")
            .fetch_one(&world.maintenance)
            .await
            .expect("count");
    assert_eq!(partitions, 15);
    world.claimed(&keys(1)).await;
}

#[tokio::test]
async fn a_newer_migration_is_tolerated() {
    let world = World::new().await;
    world.run("insert into delivery_migration values (9999, 'of a later release', now(), true, '', 0)").await;
    migrate_delivery(&world.maintenance, PartitionPlan::default(), now()).await.expect("tolerated");
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let world = World::new().await;
    world.run("update delivery_migration set checksum = 'x'").await;
    let result = migrate_delivery(&world.maintenance, PartitionPlan::default(), now()).await;
    assert!(matches!(result, Err(MigrationError::History { history: "delivery_migration", .. })), "{result:?}");
}

#[tokio::test]
async fn an_application_s_migrations_have_a_history_of_their_own() {
    let world = World::new().await;
    let billing = Migrator::new(std::path::Path::new("../../migrations/billing")).await.expect("migrations");
    migrate(&world.maintenance, &billing, "billing_migration").await.expect("migrated");
    migrate(&world.maintenance, &billing, "billing_migration").await.expect("nothing to do");
    let histories: (i64, i64) =
        sqlx::query_as("select (select count(*) from delivery_migration), (select count(*) from billing_migration)")
            .fetch_one(&world.maintenance)
            .await
            .expect("count");
    let delivery = std::fs::read_dir("../../migrations/delivery").expect("migrations").count();
    assert_eq!(histories, (delivery as i64, billing.iter().count() as i64));
}

#[tokio::test]
async fn the_constraints_of_the_ledger_hold() {
    let world = World::new().await;
    let billing = Migrator::new(std::path::Path::new("../../migrations/billing")).await.expect("migrations");
    migrate(&world.maintenance, &billing, "billing_migration").await.expect("migrated");
    let mut connection = PgConnection::connect(&world.url).await.expect("connect");
    for (order, amount, currency, constraint) in [
        ("one", 0, "EUR", None),
        ("one", 5, "EUR", Some("uq_charge_order_id")),
        ("two", -1, "EUR", Some("ck_charge_amount_minor_not_negative")),
        ("two", 1, "eur", Some("ck_charge_currency_iso_4217")),
        ("two", 1, "EURO", Some("ck_charge_currency_iso_4217")),
        ("two", 1, "ÄÖÜ", Some("ck_charge_currency_iso_4217")),
    ] {
        let result = sqlx::query(
            "insert into charge (event_id, order_id, customer_id, amount_minor, currency) \
             values (gen_random_uuid(), $1, 'someone', $2, $3)",
        )
        .bind(order)
        .bind(i64::from(amount))
        .bind(currency)
        .execute(&mut connection)
        .await;
        let violated = result.err().and_then(|error| error.as_database_error()?.constraint().map(str::to_owned));
        assert_eq!(violated.as_deref(), constraint, "{order} {amount} {currency}");
    }
}

#[tokio::test]
async fn a_failed_migration_keeps_no_lock() {
    let world = World::new().await;
    let sql = "create table half (); select nonsense".into_sql_str();
    let broken = Migrator::with_migrations(vec![Migration::new(1, "broken".into(), MigrationType::Simple, sql, false)]);
    let result = migrate(&world.maintenance, &broken, "broken_migration").await;
    assert!(matches!(result, Err(MigrationError::Store(_))), "{result:?}");
    // The server notices a moment later that the session is gone.
    until("no lock is held", || async { advisory_locks(&world).await == 0 }).await;
    migrate_delivery(&world.maintenance, PartitionPlan::default(), now()).await.expect("migrated");
}

async fn advisory_locks(world: &World) -> i64 {
    sqlx::query_scalar(
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database \
         where l.locktype = 'advisory' and d.datname = current_database()",
    )
    .fetch_one(&world.maintenance)
    .await
    .expect("count")
}
