//! What is refused and what is shown. Nothing is opened but files that hold a secret, and no variable of this machine is
//! read.

use clap::builder::Resettable;
use clap::{Command, FromArgMatches};

use super::*;
use crate::compose::check_clients;

const NEEDED: [&str; 3] = ["--kafka-brokers=k:9092", "--database-url=postgres://u:hush@d/b", "--payment-url=http://p"];

fn read(options: &[&str]) -> Result<Config, clap::Error> {
    let command = Config::augment_args(Command::new("app-billing")).mut_args(|option| option.env(Resettable::Reset));
    let words = ["app-billing"].iter().chain(options);
    Config::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// What is said about these options beside those that a run needs.
fn refusal(options: &[&str]) -> Option<String> {
    let words = [&NEEDED[..], options].concat();
    match read(&words) {
        Err(error) => Some(error.to_string()),
        Ok(config) => config.checked().and_then(|settings| check_clients(&settings)).err().map(|failure| {
            assert!(matches!(failure, Failure::Configuration(_)), "exit code 2");
            format!("{:#}", failure.error())
        }),
    }
}

fn settings(options: &[&str]) -> Settings {
    read(&[&NEEDED[..], options].concat()).expect("readable").checked().expect("it fits together")
}

#[test]
fn the_defaults_fit_together() {
    assert_eq!(refusal(&[]), None);
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    for (options, named) in [
        (&["--batch-max=0"][..], "BATCH_MAX"),
        (&["--calls-max=0"], "CALLS_MAX"),
        (&["--database-connections=0"], "DATABASE_CONNECTIONS is 0"),
        (&["--payment-connect-timeout=11s"], "PAYMENT_CONNECT_TIMEOUT (11s) is longer than PAYMENT_CALL_TIMEOUT (10s)"),
        (&["--retry-tiers=10s,24h"], "PAYMENT_KEY_LIFETIME"),
        (&["--payment-key-lifetime=16m"], "PAYMENT_KEY_LIFETIME"),
        (&["--retry-tiers=10s,0s"], "a busy loop"),
        (&["--claim-retention=6d"], "at least 7 days"),
        (&["--currency=euro"], "--currency"),
        (&["--kafka-properties=acks"], "does not begin with key=value"),
        (&["--kafka-properties=acks=1"], "`acks` cannot be set: a copy counts only when all in-sync replicas have it"),
        (&["--drain-limit=15s"], "the drain limit (15s) must be below the session timeout (15s)"),
        (&["--payment-call-timeout=0s", "--payment-connect-timeout=0s"], "PAYMENT_URL: a timeout"),
        (&["--payment-api-key="], "API key is empty"),
    ] {
        let text = refusal(options).unwrap_or_default();
        assert!(text.contains(named), "{options:?}: {text:?}");
    }
    assert_eq!(refusal(&["--payment-key-lifetime=17m", "--claim-retention=7d"]), None);
}

#[test]
fn a_payment_url_that_holds_a_password_is_refused_without_showing_it() {
    let words = [NEEDED[0], NEEDED[1], "--payment-url=http://u:hush@p"];
    let failure = check_clients(&read(&words).expect("readable").checked().expect("it fits together"));
    let text = format!("{:#}", failure.expect_err("refused").error());
    assert!(text.contains("holds credentials") && !text.contains("hush"), "{text}");
}

#[test]
fn a_property_of_kafka_may_hold_commas() {
    let given = settings(&["--kafka-properties=partition.assignment.strategy=range,roundrobin,client.rack=a"]);
    let expected = [("partition.assignment.strategy", "range,roundrobin"), ("client.rack", "a")];
    let owned = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(given.config.kafka_properties(), owned);
    let refused = refusal(&["--kafka-properties=range,client.rack=a"]).expect("refused");
    assert!(refused.contains("does not begin with key=value"), "{refused}");
}

#[test]
fn what_a_run_needs_is_named() {
    let said = |options: &[&str]| {
        let failure = read(options).expect("readable").checked().expect_err("refused");
        format!("{:#}", failure.error())
    };
    assert!(said(&[]).starts_with("not set: KAFKA_BROKERS, DATABASE_URL, PAYMENT_URL. "));
    assert!(said(&NEEDED[..2]).starts_with("not set: PAYMENT_URL. "));
    assert!(said(&NEEDED[1..3]).starts_with("not set: KAFKA_BROKERS. "));
}

#[test]
fn only_a_run_without_any_of_the_three_is_embedded() {
    let names_nothing = |options: &[&str]| read(options).expect("readable").names_nothing();
    assert!(names_nothing(&[]) && names_nothing(&["--kafka-topic=t", "--payment-api-key=k"]));
    for option in [NEEDED[0], NEEDED[1], NEEDED[2], "--database-url-file=f"] {
        assert!(!names_nothing(&[option]), "{option}");
    }
}

#[test]
fn a_secret_comes_from_a_file_or_the_variable_and_not_from_both() {
    let folder = std::env::temp_dir().join(format!("app-billing-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str| folder.join(name).display().to_string();
    std::fs::write(file("secret"), "from a file \r\n").expect("written");
    let url = format!("--database-maintenance-url-file={}", file("secret"));
    let key = format!("--payment-api-key-file={}", file("secret"));
    let settings = settings(&[&url, &key]);
    let both = [refusal(&[&url, "--database-maintenance-url=x"]), refusal(&[&key, "--payment-api-key=x"])];
    let absent = refusal(&[&format!("--payment-api-key-file={}", file("absent"))]);
    std::fs::remove_dir_all(&folder).expect("removed");

    assert_eq!(settings.database.maintenance_url.reveal(), "from a file ", "only the line break is dropped");
    assert_eq!(settings.payment_api_key.as_ref().map(Secret::reveal), Some("from a file "));
    assert!(both.iter().all(|text| text.as_deref().unwrap_or_default().contains("cannot be used with")), "{both:?}");
    assert!(absent.is_some_and(|text| text.contains("cannot read")));
}

#[test]
fn maintenance_is_on_the_same_url_unless_another_is_named() {
    assert_eq!(settings(&[]).database.maintenance_url.reveal(), "postgres://u:hush@d/b");
    assert_eq!(settings(&["--database-maintenance-url=other"]).database.maintenance_url.reveal(), "other");
}

#[test]
fn no_secret_is_shown() {
    let more = ["--payment-api-key=hush", "--database-maintenance-url=hush", "--kafka-properties=sasl.password=hush"];
    let settings = settings(&more);
    assert!(settings.to_text().contains("KAFKA_PROPERTIES=sasl.password=***\n"));
    for shown in [settings.to_text(), settings.to_json(), format!("{:?}", settings.database)] {
        assert!(!shown.contains("hush"), "{shown}");
    }
}
