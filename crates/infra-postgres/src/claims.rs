//! The statements of the claims table. No transaction is begun or ended here, and no answer is read as anything but
//! "this row was inserted", "it is there", or "it may have been there and is gone".

use std::collections::{BTreeMap, HashMap, HashSet};

use core_delivery::claim::{Claim, DedupKey};
use sqlx::PgConnection;
use uuid::Uuid;

/// Inserts the keys' rows; the keys whose row is new are [`Claim::Fresh`], in the order asked (D-1).
///
/// The rows of a group are inserted in the order of their ids. The kernel sorts them, so two units that claim the same
/// keys wait for each other instead of deadlocking. `on conflict do nothing` waits for another open transaction that
/// holds a key, up to `lock_timeout`, and inserts the row after all if that one rolls back: the answer is never a
/// guess.
pub(crate) async fn insert(connection: &mut PgConnection, keys: &[DedupKey]) -> sqlx::Result<Vec<Claim>> {
    debug_assert!(keys.is_sorted(), "the kernel sorts the keys of a claim");
    let mut answers_of_groups = HashMap::new();
    // One group, and so one statement, in all but odd cases.
    for (group, ids) in ids_of_groups(keys) {
        let answers = insert_of_group(connection, group, &ids).await?;
        if ids.len() == keys.len() {
            return Ok(answers);
        }
        answers_of_groups.insert(group, answers.into_iter());
    }
    let mut next = |key: &DedupKey| answers_of_groups.get_mut(key.group().as_str()).and_then(Iterator::next);
    Ok(keys.iter().map(|key| next(key).expect("each key of a group has its answer")).collect())
}

/// The floor is read by the statement that inserts, in one snapshot with it: there is no moment between in which it
/// could move. An id below it is never inserted, whether its claim is still there or not (D-9).
async fn insert_of_group(connection: &mut PgConnection, group: &str, ids: &[Uuid]) -> sqlx::Result<Vec<Claim>> {
    let (floor, fresh): (Option<Uuid>, Vec<Uuid>) = sqlx::query_as(
        "with bound as materialized (select floor from claim_floor where consumer_group = $2), \
         fresh as ( \
             insert into processed_event (event_id, consumer_group) \
             select event_id, $2 from unnest($1::uuid[]) as asked (event_id) \
             where event_id >= coalesce((select floor from bound), '00000000-0000-0000-0000-000000000000') \
             on conflict (event_id, consumer_group) do nothing \
             returning event_id) \
         select (select floor from bound), array(select event_id from fresh)",
    )
    .bind(ids)
    .bind(group)
    .fetch_one(&mut *connection)
    .await?;
    let below: Vec<Uuid> = ids.iter().copied().filter(|id| Some(*id) < floor).collect();
    let known = if below.is_empty() { HashSet::new() } else { claimed(connection, group, &below).await? };
    let mut fresh: HashSet<Uuid> = fresh.into_iter().collect();
    let answer = |id: &Uuid| match floor {
        Some(floor) if *id < floor && !known.contains(id) => Claim::Expired,
        // Taken out, so that a key asked for twice could not be fresh twice.
        _ if fresh.remove(id) => Claim::Fresh,
        _ => Claim::AlreadyProcessed,
    };
    Ok(ids.iter().map(answer).collect())
}

/// Which of the ids have a claim. Only for ids below the floor, which nobody can claim any more: a claim may go
/// meanwhile, and its event is then expired, but none can come.
async fn claimed(connection: &mut PgConnection, group: &str, ids: &[Uuid]) -> sqlx::Result<HashSet<Uuid>> {
    let known: Vec<Uuid> = sqlx::query_scalar(
        "select event_id from processed_event where event_id = any($1::uuid[]) and consumer_group = $2",
    )
    .bind(ids)
    .bind(group)
    .fetch_all(connection)
    .await?;
    Ok(known.into_iter().collect())
}

/// Deletes the rows of the keys that this transaction inserted, and says how many there were.
///
/// `xmin` is the transaction that wrote a row: a claim that another unit has committed cannot be taken back here,
/// whatever the caller asks for (D-9).
pub(crate) async fn delete(connection: &mut PgConnection, keys: &[DedupKey]) -> sqlx::Result<u64> {
    let mut deleted = 0;
    for (group, ids) in ids_of_groups(keys) {
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

/// The ids of each group, in the order of the keys. All units go through the groups in the same order, so several of
/// them cannot deadlock either.
fn ids_of_groups(keys: &[DedupKey]) -> BTreeMap<&str, Vec<Uuid>> {
    let mut ids_of_groups: BTreeMap<&str, Vec<Uuid>> = BTreeMap::new();
    for key in keys {
        ids_of_groups.entry(key.group().as_str()).or_default().push(key.event_id().as_uuid());
    }
    ids_of_groups
}
