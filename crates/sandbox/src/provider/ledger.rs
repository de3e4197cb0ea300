//! The provider's books: which key was asked what and how it was answered. Synchronous and without a clock: nothing
//! waits while the lock is held.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use bytes::Bytes;

use super::answer::Answer;
use super::faults::{fault_of, is_declined, mix};
use super::record::{Charge, ChargeStatus, KeyRecord, ProviderRecord, ProviderSummary};
use super::settings::ProviderSettings;
use super::weather::{Trouble, TroubleKind, Weather};

/// The books.
pub(super) struct Ledger {
    settings: ProviderSettings,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    keys: HashMap<Arc<str>, Key>,
    charges: Vec<Charge>,
    orders: HashSet<Arc<str>>,
    currencies: HashSet<Arc<str>>,
    summary: ProviderSummary,
    next_id: u64,
    weather: Weather,
}

#[derive(Default)]
struct Key {
    record: KeyRecord,
    tries: u32,
    /// How many tries met the weather.
    weathered: u32,
    stage: Stage,
    /// The place of its last answered charge: what a look-up finds although the key is forgotten.
    last: Option<usize>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    InFlight(Charge),
    Answered {
        request: Bytes,
        answer: Answer,
    },
}

/// What a caller wants charged.
pub(super) struct Wanted<'a> {
    pub(super) order_id: &'a str,
    pub(super) customer_id: &'a str,
    pub(super) amount: i64,
    pub(super) currency: &'a str,
}

/// What to do with a call.
pub(super) enum Call {
    /// Answer it.
    Refuse(Answer),
    /// Answer it as before, if no fault prevents it.
    Replay(Answer, Option<Trouble>),
    /// Charge: to be finished or abandoned.
    Charge(Ticket, Option<Trouble>),
}

/// A charge in flight.
#[must_use = "a key whose ticket is neither finished nor abandoned stays in flight for ever"]
pub(super) struct Ticket {
    charge: Charge,
    request: Bytes,
}

impl Ledger {
    pub(super) fn new(settings: ProviderSettings) -> Self {
        Self { settings, books: Mutex::default() }
    }

    pub(super) fn begin(&self, key: &str, request: &[u8], wanted: Result<Wanted<'_>, String>) -> Call {
        let mut guard = self.lock();
        let books = &mut *guard;
        books.summary.calls += 1;
        let key: Arc<str> = key.into();
        let entry = books.keys.entry(Arc::clone(&key)).or_default();
        entry.record.calls += 1;
        let request = entry.record.remember(request);
        match &entry.stage {
            Stage::InFlight(_) => {
                books.summary.conflicts += 1;
                let message = "a call with this idempotency key is in flight";
                return Call::Refuse(Answer::error(StatusCode::CONFLICT, "idempotency_key_in_flight", message));
            }
            Stage::Answered { request: first, .. } if *first != request => {
                books.summary.key_reuses += 1;
                let message = "this idempotency key was used with another body";
                return Call::Refuse(Answer::error(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "idempotency_key_reused",
                    message,
                ));
            }
            Stage::Answered { .. } if self.settings.conflict_when_done => {
                books.summary.conflicts += 1;
                let message = "a charge with this idempotency key was made";
                return Call::Refuse(Answer::error(StatusCode::CONFLICT, "idempotency_key_done", message));
            }
            Stage::Answered { answer, .. } => {
                let answer = Answer { replayed: true, ..answer.clone() };
                let fault = entry.next_trouble(&key, &self.settings, &books.weather);
                books.summary.replays += 1;
                books.summary.count(fault);
                return Call::Replay(answer, fault);
            }
            Stage::Idle => {}
        }
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(message) => {
                books.summary.invalid += 1;
                return Call::Refuse(Answer::error(StatusCode::BAD_REQUEST, "invalid_request", &message));
            }
        };
        let fault = entry.next_trouble(&key, &self.settings, &books.weather);
        let charge = Charge {
            id: format!("ch_{:016x}", mix(self.settings.seed ^ books.next_id)).into(),
            idempotency_key: key,
            order_id: wanted.order_id.into(),
            customer_id: wanted.customer_id.into(),
            amount: wanted.amount,
            currency: books.currencies.get(wanted.currency).cloned().unwrap_or_else(|| wanted.currency.into()),
            status: ChargeStatus::Pending,
        };
        entry.stage = Stage::InFlight(charge.clone());
        books.currencies.insert(Arc::clone(&charge.currency));
        books.next_id += 1;
        books.summary.count(fault);
        Call::Charge(Ticket { charge, request }, fault)
    }

    /// Moves the money, or declines, and keeps the answer under the key.
    pub(super) fn finish(&self, ticket: Ticket) -> Answer {
        let Ticket { mut charge, request } = ticket;
        let declined = is_declined(&self.settings, &charge.idempotency_key, &charge.customer_id);
        charge.status = if declined { ChargeStatus::Failed } else { ChargeStatus::Succeeded };
        let answer = Answer::of_charge(&charge);

        let mut guard = self.lock();
        let books = &mut *guard;
        if declined {
            books.summary.declined += 1;
        } else {
            books.summary.charges += 1;
            books.orders.insert(Arc::clone(&charge.order_id));
            let amount = books.summary.amount_by_currency.entry(Arc::clone(&charge.currency)).or_default();
            *amount = amount.saturating_add(charge.amount.unsigned_abs());
        }
        let entry = books.keys.entry(Arc::clone(&charge.idempotency_key)).or_default();
        entry.stage = Stage::Answered { request, answer: answer.clone() };
        entry.last = Some(books.charges.len());
        books.charges.push(charge);
        answer
    }

    /// Forgets the try: the next one with the key is as good as the first.
    pub(super) fn abandon(&self, ticket: Ticket) {
        self.lock().keys.entry(ticket.charge.idempotency_key).or_default().stage = Stage::Idle;
    }

    /// Sets what happens to calls from now on.
    pub(super) fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// Whether every call is to be refused, whoever makes it.
    pub(super) fn refuses_everybody(&self) -> bool {
        self.lock().weather.unauthorized
    }

    pub(super) fn count_invalid(&self) {
        self.lock().summary.invalid += 1;
    }

    pub(super) fn count_unauthorized(&self) {
        self.lock().summary.unauthorized += 1;
    }

    /// Forgets every key that was answered: the next call with it charges again. Its charges stay on the books.
    pub(super) fn forget_keys(&self) {
        for key in self.lock().keys.values_mut() {
            if matches!(key.stage, Stage::Answered { .. }) {
                key.stage = Stage::Idle;
            }
        }
    }

    /// The last charge of a key, also while it is pending.
    pub(super) fn look_up(&self, key: &str) -> Option<Charge> {
        let books = self.lock();
        let key = books.keys.get(key)?;
        match &key.stage {
            Stage::InFlight(charge) => Some(charge.clone()),
            Stage::Idle | Stage::Answered { .. } => books.charges.get(key.last?).cloned(),
        }
    }

    /// At most `limit` answered charges after the first `after` ones, and how many there are.
    pub(super) fn page(&self, after: usize, limit: usize) -> (Vec<Charge>, usize) {
        let books = self.lock();
        (books.charges.iter().skip(after).take(limit).cloned().collect(), books.charges.len())
    }

    pub(super) fn summary(&self) -> ProviderSummary {
        self.lock().summary()
    }

    pub(super) fn record(&self) -> ProviderRecord {
        let books = self.lock();
        ProviderRecord {
            charges: books.charges.clone(),
            keys: books.keys.iter().map(|(key, entry)| (Arc::clone(key), entry.record.clone())).collect(),
            summary: books.summary(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn summary(&self) -> ProviderSummary {
        ProviderSummary {
            distinct_keys: self.keys.len() as u64,
            distinct_orders: self.orders.len() as u64,
            ..self.summary.clone()
        }
    }
}

impl Key {
    /// What the next try meets: the weather, else what the settings draw.
    fn next_trouble(&mut self, key: &str, settings: &ProviderSettings, weather: &Weather) -> Option<Trouble> {
        self.tries += 1;
        let weathered = weather.draw(key, self.weathered);
        self.weathered += u32::from(weathered.is_some());
        weathered.or_else(|| {
            let kind = TroubleKind::Fault(fault_of(settings, key, self.tries)?);
            Some(Trouble { kind, slow_ms: settings.slow_ms })
        })
    }
}

impl KeyRecord {
    /// The body as kept: a copy, because the one that arrived shares the read buffer of its connection.
    fn remember(&mut self, request: &[u8]) -> Bytes {
        if let Some(known) = self.bodies.iter().find(|body| *body == request) {
            return known.clone();
        }
        let request = Bytes::copy_from_slice(request);
        self.bodies.push(request.clone());
        request
    }
}

impl ProviderSummary {
    fn count(&mut self, fault: Option<Trouble>) {
        if let Some(fault) = fault {
            *self.faults.entry(fault.kind.as_str()).or_default() += 1;
        }
    }
}
