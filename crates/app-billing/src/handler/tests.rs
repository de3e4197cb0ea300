//! Every way of an order through the handler, against a gateway that answers as it is told.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use core_delivery::claim::History;
use core_delivery::event::UnixMillis;
use core_delivery::testing::claimed_with;
use core_order::{Effect, GatewayError, LookUp, Money, Order};
use tokio::sync::Semaphore;

use super::*;
use crate::config::PaymentConflict;

const LIFETIME: Duration = Duration::from_secs(24 * 3_600);
const SKEW: Duration = Duration::from_secs(300);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

type Charge = Result<ChargeReceipt, GatewayError>;
type Answer = Result<LookUp, GatewayError>;
type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers as it is told, and writes down what it was asked.
#[derive(Default)]
struct Scripted {
    charges: Mutex<VecDeque<Charge>>,
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<String>>,
    /// A charge takes one to be answered, if there is one.
    tickets: Option<Semaphore>,
}

#[async_trait]
impl PaymentGateway for Scripted {
    async fn charge(&self, order: &Claimed<OrderConfirmed>) -> Charge {
        self.asked.lock().unwrap().push(format!("charge {}", order.event().id()));
        if let Some(tickets) = &self.tickets {
            tickets.acquire().await.unwrap().forget();
        }
        self.charges.lock().unwrap().pop_front().expect("no more charges than the test has")
    }

    async fn look_up(&self, order: &Claimed<OrderConfirmed>) -> Answer {
        self.asked.lock().unwrap().push(format!("look up {}", order.event().id()));
        self.answers.lock().unwrap().pop_front().expect("no more look-ups than the test has")
    }
}

/// The time, which moves on by so many milliseconds whenever it is read.
struct Clock(AtomicI64, i64);

impl Runtime for Clock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.fetch_add(self.1, Ordering::SeqCst))
    }

    fn sleep(&self, _: Duration) -> BoxFuture {
        unreachable!("the handler never sleeps")
    }

    fn spawn(&self, _: &'static str, _: BoxFuture) {
        unreachable!("the handler starts no task")
    }
}

/// Of the ledger, `perform` sees nothing.
struct NoLedger;

#[async_trait]
impl BillingTx for NoLedger {
    async fn charged(&mut self, _: &[EventId]) -> Result<Vec<bool>, StoreError> {
        unreachable!("perform has no unit")
    }

    async fn reserve(&mut self, _: &[Reservation<'_>]) -> Result<Vec<ReservationAnswer>, StoreError> {
        unreachable!("perform has no unit")
    }

    async fn cancel(&mut self, _: &[EventId]) -> Result<(), StoreError> {
        unreachable!("perform has no unit")
    }

    async fn complete(&mut self, _: &[CompletedCharge<'_>]) -> Result<(), StoreError> {
        unreachable!("perform has no unit")
    }
}

/// An order and what surrounds it.
struct Case {
    in_doubt: bool,
    age: Duration,
    clock_step: i64,
    minor_units: i64,
    policy: PaymentConflict,
    patience: Duration,
}

const CALM: Case = Case {
    in_doubt: false,
    age: Duration::from_secs(1),
    clock_step: 0,
    minor_units: 1250,
    policy: PaymentConflict::Done,
    patience: Duration::from_secs(12),
};
const IN_DOUBT: Case = Case { in_doubt: true, ..CALM };
const OLD: Case = Case { age: Duration::from_secs(24 * 3_600 - 310), ..CALM };

impl Case {
    fn order(&self) -> Claimed<OrderConfirmed> {
        let order = Order {
            id: "o-1".parse().unwrap(),
            customer: "c-1".parse().unwrap(),
            total: Money { minor_units: self.minor_units, currency: "EUR".parse().unwrap() },
        };
        let event = OrderConfirmed::from_order(&order, SystemTime::UNIX_EPOCH.into()).unwrap();
        claimed_with(event, History { in_doubt: self.in_doubt, ..History::default() })
    }

    fn handler(&self, gateway: Scripted, order: &Claimed<OrderConfirmed>) -> ChargeOrders<Scripted> {
        let now = order.event().id().made_at().plus(self.age);
        let clock = Arc::new(Clock(AtomicI64::new(now.0), self.clock_step));
        let memory = KeyMemory::new(LIFETIME, SKEW, CALL_TIMEOUT);
        ChargeOrders::new(Arc::new(gateway), Conflicts::new(self.policy, self.patience), memory, clock)
    }

    /// Performs the order: what came of it in a word, and what the provider was asked.
    async fn performs(&self, charges: &[Charge], answers: &[Answer]) -> (String, Vec<&'static str>) {
        let gateway = Scripted {
            charges: Mutex::new(charges.iter().cloned().collect()),
            answers: Mutex::new(answers.iter().cloned().collect()),
            ..Scripted::default()
        };
        let order = self.order();
        let handler = self.handler(gateway, &order);
        let word = word(&perform(&handler, &order).await);
        let id = order.event().id().to_string();
        let asked = handler.gateway.asked.lock().unwrap();
        let asked = asked.iter().map(|call| match call.strip_suffix(&id) {
            Some("charge ") => "charge",
            Some("look up ") => "look up",
            _ => panic!("{call} is not under the key of the event"),
        });
        (word, asked.collect())
    }
}

async fn perform(handler: &ChargeOrders<Scripted>, order: &Claimed<OrderConfirmed>) -> Charged {
    EventHandler::<OrderConfirmed, NoLedger>::perform(handler, order).await
}

type Charged = Result<ChargeReceipt, HandlerError>;

/// The reference of a receipt, or the failure: the class of a refusal with a `!` if it is settled.
fn word(result: &Charged) -> String {
    match result {
        Ok(receipt) => format!("charged {}", receipt.provider_ref.as_deref().unwrap_or("without a reference")),
        Err(HandlerError::Transient { effect: Effect::Unknown, .. }) => "unknown".to_owned(),
        Err(HandlerError::Transient { .. }) => "transient".to_owned(),
        Err(HandlerError::Permanent(refusal)) => format!("{}{}", refusal.class, if refusal.settled { "!" } else { "" }),
        Err(HandlerError::Halt { .. }) => "halt".to_owned(),
    }
}

fn receipt(reference: &str) -> ChargeReceipt {
    ChargeReceipt { provider_ref: Some(reference.to_owned()) }
}

fn charged() -> Charge {
    Ok(receipt("new"))
}

fn failed(status: u16) -> GatewayError {
    let reason = status.to_string();
    match status {
        202 => GatewayError::Pending { reason, retry_after: None },
        401 => GatewayError::Misconfigured { reason },
        402 => GatewayError::Declined { reason },
        409 => GatewayError::Conflict { reason },
        422 => GatewayError::KeyReused { reason },
        429 => GatewayError::Transient { reason, retry_after: Some(SKEW), effect: Effect::None },
        _ => GatewayError::Transient { reason, retry_after: None, effect: Effect::Unknown },
    }
}

/// Every answer to a look-up, the failed ones last.
fn answers() -> [Answer; 8] {
    [
        Ok(LookUp::Charged(receipt("old"))),
        Ok(LookUp::Pending),
        Ok(LookUp::Failed { reason: "no money".to_owned() }),
        Ok(LookUp::NotFound),
        Ok(LookUp::NotOffered),
        Err(failed(429)),
        Err(failed(422)),
        Err(failed(401)),
    ]
}

#[tokio::test]
async fn a_fresh_order_is_charged_without_a_question() {
    assert_eq!(CALM.performs(&[charged()], &[]).await, ("charged new".to_owned(), vec!["charge"]));
    for (status, expected) in
        [(402, "declined"), (422, "key_reused"), (429, "transient"), (500, "unknown"), (401, "halt")]
    {
        let ended = CALM.performs(&[Err(failed(status))], &[]).await;
        assert_eq!(ended, (expected.to_owned(), vec!["charge"]), "{status}: one call, under one key");
    }
}

#[tokio::test]
async fn an_order_of_nothing_is_never_called_about() {
    for case in [CALM, IN_DOUBT, OLD] {
        let ended = Case { minor_units: 0, ..case }.performs(&[], &[]).await;
        assert_eq!(ended, ("charged without a reference".to_owned(), vec![]));
    }
}

#[tokio::test]
async fn an_event_in_doubt_is_looked_up_before_it_is_charged() {
    let expected =
        ["charged old", "unknown", "declined!", "charged new", "charged new", "transient", "key_reused", "halt"];
    for (answer, expected) in answers().into_iter().zip(expected) {
        let calls = if expected == "charged new" { vec!["look up", "charge"] } else { vec!["look up"] };
        let ended = IN_DOUBT.performs(&[charged()], std::slice::from_ref(&answer)).await;
        assert_eq!(ended, (expected.to_owned(), calls), "{answer:?}");
    }
}

#[tokio::test]
async fn an_event_whose_key_may_be_forgotten_is_charged_only_if_the_look_up_finds_nothing() {
    let expected =
        ["charged old", "unknown", "declined!", "charged new", "in_doubt", "transient", "key_reused", "halt"];
    for (answer, expected) in answers().into_iter().zip(expected) {
        for case in [OLD, Case { in_doubt: true, ..OLD }, Case { age: 30 * LIFETIME, ..OLD }] {
            let calls = if expected == "charged new" { vec!["look up", "charge"] } else { vec!["look up"] };
            let ended = case.performs(&[charged()], std::slice::from_ref(&answer)).await;
            assert_eq!(ended, (expected.to_owned(), calls), "{answer:?}");
        }
    }
    let just_young_enough = Case { age: OLD.age - Duration::from_millis(1), ..OLD };
    assert_eq!(just_young_enough.performs(&[charged()], &[]).await.1, ["charge"]);
}

#[tokio::test]
async fn a_key_that_may_be_forgotten_by_the_end_of_a_look_up_is_not_sent() {
    let getting_old = Case { age: OLD.age - Duration::from_millis(1), clock_step: 1, ..IN_DOUBT };
    let ended = getting_old.performs(&[], &[Ok(LookUp::NotOffered)]).await;
    assert_eq!(ended, ("in_doubt".to_owned(), vec!["look up"]));
    let ended = getting_old.performs(&[charged()], &[Ok(LookUp::NotFound)]).await;
    assert_eq!(ended, ("charged new".to_owned(), vec!["look up", "charge"]));
}

#[tokio::test]
async fn a_charge_that_was_taken_on_is_settled_by_look_up() {
    let expected = ["charged old", "unknown", "declined!", "unknown", "unknown", "unknown", "key_reused", "halt"];
    for (answer, expected) in answers().into_iter().zip(expected) {
        let ended = CALM.performs(&[Err(failed(202))], std::slice::from_ref(&answer)).await;
        assert_eq!(ended, (expected.to_owned(), vec!["charge", "look up"]), "{answer:?}");
    }
}

#[tokio::test]
async fn a_conflict_is_settled_by_look_up_and_without_one_by_time() {
    let expected = ["charged old", "unknown", "declined!", "unknown", "unknown", "unknown", "key_reused", "halt"];
    for (answer, expected) in answers().into_iter().zip(expected) {
        let impatient = Case { patience: Duration::ZERO, ..CALM };
        for case in [CALM, impatient, Case { policy: PaymentConflict::Retry, patience: Duration::ZERO, ..CALM }] {
            let by_policy = case.policy == PaymentConflict::Done && case.patience.is_zero();
            let expected = match answer {
                Ok(LookUp::NotOffered) if by_policy => "charged without a reference",
                _ => expected,
            };
            let ended = case.performs(&[Err(failed(409))], std::slice::from_ref(&answer)).await;
            assert_eq!(ended, (expected.to_owned(), vec!["charge", "look up"]), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_of_an_event_in_doubt_is_settled_by_look_up_or_not_at_all() {
    for (status, class) in [(402, "declined"), (422, "key_reused")] {
        let settled = format!("{class}!");
        let expected =
            ["charged old", "unknown", &settled, &settled, class, "transient", "key_reused", "halt"].map(str::to_owned);
        for (answer, expected) in answers().into_iter().zip(expected) {
            let ended = IN_DOUBT.performs(&[Err(failed(status))], &[Ok(LookUp::NotFound), answer.clone()]).await;
            assert_eq!(ended, (expected, vec!["look up", "charge", "look up"]), "{status}, {answer:?}");
        }
    }
}

#[tokio::test]
async fn other_failures_of_an_event_in_doubt_end_the_try() {
    for (status, expected) in [(429, "transient"), (500, "unknown"), (401, "halt")] {
        let ended = IN_DOUBT.performs(&[Err(failed(status))], &[Ok(LookUp::NotFound)]).await;
        assert_eq!(ended, (expected.to_owned(), vec!["look up", "charge"]), "{status}");
    }
}

#[tokio::test]
async fn a_second_delivery_joins_the_call_that_runs() {
    let order = CALM.order();
    let gateway = Scripted {
        charges: Mutex::new([charged(), Err(failed(402))].into()),
        tickets: Some(Semaphore::new(0)),
        ..Scripted::default()
    };
    let handler = CALM.handler(gateway, &order);
    let release = async {
        // Both callers have been polled by now: the futures of a join run in the order in which they stand.
        handler.gateway.tickets.as_ref().expect("there are tickets").add_permits(1);
    };
    let (first, second, ()) = tokio::join!(perform(&handler, &order), perform(&handler, &order), release);
    assert_eq!((first, second), (Ok(receipt("new")), Ok(receipt("new"))));
    assert_eq!(handler.gateway.asked.lock().unwrap().len(), 1);

    handler.gateway.tickets.as_ref().expect("there are tickets").add_permits(1);
    assert_eq!(word(&perform(&handler, &order).await), "declined", "a try after the end is a try of its own");
}

#[tokio::test]
async fn an_order_whose_charge_kills_is_asked_about_and_never_sent() {
    for (answer, expected) in [
        (Ok(LookUp::Charged(receipt("old"))), "charged old"),
        (Ok(LookUp::NotFound), "in_doubt"),
        (Err(failed(503)), "transient"),
    ] {
        let order = IN_DOUBT.order();
        let gateway = Scripted { answers: Mutex::new([answer].into()), ..Scripted::default() };
        let handler = IN_DOUBT.handler(gateway, &order);
        let came_of_it = EventHandler::<OrderConfirmed, NoLedger>::inquire(&handler, &order).await;
        assert_eq!(word(&came_of_it), expected);
        assert_eq!(*handler.gateway.asked.lock().unwrap(), [format!("look up {}", order.event().id())]);
    }
}

/// The delivery that makes the call knows of no doubt, and so does not ask; the one that joins it does.
#[tokio::test]
async fn a_delivery_in_doubt_asks_about_the_refusal_of_a_call_that_it_joins() {
    for (answer, expected) in
        [(LookUp::Failed { reason: "402".to_owned() }, "declined!"), (LookUp::Charged(receipt("old")), "charged old")]
    {
        let order = CALM.order();
        let in_doubt = claimed_with(order.event().clone(), History { in_doubt: true, ..History::default() });
        let gateway = Scripted {
            charges: Mutex::new([Err(failed(402))].into()),
            answers: Mutex::new([Ok(answer)].into()),
            tickets: Some(Semaphore::new(0)),
            ..Scripted::default()
        };
        let handler = CALM.handler(gateway, &order);
        let release = async { handler.gateway.tickets.as_ref().expect("there are tickets").add_permits(1) };
        let (first, second, ()) = tokio::join!(perform(&handler, &order), perform(&handler, &in_doubt), release);
        assert_eq!((word(&first).as_str(), word(&second).as_str()), ("declined", expected));
        assert_eq!(handler.gateway.asked.lock().unwrap().len(), 2, "one charge and one look-up");
    }
}
