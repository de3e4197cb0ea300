-- Positions: where a group goes on in a partition of a topic, kept beside the claims (D-11).
--
-- Kafka keeps the group's committed offsets too, but not in this database. If this database is restored from a backup,
-- or fails over to a replica that had not received the last commits, Kafka's offsets are ahead of what is stored here,
-- and the events between would be lost. A position moves in the transaction of the business change, so it goes back
-- together with it, and the group reads those events again.
--
-- A position is a place to start from. It says nothing about a single event and is no key of anything (R-KFK-IDEM-X2).

create table consumer_position (
    consumer_group text        not null,

    -- Which log the offset belongs to. A topic that was deleted and made again, or a cluster that was built anew, has
    -- the same name and other offsets: each log has a row of its own, and a lane uses the one of the log it reads.
    cluster_id     text        not null,
    topic          text        not null,
    topic_id       text        not null,
    partition      integer     not null,

    -- The next offset to be read. It moves by compare-and-set: `where next_offset = <what the lane stored last>`. If
    -- that is no longer here, this database went back, or another owner of the lane writes.
    next_offset    bigint      not null,

    -- For people: how long ago the lane moved.
    moved_at       timestamptz not null default now(),

    -- The name before the identities, because a lane asks for all logs that ever had its name.
    constraint pk_consumer_position primary key (consumer_group, topic, partition, cluster_id, topic_id)
)
-- A row is updated several times a second. Half-empty pages keep its versions on one page, where they are pruned
-- without a vacuum and no index is touched.
with (fillfactor = 50);
