//! The watermark of one assignment of one lane: how far everything delivered has a verdict. Pure. It is the only
//! source of committed positions.

use std::collections::VecDeque;

use crate::event::EventId;
use crate::ports::Progress;
use crate::record::{Committable, Epoch, Offset};

/// Stands for one delivered record of one assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    epoch: Epoch,
    sequence: u64,
}

/// Tracks the delivered records of one assignment, in delivered order.
///
/// Offsets need not be contiguous: transaction markers and compaction leave gaps. What counts is what was
/// delivered (D-3). Records are kept until their position has been reported, so that whoever counts them in flight
/// counts those whose position is not stored yet.
#[derive(Debug)]
pub struct Watermark {
    epoch: Epoch,
    first_sequence: u64,
    kept: VecDeque<Entry>,
    /// How many of the kept records, from the first on, are settled without a gap.
    settled: usize,
    position: Option<Committable>,
}

#[derive(Debug)]
struct Entry {
    offset: Offset,
    bytes: usize,
    settled: Option<Settled>,
}

/// Where the verdict of a record is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// In the store, as the claim of its event. A store that goes back forgets it.
    ByClaim(EventId),
    /// Elsewhere: its copy is acknowledged, or it is not for this consumer.
    Elsewhere,
}

impl Watermark {
    /// The watermark of a new assignment.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, first_sequence: 0, kept: VecDeque::new(), settled: 0, position: None }
    }

    /// A record was delivered.
    pub fn deliver(&mut self, offset: Offset, bytes: usize) -> Ticket {
        let sequence = self.first_sequence + self.kept.len() as u64;
        self.kept.push_back(Entry { offset, bytes, settled: None });
        Ticket { epoch: self.epoch, sequence }
    }

    /// The record has its verdict (D-2). A ticket of another assignment, or one that was settled before, changes
    /// nothing (D-5).
    pub fn settle(&mut self, ticket: Ticket, settled: Settled) {
        if ticket.epoch != self.epoch {
            return;
        }
        let Some(index) = ticket.sequence.checked_sub(self.first_sequence) else {
            return;
        };
        if let Some(entry) = usize::try_from(index).ok().and_then(|index| self.kept.get_mut(index)) {
            entry.settled.get_or_insert(settled);
        }
        while let Some(entry) = self.kept.get(self.settled).filter(|entry| entry.settled.is_some()) {
            self.settled += 1;
            self.position = self.position.max(Some(entry.offset.committable()));
        }
    }

    /// Whether the record has its verdict.
    pub fn is_settled(&self, ticket: Ticket) -> bool {
        let index = ticket.sequence.checked_sub(self.first_sequence).and_then(|index| usize::try_from(index).ok());
        index.is_none_or(|index| self.kept.get(index).is_some_and(|entry| entry.settled.is_some()))
    }

    /// Everything below has a verdict; `None` until the first record has.
    pub fn position(&self) -> Option<Committable> {
        self.position
    }

    /// The records whose position is not reported, for a unit that wants to know where the watermark will stand.
    pub fn outlook(&self) -> Outlook {
        let kept = self.kept.iter().zip(self.first_sequence..);
        let kept = kept.map(|(entry, sequence)| {
            let ticket = Ticket { epoch: self.epoch, sequence };
            (ticket, entry.offset, entry.settled)
        });
        Outlook { position: self.position, kept: kept.collect() }
    }

    /// Reports what was passed below `limit` since the last report; `None` if nothing was.
    pub fn report(&mut self, limit: Committable) -> Option<Progress> {
        let mut progress: Option<Progress> = None;
        while self.settled > 0 && self.kept.front().is_some_and(|entry| entry.offset.committable() <= limit) {
            let entry = self.kept.pop_front().expect("the front was just seen");
            self.first_sequence += 1;
            self.settled -= 1;
            let before = progress.unwrap_or(Progress { position: Committable(0), records: 0, bytes: 0 });
            progress = Some(Progress {
                position: before.position.max(entry.offset.committable()),
                records: before.records + 1,
                bytes: before.bytes + entry.bytes,
            });
        }
        progress
    }

    /// How many delivered records have not been reported.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }
}

/// Where a watermark stands, and what lies around it.
#[derive(Debug, Clone)]
pub struct Outlook {
    position: Option<Committable>,
    kept: Vec<(Ticket, Offset, Option<Settled>)>,
}

impl Outlook {
    /// Where the watermark will stand once the tickets are settled for which `settled` is true.
    pub fn position_with(&self, settled: impl Fn(Ticket) -> bool) -> Option<Committable> {
        let passed = self.kept.iter().take_while(|(ticket, _, done)| done.is_some() || settled(*ticket));
        passed.map(|(_, offset, _)| offset.committable()).max().max(self.position)
    }

    /// The events between two positions that have their verdict in the store already.
    pub fn claimed_between(&self, from: Option<Committable>, to: Committable) -> impl Iterator<Item = EventId> + '_ {
        let kept = self.kept.iter().map(|(_, offset, settled)| (offset.committable(), settled));
        kept.filter_map(move |(position, settled)| match settled {
            Some(Settled::ByClaim(event)) if Some(position) > from && position <= to => Some(*event),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_between_offsets_do_not_stop_it() {
        let mut watermark = Watermark::new(Epoch(1));
        let (five, nine) = (watermark.deliver(Offset(5), 1), watermark.deliver(Offset(9), 1));
        watermark.settle(nine, Settled::Elsewhere);
        assert_eq!(watermark.position(), None);
        assert_eq!(watermark.outlook().position_with(|ticket| ticket == five), Some(Committable(10)));
        watermark.settle(five, Settled::Elsewhere);
        assert_eq!(watermark.position(), Some(Committable(10)));
    }

    #[test]
    fn what_is_not_stored_yet_is_not_reported() {
        let mut watermark = Watermark::new(Epoch(1));
        let tickets: Vec<_> = (0..4).map(|offset| watermark.deliver(Offset(offset), 10)).collect();
        tickets[..3].iter().for_each(|ticket| watermark.settle(*ticket, Settled::Elsewhere));
        assert_eq!(
            watermark.report(Committable(2)),
            Some(Progress { position: Committable(2), records: 2, bytes: 20 })
        );
        assert_eq!(watermark.report(Committable(2)), None);
        assert_eq!(
            watermark.report(Committable(9)),
            Some(Progress { position: Committable(3), records: 1, bytes: 10 })
        );
        assert_eq!(watermark.kept(), 1);
    }

    #[test]
    fn a_ticket_of_an_older_epoch_changes_nothing() {
        let stale = Watermark::new(Epoch(1)).deliver(Offset(5), 1);
        let mut watermark = Watermark::new(Epoch(2));
        watermark.deliver(Offset(5), 1);
        watermark.settle(stale, Settled::Elsewhere);
        assert_eq!(watermark.position(), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Deliver { gap: i64 },
        Settle { pick: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1_i64..5).prop_map(|gap| Step::Deliver { gap }),
            any::<usize>().prop_map(|pick| Step::Settle { pick }),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// The model is a plain list of (offset, settled): D-2, D-3 and D-4 are checked against it at every step.
        #[test]
        fn it_stands_at_the_first_delivered_record_without_a_verdict(steps in steps()) {
            let mut watermark = Watermark::new(Epoch(7));
            let mut model: Vec<(Offset, Ticket, bool)> = vec![];
            let (mut offset, mut reported, mut before) = (0, 0, None);
            for (step_index, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Deliver { gap } => {
                        offset += gap;
                        model.push((Offset(offset), watermark.deliver(Offset(offset), 1), false));
                    }
                    Step::Settle { pick } if !model.is_empty() => {
                        let index = pick % model.len();
                        model[index].2 = true;
                        watermark.settle(model[index].1, Settled::Elsewhere);
                    }
                    Step::Settle { .. } => {}
                }
                let settled = model.iter().take_while(|(_, _, settled)| *settled);
                let expected = settled.last().map(|(offset, _, _)| offset.committable());
                prop_assert_eq!(watermark.position(), expected);
                prop_assert!(watermark.position() >= before);
                before = watermark.position();
                let also = model.get(step_index % model.len().max(1)).map(|(_, ticket, _)| *ticket);
                let with = model.iter().take_while(|(_, ticket, settled)| *settled || Some(*ticket) == also);
                let with = with.last().map(|(offset, _, _)| offset.committable());
                prop_assert_eq!(watermark.outlook().position_with(|ticket| Some(ticket) == also), with);
                if step_index % 3 == 0 {
                    let limit = Committable(offset / 2);
                    reported += watermark.report(limit).map_or(0, |progress| progress.records);
                    let passed = expected.map_or(0, |expected| expected.0).min(limit.0);
                    let below = model.iter().take_while(|(offset, _, settled)| *settled && offset.0 < passed);
                    prop_assert!(reported >= below.count());
                }
                prop_assert_eq!(reported + watermark.kept(), model.len());
            }
        }
    }
}
