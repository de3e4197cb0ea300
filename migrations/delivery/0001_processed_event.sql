-- Claims: the memory of which events a consumer group has handled (R-KFK-IDEM-2).
--
-- A claim is inserted in the same transaction as the business change, with `on conflict do nothing`: one row
-- inserted means "first delivery", none means "handled before" (R-KFK-IDEM-3, D-1). No application decides that,
-- the primary key does.

create table processed_event (
    -- The event's own id, a UUID version 7 made by its producer. Offsets are no ids (R-KFK-IDEM-X2).
    event_id       uuid        not null,

    -- Several groups share one database, and each handles every event once: the group belongs to the key. Without
    -- it the second group would take the first group's events for handled.
    consumer_group text        not null,

    -- When the claim's transaction began, by this server's clock. For expiry and for people; never for uniqueness.
    processed_at   timestamptz not null default now(),

    -- The guarantee itself. The partition key is a prefix of it, so uniqueness holds over the whole table and not
    -- only within a partition. (Partitioned by processed_at, that column would have to be part of the key, and an
    -- event that comes again in the next period would be new.)
    constraint pk_processed_event primary key (event_id, consumer_group)
)
-- A v7 id begins with the millisecond it was made, so a range of ids is a range of time: expiry is the drop of a
-- day's partition, and a claim touches the partitions of its own ids only. The partitions are made by code, from
-- back in the retention to days ahead, and on demand for an older id.
--
-- There is no DEFAULT partition, on purpose: it would take the rows of a day whose partition is missing, and that
-- day's partition could then not be attached without a scan under lock. A missing partition is SQLSTATE 23514 from
-- the claim statement, which the store answers by making it.
partition by range (event_id);

-- For the expiry variant that deletes by age, and for questions like "how many in the last hour". All rows of one
-- unit carry the same instant, so the B-tree keeps them as one entry with a list of row addresses.
create index ix_processed_event_at on processed_event (processed_at);
