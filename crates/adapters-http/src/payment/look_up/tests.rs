//! Every meaning of an answer to a look-up.

use std::time::Duration;

use core_order::{Money, Order};
use reqwest::StatusCode;
use reqwest::header::{HeaderValue, RETRY_AFTER};
use time::OffsetDateTime;

use super::*;

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Class {
    Charged,
    Pending,
    Failed,
    NotFound,
    NotOffered,
    Transient,
    KeyReused,
    Misconfigured,
}
use Class::*;

fn order() -> OrderConfirmed {
    let order = Order {
        id: "o-1".parse().unwrap(),
        customer: "c-1".parse().unwrap(),
        total: Money { minor_units: 1250, currency: "EUR".parse().unwrap() },
    };
    OrderConfirmed::from_order(&order, OffsetDateTime::UNIX_EPOCH).unwrap()
}

fn look_up(status: u16, order: &OrderConfirmed, body: AnswerBody) -> Result<LookUp, GatewayError> {
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("17"))]);
    let status = StatusCode::from_u16(status).unwrap();
    let answer = Answer { request: "GET /v1/charges", status, headers: &headers, body };
    classify_look_up(&answer, order, Some(&Secret::new("sk_live_1")), SystemTime::UNIX_EPOCH)
}

fn whole(body: &str) -> AnswerBody {
    AnswerBody::Whole(body.as_bytes().to_vec())
}

/// The class, after the check of what holds for every error of a look-up.
fn class_of(result: &Result<LookUp, GatewayError>) -> Class {
    match result {
        Ok(LookUp::Charged(_)) => Charged,
        Ok(LookUp::Pending) => Pending,
        Ok(LookUp::Failed { .. }) => Failed,
        Ok(LookUp::NotFound) => NotFound,
        Ok(LookUp::NotOffered) => NotOffered,
        Err(GatewayError::Transient { retry_after, effect, .. }) => {
            assert_eq!((*retry_after, *effect), (Some(Duration::from_secs(17)), Effect::None));
            Transient
        }
        Err(GatewayError::KeyReused { .. }) => KeyReused,
        Err(GatewayError::Misconfigured { .. }) => Misconfigured,
        Err(other) => panic!("no error of a look-up: {other:?}"),
    }
}

#[test]
fn every_status_has_its_class_and_only_a_200_tells_of_a_charge() {
    for status in 100..=999 {
        let expected = match status {
            200 => NotFound,
            404 | 405 => NotOffered,
            202 | 408 | 425 | 429 => Transient,
            201..=499 => Misconfigured,
            _ => Transient,
        };
        let result = look_up(status, &order(), whole(r#"{"charges":[]}"#));
        assert_eq!(class_of(&result), expected, "{status}");
        if let Err(error) = result {
            assert!(error.to_string().starts_with(&format!("GET /v1/charges answered {status}")), "{error}");
        }
        // Wherever the connection broke: what did not arrive is not an empty list.
        let cut = look_up(status, &order(), AnswerBody::Cut(br#"{"charges":[]}"#.to_vec(), "reset".to_owned()));
        assert_eq!(class_of(&cut), if status == 200 { Transient } else { expected }, "{status}");
    }
}

#[test]
fn a_list_means_what_its_charges_say() {
    let order = order();
    let entry = |status: &str| {
        format!(r#"{{"id":"ch_1","order_id":"o-1","amount":1250,"currency":"EUR","status":"{status}","more":1}}"#)
    };
    for (statuses, class) in [
        (&[][..], NotFound),
        (&["succeeded"], Charged),
        (&["pending"], Pending),
        (&["failed"], Failed),
        (&["failed", "succeeded"], Charged),
        (&["failed", "pending"], Pending),
        (&["pending", "succeeded"], Charged),
        (&["failed", "failed"], Failed),
        (&["succeeded", "succeeded"], Charged),
        (&["requires_action"], Transient),
        (&["failed", "Succeeded"], Transient),
        (&["refunded", "pending"], Pending),
    ] {
        let entries: Vec<String> = statuses.iter().map(|status| entry(status)).collect();
        let result = look_up(200, &order, whole(&format!(r#"{{"charges":[{}],"total":9}}"#, entries.join(","))));
        assert_eq!(class_of(&result), class, "{statuses:?}: {result:?}");
    }
}

#[test]
fn a_charge_of_another_order_amount_or_currency_is_never_ours() {
    let order = order();
    let ours = r#"{"id":"ch_1","order_id":"o-1","amount":1250,"currency":"EUR","status":"succeeded"}"#;
    for (what, instead) in [("o-1", "o-2"), ("1250", "1251"), ("EUR", "USD")] {
        let other = ours.replace(what, instead);
        for list in [other.clone(), format!("{ours},{other}"), other.replace("succeeded", "failed")] {
            let result = look_up(200, &order, whole(&format!(r#"{{"charges":[{list}]}}"#)));
            assert_eq!(class_of(&result), KeyReused, "{list}");
            let text = result.unwrap_err().to_string();
            assert!(text.contains("ch_1") && text.contains(instead), "{text}");
        }
    }
}

#[test]
fn the_key_is_compared_where_it_is_told() {
    let order = order();
    let list = |key: &str| {
        let entry = r#""id":"ch_1","order_id":"o-1","amount":1250,"currency":"eur","status":"succeeded""#;
        look_up(200, &order, whole(&format!(r#"{{"charges":[{{"idempotency_key":{key},{entry}}}]}}"#)))
    };
    let charged = Ok(LookUp::Charged(ChargeReceipt { provider_ref: Some("ch_1".to_owned()) }));
    assert_eq!(list(&format!("\"{}\"", order.id())), charged);
    assert_eq!(list("null"), charged);
    assert_eq!(class_of(&list("\"another\"")), Misconfigured, "it lists whatever there is");
}

#[test]
fn a_charge_needs_no_reference() {
    for (id, reference) in
        [(r#""id":"ch_1","#, Some("ch_1")), ("", None), (r#""id":null,"#, None), (r#""id":7,"#, None)]
    {
        let body =
            format!(r#"{{"charges":[{{{id}"order_id":"o-1","amount":1250,"currency":"EUR","status":"succeeded"}}]}}"#);
        let expected = LookUp::Charged(ChargeReceipt { provider_ref: reference.map(str::to_owned) });
        assert_eq!(look_up(200, &order(), whole(&body)), Ok(expected), "{body}");
    }
}

#[test]
fn what_is_no_list_says_nothing() {
    for body in [
        "",
        "OK",
        "[]",
        "{}",
        "null",
        "<html>sk_live_1</html>",
        r#"{"charges":null}"#,
        r#"{"charges":{}}"#,
        r#"{"data":[]}"#,
        r#"{"charges":[],"charges":[]}"#,
        r#"{"charges":[]} x"#,
        r#"{"charges":[{"id":"ch_1","status":"succeeded"}]}"#,
        r#"{"charges":[{"id":"ch_1","order_id":"o-1","amount":1250.0,"currency":"EUR","status":"succeeded"}]}"#,
        r#"{"charges":[{"id":"ch_1","order_id":"o-1","amount":"sk_live_1","currency":"EUR","status":"succeeded"}]}"#,
    ] {
        let result = look_up(200, &order(), whole(body));
        assert_eq!(class_of(&result), Misconfigured, "{body}");
        assert!(!result.unwrap_err().to_string().contains("sk_live"));
    }
    let long = look_up(200, &order(), AnswerBody::TooLong(br#"{"charges":[]}"#.to_vec()));
    assert_eq!(class_of(&long), Misconfigured);
}
