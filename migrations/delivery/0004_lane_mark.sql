-- Marks of lanes: who owns a partition, and whether the last owner let go of it or died.
--
-- Written when a lane is taken and when it is given away, and by nothing in between as long as nobody dies. A lane whose
-- mark still says "owned" when the next owner comes tells it that a process died: what was in flight may have killed it,
-- and is run in ever smaller units until the one record is found that kills whoever handles it.
--
-- A table of its own, and no columns of consumer_position: a lane is owned before it has a position, a row there is what
-- a compare-and-set calls the position, and that row is rewritten several times a second.
create table lane_mark (
    consumer_group  text        not null,

    -- Which log it is, as in consumer_position.
    cluster_id      text        not null,
    topic           text        not null,
    topic_id        text        not null,
    partition       integer     not null,

    -- One assignment to one run of one process. Only the owner replaces its mark, and only by a newer one: a former owner
    -- that comes late, or a mark that was long under way, changes nothing.
    owner_process   uuid        not null,
    owner_epoch     bigint      not null,
    revision        bigint      not null,

    -- The owner let go of the lane, and nothing of it runs any more.
    is_clean        boolean     not null,

    -- For people: when it was written.
    marked_at       timestamptz not null default now(),

    -- The search, while there is one. How many records may be in flight together, how many from the position on can have
    -- killed, and the offset from which on none can.
    search_window   bigint,
    search_left     bigint,
    search_end      bigint,

    -- The record that runs alone, written before it starts, and whether the process has shown that it lives without the
    -- suspect.
    search_alone    bigint,
    is_witnessed    boolean,

    -- The record that died alone, how often that counts, and up to where no record is a witness any more.
    suspect_offset  bigint,
    suspect_strikes bigint,
    failed_witness  bigint,

    -- What was given up because it kills whoever handles it, until an owner lets go of the lane. It has a dead letter and no
    -- claim, so nothing else would keep it from being run again when a broker that lags behind delivers it again.
    given_up        bigint[]    not null default '{}',

    constraint pk_lane_mark primary key (consumer_group, topic, partition, cluster_id, topic_id),

    -- A search is whole or it is not there.
    constraint ck_lane_mark_search check (
        num_nulls(search_window, search_left, search_end, is_witnessed) in (0, 4)
        and (search_window is not null or num_nonnulls(search_alone, suspect_offset, failed_witness) = 0)
    ),
    constraint ck_lane_mark_window check (search_window >= 1 and search_left >= 0),
    constraint ck_lane_mark_suspect check (
        num_nulls(suspect_offset, suspect_strikes) in (0, 2) and (suspect_offset is not null or failed_witness is null)
    )
);
