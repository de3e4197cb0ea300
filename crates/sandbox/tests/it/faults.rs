//! Each fault as the caller meets it, and that a key works after its faults.

use std::error::Error;
use std::io;

use reqwest::StatusCode;
use sandbox::provider::{FaultKind, Provider, ProviderSettings, StartError};

use crate::caller::{BODY, Caller, start};

/// Every key suffers this fault, once.
async fn suffering(kind: FaultKind) -> (Provider, Caller) {
    start(ProviderSettings {
        fault_share: 1.0,
        max_faults_per_key: 1,
        fault_kinds: vec![kind],
        slow_ms: 20,
        ..ProviderSettings::default()
    })
    .await
}

fn io_kind(error: &reqwest::Error) -> Option<io::ErrorKind> {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

async fn works_now(provider: &Provider, caller: &Caller, kind: FaultKind) {
    assert_eq!(provider.summary().charges, u64::from(kind.charges()), "{kind}");
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    let summary = provider.summary();
    assert_eq!((summary.charges, summary.replays), (1, u64::from(kind.charges())));
    assert_eq!(summary.faults.into_iter().collect::<Vec<_>>(), [(kind.as_str(), 1)]);
}

#[tokio::test]
async fn an_error_is_a_500_with_or_without_a_charge() {
    for kind in [FaultKind::ErrorBeforeCharge, FaultKind::ErrorAfterCharge] {
        let (provider, caller) = suffering(kind).await;
        assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::INTERNAL_SERVER_ERROR);
        works_now(&provider, &caller, kind).await;
    }
}

#[tokio::test]
async fn an_outage_is_a_503_that_says_when_to_come_back() {
    let (provider, caller) = suffering(FaultKind::Unavailable).await;
    let answer = caller.send("k-1", BODY).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "1");
    works_now(&provider, &caller, FaultKind::Unavailable).await;
}

#[tokio::test]
async fn a_reset_is_seen_as_a_reset_with_or_without_a_charge() {
    for kind in [FaultKind::ResetBeforeCharge, FaultKind::ResetAfterCharge] {
        let (provider, caller) = suffering(kind).await;
        let error = caller.send("k-1", BODY).await.expect_err("no answer");
        assert_eq!(io_kind(&error), Some(io::ErrorKind::ConnectionReset), "{error:?}");
        assert!(!error.is_connect());
        works_now(&provider, &caller, kind).await;
    }
}

#[tokio::test]
async fn a_cut_body_comes_with_its_status_and_ends_early() {
    let (provider, caller) = suffering(FaultKind::CutBody).await;
    let mut answer = caller.send("k-1", BODY).await.expect("the head arrives");
    assert_eq!(answer.status(), StatusCode::CREATED);
    let announced = answer.content_length().expect("a length is announced");
    let arrived = answer.chunk().await.expect("the first half arrives").expect("not empty").len() as u64;
    assert_eq!(arrived, announced / 2);
    answer.chunk().await.expect_err("the second half does not");
    works_now(&provider, &caller, FaultKind::CutBody).await;
}

#[tokio::test]
async fn a_slow_answer_is_an_answer() {
    let (provider, caller) = suffering(FaultKind::SlowAnswer).await;
    assert_eq!(caller.charge("k-1", BODY).await.0, StatusCode::CREATED);
    works_now(&provider, &caller, FaultKind::SlowAnswer).await;
}

#[tokio::test]
async fn whatever_a_key_suffers_it_is_charged_once_in_the_end() {
    let (provider, caller) =
        start(ProviderSettings { fault_share: 1.0, max_faults_per_key: 3, slow_ms: 1, ..ProviderSettings::default() })
            .await;
    for n in 0..60 {
        let key = format!("k-{n}");
        let body = BODY.replace("o-1", &format!("o-{n}"));
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries <= 4, "{key} suffers more than three tries");
            let Ok(answer) = caller.send(&key, &body).await else { continue };
            if answer.status() == StatusCode::CREATED && answer.bytes().await.is_ok() {
                break;
            }
        }
    }
    let record = provider.record();
    assert_eq!((record.summary.charges, record.summary.distinct_orders), (60, 60));
    assert_eq!(record.summary.faults.len(), FaultKind::ALL.len(), "{:?}", record.summary.faults);
    assert!(record.orders_charged_twice().is_empty());
}

#[tokio::test]
async fn settings_that_contradict_themselves_are_refused() {
    for settings in [
        ProviderSettings { fault_share: 1.5, ..ProviderSettings::default() },
        ProviderSettings { decline_share: f64::NAN, ..ProviderSettings::default() },
        ProviderSettings { fault_share: 0.1, fault_kinds: vec![], ..ProviderSettings::default() },
        ProviderSettings { api_key: Some(String::new()), ..ProviderSettings::default() },
    ] {
        let refused = Provider::start(([127, 0, 0, 1], 0).into(), settings).await;
        assert!(matches!(refused, Err(StartError::Settings(_))));
    }
}
