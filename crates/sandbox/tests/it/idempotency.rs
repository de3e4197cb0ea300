//! What a key promises.

use reqwest::StatusCode;
use sandbox::provider::ProviderSettings;

use crate::caller::{BODY, start, until};

#[tokio::test]
async fn the_same_call_again_gets_the_same_answer_and_moves_no_money() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    let first = caller.charge("k-1", BODY).await;
    assert_eq!(first.0, StatusCode::CREATED);
    assert!(first.1.starts_with(r#"{"id":"ch_"#) && first.1.contains(r#""status":"succeeded""#), "{}", first.1);

    let again = caller.send("k-1", BODY).await.unwrap();
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!((again.status(), again.text().await.unwrap()), first);

    let record = provider.record();
    assert_eq!(
        (record.charges.len(), record.summary.charges, record.summary.calls, record.summary.replays),
        (1, 1, 2, 1)
    );
    assert!(record.keys_with_several_bodies().is_empty());
}

#[tokio::test]
async fn a_key_that_is_done_conflicts_where_the_provider_has_it_so() {
    let settings = ProviderSettings { conflict_when_done: true, ..ProviderSettings::default() };
    let (provider, caller) = start(settings).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CONFLICT);
    let other = BODY.replace("1250", "1251");
    assert_eq!(caller.charge("k-1", &other).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!((provider.summary().charges, provider.summary().conflicts), (1, 1));
}

#[tokio::test]
async fn a_forgotten_key_charges_again_and_is_still_found() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    provider.forget_keys();
    assert!(caller.get("/charges?idempotency_key=k-1").await.contains(r#""status":"succeeded""#));
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    assert_eq!(provider.record().orders_charged_twice(), ["o-1"]);
}

#[tokio::test]
async fn other_bytes_under_an_answered_key_are_refused() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    let other = BODY.replace("1250", "1251");
    assert_eq!(caller.charge("k-1", &other).await.0, StatusCode::UNPROCESSABLE_ENTITY);

    let record = provider.record();
    assert_eq!((record.summary.charges, record.summary.key_reuses), (1, 1));
    assert_eq!(record.keys_with_several_bodies(), ["k-1"]);
    assert_eq!(record.keys["k-1"].bodies, [BODY.as_bytes(), other.as_bytes()]);
}

#[tokio::test]
async fn a_key_in_flight_conflicts_and_the_charge_is_made_although_the_caller_left() {
    let (provider, caller) = start(ProviderSettings { latency_ms: 1_500, ..ProviderSettings::default() }).await;
    let leaving = tokio::spawn({
        let caller = caller.clone();
        async move { caller.send("k-1", BODY).await }
    });
    until("the first call is in flight", async || caller.get("/charges?idempotency_key=k-1").await.contains("pending"))
        .await;
    leaving.abort();

    let (status, body) = caller.charge("k-1", BODY).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(body.contains("in flight"), "{body}");

    until("the charge is made", async || provider.summary().charges == 1).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    assert_eq!((provider.summary().charges, provider.summary().conflicts), (1, 1));
}

#[tokio::test]
async fn a_decline_is_kept_under_its_key() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    let body = BODY.replace("c-1", "declined-1");
    let first = caller.charge("k-1", &body).await;
    assert_eq!(first.0, StatusCode::PAYMENT_REQUIRED);
    assert_eq!(caller.charge("k-1", &body).await, first);
    assert!(caller.get("/charges?idempotency_key=k-1").await.contains(r#""status":"failed""#));
    assert_eq!((provider.summary().charges, provider.summary().declined, provider.summary().replays), (0, 1, 1));
}

#[tokio::test]
async fn a_call_that_says_nothing_is_refused_and_not_kept() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    for body in [
        "",
        "{",
        "[]",
        &BODY.replace("1250", "0"),
        &BODY.replace("1250", "-1"),
        &BODY.replace("1250", "12.5"),
        &BODY.replace("1250", "\"1250\""),
        &BODY.replace("EUR", "EURO"),
        &BODY.replace("EUR", "E1R"),
        &BODY.replace("o-1", ""),
        &BODY.replace("order_id", "order"),
    ] {
        assert_eq!(caller.charge("k-1", body).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
    assert_eq!(caller.charge("", BODY).await.0, StatusCode::BAD_REQUEST);
    let without_key = caller.post().body(BODY).send().await.unwrap();
    assert_eq!(without_key.status(), StatusCode::BAD_REQUEST);
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    assert_eq!((provider.summary().charges, provider.summary().invalid), (1, 13));
}

#[tokio::test]
async fn the_api_key_is_demanded_where_one_is_set() {
    let settings = ProviderSettings { api_key: Some("sk_test".to_owned()), ..ProviderSettings::default() };
    assert!(!format!("{settings:?}").contains("sk_test"));
    let (provider, caller) = start(settings).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::UNAUTHORIZED);
    let call = || caller.post().header("Idempotency-Key", "k-1").body(BODY);
    assert_eq!(call().bearer_auth("sk_other").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(provider.summary().calls, 0);
    assert_eq!(call().bearer_auth("sk_test").send().await.unwrap().status(), StatusCode::CREATED);
}
