//! Holds a broker of librdkafka's and a private PostgreSQL for as long as its standard input is open, and tells about
//! them on standard output; `testbed::embedded` starts it. No test lives here.

use std::{
    collections::BTreeSet,
    pin::pin,
    process::ExitCode,
    time::{Duration, Instant},
};

use adapters_kafka::EmbeddedBroker;
use anyhow::{Context, Result};
use core_delivery::record::Topic;
use testbed::{
    PostgresOptions, PrivatePostgres,
    embedded::serve_topics,
    holder::{Component, Report, let_go, tell},
};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> ExitCode {
    match hold().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&Report::Unavailable(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Returns once whoever started us has let go, and everything has ended.
async fn hold() -> Result<()> {
    let mut let_go = pin!(let_go()?);
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let broker = EmbeddedBroker::start()?;
    let mut created = BTreeSet::new();
    let address = listener.local_addr()?;
    let topics = serve_topics(listener, |name, partitions| {
        broker.create_topic(&Topic::new(name), partitions)?;
        Ok(created.insert(name.to_owned()))
    });
    ready(Component::Kafka, broker.brokers().to_owned(), "librdkafka's broker, in a process of its own");
    ready(Component::Topics, address.to_string(), "are created through the broker's own process");
    let begun = Instant::now();
    let postgres = tokio::select! {
        () = &mut let_go => return Ok(()),
        started = PrivatePostgres::start(PostgresOptions::default()) => started,
    };
    let _held = told(postgres, begun.elapsed());
    tokio::select! {
        () = let_go => Ok(()),
        failed = topics => failed.context("no topic is created any more"),
    }
}

/// The server, or nothing where its start has failed.
fn told(started: Result<PrivatePostgres>, took: Duration) -> Option<PrivatePostgres> {
    let component = Component::Postgres;
    match started {
        Ok(server) => {
            let about = format!("a process on port {}, ready after {:.1} s", server.port(), took.as_secs_f32());
            ready(component, server.url("postgres"), &about);
            Some(server)
        }
        Err(error) => {
            tell(&Report::Failed { component, error: format!("{error:#}") });
            None
        }
    }
}

fn ready(component: Component, value: String, about: &str) {
    tell(&Report::Ready { component, value, about: about.to_owned() });
}
