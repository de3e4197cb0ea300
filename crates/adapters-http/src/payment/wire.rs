//! The bytes of a charge and of its answer. The bytes of an event's charge never change between versions: a
//! provider refuses other bytes under the same key (D-10).

use core_order::OrderConfirmed;
use serde::{Deserialize, Serialize};

#[derive(Serialize)]
struct ChargeBody<'a> {
    order_id: &'a str,
    customer_id: &'a str,
    amount: i64,
    currency: &'a str,
}

/// The body of the request: compact JSON, of the event alone.
pub(super) fn charge_body(order: &OrderConfirmed) -> Vec<u8> {
    let total = order.total();
    let body = ChargeBody {
        order_id: order.order_id().as_str(),
        customer_id: order.customer_id().as_str(),
        amount: total.minor_units,
        currency: total.currency.as_str(),
    };
    serde_json::to_vec(&body).expect("strings and integers always serialize")
}

#[derive(Deserialize)]
struct ChargeAnswer {
    id: String,
}

/// The provider's name of the charge, if the answer tells one: a JSON object with a string `id`.
pub(super) fn provider_ref(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<ChargeAnswer>(body).ok().map(|answer| answer.id).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use core_order::{Money, Order};
    use time::OffsetDateTime;

    use super::*;

    fn body(order_id: &str, customer_id: &str, minor_units: i64, currency: &str) -> String {
        let order = Order {
            id: order_id.parse().unwrap(),
            customer: customer_id.parse().unwrap(),
            total: Money { minor_units, currency: currency.parse().unwrap() },
        };
        let event = OrderConfirmed::from_order(&order, OffsetDateTime::UNIX_EPOCH).unwrap();
        String::from_utf8(charge_body(&event)).unwrap()
    }

    /// Golden: a change here charges orders twice, or never, at the next roll-out.
    #[test]
    fn the_bytes_of_a_charge_never_change() {
        assert_eq!(
            body("o-1", "c-1", 1250, "EUR"),
            r#"{"order_id":"o-1","customer_id":"c-1","amount":1250,"currency":"EUR"}"#
        );
        assert_eq!(
            body(r#"a"b\c/d"#, "<&'>", 0, "USD"),
            r#"{"order_id":"a\"b\\c/d","customer_id":"<&'>","amount":0,"currency":"USD"}"#
        );
        assert_eq!(
            body("größe-é", "\u{2028}\u{1F600}\u{FEFF}", i64::MAX, "JPY"),
            "{\"order_id\":\"größe-é\",\"customer_id\":\"\u{2028}\u{1F600}\u{FEFF}\",\"amount\":9223372036854775807,\"currency\":\"JPY\"}"
        );
    }

    #[test]
    fn the_id_of_an_answer_is_taken_if_it_is_a_text() {
        assert_eq!(provider_ref(br#"{"status":"succeeded","id":"ch_1"}"#).as_deref(), Some("ch_1"));
        assert_eq!(provider_ref(br#"{"id":"\u0063h\u00e9"}"#).as_deref(), Some("ché"));
        for other in ["", "{}", r#"{"id":7}"#, r#"{"id":null}"#, r#"{"id":""}"#, "\"ch_1\"", "OK", "{\"id\":\"ch_1\""] {
            assert_eq!(provider_ref(other.as_bytes()), None, "{other}");
        }
    }
}
