//! The look-up: what is asked, what the sandbox provider answers, and servers that misbehave.

use std::time::Duration;

use adapters_http::payment::{HttpPaymentGateway, PaymentSettings};
use core_order::{Effect, Event, GatewayError, LookUp, PaymentGateway};
use reqwest::Client;
use sandbox::provider::{Provider, ProviderSettings};
use tokio::net::TcpListener;

use crate::orders::{API_KEY, asking_gateway, gateway, order, order_of, settings};
use crate::scripted_server::{ScriptedServer, Step, answer};

async fn provider(settings: ProviderSettings) -> (Provider, HttpPaymentGateway) {
    let settings = ProviderSettings { api_key: Some(API_KEY.to_owned()), ..settings };
    let provider = Provider::start(([127, 0, 0, 1], 0).into(), settings).await.expect("a free port");
    let gateway = asking_gateway(&provider.base_url());
    (provider, gateway)
}

async fn look_up_at(server: &ScriptedServer) -> Result<LookUp, GatewayError> {
    asking_gateway(&server.base).look_up(&order("o-1")).await
}

fn transient(result: Result<LookUp, GatewayError>) -> (String, Option<Duration>) {
    match result {
        Err(GatewayError::Transient { reason, retry_after, effect: Effect::None }) => (reason, retry_after),
        other => panic!("expected a transient error without effect, got {other:?}"),
    }
}

#[tokio::test]
async fn the_provider_tells_what_became_of_a_key() {
    let (provider, gateway) = provider(ProviderSettings::default()).await;
    let charged = order("o-1");
    assert_eq!(gateway.look_up(&charged).await, Ok(LookUp::NotFound));
    let receipt = gateway.charge(&charged).await.expect("charged");
    assert_eq!(gateway.look_up(&charged).await, Ok(LookUp::Charged(receipt.clone())));
    provider.forget_keys();
    assert_eq!(gateway.look_up(&charged).await, Ok(LookUp::Charged(receipt)));

    let declined = order_of("o-2", "declined-1", 1250);
    gateway.charge(&declined).await.expect_err("declined");
    let found = gateway.look_up(&declined).await;
    let Ok(LookUp::Failed { reason }) = found else { panic!("{found:?}") };
    assert!(reason.starts_with("GET /charges answered 200 OK: charge ch_"), "{reason}");
    assert_eq!(provider.summary().calls, 2, "a look-up is no charge");
}

#[tokio::test]
async fn a_charge_in_flight_is_pending() {
    let (provider, gateway) = provider(ProviderSettings { latency_ms: 60_000, ..ProviderSettings::default() }).await;
    let order = order("o-1");
    let found = async {
        while provider.summary().calls == 0 {
            tokio::task::yield_now().await;
        }
        gateway.look_up(&order).await
    };
    tokio::select! {
        outcome = gateway.charge(&order) => panic!("not within a minute: {outcome:?}"),
        found = found => assert_eq!(found, Ok(LookUp::Pending)),
    }
}

#[tokio::test]
async fn a_key_that_was_used_for_another_order_is_not_ours() {
    let (provider, gateway) = provider(ProviderSettings::default()).await;
    let order = order("o-1");
    let stranger = Client::builder().no_proxy().build().unwrap().post(format!("{}/charges", provider.base_url()));
    let stranger = stranger.bearer_auth(API_KEY).header("idempotency-key", order.event().id().to_string());
    let body = r#"{"order_id":"o-9","customer_id":"c-1","amount":1250,"currency":"EUR"}"#;
    assert_eq!(stranger.body(body).send().await.unwrap().status(), 201);

    let found = gateway.look_up(&order).await;
    assert!(matches!(&found, Err(GatewayError::KeyReused { reason }) if reason.contains("o-9")), "{found:?}");
    assert!(matches!(gateway.charge(&order).await, Err(GatewayError::KeyReused { .. })));
}

#[tokio::test]
async fn no_look_up_is_offered_or_it_is_switched_off() {
    let (silent, gateway) = provider(ProviderSettings { look_up: false, ..ProviderSettings::default() }).await;
    assert_eq!(gateway.look_up(&order("o-1")).await, Ok(LookUp::NotOffered));
    drop(silent);
    for status in ["404 Not Found", "405 Method Not Allowed"] {
        let server = ScriptedServer::start(vec![Step::Answer(answer(status, &[], "no"))]).await;
        assert_eq!(look_up_at(&server).await, Ok(LookUp::NotOffered));
    }

    let server = ScriptedServer::start(vec![Step::Answer(answer("200 OK", &[], r#"{"charges":[]}"#))]).await;
    assert_eq!(self::gateway(&server.base).look_up(&order("o-1")).await, Ok(LookUp::NotOffered));
    assert_eq!(server.connections(), 0, "switched off, it is not even asked");
}

#[tokio::test]
async fn the_question_names_the_key_and_nothing_else() {
    let server = ScriptedServer::start(vec![Step::Answer(answer("200 OK", &[], r#"{"charges":[]}"#))]).await;
    let order = order("o-1");
    let gateway = asking_gateway(&format!("{}/v1/", server.base));
    assert_eq!(gateway.look_up(&order).await, Ok(LookUp::NotFound));
    let requests = server.requests();
    let mut lines: Vec<_> = requests[0].trim_end().split("\r\n").collect();
    assert_eq!(lines.remove(0), format!("GET /v1/charges?idempotency_key={} HTTP/1.1", order.event().id()));
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "accept: */*",
            &format!("authorization: Bearer {API_KEY}"),
            &format!("host: {}", server.base.strip_prefix("http://").unwrap()),
            concat!("user-agent: adapters-http/", env!("CARGO_PKG_VERSION")),
        ]
    );
}

#[tokio::test]
async fn a_look_up_that_fails_says_nothing_and_has_no_effect() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"charges\":[]}".to_owned();
    for step in [Step::Reset, Step::WriteAndClose(String::new()), Step::WriteAndClose(cut)] {
        let server = ScriptedServer::start(vec![step]).await;
        transient(look_up_at(&server).await);
        assert_eq!(server.requests().len(), 1, "nothing is tried again behind our back");
    }
    let server = ScriptedServer::start(vec![Step::Answer(answer("503 Off", &["retry-after: 7"], ""))]).await;
    assert_eq!(transient(look_up_at(&server).await).1, Some(Duration::from_secs(7)));

    let server = ScriptedServer::start(vec![Step::Silence]).await;
    let call_timeout = Duration::from_millis(300);
    let impatient = PaymentSettings { call_timeout, look_up: true, ..settings(&server.base) };
    let (reason, _) = transient(HttpPaymentGateway::new(impatient).unwrap().look_up(&order("o-1")).await);
    assert!(reason.starts_with("GET /charges got no answer in time: "), "{reason}");
    assert!(!reason.contains("idempotency_key"), "{reason}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    transient(asking_gateway(&refusing).look_up(&order("o-1")).await);
}

#[tokio::test]
async fn a_wrong_answer_to_every_question_is_a_wrong_configuration() {
    let target = ScriptedServer::start(vec![Step::Answer(answer("200 OK", &[], r#"{"charges":[]}"#))]).await;
    let location = format!("location: {}/charges", target.base);
    for status in ["302 Found", "308 Permanent", "401 Unauthorized", "403 Forbidden", "400 Bad", "204 No Content"] {
        let server = ScriptedServer::start(vec![Step::Answer(answer(status, &[&location], ""))]).await;
        let result = look_up_at(&server).await;
        assert!(matches!(result, Err(GatewayError::Misconfigured { .. })), "{status}: {result:?}");
    }
    assert_eq!(target.connections(), 0, "no redirect is followed");

    let page = Step::Answer(answer("200 OK", &[], "<html>welcome</html>"));
    let result = look_up_at(&ScriptedServer::start(vec![page]).await).await;
    assert!(matches!(result, Err(GatewayError::Misconfigured { .. })), "{result:?}");
}
