//! Journals that are right, and each way in which they can be wrong.

use super::*;

fn topic(written: &[Written]) -> Vec<ReadRecord> {
    let record = |(offset, (key, payload)): (i64, &Written)| ReadRecord {
        partition: 0,
        offset,
        key: Some(key.clone()),
        payload: Some(payload.clone()),
        headers: Vec::new(),
        timestamp: None,
    };
    (0..).zip(written).map(record).collect()
}

/// One key with three steps; the first comes again at the end.
fn three() -> Vec<ReadRecord> {
    let [one, two, three] = [1, 2, 3].map(|number| step("k", number));
    topic(&[one.clone(), two, three, one])
}

fn rows(numbers: &[i32]) -> Vec<(String, i32)> {
    numbers.iter().map(|number| ("k".to_owned(), *number)).collect()
}

fn judged(recorded: &[i32], performed: &[i32]) -> (usize, usize, usize) {
    let order = judge(&Journals {
        topic: three(),
        recorded: rows(recorded),
        performed: rows(performed),
        made_again: HashSet::new(),
    });
    assert_eq!((order.keys, order.steps), (1, 3));
    (order.lost, order.doubled, order.violations.len())
}

#[test]
fn each_key_has_its_steps_in_order_among_those_of_others() {
    let written = steps(1_000, 1);
    let found = in_topic(&topic(&written));
    assert_eq!(found.len(), 125);
    assert!(found.values().all(|numbers| numbers.iter().copied().eq(1..=8)));
    assert!(written.len() > 1_040, "some come twice");
    assert!(written.windows(2).any(|two| two[0].0 == two[1].0 && two[0].1 != two[1].1), "some follow at once");
}

#[test]
fn the_order_of_the_topic_is_right_and_a_second_try_is_no_mistake() {
    assert_eq!(judged(&[1, 2, 3], &[1, 2, 1, 2, 3]), (0, 0, 0));
}

#[test]
fn what_was_lost_with_a_database_and_made_again_has_no_order_but_is_there_once() {
    let made_again = HashSet::from(["k".to_owned()]);
    let judged = |recorded: &[i32]| {
        let journals = Journals {
            topic: three(),
            recorded: rows(recorded),
            made_again: made_again.clone(),
            ..Journals::default()
        };
        let order = judge(&journals);
        (order.made_again, order.lost, order.doubled, order.violations.len())
    };
    assert_eq!(judged(&[1, 3, 2]), (1, 0, 0, 0));
    assert_eq!(judged(&[1, 3, 1]), (1, 1, 1, 0));
}

#[test]
fn every_wrong_journal_is_found() {
    assert_eq!(judged(&[2, 1, 3], &[1, 2, 3]), (0, 0, 1), "recorded in another order");
    assert_eq!(judged(&[1, 2, 3], &[1, 3, 2]), (0, 0, 1), "performed in another order");
    assert_eq!(judged(&[1, 2], &[1, 2, 3]), (1, 0, 0), "one is lost");
    assert_eq!(judged(&[1, 2, 3, 1], &[1, 2, 3]), (0, 1, 0), "one is doubled");
    assert_eq!(judged(&[1, 2, 3], &[1, 2]), (0, 0, 1), "recorded and never performed");
    assert_eq!(judged(&[], &[]), (3, 0, 0), "nothing at all");
}
