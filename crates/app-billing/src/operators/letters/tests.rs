//! What a letter tells, and which letters a selection means.

use core_delivery::record::{Header, Topic};

use super::*;

const ID: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

fn lane(topic: &str) -> LaneId {
    LaneId { topic: Topic::new(topic), partition: 0 }
}

fn record(offset: i64, origin: i64, class: &str) -> Record {
    let header = |key: &str, value: String| Header { key: key.into(), value: Some(value.into()) };
    Record {
        offset: Offset(offset),
        timestamp: Some(UnixMillis(1_000 * offset)),
        key: Some("o-1".into()),
        payload: Some(format!(r#"{{"event_id":"{ID}","order_id":"o-{origin}"}}"#).into()),
        headers: vec![
            header("delivery-origin-topic", "orders".into()),
            header("delivery-origin-partition", "0".into()),
            header("delivery-origin-offset", origin.to_string()),
            header("delivery-error-class", class.into()),
            header("delivery-error-text", "402".into()),
            header("delivery-attempts", "2".into()),
        ],
        unreadable_headers: 0,
    }
}

fn letters(records: &[Record]) -> Letters {
    let mut letters = Letters::default();
    records.iter().for_each(|record| letters.add(Letter::read(record, &lane("dlq"))));
    letters
}

fn chosen(selection: &Selection) -> Vec<i64> {
    let all = [record(1, 10, "declined"), record(2, 11, "in_doubt"), record(3, 12, "undecodable")];
    letters(&all).selected(selection).iter().map(|letter| letter.origin.offset.0).collect()
}

#[test]
fn a_letter_tells_its_origin_its_failure_and_its_event() {
    let letter = Letter::read(&record(5, 17, "declined"), &lane("dlq"));
    assert_eq!((letter.origin.lane.clone(), letter.origin.offset), (lane("orders"), Offset(17)));
    assert_eq!((letter.class.as_str(), letter.text.as_str(), letter.attempts), ("declined", "402", 2));
    assert_eq!(letter.event_id, ID.parse().ok());
    assert_eq!(letter.order_id.as_deref(), Some("o-17"));
    assert!(!letter.is_in_doubt());
    let row = to_table(&[letter]);
    assert!(row.contains("orders/0@17  declined  "), "{row}");
}

#[test]
fn a_damaged_letter_is_shown_all_the_same() {
    let damaged = Record { payload: Some("\u{feff}{".into()), headers: vec![], ..record(5, 17, "x") };
    let letter = Letter::read(&damaged, &lane("dlq"));
    assert_eq!((letter.origin.lane, letter.origin.offset), (lane("dlq"), Offset(5)));
    assert_eq!((letter.class.as_str(), letter.event_id, letter.order_id), ("unknown", None, None));
}

#[test]
fn an_origin_has_one_entry_which_is_its_last_letter() {
    let selected = letters(&[record(4, 10, "in_doubt"), record(1, 10, "declined"), record(2, 11, "declined")])
        .selected(&Selection::default());
    let shown: Vec<_> = selected.iter().map(|l| (l.origin.offset.0, l.class.as_str(), l.letters)).collect();
    assert_eq!(shown, [(11, "declined", 1), (10, "in_doubt", 2)]);
}

#[test]
fn a_selection_takes_what_fits_everything_that_is_given() {
    let class = |class: &str| Selection { classes: [class.to_owned()].into(), ..Selection::default() };
    assert_eq!(chosen(&Selection::default()), [10, 11, 12]);
    assert_eq!(chosen(&class("in_doubt")), [11]);
    assert_eq!(chosen(&Selection { since: Some(UnixMillis(2_000)), ..Selection::default() }), [11, 12]);
    assert_eq!(chosen(&Selection { until: Some(UnixMillis(2_000)), ..Selection::default() }), [10]);
    assert_eq!(chosen(&Selection { since: Some(UnixMillis(2_000)), ..class("declined") }), [0_i64; 0]);
    let id = ID.parse().expect("an id");
    assert_eq!(chosen(&Selection { ids: [id].into(), ..class("declined") }), [10]);
    assert_eq!(chosen(&Selection { ids: [EventId::generate()].into(), ..Selection::default() }), [0_i64; 0]);
    assert!(Selection::default().is_everything() && !class("x").is_everything());
}

#[test]
fn doubt_stays_on_a_letter_of_another_class() {
    let mut doubted = record(1, 10, "declined");
    doubted.headers.push(Header { key: "delivery-in-doubt".into(), value: Some("true".into()) });
    let letter = Letter::read(&doubted, &lane("dlq"));
    assert!(letter.is_in_doubt());
    assert_eq!(to_json(&[letter])[0]["in_doubt"], true);
}
