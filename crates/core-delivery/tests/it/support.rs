//! The world of the kernel's tests: an event, a handler whose behaviour a test writes, a runtime on simulated time.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::{Claimed, ConsumerGroup};
use core_delivery::delivery::{Consumer, ConsumerError, ConsumerSettings, Health, StormLimits, Tier, Topology};
use core_delivery::event::{Event, EventId, UnixMillis};
use core_delivery::ports::{
    Admission, DecodeError, Decoded, Effect, ErrorClass, EventDecoder, EventHandler, HandlerError, Knowledge, Refusal,
    Runtime, StoreError,
};
use core_delivery::record::{Committable, LaneId, Offset, Record, Topic};
use core_delivery::testing::{MemoryPublisher, MemoryStore, MemoryUnit, Script, ScriptedStream};
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub const START: UnixMillis = UnixMillis(1_800_000_000_000);

/// An event whose payload on the wire is `<id> <key> <text>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub id: EventId,
    pub key: String,
    pub text: String,
}

impl Event for Note {
    fn id(&self) -> EventId {
        self.id
    }
    fn key(&self) -> &str {
        &self.key
    }
}

pub fn note(number: u8, key: &str) -> Note {
    Note { id: EventId::at(START, [number; 10]), key: key.to_owned(), text: format!("note-{number}") }
}

pub fn record(offset: i64, note: &Note) -> Record {
    raw(offset, &format!("{} {} {}", note.id, note.key, note.text))
}

pub fn raw(offset: i64, payload: &str) -> Record {
    Record {
        offset: Offset(offset),
        timestamp: Some(START),
        key: None,
        payload: Some(payload.to_owned().into()),
        headers: vec![],
        unreadable_headers: 0,
    }
}

/// Whoever decodes this panics, which ends the service.
pub const DEADLY_TO_READ: &str = "deadly to read";

struct NoteDecoder;

impl EventDecoder<Note> for NoteDecoder {
    fn decode(&self, record: &Record) -> Decoded<Note> {
        let text = String::from_utf8_lossy(record.payload.as_deref().unwrap_or_default()).into_owned();
        assert_ne!(text, DEADLY_TO_READ, "scripted panic");
        let mut parts = text.split(' ');
        match (parts.next().map(EventId::from_str), parts.next(), parts.next()) {
            (Some(Ok(id)), Some(key), Some(text)) => Decoded::Event(Note { id, key: key.into(), text: text.into() }),
            _ => Decoded::Undecodable(DecodeError { class: ErrorClass::UNDECODABLE, reason: "no note".into() }),
        }
    }
}

/// What the handler does with a note, in turn; the last entry stays.
#[derive(Clone)]
pub enum Act {
    Succeed,
    Fail,
    FailUnknown,
    Refuse,
    Halt,
    Panic,
    Wait(Arc<Notify>),
    SucceedSlowly(Duration),
    FailSlowly(Duration),
    FailUnknownSlowly(Duration),
    RefuseSlowly(Duration),
    /// The process dies: whoever is told of it ends it, and the call never goes on.
    Die(Arc<Notify>),
}

/// A handler that keeps what it performed and follows a script for each note's text.
#[derive(Default)]
pub struct Scripted {
    scripts: Mutex<HashMap<String, Vec<Act>>>,
    performed: Mutex<Vec<String>>,
    refused_lines: Mutex<Vec<String>>,
    broken_line: Mutex<Option<String>>,
    known: Mutex<Vec<String>>,
    left: Mutex<Vec<String>>,
    retracted: Mutex<Vec<String>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
}

impl Scripted {
    pub fn script(&self, note: &Note, acts: &[Act]) {
        let mut reversed = acts.to_vec();
        reversed.reverse();
        self.scripts.lock().unwrap().insert(note.text.clone(), reversed);
    }

    /// The ledger refuses this note's line.
    pub fn refuse_line(&self, note: &Note) {
        self.refused_lines.lock().unwrap().push(note.text.clone());
    }

    /// The application's tables know this note.
    pub fn know(&self, note: &Note) {
        self.known.lock().unwrap().push(note.text.clone());
    }

    /// An earlier unit left the reservation of this note.
    pub fn leave_reserved(&self, note: &Note) {
        self.left.lock().unwrap().push(note.text.clone());
    }

    /// Writing this note's line panics.
    pub fn break_record(&self, note: &Note) {
        *self.broken_line.lock().unwrap() = Some(note.text.clone());
    }

    pub fn performed(&self) -> Vec<String> {
        self.performed.lock().unwrap().clone()
    }

    /// The notes whose reservation was taken back.
    pub fn retracted(&self) -> Vec<String> {
        self.retracted.lock().unwrap().clone()
    }

    pub fn most_in_flight(&self) -> usize {
        self.most_in_flight.load(Ordering::SeqCst)
    }

    fn next_act(&self, text: &str) -> Act {
        let mut scripts = self.scripts.lock().unwrap();
        match scripts.get_mut(text) {
            Some(acts) if acts.len() > 1 => acts.pop().unwrap(),
            Some(acts) => acts[0].clone(),
            None => Act::Succeed,
        }
    }
}

#[async_trait]
impl EventHandler<Note, MemoryUnit> for Scripted {
    type Receipt = String;

    async fn admit(&self, _unit: &mut MemoryUnit, events: &[Claimed<Note>]) -> Result<Vec<Admission>, StoreError> {
        let left = self.left.lock().unwrap();
        let admission = |event: &Claimed<Note>| match left.contains(&event.event().text) {
            true => Admission::ProceedInDoubt,
            false => Admission::Proceed,
        };
        Ok(events.iter().map(admission).collect())
    }

    async fn known(&self, _unit: &mut MemoryUnit, events: &[Arc<Note>]) -> Result<Vec<Knowledge>, StoreError> {
        let known = self.known.lock().unwrap();
        let knowledge = |event: &Arc<Note>| match known.contains(&event.text) {
            true => Knowledge::Handled,
            false => Knowledge::Unknown,
        };
        Ok(events.iter().map(knowledge).collect())
    }

    async fn perform(&self, event: &Claimed<Note>) -> Result<String, HandlerError> {
        let text = event.event().text.clone();
        self.performed.lock().unwrap().push(text.clone());
        let flying = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(flying, Ordering::SeqCst);
        let act = self.next_act(&text);
        match &act {
            Act::Wait(notify) => notify.notified().await,
            Act::Die(notify) => {
                notify.notify_one();
                std::future::pending().await
            }
            Act::SucceedSlowly(time)
            | Act::FailSlowly(time)
            | Act::FailUnknownSlowly(time)
            | Act::RefuseSlowly(time) => tokio::time::sleep(*time).await,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        let transient = |effect| HandlerError::Transient { reason: "503".into(), retry_after: None, effect };
        match act {
            Act::Succeed | Act::Wait(_) | Act::SucceedSlowly(_) => Ok(text),
            Act::Fail | Act::FailSlowly(_) => Err(transient(Effect::None)),
            Act::FailUnknown | Act::FailUnknownSlowly(_) => Err(transient(Effect::Unknown)),
            Act::Refuse | Act::RefuseSlowly(_) => {
                Err(HandlerError::Permanent(Refusal::new(ErrorClass::PERMANENT, "402")))
            }
            Act::Halt => Err(HandlerError::Halt { reason: "credentials refused".into(), effect: Effect::None }),
            Act::Panic => panic!("scripted panic"),
            Act::Die(_) => unreachable!("it never goes on"),
        }
    }

    async fn retract(&self, _unit: &mut MemoryUnit, failed: &[Claimed<Note>]) -> Result<(), StoreError> {
        self.retracted.lock().unwrap().extend(failed.iter().map(|claimed| claimed.event().text.clone()));
        Ok(())
    }

    async fn record(&self, unit: &mut MemoryUnit, done: &[(Claimed<Note>, String)]) -> Result<(), StoreError> {
        let refused = self.refused_lines.lock().unwrap().clone();
        for (_, receipt) in done {
            assert_ne!(self.broken_line.lock().unwrap().as_ref(), Some(receipt), "scripted panic");
            if refused.contains(receipt) {
                return Err(StoreError::rejected(format!("line {receipt} is refused")));
            }
            unit.write(receipt.clone())?;
        }
        Ok(())
    }
}

/// Simulated time: tokio's paused clock moves on when everything waits.
pub struct SimulatedRuntime {
    started: Instant,
}

impl SimulatedRuntime {
    pub fn start() -> Arc<dyn Runtime> {
        Arc::new(Self { started: Instant::now() })
    }
}

impl Runtime for SimulatedRuntime {
    fn now(&self) -> UnixMillis {
        START.plus(self.started.elapsed())
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }
}

pub fn topology() -> Topology {
    let tier = |name: &str, seconds| Tier { topic: Topic::new(name), delay: Duration::from_secs(seconds) };
    Topology {
        group: ConsumerGroup::new("g"),
        source: Topic::new("orders"),
        tiers: vec![tier("retry.10s", 10), tier("retry.1m", 60)],
        dead_letters: Topic::new("dlq"),
    }
}

/// A consumer that runs.
pub struct World {
    pub store: MemoryStore,
    pub handler: Arc<Scripted>,
    pub publisher: Arc<MemoryPublisher>,
    pub script: Script,
    pub health: Health,
    stop: Arc<Notify>,
    consumer: JoinHandle<Result<(), ConsumerError>>,
}

impl World {
    pub fn start() -> Self {
        Self::start_with(MemoryStore::default(), Scripted::default())
    }

    pub fn start_with(store: MemoryStore, handler: Scripted) -> Self {
        store.set_clock(START);
        let (handler, publisher) = (Arc::new(handler), Arc::new(MemoryPublisher::default()));
        let (stream, script) = ScriptedStream::new();
        let (stop, health) = (Arc::new(Notify::new()), Health::default());
        let consumer = Consumer {
            settings: ConsumerSettings {
                topology: topology(),
                batch_max: 100,
                calls_max: 8,
                straggler_deadline: Duration::from_secs(1),
                storm: StormLimits { in_a_row: 20, ..StormLimits::default() },
                clock_skew: Duration::from_secs(300),
            },
            store: Arc::new(store.clone()),
            handler: Arc::clone(&handler),
            decoder: Arc::new(NoteDecoder),
            publisher: publisher.clone(),
            runtime: SimulatedRuntime::start(),
            health: health.clone(),
        };
        let (control, told) = (Arc::new(script.clone()), Arc::clone(&stop));
        let consumer = tokio::spawn(consumer.run(stream, control, async move { told.notified().await }));
        Self { store, handler, publisher, script, health, stop, consumer }
    }

    pub async fn stop(self) -> Result<(), ConsumerError> {
        self.stop.notify_one();
        self.ended().await
    }

    pub async fn ended(self) -> Result<(), ConsumerError> {
        let limit = Duration::from_secs(600);
        tokio::time::timeout(limit, self.consumer).await.expect("the consumer ends").expect("it does not panic")
    }

    /// Whether the service has ended, however it did.
    pub fn has_ended(&self) -> bool {
        self.consumer.is_finished()
    }

    pub async fn until_position(&self, lane: &LaneId, position: i64) {
        self.until(&format!("position {position}"), || self.script.position(lane) == Some(Committable(position))).await;
    }

    /// Waits, in simulated time, for a condition.
    pub async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        for _ in 0..100_000 {
            if condition() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("waited in vain for {what}; held up by {:?}", self.health.reasons());
    }
}
