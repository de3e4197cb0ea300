//! Faults that are set while the provider runs, as the caller meets them.

use std::time::Duration;

use reqwest::StatusCode;
use sandbox::provider::ProviderSettings;

use crate::caller::{BODY, start};

#[tokio::test]
async fn a_flood_is_refused_until_it_ends_and_charges_nothing() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    assert_eq!(caller.faults(r#"{"kinds":["too_many_requests"],"per_key":1}"#).await, StatusCode::OK);
    let answer = caller.send("k-1", BODY).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(provider.summary().charges, 0);
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED, "a key meets it once");
    assert_eq!(caller.charge("k-2", BODY).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(caller.faults("{}").await, StatusCode::OK);
    assert_eq!(caller.charge("k-3", BODY).await.0, StatusCode::CREATED);
    assert_eq!(provider.summary().faults["too_many_requests"], 2);
}

#[tokio::test]
async fn while_nobody_is_let_in_neither_charges_nor_look_ups_are_answered_and_the_record_is() {
    let (provider, caller) = start(ProviderSettings::default()).await;
    caller.faults(r#"{"kinds":["unauthorized"]}"#).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(caller.status("/charges?idempotency_key=k-1").await, StatusCode::UNAUTHORIZED);
    assert_eq!(caller.status("/charges").await, StatusCode::OK);
    caller.faults("{}").await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    assert_eq!((provider.summary().unauthorized, provider.summary().charges), (2, 1));
}

#[tokio::test]
async fn a_slow_day_charges_late() {
    let (provider, caller) = start(ProviderSettings { slow_ms: 0, ..ProviderSettings::default() }).await;
    caller.faults(r#"{"kinds":["slow_answer"],"slow_ms":150}"#).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert_eq!(provider.summary().charges, 1);
}

#[tokio::test]
async fn unknown_faults_are_refused_and_change_nothing() {
    let (_provider, caller) = start(ProviderSettings::default()).await;
    assert_eq!(caller.faults(r#"{"kinds":["hail"]}"#).await, StatusCode::BAD_REQUEST);
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
}
