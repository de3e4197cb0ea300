-- Floors: below which event ids a group's claims may be gone (D-9).
--
-- Once a claim is removed, an event that comes again would be new. So before anything of a group is removed, its floor
-- is moved above it, and the claim statement, which reads the floor itself, claims no id below: such an event is a
-- duplicate if its claim is still there, and otherwise expired, which is a dead letter and never a guess.
--
-- A group has no row here until something of it is to be removed. So a new group may read a backlog of any age.

create table claim_floor (
    consumer_group text        not null,

    -- The smallest event id that may be claimed. It never goes back.
    floor          uuid        not null,

    -- Since when, by this server's clock. A claim statement that began before may not have seen this floor, so what
    -- lies below is removed only when the floor has stood for longer than any statement may run.
    advanced_at    timestamptz not null default now(),

    -- The floor before this one: while the new one has not stood for long enough, removal goes by it.
    previous       uuid,
    previous_at    timestamptz,

    constraint pk_claim_floor primary key (consumer_group),
    constraint ck_claim_floor_previous_whole check ((previous is null) = (previous_at is null)),
    constraint ck_claim_floor_previous_lower check (previous < floor)
);
