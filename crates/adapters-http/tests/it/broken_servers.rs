//! What the gateway sends, byte by byte, and what it says about servers that misbehave (H1 to H6).

use std::time::{Duration, Instant};

use adapters_http::payment::{HttpPaymentGateway, PaymentConfigError, PaymentSettings, Secret};
use core_order::{ChargeReceipt, Effect, Event, GatewayError, PaymentGateway};
use tokio::net::TcpListener;

use crate::orders::{API_KEY, gateway, impatient_gateway, order, settings};
use crate::scripted_server::{ScriptedServer, Step, answer};

fn charged() -> String {
    answer("201 Created", &[], r#"{"id":"ch_1"}"#)
}

async fn charge_at(server: &ScriptedServer) -> Result<ChargeReceipt, GatewayError> {
    gateway(&server.base).charge(&order("o-1")).await
}

fn transient(outcome: Result<ChargeReceipt, GatewayError>) -> (String, Option<Duration>, Effect) {
    match outcome {
        Err(GatewayError::Transient { reason, retry_after, effect }) => (reason, retry_after, effect),
        other => panic!("expected a transient error, got {other:?}"),
    }
}

#[tokio::test]
async fn the_request_is_the_same_bytes_on_every_try() {
    let server = ScriptedServer::start(vec![Step::Answer(answer("500 Oops", &[], "")), Step::Answer(charged())]).await;
    let order = order("o-\"1\"");
    let gateway = gateway(&format!("{}/v1/", server.base));
    transient(gateway.charge(&order).await);
    let receipt = gateway.charge(&order).await.expect("charged");
    assert_eq!(receipt.provider_ref.as_deref(), Some("ch_1"));

    let requests = server.requests();
    assert_eq!(requests[0], requests[1]);
    let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
    assert_eq!(body, r#"{"order_id":"o-\"1\"","customer_id":"c-1","amount":1250,"currency":"EUR"}"#);
    let mut lines: Vec<_> = head.split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /v1/charges HTTP/1.1");
    lines.sort_unstable();
    let host = server.base.strip_prefix("http://").unwrap();
    assert_eq!(
        lines,
        [
            "accept: */*",
            &format!("authorization: Bearer {API_KEY}"),
            &format!("content-length: {}", body.len()),
            "content-type: application/json",
            &format!("host: {host}"),
            &format!("idempotency-key: {}", order.event().id()),
            concat!("user-agent: adapters-http/", env!("CARGO_PKG_VERSION")),
        ]
    );
    assert_eq!(server.connections(), 1, "the connection is kept");
}

#[tokio::test]
async fn a_redirect_is_a_wrong_configuration_and_its_target_is_never_asked() {
    let target = ScriptedServer::start(vec![Step::Answer(charged())]).await;
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let location = format!("location: {}/charges", target.base);
        let server = ScriptedServer::start(vec![Step::Answer(answer(status, &[&location], ""))]).await;
        let outcome = charge_at(&server).await;
        assert!(matches!(outcome, Err(GatewayError::Misconfigured { .. })), "{status}: {outcome:?}");
        assert_eq!(server.requests().len(), 1, "{status}");
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn each_status_reaches_its_class() {
    let text = format!("no, {API_KEY}\n");
    let outcome =
        async |status| charge_at(&ScriptedServer::start(vec![Step::Answer(answer(status, &[], &text))]).await).await;
    let is = |outcome: Result<ChargeReceipt, GatewayError>, status: &str| {
        let error = outcome.expect_err(status);
        assert_eq!(error.to_string(), format!("POST /charges answered {status}: no, [api key]"));
        error
    };
    assert!(matches!(is(outcome("409 Conflict").await, "409 Conflict"), GatewayError::Conflict { .. }));
    let reused = is(outcome("422 Unprocessable Entity").await, "422 Unprocessable Entity");
    assert!(matches!(reused, GatewayError::KeyReused { .. }));
    for status in ["401 Unauthorized", "403 Forbidden"] {
        assert!(matches!(is(outcome(status).await, status), GatewayError::Misconfigured { .. }));
    }
    for status in ["400 Bad Request", "402 Payment Required", "404 Not Found", "410 Gone"] {
        assert!(matches!(is(outcome(status).await, status), GatewayError::Declined { .. }));
    }
}

#[tokio::test]
async fn a_charge_that_is_pending_is_told_from_a_failure() {
    let pending = Step::Answer(answer("202 Accepted", &["retry-after: 7"], r#"{"id":"ch_1","status":"pending"}"#));
    let outcome = charge_at(&ScriptedServer::start(vec![pending]).await).await;
    let Err(GatewayError::Pending { reason, retry_after }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
    assert!(reason.starts_with("POST /charges answered 202 Accepted: "), "{reason}");
}

#[tokio::test]
async fn retry_after_is_passed_on() {
    for (status, effect) in [
        ("429 Too Many Requests", Effect::None),
        ("425 Too Early", Effect::None),
        ("408 Request Timeout", Effect::Unknown),
        ("503 Service Unavailable", Effect::Unknown),
    ] {
        let server = ScriptedServer::start(vec![Step::Answer(answer(status, &["retry-after: 7"], ""))]).await;
        let (reason, retry_after, told) = transient(charge_at(&server).await);
        assert_eq!((retry_after, told), (Some(Duration::from_secs(7)), effect), "{reason}");
        assert_eq!(server.requests().len(), 1, "nothing is tried again behind our back");
    }
}

#[tokio::test]
async fn a_connection_that_ends_without_an_answer_leaves_the_outcome_unknown() {
    for step in [Step::Reset, Step::WriteAndClose(String::new()), Step::WriteAndClose("HTTP/1.1 20".to_owned())] {
        let server = ScriptedServer::start(vec![step]).await;
        let (reason, _, effect) = transient(charge_at(&server).await);
        assert_eq!(effect, Effect::Unknown, "{reason}");
        assert!(reason.starts_with("POST /charges got no answer: ") && !reason.contains("127.0.0.1"), "{reason}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_body_that_is_cut_leaves_the_outcome_unknown() {
    for cut in [
        "HTTP/1.1 201 Created\r\ncontent-length: 99\r\n\r\n{\"id\":\"ch_1\"}",
        "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\nd\r\n{\"id\":\"ch_1\"}\r\n",
    ] {
        let server = ScriptedServer::start(vec![Step::WriteAndClose(cut.to_owned())]).await;
        let (reason, _, effect) = transient(charge_at(&server).await);
        assert_eq!(effect, Effect::Unknown);
        assert!(reason.starts_with("POST /charges answered 201 Created, but the body was cut: "), "{reason}");
    }
}

#[tokio::test]
async fn silence_is_waited_for_only_so_long() {
    let server = ScriptedServer::start(vec![Step::Silence]).await;
    let started = Instant::now();
    let (reason, _, effect) = transient(impatient_gateway(&server.base).charge(&order("o-1")).await);
    assert_eq!(effect, Effect::Unknown);
    assert!(reason.starts_with("POST /charges got no answer in time: "), "{reason}");
    assert!(started.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn a_body_without_an_end_is_not_read_for_ever() {
    let endless = format!("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{}", "a".repeat(200_000));
    let server = ScriptedServer::start(vec![Step::Answer(endless)]).await;
    assert_eq!(charge_at(&server).await, Ok(ChargeReceipt { provider_ref: None }));

    let stalled = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{".to_owned();
    let server = ScriptedServer::start(vec![Step::Answer(stalled)]).await;
    let (reason, _, effect) = transient(impatient_gateway(&server.base).charge(&order("o-1")).await);
    assert_eq!(effect, Effect::Unknown, "{reason}");
}

#[tokio::test]
async fn a_connection_that_was_never_made_had_no_effect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let plain = ScriptedServer::start(vec![Step::WriteAndClose("no TLS here".to_owned())]).await;
    let tls = plain.base.replace("http://", "https://");
    // No resolver asks the network for a label of more than 63 characters.
    let unknown_host = format!("http://{}.invalid", "a".repeat(64));
    for base in [refusing, unknown_host, tls] {
        let (reason, _, effect) = transient(gateway(&base).charge(&order("o-1")).await);
        assert_eq!(effect, Effect::None, "{reason}");
        assert!(reason.starts_with("POST /charges could not connect: "), "{reason}");
    }
    assert!(plain.requests().is_empty());
}

#[tokio::test]
async fn an_idle_connection_that_closes_at_send_has_one_effect() {
    let script = vec![Step::AnswerAndCloseAtNext(charged()), Step::Answer(charged())];
    let server = ScriptedServer::start(script).await;
    let gateway = gateway(&server.base);
    gateway.charge(&order("o-1")).await.expect("charged");

    let second = order("o-2");
    let (_, _, effect) = transient(gateway.charge(&second).await);
    assert_eq!(effect, Effect::Unknown, "some bytes of the request were sent");
    gateway.charge(&second).await.expect("charged by the next try");
    assert_eq!(server.requests().len(), 2, "each order was taken once");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_has_one_effect() {
    let server = ScriptedServer::start(vec![Step::WriteAndClose(charged())]).await;
    let gateway = gateway(&server.base);
    for n in 0..20 {
        // Whether the client has noticed the end of its connection by now is a race; both sides of it are fine.
        let order = order(&format!("o-{n}"));
        if let Err(error) = gateway.charge(&order).await {
            assert!(matches!(error, GatewayError::Transient { .. }), "{error:?}");
            gateway.charge(&order).await.expect("charged by the next try");
        }
    }
    assert_eq!(server.requests().len(), 20, "each order was taken once");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_without_showing_the_key() {
    for key in ["", "  ", "line\nbreak"] {
        let settings = PaymentSettings { api_key: Some(Secret::new(key)), ..settings("http://pay.test") };
        assert!(matches!(HttpPaymentGateway::new(settings), Err(PaymentConfigError::ApiKey)));
    }
    let zero = PaymentSettings { call_timeout: Duration::ZERO, ..settings("http://pay.test") };
    assert!(matches!(HttpPaymentGateway::new(zero), Err(PaymentConfigError::Timeout)));
    assert!(gateway("http://pay.test").sends_its_key_in_the_clear());
    assert!(!gateway("https://pay.test").sends_its_key_in_the_clear());
    let keyless = HttpPaymentGateway::new(PaymentSettings::new("http://pay.test")).unwrap();
    assert!(!keyless.sends_its_key_in_the_clear());
    assert!(!format!("{:?} {:?}", settings("http://pay.test"), gateway("http://pay.test")).contains(API_KEY));
}
