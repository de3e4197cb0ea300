//! The order of the calls on a unit, shown by mocks: claim, admit, perform, retract, release, record, commit.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use core_delivery::claim::{Claim, Claimed, ConsumerGroup, DedupKey};
use core_delivery::delivery::{Batch, Calls, Delivery, Doubts, Outcome, PositionPlan, Unrecorded, Watermark};
use core_delivery::event::{Event, EventId, UnixMillis};
use core_delivery::ports::{
    ErrorClass, EventHandler, HandlerError, LaneLog, LaneMark, MarkAnswer, Owner, PositionStep, Refusal, StoreError,
    StoredPosition, UnitOfWork, UnitOfWorkFactory,
};
use core_delivery::record::{Committable, Epoch, LaneId, Offset, Topic};
use core_delivery::testing::Script;
use mockall::predicate::eq;
use mockall::{Sequence, mock};

use crate::support::{Note, SimulatedRuntime, note, record};

#[async_trait]
pub trait Ledger: Send {
    async fn cancel(&mut self, events: &[EventId]) -> Result<(), StoreError>;
    async fn write(&mut self, events: &[EventId]) -> Result<(), StoreError>;
}

mock! {
    pub Unit {}
    #[async_trait]
    impl UnitOfWork for Unit {
        async fn claim(&mut self, keys: &[DedupKey]) -> Result<Vec<Claim>, StoreError>;
        async fn release(&mut self, keys: &[DedupKey]) -> Result<(), StoreError>;
        async fn advance(&mut self, step: &PositionStep) -> Result<(), StoreError>;
        async fn commit(self) -> Result<(), StoreError>;
    }
    #[async_trait]
    impl Ledger for Unit {
        async fn cancel(&mut self, events: &[EventId]) -> Result<(), StoreError>;
        async fn write(&mut self, events: &[EventId]) -> Result<(), StoreError>;
    }
}

struct OneUnit(Mutex<Option<MockUnit>>);

#[async_trait]
impl UnitOfWorkFactory for OneUnit {
    type Unit = MockUnit;
    async fn begin(&self) -> Result<MockUnit, StoreError> {
        Ok(self.0.lock().unwrap().take().expect("one unit is enough"))
    }
    async fn now(&self) -> Result<UnixMillis, StoreError> {
        Ok(crate::support::START)
    }
    async fn positions(&self, _group: &ConsumerGroup, _lane: &LaneId) -> Result<Vec<StoredPosition>, StoreError> {
        Ok(vec![])
    }
    async fn mark(&self, _lane: &LaneLog) -> Result<Option<LaneMark>, StoreError> {
        Ok(None)
    }
    async fn set_mark(&self, _: &LaneLog, _: Option<Owner>, _: &LaneMark) -> Result<MarkAnswer, StoreError> {
        Ok(MarkAnswer::Written)
    }
}

/// Knows the unit by the ledger port alone: it could neither claim nor commit.
struct Handler;

#[async_trait]
impl<U: Ledger> EventHandler<Note, U> for Handler {
    type Receipt = ();

    async fn perform(&self, event: &Claimed<Note>) -> Result<(), HandlerError> {
        match event.event().key() {
            "refused" => Err(HandlerError::Permanent(Refusal::new(ErrorClass::PERMANENT, "no"))),
            _ => Ok(()),
        }
    }

    async fn retract(&self, unit: &mut U, failed: &[Claimed<Note>]) -> Result<(), StoreError> {
        unit.cancel(&failed.iter().map(|claimed| claimed.event().id).collect::<Vec<_>>()).await
    }

    async fn record(&self, unit: &mut U, done: &[(Claimed<Note>, ())]) -> Result<(), StoreError> {
        unit.write(&done.iter().map(|(claimed, ())| claimed.event().id).collect::<Vec<_>>()).await
    }
}

fn lane() -> LaneId {
    LaneId { topic: Topic::new("orders"), partition: 0 }
}

#[tokio::test]
async fn claim_perform_retract_release_record_advance_commit() {
    let (known, fresh, refused) = (note(1, "k"), note(2, "k"), note(3, "refused"));
    let key = |note: &Note| DedupKey::new(note.id, ConsumerGroup::new("g"));
    let mut order = Sequence::new();
    let mut unit = MockUnit::new();
    unit.expect_claim()
        .with(eq(vec![key(&known), key(&fresh), key(&refused)]))
        .times(1)
        .in_sequence(&mut order)
        .returning(|_| Ok(vec![Claim::AlreadyProcessed, Claim::Fresh, Claim::Fresh]));
    unit.expect_cancel().with(eq(vec![refused.id])).times(1).in_sequence(&mut order).returning(|_| Ok(()));
    unit.expect_release().with(eq(vec![key(&refused)])).times(1).in_sequence(&mut order).returning(|_| Ok(()));
    unit.expect_write().with(eq(vec![fresh.id])).times(1).in_sequence(&mut order).returning(|_| Ok(()));
    unit.expect_advance()
        .with(eq(PositionStep {
            group: ConsumerGroup::new("g"),
            lane: lane(),
            identity: Script::arrival(None).identity,
            from: Some(Committable(0)),
            // The refused event at offset 1 holds the position, though 2 and 3 are settled.
            to: Committable(1),
        }))
        .times(1)
        .in_sequence(&mut order)
        .returning(|_| Ok(()));
    unit.expect_commit().times(1).in_sequence(&mut order).returning(|| Ok(()));

    let batch = Batch {
        store: Arc::new(OneUnit(Mutex::new(Some(unit)))),
        handler: Arc::new(Handler),
        group: ConsumerGroup::new("g"),
        calls: Calls::new(8),
        straggler_deadline: Duration::from_secs(1),
        doubts: Doubts::default(),
        runtime: SimulatedRuntime::start(),
    };
    let mut watermark = Watermark::new(Epoch(1));
    // Delivered out of id order and with one id twice: only the keys of the claim are sorted and distinct.
    let delivered = [&fresh, &refused, &known, &fresh].into_iter().enumerate().map(|(offset, note)| {
        let record = record(offset as i64, note);
        Delivery::new(watermark.deliver(Offset(offset as i64), 0), record, note.clone())
    });
    let delivered = delivered.collect();
    let plan = PositionPlan {
        lane: lane(),
        identity: Script::arrival(None).identity,
        from: Some(Committable(0)),
        may_lower: false,
        outlook: watermark.outlook(),
    };
    let report = batch.run(delivered, &mut Unrecorded::default(), Some(&plan)).await;

    let outcomes: Vec<Outcome> = report.outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes[0], Outcome::Applied);
    assert!(matches!(&outcomes[1], Outcome::Failed(failure) if failure.class == ErrorClass::PERMANENT));
    assert_eq!(outcomes[2..], [Outcome::Duplicate, Outcome::Duplicate]);
    assert_eq!(report.stored, Some(Committable(1)));
    assert!(report.interruption.is_none());
}
