//! One assignment of one lane: what waits, what is being worked on, and how far it is done. Pure: it is told the
//! time and what happened, and answers with what may start.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::claim::History;
use crate::event::{Event, EventId, UnixMillis};
use crate::headers::Journey;
use crate::ports::{Decoded, ErrorClass, IgnoreReason, Progress};
use crate::record::{Assignment, Committable, LaneId, Record};

use super::topology::Stage;
use super::verdict::Failure;
use super::watermark::{Outlook, Settled, Ticket, Watermark};

/// An event that was delivered and has no verdict yet.
#[derive(Debug)]
pub struct Delivery<E> {
    /// Its place in the watermark.
    pub ticket: Ticket,
    /// The record as it was read.
    pub record: Record,
    /// The event in it.
    pub event: Arc<E>,
    /// What earlier tries of it left behind.
    pub history: History,
    /// When it may be tried; it waits in the lane until then.
    due: Option<UnixMillis>,
}

impl<E> Delivery<E> {
    /// A delivery that may be tried at once.
    pub fn new(ticket: Ticket, record: Record, event: E) -> Self {
        Self { ticket, record, event: Arc::new(event), history: History::default(), due: None }
    }
}

impl<E: Event> Delivery<E> {
    fn is_due(&self, now: UnixMillis) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// Whether `other` must wait for this one: the same key, or the same event under another key.
    fn holds(&self, other: &Self) -> bool {
        self.event.key() == other.event.key() || self.event.id() == other.event.id()
    }
}

/// What became of a record at the door.
#[derive(Debug)]
pub enum Admitted {
    /// It waits for a unit.
    Waiting,
    /// It is not for this consumer; settle the ticket.
    Ignored(Ticket, IgnoreReason),
    /// It is a dead letter; settle the ticket when its copy is acknowledged.
    Refused(Ticket, Record, Failure),
}

/// The machine.
#[derive(Debug)]
pub struct Lane<E> {
    id: LaneId,
    stage: Stage,
    tier_delay: Duration,
    clock_skew: Duration,
    watermark: Watermark,
    /// In delivered order.
    waiting: VecDeque<Delivery<E>>,
    /// Their calls outlived their units; nothing else of their keys may start (D-6).
    straggling: Vec<Delivery<E>>,
    unit_runs: bool,
}

impl<E: Event> Lane<E> {
    /// A lane that was just assigned. `tier_delay` is zero for a source topic; ids that are further in the future
    /// than `clock_skew` are refused.
    pub fn new(assignment: Assignment, stage: Stage, tier_delay: Duration, clock_skew: Duration) -> Self {
        let Assignment { lane, epoch } = assignment;
        Self {
            id: lane,
            stage,
            tier_delay,
            clock_skew,
            watermark: Watermark::new(epoch),
            waiting: VecDeque::new(),
            straggling: vec![],
            unit_runs: false,
        }
    }

    /// The lane's place.
    pub fn id(&self) -> &LaneId {
        &self.id
    }

    /// The lane's stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What a record has been through when it arrives in this lane.
    pub fn journey(&self, record: &Record) -> Journey {
        match self.stage {
            Stage::Source => Journey::begin(&self.id, record),
            Stage::Tier(_) => Journey::resume(&self.id, record),
        }
    }

    /// A record was delivered.
    pub fn admit(&mut self, record: Record, decoded: Decoded<E>, now: UnixMillis) -> Admitted {
        let ticket = self.watermark.deliver(record.offset, record.weight());
        self.judge(ticket, record, decoded, now)
    }

    /// A record was delivered and is not looked at yet: [`Self::judge`] comes later.
    pub fn hold(&mut self, record: &Record) -> Ticket {
        self.watermark.deliver(record.offset, record.weight())
    }

    /// When a record that is not looked at yet may be tried.
    pub fn due_of(&self, record: &Record, now: UnixMillis) -> Option<UnixMillis> {
        match self.stage {
            Stage::Source => None,
            Stage::Tier(_) => Some(self.journey(record).due_in_tier(record, self.tier_delay, now)),
        }
    }

    /// The event of a waiting delivery, which is not to be performed any more.
    pub fn strike_out(&mut self, ticket: Ticket) -> Option<EventId> {
        let delivery = self.waiting.iter_mut().find(|delivery| delivery.ticket == ticket)?;
        delivery.history = History { in_doubt: true, struck_out: true, ..delivery.history };
        Some(delivery.event.id())
    }

    /// Whether something waits for a unit.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the record has its verdict.
    pub fn is_settled(&self, ticket: Ticket) -> bool {
        self.watermark.is_settled(ticket)
    }

    /// What becomes of a record that was delivered; asked again when the clock by which it was judged was wrong.
    pub fn judge(&mut self, ticket: Ticket, record: Record, decoded: Decoded<E>, now: UnixMillis) -> Admitted {
        if record.unreadable_headers > 0 {
            let text = format!("{} header keys are not UTF-8", record.unreadable_headers);
            return Admitted::Refused(ticket, record, Failure::dead(ErrorClass::UNDECODABLE, text));
        }
        let event = match decoded {
            Decoded::Event(event) => event,
            Decoded::Ignored(reason) => return Admitted::Ignored(ticket, reason),
            Decoded::Undecodable(error) => {
                return Admitted::Refused(ticket, record, Failure::dead(error.class, error.reason));
            }
        };
        let made_at = event.id().made_at();
        if made_at > now.plus(self.clock_skew) {
            let ahead = made_at.since(now).as_secs();
            let text = format!("the event id was made {ahead} s in the future of this machine's clock");
            return Admitted::Refused(ticket, record, Failure::dead(ErrorClass::FROM_THE_FUTURE, text));
        }
        let (due, history) = match self.stage {
            Stage::Source => (None, History::default()),
            Stage::Tier(_) => {
                let journey = self.journey(&record);
                let due = journey.due_in_tier(&record, self.tier_delay, now);
                (Some(due), History { attempts: journey.attempts, in_doubt: journey.in_doubt, struck_out: false })
            }
        };
        self.put_back(Delivery { ticket, record, event: Arc::new(event), history, due });
        Admitted::Waiting
    }

    /// The next unit's deliveries, in delivered order, at most `max`; empty while a unit runs or nothing is due.
    /// One unit runs at a time, which keeps the events of a key in order (D-6).
    pub fn next_batch(&mut self, now: UnixMillis, max: usize) -> Vec<Delivery<E>> {
        if self.unit_runs {
            return Vec::new();
        }
        let batch = if self.straggling.is_empty() {
            let ready = self.waiting.iter().take(max).take_while(|delivery| delivery.is_due(now)).count();
            self.waiting.drain(..ready).collect()
        } else {
            let straggling = std::mem::take(&mut self.straggling);
            let free = |delivery: &Delivery<E>| {
                let held = straggling.iter().any(|straggler| straggler.holds(delivery));
                !held && delivery.is_due(now)
            };
            let batch = self.take(max, free);
            self.straggling = straggling;
            batch
        };
        self.unit_runs = !batch.is_empty();
        batch
    }

    /// A few deliveries to try while failing is the rule: the first ones of their keys, another few at each turn, so that
    /// events which are bad themselves do not hide the others.
    pub fn next_probe(&mut self, now: UnixMillis, count: usize, turn: usize) -> Vec<Delivery<E>> {
        if self.unit_runs {
            return Vec::new();
        }
        let mut keys: HashSet<&str> = self.straggling.iter().map(|delivery| delivery.event.key()).collect();
        let firsts = self.waiting.iter().filter(|delivery| keys.insert(delivery.event.key()) && delivery.is_due(now));
        let firsts: Vec<Ticket> = firsts.map(|delivery| delivery.ticket).collect();
        let begin = (turn * count) % firsts.len().max(1);
        let chosen: HashSet<Ticket> =
            firsts.iter().cycle().skip(begin).take(count.min(firsts.len())).copied().collect();
        let batch = self.take(usize::MAX, |delivery| chosen.contains(&delivery.ticket));
        self.unit_runs = !batch.is_empty();
        batch
    }

    /// A unit of those waiting deliveries whose events satisfy `wanted`, due or not.
    pub fn batch_of(&mut self, wanted: impl Fn(EventId) -> bool) -> Vec<Delivery<E>> {
        if self.unit_runs {
            return Vec::new();
        }
        let batch = self.take(usize::MAX, |delivery| wanted(delivery.event.id()));
        self.unit_runs = !batch.is_empty();
        batch
    }

    fn take(&mut self, max: usize, wanted: impl Fn(&Delivery<E>) -> bool) -> Vec<Delivery<E>> {
        let mut batch = vec![];
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for delivery in self.waiting.drain(..) {
            if batch.len() < max && wanted(&delivery) {
                batch.push(delivery);
            } else {
                kept.push_back(delivery);
            }
        }
        self.waiting = kept;
        batch
    }

    /// The unit has ended; `postponed` are its deliveries that must be tried again, in delivered order.
    pub fn unit_ended(&mut self, postponed: Vec<Delivery<E>>) {
        self.unit_runs = false;
        let last = postponed.last().map(|delivery| delivery.ticket);
        let in_order = self.waiting.front().is_none_or(|first| Some(first.ticket) > last);
        for delivery in postponed.into_iter().rev() {
            self.waiting.push_front(delivery);
        }
        if !in_order {
            self.waiting.make_contiguous().sort_unstable_by_key(|delivery| delivery.ticket);
        }
    }

    /// The delivery's call outlived its unit.
    pub fn straggles(&mut self, delivery: Delivery<E>) {
        self.straggling.push(delivery);
    }

    /// The call of a straggler has ended; its delivery, to be sent on or to be [`put back`](Self::put_back).
    pub fn straggler_ended(&mut self, event: EventId) -> Option<Delivery<E>> {
        let index = self.straggling.iter().position(|delivery| delivery.event.id() == event)?;
        Some(self.straggling.swap_remove(index))
    }

    /// The delivery is to be tried again, at its place.
    pub fn put_back(&mut self, delivery: Delivery<E>) {
        if self.waiting.back().is_none_or(|last| last.ticket < delivery.ticket) {
            self.waiting.push_back(delivery);
            return;
        }
        let place = self.waiting.partition_point(|waiting| waiting.ticket < delivery.ticket);
        self.waiting.insert(place, delivery);
    }

    /// When the first waiting event may be tried, if something waits and no unit runs.
    pub fn next_due(&self) -> Option<UnixMillis> {
        if self.unit_runs { None } else { self.waiting.front()?.due }
    }

    /// The record has its verdict.
    pub fn settle(&mut self, ticket: Ticket, settled: Settled) {
        self.watermark.settle(ticket, settled);
    }

    /// Everything below has a verdict; `None` until the first record has.
    pub fn position(&self) -> Option<Committable> {
        self.watermark.position()
    }

    /// The records whose position is not reported.
    pub fn outlook(&self) -> Outlook {
        self.watermark.outlook()
    }

    /// Reports what was passed below `limit` since the last report.
    pub fn report(&mut self, limit: Committable) -> Option<Progress> {
        self.watermark.report(limit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Epoch, Offset, Topic};

    #[derive(Debug)]
    struct Probe(EventId);

    impl Event for Probe {
        fn id(&self) -> EventId {
            self.0
        }
        fn key(&self) -> &str {
            "k"
        }
    }

    const NOW: UnixMillis = UnixMillis(1_000_000);

    #[derive(Debug)]
    struct Keyed(EventId, String);

    impl Event for Keyed {
        fn id(&self) -> EventId {
            self.0
        }
        fn key(&self) -> &str {
            &self.1
        }
    }

    fn assignment() -> Assignment {
        Assignment { lane: LaneId { topic: Topic::new("t"), partition: 0 }, epoch: Epoch(1) }
    }

    fn lane(stage: Stage) -> Lane<Probe> {
        Lane::new(assignment(), stage, Duration::from_secs(10), Duration::from_secs(300))
    }

    fn record(offset: i64, written: UnixMillis) -> Record {
        Record {
            offset: Offset(offset),
            timestamp: Some(written),
            key: None,
            payload: None,
            headers: vec![],
            unreadable_headers: 0,
        }
    }

    fn admit(lane: &mut Lane<Probe>, offset: i64, written: UnixMillis) {
        let event = Probe(EventId::at(NOW, [0; 10]));
        assert!(matches!(lane.admit(record(offset, written), Decoded::Event(event), NOW), Admitted::Waiting));
    }

    fn offsets(batch: &[Delivery<Probe>]) -> Vec<i64> {
        batch.iter().map(|delivery| delivery.record.offset.0).collect()
    }

    #[test]
    fn only_one_unit_runs_at_a_time() {
        let mut lane = lane(Stage::Source);
        (0..3).for_each(|offset| admit(&mut lane, offset, NOW));
        assert_eq!(offsets(&lane.next_batch(NOW, 2)), [0, 1]);
        assert!(lane.next_batch(NOW, 2).is_empty());
        lane.unit_ended(vec![]);
        assert_eq!(offsets(&lane.next_batch(NOW, 2)), [2]);
    }

    #[test]
    fn an_event_in_a_tier_waits_until_it_is_due() {
        let mut lane = lane(Stage::Tier(0));
        admit(&mut lane, 0, NOW);
        assert!(lane.next_batch(NOW.plus(Duration::from_millis(9_999)), 10).is_empty());
        assert_eq!(lane.next_due(), Some(NOW.plus(Duration::from_secs(10))));
        assert_eq!(offsets(&lane.next_batch(NOW.plus(Duration::from_secs(10)), 10)), [0]);
    }

    #[test]
    fn an_id_from_the_future_is_refused_beyond_the_skew() {
        let mut lane = lane(Stage::Source);
        let mut at = |ahead| {
            let event = Probe(EventId::at(NOW.plus(Duration::from_secs(ahead)), [0; 10]));
            lane.admit(record(0, NOW), Decoded::Event(event), NOW)
        };
        assert!(matches!(at(300), Admitted::Waiting));
        let Admitted::Refused(_, _, failure) = at(301) else { panic!("accepted") };
        assert_eq!(failure.class, ErrorClass::FROM_THE_FUTURE);
    }

    #[test]
    fn unreadable_headers_make_a_dead_letter() {
        let mut lane = lane(Stage::Source);
        let damaged = Record { unreadable_headers: 1, ..record(0, NOW) };
        let event = Decoded::Event(Probe(EventId::at(NOW, [0; 10])));
        assert!(matches!(lane.admit(damaged, event, NOW), Admitted::Refused(..)));
    }

    #[test]
    fn a_straggler_holds_its_key_and_comes_back_at_its_place() {
        let keyed = |offset, key: &str| {
            let event = Keyed(EventId::at(NOW, [offset; 10]), key.to_owned());
            (record(i64::from(offset), NOW), Decoded::Event(event))
        };
        let mut lane: Lane<Keyed> = Lane::new(assignment(), Stage::Source, Duration::ZERO, Duration::from_secs(300));
        for (offset, key) in [(0, "a"), (1, "b"), (2, "a"), (3, "c")] {
            let (record, event) = keyed(offset, key);
            assert!(matches!(lane.admit(record, event, NOW), Admitted::Waiting));
        }
        let mut batch = lane.next_batch(NOW, 2);
        let second = batch.pop().expect("two");
        let straggler = batch.pop().expect("two");
        let event = straggler.event.id();
        lane.straggles(straggler);
        lane.unit_ended(vec![second]);
        let offsets = |batch: &[Delivery<Keyed>]| batch.iter().map(|d| d.record.offset.0).collect::<Vec<_>>();
        let batch = lane.next_batch(NOW, 10);
        assert_eq!(offsets(&batch), [1, 3], "offset 2 has the straggler's key");
        lane.unit_ended(batch);
        let straggler = lane.straggler_ended(event).expect("it was there");
        lane.put_back(straggler);
        assert_eq!(offsets(&lane.next_batch(NOW, 10)), [0, 1, 2, 3]);
    }

    proptest! {
        /// Whatever is postponed, deliveries are handed out in offset order and none is handed out while it, or
        /// an earlier one, is in a unit (D-6).
        #[test]
        fn deliveries_keep_their_order_over_postponement(
            sizes in prop::collection::vec((1_usize..5, 0_usize..5), 1..60),
        ) {
            let mut lane = lane(Stage::Source);
            (0..60).for_each(|offset| admit(&mut lane, offset, NOW));
            let mut done = 0;
            for (max, keep) in sizes {
                let mut batch = lane.next_batch(NOW, max);
                let expected: Vec<i64> = (done..60).take(max).collect();
                prop_assert_eq!(offsets(&batch), expected);
                let postponed = batch.split_off(batch.len() - keep.min(batch.len()));
                done += batch.len() as i64;
                batch.into_iter().for_each(|delivery| lane.settle(delivery.ticket, Settled::Elsewhere));
                lane.unit_ended(postponed);
                let position = lane.watermark.position().map_or(0, |position| position.0);
                prop_assert_eq!(position, done);
            }
        }
    }
}
