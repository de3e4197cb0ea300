//! The adapter against a real broker, whose address is in `TEST_KAFKA_BROKERS`. Each test has a topic and a group of
//! its own. No test double may appear here, other than
//! librdkafka's mock cluster in `embedded`.

mod arrival;
mod broker;
mod consume;
mod embedded;
mod inspect;
mod member;
mod membership;
mod pressure;
mod publish;
mod raw;
mod rebalance;
mod topics;
