//! Strict decoding of `OrderConfirmed` from a record. An error names the field, so that whoever reads the dead
//! letter knows what to repair.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use core_delivery::ports::{DecodeError, Decoded, EventDecoder, IgnoreReason};
use core_delivery::record::Record;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::{Currency, EVENT_TYPE, ErrorClass, EventId, Money, OrderConfirmed};

/// Decodes records of the orders topic.
///
/// `event_type` is looked at first: another type is ignored, an absent one is an error. Unknown fields are
/// accepted; duplicate fields and an amount that is not a JSON integer are refused. The record key must be the
/// order's id.
#[derive(Debug, Clone)]
pub struct OrderConfirmedDecoder {
    default_currency: Currency,
}

impl OrderConfirmedDecoder {
    /// `default_currency` is that of an event which names none.
    pub fn new(default_currency: Currency) -> Self {
        Self { default_currency }
    }

    fn decode_payload(&self, payload: &[u8]) -> Result<Option<OrderConfirmed>, String> {
        let Ok(wire) = serde_json::from_slice::<Wire<'_>>(payload) else {
            return explain(payload).map(|()| None);
        };
        if wire.event_type != EVENT_TYPE {
            return Ok(None);
        }
        let total_amount = wire.total_amount;
        if total_amount < 0 {
            return Err(format!("total_amount is {total_amount}, which is negative"));
        }
        let currency = match &wire.currency {
            Some(code) => parse_field("currency", code)?,
            None => self.default_currency,
        };
        Ok(Some(OrderConfirmed {
            event_id: parse_field::<EventId>("event_id", &wire.event_id)?,
            occurred_at: OffsetDateTime::parse(&wire.occurred_at, &Rfc3339)
                .map_err(|error| format!("occurred_at is not an RFC 3339 time: {error}"))?,
            order_id: parse_field("order_id", &wire.order_id)?,
            customer_id: parse_field("customer_id", &wire.customer_id)?,
            total: Money { minor_units: total_amount, currency },
        }))
    }
}

impl EventDecoder<OrderConfirmed> for OrderConfirmedDecoder {
    fn decode(&self, record: &Record) -> Decoded<OrderConfirmed> {
        let Some(payload) = &record.payload else {
            return Decoded::Ignored(IgnoreReason::Tombstone);
        };
        match self.decode_payload(payload) {
            Ok(None) => Decoded::Ignored(IgnoreReason::OtherType),
            Ok(Some(event)) => match check_key(record, &event) {
                Ok(()) => Decoded::Event(event),
                Err(reason) => Decoded::Undecodable(DecodeError { class: ErrorClass::KEY_MISMATCH, reason }),
            },
            Err(reason) => Decoded::Undecodable(DecodeError { class: ErrorClass::UNDECODABLE, reason }),
        }
    }
}

fn check_key(record: &Record, event: &OrderConfirmed) -> Result<(), String> {
    match &record.key {
        Some(key) if key == event.order_id.as_str().as_bytes() => Ok(()),
        Some(key) => Err(format!(
            "the record key {:?} is not the order_id {:?}",
            String::from_utf8_lossy(key),
            event.order_id.as_str()
        )),
        None => Err(format!("the record has no key, expected the order_id {:?}", event.order_id.as_str())),
    }
}

fn parse_field<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{field} {error}"))
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    event_id: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    occurred_at: Cow<'a, str>,
    #[serde(borrow)]
    order_id: Cow<'a, str>,
    #[serde(borrow)]
    customer_id: Cow<'a, str>,
    total_amount: i64,
    #[serde(borrow, default)]
    currency: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct TypeOnly<'a> {
    #[serde(borrow)]
    event_type: Cow<'a, str>,
}

/// The slow path of a payload that is not a whole `OrderConfirmed`: Ok if it is an event of another type, else
/// what is wrong with it.
fn explain(payload: &[u8]) -> Result<(), String> {
    if payload.is_empty() {
        return Err("the payload is empty".to_owned());
    }
    if payload.starts_with(b"\xef\xbb\xbf") {
        return Err("the payload starts with a byte order mark, expected JSON".to_owned());
    }
    if std::str::from_utf8(payload).is_err() {
        return Err("the payload is not UTF-8".to_owned());
    }
    let probe: TypeOnly<'_> = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
    if probe.event_type != EVENT_TYPE {
        return Ok(());
    }
    let mut json = serde_json::Deserializer::from_slice(payload);
    match serde_path_to_error::deserialize::<_, Wire<'_>>(&mut json) {
        Ok(_) => Err("the payload has more after the JSON object".to_owned()),
        Err(error) => match error.path().to_string().as_str() {
            "." => Err(error.inner().to_string()),
            field => Err(format!("{field}: {}", error.inner())),
        },
    }
}

#[cfg(test)]
mod tests {
    use core_delivery::event::UnixMillis;
    use core_delivery::record::Offset;

    use super::*;

    const GOOD: &str = r#"{"event_id":"017f22e2-79b0-7cc3-98c4-dc0c0c07398f","event_type":"OrderConfirmed","occurred_at":"2026-12-01T10:00:00Z","order_id":"o-1","customer_id":"c-1","total_amount":1250}"#;

    fn decode(payload: impl AsRef<[u8]>) -> Decoded<OrderConfirmed> {
        decode_with_key(payload, Some("o-1"))
    }

    fn decode_with_key(payload: impl AsRef<[u8]>, key: Option<&str>) -> Decoded<OrderConfirmed> {
        OrderConfirmedDecoder::new(Currency::EUR).decode(&Record {
            offset: Offset(0),
            timestamp: Some(UnixMillis(0)),
            key: key.map(|key| key.to_owned().into()),
            payload: Some(payload.as_ref().to_vec().into()),
            headers: vec![],
            unreadable_headers: 0,
        })
    }

    fn reason(payload: impl AsRef<[u8]>) -> String {
        match decode(payload) {
            Decoded::Undecodable(error) => {
                assert_eq!(error.class, ErrorClass::UNDECODABLE);
                error.reason
            }
            other => panic!("expected an error, got {other:?}"),
        }
    }

    #[test]
    fn a_good_payload_becomes_the_event() {
        let Decoded::Event(event) = decode(GOOD) else { panic!("refused") };
        assert_eq!(event.event_id.to_string(), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        assert_eq!(event.order_id.as_str(), "o-1");
        assert_eq!(event.customer_id.as_str(), "c-1");
        assert_eq!(event.total, Money { minor_units: 1250, currency: Currency::EUR });
        assert_eq!(event.occurred_at.unix_timestamp(), 1_796_119_200);
    }

    #[test]
    fn what_the_producer_writes_is_what_the_consumer_reads() {
        let Decoded::Event(event) = decode(GOOD) else { panic!("refused") };
        let Decoded::Event(again) = decode(event.to_json()) else { panic!("refused") };
        assert_eq!(again, event);
    }

    #[test]
    fn unknown_fields_are_accepted_and_the_events_currency_wins() {
        let Decoded::Event(event) = decode(GOOD.replace("1250}", r#"1250,"currency":"USD","more":[{}]}"#)) else {
            panic!("refused")
        };
        assert_eq!(event.total.currency.as_str(), "USD");
    }

    #[test]
    fn another_type_is_ignored_whatever_else_it_holds() {
        assert_eq!(decode(r#"{"event_type":"OrderShipped","event_id":3}"#), Decoded::Ignored(IgnoreReason::OtherType));
        let whole = GOOD.replace("OrderConfirmed", "OrderCancelled");
        assert_eq!(decode(whole), Decoded::Ignored(IgnoreReason::OtherType));
    }

    #[test]
    fn an_error_names_the_field() {
        assert!(reason(GOOD.replace(r#","order_id":"o-1""#, "")).contains("missing field `order_id`"));
        assert!(reason(r#"{"event_id":"x"}"#).contains("missing field `event_type`"));
        assert!(reason(GOOD.replace("1250", "12.5")).starts_with("total_amount: invalid type: floating point"));
        assert!(reason(GOOD.replace("1250", r#""1250""#)).starts_with("total_amount: invalid type: string"));
        assert!(reason(GOOD.replace("1250", "9223372036854775808")).starts_with("total_amount: "));
        assert_eq!(reason(GOOD.replace("1250", "-1")), "total_amount is -1, which is negative");
        assert!(reason(GOOD.replace("1250", r#"1,"total_amount":2"#)).contains("duplicate field `total_amount`"));
        assert!(reason(GOOD.replace("2026-12-01T", "2026-12-01 at ")).starts_with("occurred_at is not an RFC 3339"));
        assert_eq!(reason(GOOD.replace("7cc3", "4cc3")), "event_id is a UUID of version 4, expected version 7");
        assert_eq!(reason(GOOD.replace("c-1", "")), "customer_id is empty");
        assert_eq!(reason(GOOD.replace("c-1", "c\\u0000")), "customer_id contains a control character");
        assert!(reason(GOOD.replace("1250}", r#"1250,"currency":"euro"}"#)).starts_with("currency is not an ISO"));
        assert!(reason(GOOD.replace("\"o-1\"", "17")).starts_with("order_id: invalid type: integer"));
    }

    #[test]
    fn bytes_that_are_no_event_have_one_clear_reason() {
        assert_eq!(reason(""), "the payload is empty");
        assert_eq!(
            reason([b"\xef\xbb\xbf", GOOD.as_bytes()].concat()),
            "the payload starts with a byte order mark, expected JSON"
        );
        assert_eq!(reason(b"{\"event_type\":\"\xff\"}"), "the payload is not UTF-8");
        assert!(reason("not json").contains("line 1 column 2"));
        assert!(reason(format!("{GOOD}x")).contains("trailing characters"));
    }

    #[test]
    fn depth_in_an_unknown_field_does_no_harm() {
        let deep = GOOD.replace("1250}", &format!("1250,\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000)));
        assert!(matches!(decode(deep), Decoded::Event(_)));
        let wrong = GOOD.replace("\"o-1\"", &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
        assert!(reason(wrong).starts_with("order_id: invalid type: sequence"));
    }

    #[test]
    fn the_record_key_must_be_the_order() {
        for key in [None, Some("o-2"), Some("")] {
            let Decoded::Undecodable(error) = decode_with_key(GOOD, key) else { panic!("accepted") };
            assert_eq!(error.class, ErrorClass::KEY_MISMATCH);
        }
    }
}
