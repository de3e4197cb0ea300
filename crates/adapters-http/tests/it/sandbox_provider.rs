//! The gateway against a provider that keeps the promises of `Idempotency-Key` and fails on purpose.

use adapters_http::payment::HttpPaymentGateway;
use core_order::{Effect, Event, GatewayError, PaymentGateway};
use sandbox::provider::{FaultKind, Provider, ProviderSettings};

use crate::orders::{API_KEY, gateway, impatient_gateway, order, order_of};

async fn provider(settings: ProviderSettings) -> (Provider, HttpPaymentGateway) {
    let settings = ProviderSettings { api_key: Some(API_KEY.to_owned()), ..settings };
    let provider = Provider::start(([127, 0, 0, 1], 0).into(), settings).await.expect("a free port");
    let gateway = gateway(&provider.base_url());
    (provider, gateway)
}

#[tokio::test]
async fn a_charge_and_its_replay_have_one_reference_and_one_effect() {
    let (provider, gateway) = provider(ProviderSettings::default()).await;
    let order = order("o-1");
    let first = gateway.charge(&order).await.expect("charged");
    assert_eq!(gateway.charge(&order).await.expect("charged before"), first);

    let record = provider.record();
    let charge = record.charge_of_key(&order.event().id().to_string()).expect("recorded under the event's id");
    assert_eq!(first.provider_ref.as_deref(), Some(&*charge.id));
    assert_eq!((&*charge.order_id, charge.amount, &*charge.currency), ("o-1", 1250, "EUR"));
    assert_eq!((record.summary.charges, record.summary.replays), (1, 1));
}

#[tokio::test]
async fn a_refused_charge_is_declined() {
    let (provider, gateway) = provider(ProviderSettings::default()).await;
    let declined = gateway.charge(&order_of("o-1", "declined-1", 1250)).await;
    assert!(matches!(declined, Err(GatewayError::Declined { .. })), "{declined:?}");
    let invalid = gateway.charge(&order_of("o-2", "c-1", 0)).await;
    assert!(matches!(&invalid, Err(GatewayError::Declined { reason }) if reason.contains("400")), "{invalid:?}");
    assert_eq!(provider.summary().charges, 0);
}

#[tokio::test]
async fn a_wrong_key_is_a_wrong_configuration() {
    let settings = ProviderSettings { api_key: Some("sk_other".to_owned()), ..ProviderSettings::default() };
    let provider = Provider::start(([127, 0, 0, 1], 0).into(), settings).await.expect("a free port");
    let outcome = gateway(&provider.base_url()).charge(&order("o-1")).await;
    assert!(matches!(outcome, Err(GatewayError::Misconfigured { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_call_that_timed_out_is_in_flight_and_then_done() {
    let (provider, patient) = provider(ProviderSettings { latency_ms: 1_500, ..ProviderSettings::default() }).await;
    let order = order("o-1");
    let outcome = impatient_gateway(&provider.base_url()).charge(&order).await;
    assert!(matches!(outcome, Err(GatewayError::Transient { effect: Effect::Unknown, .. })), "{outcome:?}");
    let outcome = patient.charge(&order).await;
    assert!(matches!(outcome, Err(GatewayError::Conflict { .. })), "{outcome:?}");

    let done = async {
        while provider.summary().charges == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), done).await.expect("the charge goes on without us");
    patient.charge(&order).await.expect("charged");
    assert_eq!(provider.summary().charges, 1);
}

#[tokio::test]
async fn every_fault_is_transient_and_says_whether_the_money_may_have_moved() {
    for kind in FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::SlowAnswer) {
        let settings = ProviderSettings {
            fault_share: 1.0,
            max_faults_per_key: 1,
            fault_kinds: vec![kind],
            ..ProviderSettings::default()
        };
        let (provider, gateway) = provider(settings).await;
        let order = order("o-1");
        let outcome = gateway.charge(&order).await;
        let Err(GatewayError::Transient { effect, .. }) = outcome else { panic!("{kind}: {outcome:?}") };
        assert_eq!(effect, Effect::Unknown, "{kind}");
        assert_eq!(provider.summary().charges, u64::from(kind.charges()), "{kind}");
        gateway.charge(&order).await.expect("works after its fault");
        assert_eq!(provider.summary().charges, 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_faults_every_order_is_charged_once_with_one_body() {
    let settings = ProviderSettings { fault_share: 0.5, slow_ms: 1, ..ProviderSettings::default() };
    let (provider, gateway) = provider(settings).await;
    let gateway = std::sync::Arc::new(gateway);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..300 {
        let gateway = std::sync::Arc::clone(&gateway);
        calls.spawn(async move {
            let order = order(&format!("o-{n}"));
            for _ in 0..3 {
                match gateway.charge(&order).await {
                    Ok(_) => return,
                    Err(GatewayError::Transient { .. }) => {}
                    Err(other) => panic!("{other:?}"),
                }
            }
            panic!("o-{n} suffers more than two faults");
        });
    }
    calls.join_all().await;

    let record = provider.record();
    assert_eq!((record.summary.charges, record.summary.distinct_orders, record.summary.distinct_keys), (300, 300, 300));
    assert!(record.keys_with_several_bodies().is_empty());
    assert!(!record.summary.faults.is_empty());
}
