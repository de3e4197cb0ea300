//! Books that are right, and each way in which they can be wrong.

use sandbox::{provider::ProviderSettings, samples::samples};
use testbed::clients::ReadRecord;

use super::*;

/// The books of a run in which everything became what it should.
fn right(load: &Load) -> Books {
    let mut books = Books::default();
    for sample in &load.subjects {
        let event: serde_json::Value =
            sample.payload.as_deref().and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default();
        let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        if let Expected::DeadLettered(class) = sample.expected {
            books.dead_letters.push(letter(sample, class));
        }
        let Subject::Event(id) = sample.subject else { continue };
        if matches!(sample.expected, Expected::Charged | Expected::Free) {
            books.claims.push(id.as_uuid());
            books.ledger.push(ChargeRow {
                event_id: id.as_uuid(),
                order_id: text("order_id"),
                amount_minor: event["total_amount"].as_i64().unwrap_or_default(),
                currency: "EUR".to_owned(),
                provider_ref: None,
                charged: true,
            });
        }
        if sample.expected == Expected::Charged {
            books.provider.push(ProviderCharge {
                id: format!("ch-{id}"),
                idempotency_key: id.to_string(),
                order_id: text("order_id"),
                customer_id: text("customer_id"),
                amount: event["total_amount"].as_i64().unwrap_or_default(),
                currency: "EUR".to_owned(),
                status: "succeeded".to_owned(),
            });
        }
    }
    books
}

fn letter(sample: &Sample, class: &str) -> ReadRecord {
    ReadRecord {
        partition: 0,
        offset: 0,
        key: Some(sample.key.to_vec()),
        payload: sample.payload.as_ref().map(|bytes| bytes.to_vec()),
        headers: vec![("delivery-error-class".to_owned(), class.as_bytes().to_vec())],
        timestamp: None,
    }
}

fn load() -> Load {
    Load::new(samples(400, 1, &ProviderSettings::default()))
}

#[test]
fn right_books_have_no_findings() {
    let load = load();
    let judgement = judge(&load, &right(&load));
    assert_eq!(judgement.findings, []);
    assert_eq!((judgement.lost, judgement.charged_twice), (0, 0));
    assert_eq!((judgement.applied, judgement.dead_lettered), load.expected());
}

#[test]
fn the_second_event_of_an_order_may_be_the_one_that_is_charged_but_not_both() {
    let load = load();
    let numbers = rivals(&load.subjects);
    let (one, other) = numbers.iter().next().map(|(one, other)| (*one, *other)).expect("there are pairs");
    let turned = Load::new(
        load.subjects
            .iter()
            .enumerate()
            .map(|(number, sample)| {
                let expected = match number {
                    number if number == one => load.subjects[other].expected,
                    number if number == other => load.subjects[one].expected,
                    _ => sample.expected,
                };
                Sample { expected, ..sample.clone() }
            })
            .collect(),
    );
    assert_eq!(judge(&load, &right(&turned)).findings, []);
    let mut both = right(&load);
    both.provider.extend(right(&turned).provider);
    assert!(judge(&load, &both).charged_twice > 0);
}

#[test]
fn every_wrong_book_is_found() {
    let load = load();
    let wrong: [fn(&mut Books); 10] = [
        |books| books.claims.truncate(1),
        |books| drop(books.ledger.pop()),
        |books| drop(books.provider.pop()),
        |books| drop(books.dead_letters.pop()),
        |books| books.claims.push(Uuid::nil()),
        |books| books.ledger[0].charged = false,
        |books| books.ledger[0].amount_minor += 1,
        |books| books.provider[0].order_id = "another".to_owned(),
        |books| books.dead_letters[0].payload = Some(b"changed".to_vec()),
        |books| books.key_reuses = 1,
    ];
    for (number, change) in wrong.iter().enumerate() {
        let mut books = right(&load);
        change(&mut books);
        assert!(!judge(&load, &books).findings.is_empty(), "change {number}");
    }
}

#[test]
fn a_second_charge_and_a_lost_event_are_counted() {
    let load = load();
    let mut books = right(&load);
    let forged = ProviderCharge { id: "ch-x".to_owned(), idempotency_key: "x".to_owned(), ..books.provider[0].clone() };
    books.provider.push(forged);
    let lost = books.ledger.pop().expect("some are charged").event_id;
    books.claims.retain(|claim| *claim != lost);
    books.provider.retain(|charge| charge.idempotency_key != lost.to_string());
    let judgement = judge(&load, &books);
    assert_eq!((judgement.lost, judgement.charged_twice), (1, 1));
    assert!(judgement.findings.iter().filter(|finding| finding.subject.is_some()).count() >= 3);
}
