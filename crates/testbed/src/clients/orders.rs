//! Orders to be charged and the sequences in which they are delivered; what becomes of them is not known here.

use core_order::{Currency, Money, Order, OrderConfirmed};
use rand::{SeedableRng, rngs::StdRng, seq::index};
use time::OffsetDateTime;

use crate::unique_name;

/// The events of `count` confirmed orders, each with a customer of its own and an amount of 1 to 10,000 cents. No
/// two calls give the same orders.
#[must_use]
pub fn sample_orders(count: usize) -> Vec<OrderConfirmed> {
    let run = unique_name("o");
    let mut amounts = (1..=10_000).cycle();
    let id = |kind: char, number: usize| format!("{kind}-{run}-{number}");
    let event = |number| {
        let order = Order {
            id: id('o', number).try_into().expect("short and printable"),
            customer: id('c', number).try_into().expect("short and printable"),
            total: Money { minor_units: amounts.next().expect("it goes round"), currency: Currency::EUR },
        };
        OrderConfirmed::from_order(&order, OffsetDateTime::now_utc()).expect("the amount is above zero")
    };
    (0..count).map(event).collect()
}

/// The orders in their sequence, a `share` of them (0 to 1) a second time at a random later place. The same seed
/// gives the same sequence.
///
/// # Panics
/// When the share is not from 0 to 1.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "counts of orders are small"
)]
pub fn duplicated(orders: &[OrderConfirmed], share: f64, seed: u64) -> Vec<&OrderConfirmed> {
    assert!((0.0..=1.0).contains(&share), "a share is from 0 to 1");
    let mut random = StdRng::seed_from_u64(seed);
    let repeats = (orders.len() as f64 * share).round() as usize;
    let mut after = vec![Vec::new(); orders.len()];
    let mut chosen = index::sample(&mut random, orders.len(), repeats).into_vec();
    chosen.sort_unstable();
    for first in chosen {
        let place = rand::Rng::random_range(&mut random, first..orders.len());
        after[place].push(&orders[first]);
    }
    orders.iter().zip(after).flat_map(|(order, repeated)| std::iter::once(order).chain(repeated)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use core_order::Event;

    use super::*;

    #[test]
    fn orders_differ_and_amounts_stay_in_their_range() {
        let orders: Vec<_> = [sample_orders(10_001), sample_orders(1)].concat();
        let distinct: HashSet<_> =
            orders.iter().flat_map(|order| [order.key(), order.customer_id().as_str()]).collect();
        assert_eq!(distinct.len(), 2 * orders.len());
        let amounts: HashSet<_> = orders.iter().map(|order| order.total().minor_units).collect();
        assert_eq!((amounts.len(), amounts.iter().min(), amounts.iter().max()), (10_000, Some(&1), Some(&10_000)));
    }

    #[test]
    fn a_share_comes_twice_and_the_second_time_later() {
        let orders = sample_orders(1_000);
        let sequence = duplicated(&orders, 0.1, 7);
        assert_eq!(sequence.len(), 1_100);
        let mut times: HashMap<_, usize> = HashMap::new();
        let first: Vec<_> = sequence
            .iter()
            .filter(|order| {
                let times = times.entry(order.id()).or_default();
                *times += 1;
                *times == 1
            })
            .map(|order| order.id())
            .collect();
        assert_eq!(first, orders.iter().map(Event::id).collect::<Vec<_>>(), "the first deliveries keep their order");
        assert_eq!(times.values().filter(|times| **times == 2).count(), 100);
        assert_eq!(sequence, duplicated(&orders, 0.1, 7));
        assert_ne!(sequence, duplicated(&orders, 0.1, 8));
    }
}
