//! The record, over HTTP and in process, and the end.

use reqwest::StatusCode;
use sandbox::provider::{Provider, ProviderSettings, StartError};

use crate::caller::{BODY, Caller, start, until};

async fn charge_orders(caller: &Caller, count: usize) {
    for n in 0..count {
        let body = BODY.replace("o-1", &format!("o-{n}"));
        assert_eq!(caller.charge(&format!("k-{n}"), &body).await.0, StatusCode::CREATED);
    }
}

#[tokio::test]
async fn the_record_comes_in_pages() {
    let (_provider, caller) = start(ProviderSettings::default()).await;
    charge_orders(&caller, 5).await;
    let first = caller.get("/charges?limit=2").await;
    assert!(first.ends_with(r#""total":5,"next":2}"#), "{first}");
    assert!(first.contains(r#""idempotency_key":"k-0","order_id":"o-0","customer_id":"c-1","amount":1250,"currency":"EUR","status":"succeeded""#));
    let last = caller.get("/charges?after=4&limit=2").await;
    assert!(last.contains("k-4") && !last.contains("k-3") && last.ends_with(r#""total":5,"next":null}"#), "{last}");
    assert_eq!(caller.get("/charges?after=9").await, r#"{"charges":[],"total":5,"next":null}"#);
}

#[tokio::test]
async fn one_key_can_be_looked_up() {
    let (_provider, caller) = start(ProviderSettings::default()).await;
    charge_orders(&caller, 2).await;
    let found = caller.get("/charges?idempotency_key=k-1").await;
    assert!(found.contains(r#""order_id":"o-1""#) && !found.contains("o-0"), "{found}");
    assert_eq!(caller.get("/charges?idempotency_key=k-9").await, r#"{"charges":[],"total":0,"next":null}"#);
}

#[tokio::test]
async fn without_a_look_up_no_key_is_found_and_the_record_is_still_shown() {
    let (_provider, caller) = start(ProviderSettings { look_up: false, ..ProviderSettings::default() }).await;
    charge_orders(&caller, 1).await;
    assert_eq!(caller.status("/charges?idempotency_key=k-0").await, StatusCode::NOT_FOUND);
    assert!(caller.get("/charges").await.contains("k-0"));
}

#[tokio::test]
async fn an_order_that_is_charged_under_two_keys_shows() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    charge_orders(&caller, 2).await;
    assert_eq!(caller.charge("k-7", BODY).await.0, StatusCode::CREATED);
    let usd = BODY.replace("EUR", "USD").replace("o-1", "o-2");
    assert_eq!(caller.charge("k-8", &usd).await.0, StatusCode::CREATED);

    let record = provider.record();
    assert_eq!(record.orders_charged_twice(), ["o-1"]);
    assert_eq!(record.succeeded_of_order("o-1").count(), 2);
    assert_eq!(&*record.charge_of_key("k-7").expect("charged").order_id, "o-1");
    assert_eq!(
        caller.get("/charges/summary").await,
        r#"{"charges":4,"declined":0,"distinct_keys":4,"distinct_orders":3,"amount_by_currency":{"EUR":3750,"USD":1250},"calls":4,"replays":0,"conflicts":0,"key_reuses":0,"invalid":0,"unauthorized":0,"faults":{}}"#
    );
}

#[tokio::test]
async fn stopping_lets_calls_in_flight_end_and_keeps_the_record() {
    let (mut provider, caller) = start(ProviderSettings { latency_ms: 200, ..ProviderSettings::default() }).await;
    let call = tokio::spawn({
        let caller = caller.clone();
        async move { caller.charge("k-1", BODY).await.0 }
    });
    until("the call is in flight", async || provider.summary().calls == 1).await;
    provider.stop().await;
    assert_eq!(call.await.unwrap(), StatusCode::CREATED);
    assert!(caller.send("k-2", BODY).await.expect_err("nobody listens").is_connect());
    assert_eq!(provider.record().charges.len(), 1);
    provider.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let (provider, _caller) = start(ProviderSettings::default()).await;
    let second = Provider::start(provider.addr(), ProviderSettings::default()).await;
    assert!(matches!(second, Err(StartError::Listen { addr, .. }) if addr == provider.addr()));
}
