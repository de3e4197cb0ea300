//! Claimed orders and gateways for tests.

use std::time::Duration;

use adapters_http::payment::{HttpPaymentGateway, PaymentSettings, Secret};
use core_delivery::testing::claimed;
use core_order::{Claimed, Money, Order, OrderConfirmed};
use time::OffsetDateTime;

pub(crate) const API_KEY: &str = "sk_test_4242";

pub(crate) fn order(order_id: &str) -> Claimed<OrderConfirmed> {
    order_of(order_id, "c-1", 1250)
}

pub(crate) fn order_of(order_id: &str, customer_id: &str, minor_units: i64) -> Claimed<OrderConfirmed> {
    let order = Order {
        id: order_id.parse().unwrap(),
        customer: customer_id.parse().unwrap(),
        total: Money { minor_units, currency: "EUR".parse().unwrap() },
    };
    claimed(OrderConfirmed::from_order(&order, OffsetDateTime::UNIX_EPOCH).unwrap())
}

pub(crate) fn settings(base_url: &str) -> PaymentSettings {
    PaymentSettings { api_key: Some(Secret::new(API_KEY)), ..PaymentSettings::new(base_url) }
}

pub(crate) fn gateway(base_url: &str) -> HttpPaymentGateway {
    HttpPaymentGateway::new(settings(base_url)).expect("the settings are fine")
}

/// One whose provider offers a look-up.
pub(crate) fn asking_gateway(base_url: &str) -> HttpPaymentGateway {
    HttpPaymentGateway::new(PaymentSettings { look_up: true, ..settings(base_url) }).expect("the settings are fine")
}

pub(crate) fn impatient_gateway(base_url: &str) -> HttpPaymentGateway {
    let call_timeout = Duration::from_millis(300);
    HttpPaymentGateway::new(PaymentSettings { call_timeout, ..settings(base_url) }).expect("the settings are fine")
}
