//! What is counted of the calls to the provider.

use adapters_http::payment::describe_metrics;
use core_order::PaymentGateway;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::orders::{asking_gateway, gateway, order};
use crate::scripted_server::{ScriptedServer, Step, answer};

#[test]
fn every_call_is_counted_once_by_what_came_of_it() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        describe_metrics();
        runtime.block_on(async {
            let answers = ["201 Created", "409 Conflict", "500 Oops", "429 Slow", "201 Created"];
            let server =
                ScriptedServer::start(answers.map(|status| Step::Answer(answer(status, &[], ""))).to_vec()).await;
            let charging = gateway(&server.base);
            for _ in answers {
                let _outcome = charging.charge(&order("o-1")).await;
            }
            charging.look_up(&order("o-1")).await.expect("switched off, so neither asked nor counted");
            let server = ScriptedServer::start(vec![
                Step::Answer(answer("200 OK", &[], r#"{"charges":[]}"#)),
                Step::Answer(answer("404 Not Found", &[], "")),
            ])
            .await;
            let asking = asking_gateway(&server.base);
            for _ in 0..3 {
                asking.look_up(&order("o-1")).await.expect("an answer");
            }
        });
    });
    let text = handle.render();
    for line in [
        r#"billing_charge_calls_total{outcome="charged"} 2"#,
        r#"billing_charge_calls_total{outcome="conflict"} 1"#,
        r#"billing_charge_calls_total{outcome="unknown"} 1"#,
        r#"billing_charge_calls_total{outcome="transient"} 1"#,
        r#"billing_charge_calls_total{outcome="declined"} 0"#,
        r#"billing_look_ups_total{result="not_found"} 1"#,
        r#"billing_look_ups_total{result="not_offered"} 2"#,
        r#"billing_call_duration_seconds_count{call="charge"} 5"#,
        r#"billing_call_duration_seconds_count{call="look_up"} 3"#,
    ] {
        assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
    }
}
