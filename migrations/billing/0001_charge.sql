-- The ledger of charges: which order was charged, by which event, for how much.
--
-- A row is inserted before the payment provider is called and completed after it, in one transaction, the one that
-- also holds the event's claim. The insert (`on conflict do nothing`) is the reservation of the order: a second
-- event for the same order, of another unit too, waits for the first one's end and then finds the order taken.

create table charge (
    -- The event that charged the order: the same id that is the claim and the provider's idempotency key.
    event_id     uuid        not null,

    -- The order, as its producer names it.
    order_id     text        not null,

    -- Who pays.
    customer_id  text        not null,

    -- How much, in minor units of the currency: 1050 is 10.50 euros. Zero is a charge (and never reaches the
    -- provider), less than zero is none.
    amount_minor bigint      not null,

    -- Three capital letters of ISO 4217. The event's, or the service's setting where the event names none.
    currency     text        not null,

    -- The provider's name of the charge. Null if it gave none: a charge it reported as made before, or an answer
    -- without an id.
    provider_ref text        null,

    -- When the reserving transaction began.
    reserved_at  timestamptz not null default now(),

    -- When the charge was completed. Null means reserved and not completed. A committed row without it belongs to an event
    -- whose last try had an unknown outcome, which waits in a retry tier or is a dead letter in doubt: its reservation
    -- keeps every other event from charging the order meanwhile. The ledger never takes a null for "charged".
    charged_at   timestamptz null,

    -- One charge an event (D-1, D-10).
    constraint pk_charge primary key (event_id),

    -- One charge an order, whatever event asks for it: two ids for one order are a producer's mistake, and the
    -- customer must not pay for it.
    constraint uq_charge_order_id unique (order_id),

    constraint ck_charge_amount_minor_not_negative check (amount_minor >= 0),

    constraint ck_charge_currency_iso_4217 check (currency collate "C" ~ '^[A-Z]{3}$')
)
-- Each row is written twice in its transaction, and grows: the reservation, then the completion, a new version of
-- 1.3 times the size. With 40 % of a page filled by reservations, the completions fit beside them, so that neither
-- index gets a second entry (a heap-only update). Measured with 2,000 rows a transaction: all updates heap-only
-- (none with full pages), a third faster, and indexes of two thirds the size. The table itself does not grow by it:
-- the old versions take that room either way.
--
-- It holds for as long as no index, and no index's predicate, names a column that the completion writes. A partial
-- index `where charged_at is null` would undo it.
with (fillfactor = 40);
