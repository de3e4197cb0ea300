//! Every kind of defect is found where it is, and sound books have none.

use super::*;
use crate::clients::sample_orders;

/// Three events and the books that a perfect run leaves.
fn sound() -> (Vec<OrderConfirmed>, Books) {
    let events = sample_orders(3);
    let provider = events.iter().enumerate().map(|(number, event)| ProviderCharge {
        id: format!("ch_{number}"),
        idempotency_key: event.id().to_string(),
        order_id: event.order_id().to_string(),
        customer_id: event.customer_id().to_string(),
        amount: event.total().minor_units,
        currency: event.total().currency.to_string(),
        status: "succeeded".into(),
    });
    let ledger = events.iter().enumerate().map(|(number, event)| ChargeRow {
        event_id: event.id().as_uuid(),
        order_id: event.order_id().to_string(),
        amount_minor: event.total().minor_units,
        currency: event.total().currency.to_string(),
        provider_ref: Some(format!("ch_{number}")),
        charged: true,
    });
    let books = Books {
        provider: provider.collect(),
        ledger: ledger.collect(),
        claims: events.iter().map(|event| event.id().as_uuid()).collect(),
        ..Books::default()
    };
    (events, books)
}

/// What is found after this has happened to the books.
fn found(damage: impl FnOnce(&mut Books)) -> Vec<(Place, Kind)> {
    let (events, mut books) = sound();
    damage(&mut books);
    audit(&events, &books).into_iter().map(|defect| (defect.place, defect.kind)).collect()
}

#[test]
fn sound_books_have_no_defect() {
    assert_eq!(found(|_| {}), []);
    assert_eq!(found(|books| books.ledger[1].provider_ref = None), [], "the provider need not give a name");
}

#[test]
fn a_lost_event_is_missing_in_each_place() {
    assert_eq!(
        found(|books| drop(books.provider.remove(1))),
        [
            (Place::Provider, Kind::Missing),
            // Its row names a charge that is not there.
            (Place::Ledger, Kind::Wrong),
        ]
    );
    assert_eq!(found(|books| drop(books.ledger.remove(1))), [(Place::Ledger, Kind::Missing)]);
    assert_eq!(found(|books| books.claims.truncate(2)), [(Place::Claims, Kind::Missing)]);
}

#[test]
fn an_event_that_took_effect_twice_is_doubled() {
    let twice = |books: &mut Books| {
        let again = ProviderCharge { id: "ch_9".into(), ..books.provider[2].clone() };
        books.provider.insert(0, again);
    };
    assert_eq!(found(twice), [(Place::Provider, Kind::Doubled)]);
    assert_eq!(found(|books| books.ledger.push(books.ledger[0].clone())), [(Place::Ledger, Kind::Doubled)]);
    assert_eq!(found(|books| books.claims.push(books.claims[0])), [(Place::Claims, Kind::Doubled)]);
}

#[test]
fn an_order_charged_under_another_key_is_foreign() {
    let other_key = |books: &mut Books| {
        let key = sample_orders(1)[0].id().to_string();
        let again = ProviderCharge { idempotency_key: key, ..books.provider[0].clone() };
        books.provider.push(again);
    };
    assert_eq!(found(other_key), [(Place::Provider, Kind::Foreign)]);
    let no_id = |books: &mut Books| {
        let again = ProviderCharge { idempotency_key: "no id".into(), ..books.provider[0].clone() };
        books.provider.push(again);
    };
    assert_eq!(found(no_id), [(Place::Provider, Kind::Foreign)]);
}

#[test]
fn rows_and_claims_of_nobody_are_foreign() {
    let stranger = sample_orders(1)[0].id().as_uuid();
    assert_eq!(found(|books| books.claims.push(stranger)), [(Place::Claims, Kind::Foreign)]);
    let row = |books: &mut Books| books.ledger.push(ChargeRow { event_id: stranger, ..books.ledger[0].clone() });
    assert_eq!(found(row), [(Place::Ledger, Kind::Foreign)]);
}

#[test]
fn other_data_than_the_events_is_wrong() {
    for damage in [
        |books: &mut Books| books.provider[0].amount += 1,
        |books: &mut Books| books.provider[0].order_id.push('x'),
        |books: &mut Books| books.provider[0].customer_id.clear(),
        |books: &mut Books| books.provider[0].currency = "USD".into(),
        |books: &mut Books| books.provider[0].status = "failed".into(),
        |books: &mut Books| books.provider[0].idempotency_key.make_ascii_uppercase(),
    ] {
        let found = found(damage);
        assert!(found.contains(&(Place::Provider, Kind::Wrong)), "{found:?}");
    }
    for damage in [
        |books: &mut Books| books.ledger[0].amount_minor -= 1,
        |books: &mut Books| books.ledger[0].order_id.push('x'),
        |books: &mut Books| books.ledger[0].currency = "USD".into(),
        |books: &mut Books| books.ledger[0].provider_ref = Some("ch_2".into()),
    ] {
        assert_eq!(found(damage), [(Place::Ledger, Kind::Wrong)]);
    }
}

#[test]
fn a_second_body_under_one_key_is_found() {
    assert_eq!(found(|books| books.key_reuses = 1), [(Place::Provider, Kind::SecondBody)]);
}

#[test]
fn a_committed_reservation_is_unfinished() {
    assert_eq!(found(|books| books.ledger[2].charged = false), [(Place::Ledger, Kind::Unfinished)]);
}

#[test]
fn a_dead_letter_is_found_and_says_why() {
    let (events, mut books) = sound();
    books.dead_letters.push(ReadRecord {
        partition: 0,
        offset: 0,
        key: Some(b"o-1".to_vec()),
        payload: None,
        headers: vec![("delivery-error-class".into(), b"in_doubt".to_vec())],
        timestamp: None,
    });
    let defects = audit(&events, &books);
    assert_eq!(defects.len(), 1);
    assert_eq!(defects[0].to_string(), "dead letters: dead letter: order o-1: in_doubt: ");
}
