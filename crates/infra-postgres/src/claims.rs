//! The statements of the claims table, each one round trip. No transaction is begun or ended here, and no answer is
//! read as anything but "this row was inserted" or "it was not".

use std::collections::{BTreeMap, HashSet};

use core_delivery::claim::{Claim, DedupKey};
use sqlx::PgConnection;
use uuid::Uuid;

/// Inserts the keys' rows; the keys whose row is new are [`Claim::Fresh`], in the order asked (D-1).
///
/// The rows are inserted in the order of the keys. The kernel sorts them, so two units that claim the same keys wait
/// for each other instead of deadlocking. `on conflict do nothing` waits for another open transaction that
/// holds a key, up to `lock_timeout`, and inserts the row after all if that one rolls back: the answer is never a
/// guess.
pub(crate) async fn insert(connection: &mut PgConnection, keys: &[DedupKey]) -> sqlx::Result<Vec<Claim>> {
    debug_assert!(keys.is_sorted(), "the kernel sorts the keys of a claim");
    let ids = ids(keys);
    let Some(group) = only_group(keys) else { return insert_of_several_groups(connection, keys, &ids).await };
    let fresh: Vec<Uuid> = sqlx::query_scalar(
        "insert into processed_event (event_id, consumer_group) \
         select event_id, $2 from unnest($1::uuid[]) as asked (event_id) \
         on conflict (event_id, consumer_group) do nothing \
         returning event_id",
    )
    .bind(&ids)
    .bind(group)
    .fetch_all(connection)
    .await?;
    let mut fresh: HashSet<Uuid> = fresh.into_iter().collect();
    // Taken out, so that a key asked for twice could not be fresh twice.
    Ok(ids.iter().map(|id| claim(fresh.remove(id))).collect())
}

async fn insert_of_several_groups(
    connection: &mut PgConnection,
    keys: &[DedupKey],
    ids: &[Uuid],
) -> sqlx::Result<Vec<Claim>> {
    // Both arrays are made of the same keys, so they cannot be of uneven length, which unnest pads with NULL.
    let groups: Vec<&str> = keys.iter().map(|key| key.group().as_str()).collect();
    let fresh: Vec<(Uuid, String)> = sqlx::query_as(
        "insert into processed_event (event_id, consumer_group) \
         select event_id, consumer_group from unnest($1::uuid[], $2::text[]) as asked (event_id, consumer_group) \
         on conflict (event_id, consumer_group) do nothing \
         returning event_id, consumer_group",
    )
    .bind(ids)
    .bind(&groups)
    .fetch_all(connection)
    .await?;
    let mut fresh: HashSet<(Uuid, &str)> = fresh.iter().map(|(id, group)| (*id, group.as_str())).collect();
    Ok(ids.iter().zip(groups).map(|(id, group)| claim(fresh.remove(&(*id, group)))).collect())
}

/// Deletes the rows of the keys that this transaction inserted, and says how many there were.
///
/// `xmin` is the transaction that wrote a row: a claim that another unit has committed cannot be taken back here,
/// whatever the caller asks for (D-9).
pub(crate) async fn delete(connection: &mut PgConnection, keys: &[DedupKey]) -> sqlx::Result<u64> {
    let mut ids_of_groups: BTreeMap<&str, Vec<Uuid>> = BTreeMap::new();
    for key in keys {
        ids_of_groups.entry(key.group().as_str()).or_default().push(key.event_id().as_uuid());
    }
    let mut deleted = 0;
    // One group, and so one statement, in all but odd cases.
    for (group, ids) in ids_of_groups {
        deleted += sqlx::query(
            "delete from processed_event where event_id = any($1::uuid[]) and consumer_group = $2 \
             and xmin = pg_current_xact_id()::xid",
        )
        .bind(ids)
        .bind(group)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    }
    Ok(deleted)
}

fn ids(keys: &[DedupKey]) -> Vec<Uuid> {
    keys.iter().map(|key| key.event_id().as_uuid()).collect()
}

fn only_group(keys: &[DedupKey]) -> Option<&str> {
    let first = keys.first()?.group();
    keys.iter().all(|key| key.group() == first).then(|| first.as_str())
}

fn claim(inserted: bool) -> Claim {
    if inserted { Claim::Fresh } else { Claim::AlreadyProcessed }
}
