//! Every class of answers.

use std::time::Duration;

use reqwest::header::{HeaderValue, RETRY_AFTER};

use super::*;

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Class {
    Charged,
    TransientNone,
    TransientUnknown,
    Pending,
    Conflict,
    KeyReused,
    Declined,
    Misconfigured,
}
use Class::*;

fn answer(status: u16, headers: &HeaderMap, body: AnswerBody) -> Result<ChargeReceipt, GatewayError> {
    let status = StatusCode::from_u16(status).unwrap();
    let answer = Answer { request: "POST /v1/charges", status, headers, body };
    classify(&answer, Some(&Secret::new("sk_live_1")), SystemTime::UNIX_EPOCH)
}

fn class_of(answer: &Result<ChargeReceipt, GatewayError>) -> Class {
    match answer {
        Ok(_) => Charged,
        Err(GatewayError::Transient { effect: Effect::None, .. }) => TransientNone,
        Err(GatewayError::Transient { .. }) => TransientUnknown,
        Err(GatewayError::Pending { .. }) => Pending,
        Err(GatewayError::Conflict { .. }) => Conflict,
        Err(GatewayError::KeyReused { .. }) => KeyReused,
        Err(GatewayError::Declined { .. }) => Declined,
        Err(GatewayError::Misconfigured { .. }) => Misconfigured,
    }
}

fn expected(status: u16) -> Class {
    match status {
        202 => Pending,
        200..=299 => Charged,
        300..=399 | 401 | 403 | 407 => Misconfigured,
        409 => Conflict,
        422 => KeyReused,
        425 | 429 => TransientNone,
        408 | 100..=199 | 500.. => TransientUnknown,
        _ => Declined,
    }
}

#[test]
fn every_status_has_its_class_and_its_reason_names_it() {
    for status in 100..=999 {
        let body = AnswerBody::Whole(b"some\nwords sk_live_1".to_vec());
        let answer = answer(status, &HeaderMap::new(), body);
        assert_eq!(class_of(&answer), expected(status), "{status}");
        if let Err(error) = answer {
            let text = error.to_string();
            assert!(text.starts_with(&format!("POST /v1/charges answered {status}")), "{text}");
            assert!(text.contains("some words") && !text.contains("sk_live"), "{text}");
        }
    }
}

#[test]
fn the_named_classes_are_as_the_rules_have_them() {
    for (class, statuses) in [
        (Charged, &[200, 201, 204][..]),
        (TransientNone, &[425, 429]),
        (TransientUnknown, &[408, 500, 502, 503, 504, 529]),
        (Pending, &[202]),
        (Conflict, &[409]),
        (KeyReused, &[422]),
        (Misconfigured, &[301, 302, 303, 304, 307, 308, 401, 403, 407]),
        (Declined, &[400, 402, 404, 405, 406, 410, 411, 413, 415, 418, 421, 424, 426, 428, 431, 451]),
    ] {
        for status in statuses {
            assert_eq!(class_of(&answer(*status, &HeaderMap::new(), AnswerBody::Whole(vec![]))), class, "{status}");
        }
    }
}

#[test]
fn a_charge_needs_a_whole_body_but_no_reference() {
    let receipt = |status, body| answer(status, &HeaderMap::new(), body);
    let with_id = br#"{"id":"ch_1"}"#.to_vec();
    let some = Ok(ChargeReceipt { provider_ref: Some("ch_1".to_owned()) });
    let none = Ok(ChargeReceipt { provider_ref: None });
    assert_eq!(receipt(201, AnswerBody::Whole(with_id.clone())), some);
    assert_eq!(receipt(204, AnswerBody::Whole(vec![])), none);
    assert_eq!(receipt(200, AnswerBody::Whole(b"OK".to_vec())), none);
    assert_eq!(receipt(200, AnswerBody::TooLong(b"{\"id\":\"ch_".to_vec())), none);

    // Even if what arrived looks whole: the answer was not.
    let cut = receipt(201, AnswerBody::Cut(with_id, "the connection was reset".to_owned()));
    assert_eq!(class_of(&cut), TransientUnknown);
    assert_eq!(
        cut.unwrap_err().to_string(),
        "POST /v1/charges answered 201 Created, but the body was cut: the connection was reset"
    );
}

#[test]
fn a_cut_body_does_not_change_what_another_status_means() {
    for status in (300..600).filter(|status| *status != 202) {
        let body = AnswerBody::Cut(b"so".to_vec(), "reset".to_owned());
        assert_eq!(class_of(&answer(status, &HeaderMap::new(), body)), expected(status), "{status}");
    }
}

#[test]
fn every_transient_answer_may_say_when_to_come_back() {
    let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("17"))]);
    for status in [408, 425, 429, 500, 503] {
        let answer = answer(status, &headers, AnswerBody::Whole(vec![]));
        let Err(GatewayError::Transient { retry_after, .. }) = answer else { panic!("{status} is transient") };
        assert_eq!(retry_after, Some(Duration::from_secs(17)), "{status}");
    }
    let pending = answer(202, &headers, AnswerBody::Whole(vec![]));
    let Err(GatewayError::Pending { retry_after, .. }) = pending else { panic!("202 is pending") };
    assert_eq!(retry_after, Some(Duration::from_secs(17)));
}
