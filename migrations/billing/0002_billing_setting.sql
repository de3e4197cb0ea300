-- Settings that must not change while the ledger lives, because a changed value would send the provider another
-- body under an idempotency key that it knows.

create table billing_setting (
    -- What is set: 'currency' is the currency of events that name none.
    name  text not null,

    -- Its value at the first start; a different one is refused at every later start.
    value text not null,

    constraint pk_billing_setting primary key (name)
);
