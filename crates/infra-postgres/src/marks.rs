//! The stored marks of lanes: read, and written by whoever owns them. What follows from one is the kernel's to decide.

use core_delivery::ports::{LaneLog, LaneMark, MarkAnswer, Owner, Search, Standing, Suspect};
use core_delivery::record::{Committable, Offset};
use sqlx::{FromRow, PgExecutor, types::Uuid};

#[derive(FromRow)]
struct Row {
    owner_process: Uuid,
    owner_epoch: i64,
    revision: i64,
    is_clean: bool,
    search_window: Option<i64>,
    search_left: Option<i64>,
    search_end: Option<i64>,
    search_alone: Option<i64>,
    is_witnessed: Option<bool>,
    suspect_offset: Option<i64>,
    suspect_strikes: Option<i64>,
    failed_witness: Option<i64>,
    given_up: Vec<i64>,
}

impl Row {
    fn of(mark: &LaneMark) -> Self {
        let search = mark.search.as_ref();
        let suspect = search.and_then(|search| search.suspect);
        Self {
            owner_process: mark.owner.process,
            // The same bits: an epoch counts from one, and is only compared.
            owner_epoch: mark.owner.epoch.cast_signed(),
            revision: mark.revision,
            is_clean: mark.standing == Standing::Clean,
            search_window: search.map(|search| search.window.into()),
            search_left: search.map(|search| search.left.into()),
            search_end: search.map(|search| search.end.0),
            search_alone: search.and_then(|search| search.alone).map(|offset| offset.0),
            is_witnessed: search.map(|search| search.witnessed),
            suspect_offset: suspect.map(|suspect| suspect.offset.0),
            suspect_strikes: suspect.map(|suspect| suspect.strikes.into()),
            failed_witness: suspect.and_then(|suspect| suspect.failed_witness).map(|offset| offset.0),
            given_up: mark.given_up.iter().map(|offset| offset.0).collect(),
        }
    }

    fn mark(self) -> LaneMark {
        let owner = Owner { process: self.owner_process, epoch: self.owner_epoch.cast_unsigned() };
        let standing = if self.is_clean { Standing::Clean } else { Standing::Owned };
        let search = self.search();
        let given_up = self.given_up.into_iter().map(Offset).collect();
        LaneMark { owner, standing, revision: self.revision, search, given_up }
    }

    /// The constraints of the table see to it that a search is whole.
    fn search(&self) -> Option<Search> {
        Some(Search {
            window: count(self.search_window?),
            left: count(self.search_left?),
            end: Committable(self.search_end?),
            alone: self.search_alone.map(Offset),
            witnessed: self.is_witnessed?,
            suspect: self.suspect(),
        })
    }

    fn suspect(&self) -> Option<Suspect> {
        Some(Suspect {
            offset: Offset(self.suspect_offset?),
            strikes: count(self.suspect_strikes?),
            failed_witness: self.failed_witness.map(Offset),
        })
    }
}

fn count(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(u32::MAX)
}

/// The lane's mark.
pub(crate) async fn read(executor: impl PgExecutor<'_>, lane: &LaneLog) -> sqlx::Result<Option<LaneMark>> {
    let row: Option<Row> = sqlx::query_as(
        "select owner_process, owner_epoch, revision, is_clean, search_window, search_left, search_end, search_alone, \
         is_witnessed, suspect_offset, suspect_strikes, failed_witness, given_up from lane_mark \
         where consumer_group = $1 and cluster_id = $2 and topic = $3 and topic_id = $4 and partition = $5",
    )
    .bind(lane.group.as_str())
    .bind(&*lane.identity.cluster)
    .bind(lane.lane.topic.as_str())
    .bind(&*lane.identity.topic)
    .bind(lane.lane.partition)
    .fetch_optional(executor)
    .await?;
    Ok(row.map(Row::mark))
}

/// One statement that compares and writes.
pub(crate) async fn write(
    executor: impl PgExecutor<'_>,
    lane: &LaneLog,
    from: Option<Owner>,
    to: &LaneMark,
) -> sqlx::Result<MarkAnswer> {
    let statement = match from {
        Some(_) => {
            "update lane_mark set owner_process = $6, owner_epoch = $7, revision = $8, is_clean = $9, \
             search_window = $10, search_left = $11, search_end = $12, search_alone = $13, is_witnessed = $14, \
             suspect_offset = $15, suspect_strikes = $16, failed_witness = $17, given_up = $18, marked_at = now() \
             where consumer_group = $1 and cluster_id = $2 and topic = $3 and topic_id = $4 and partition = $5 \
             and owner_process = $19 and owner_epoch = $20 and revision <= $8"
        }
        None => {
            "insert into lane_mark (consumer_group, cluster_id, topic, topic_id, partition, owner_process, owner_epoch, \
             revision, is_clean, search_window, search_left, search_end, search_alone, is_witnessed, suspect_offset, \
             suspect_strikes, failed_witness, given_up) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) on conflict do nothing"
        }
    };
    let row = Row::of(to);
    let query = sqlx::query(statement)
        .bind(lane.group.as_str())
        .bind(&*lane.identity.cluster)
        .bind(lane.lane.topic.as_str())
        .bind(&*lane.identity.topic)
        .bind(lane.lane.partition)
        .bind(row.owner_process)
        .bind(row.owner_epoch)
        .bind(row.revision)
        .bind(row.is_clean)
        .bind(row.search_window)
        .bind(row.search_left)
        .bind(row.search_end)
        .bind(row.search_alone)
        .bind(row.is_witnessed)
        .bind(row.suspect_offset)
        .bind(row.suspect_strikes)
        .bind(row.failed_witness)
        .bind(row.given_up);
    let query = match from {
        Some(from) => query.bind(from.process).bind(from.epoch.cast_signed()),
        None => query,
    };
    let written = query.execute(executor).await?.rows_affected();
    Ok(if written == 1 { MarkAnswer::Written } else { MarkAnswer::Superseded })
}
