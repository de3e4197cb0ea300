//! The watermark of one assignment of one lane: how far everything delivered has a verdict. Pure. It is the only
//! source of committed positions.

use std::collections::VecDeque;

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
/// delivered (D-3).
#[derive(Debug)]
pub struct Watermark {
    epoch: Epoch,
    first_sequence: u64,
    open: VecDeque<Entry>,
    position: Option<Committable>,
    unreported: Unreported,
}

#[derive(Debug)]
struct Entry {
    offset: Offset,
    bytes: usize,
    settled: bool,
}

#[derive(Debug, Default)]
struct Unreported {
    records: usize,
    bytes: usize,
}

impl Watermark {
    /// The watermark of a new assignment.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, first_sequence: 0, open: VecDeque::new(), position: None, unreported: Unreported::default() }
    }

    /// A record was delivered.
    pub fn deliver(&mut self, offset: Offset, bytes: usize) -> Ticket {
        let sequence = self.first_sequence + self.open.len() as u64;
        self.open.push_back(Entry { offset, bytes, settled: false });
        Ticket { epoch: self.epoch, sequence }
    }

    /// The record has its verdict (D-2). A ticket of another assignment, or one that was settled before, changes
    /// nothing (D-5).
    pub fn settle(&mut self, ticket: Ticket) {
        if ticket.epoch != self.epoch {
            return;
        }
        let Some(index) = ticket.sequence.checked_sub(self.first_sequence) else {
            return;
        };
        if let Some(entry) = usize::try_from(index).ok().and_then(|index| self.open.get_mut(index)) {
            entry.settled = true;
        }
        while self.open.front().is_some_and(|entry| entry.settled) {
            let entry = self.open.pop_front().expect("the front was just seen");
            self.first_sequence += 1;
            self.position = self.position.max(Some(entry.offset.committable()));
            self.unreported.records += 1;
            self.unreported.bytes += entry.bytes;
        }
    }

    /// How far the watermark has come since it was last asked; `None` if it did not move.
    pub fn take_progress(&mut self) -> Option<Progress> {
        let Unreported { records, bytes } = std::mem::take(&mut self.unreported);
        let position = self.position?;
        (records > 0).then_some(Progress { position, records, bytes })
    }

    /// Everything below has a verdict; `None` until the first record has.
    pub fn position(&self) -> Option<Committable> {
        self.position
    }

    /// How many delivered records the watermark has not passed.
    pub fn open(&self) -> usize {
        self.open.len()
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
        watermark.settle(nine);
        assert_eq!(watermark.take_progress(), None);
        watermark.settle(five);
        assert_eq!(watermark.take_progress(), Some(Progress { position: Committable(10), records: 2, bytes: 2 }));
        assert_eq!(watermark.take_progress(), None);
    }

    #[test]
    fn a_ticket_of_an_older_epoch_changes_nothing() {
        let stale = Watermark::new(Epoch(1)).deliver(Offset(5), 1);
        let mut watermark = Watermark::new(Epoch(2));
        watermark.deliver(Offset(5), 1);
        watermark.settle(stale);
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
            for step in steps {
                match step {
                    Step::Deliver { gap } => {
                        offset += gap;
                        model.push((Offset(offset), watermark.deliver(Offset(offset), 1), false));
                    }
                    Step::Settle { pick } if !model.is_empty() => {
                        let index = pick % model.len();
                        model[index].2 = true;
                        watermark.settle(model[index].1);
                    }
                    Step::Settle { .. } => {}
                }
                let settled = model.iter().take_while(|(_, _, settled)| *settled);
                let expected = settled.last().map(|(offset, _, _)| offset.committable());
                prop_assert_eq!(watermark.position(), expected);
                prop_assert!(watermark.position() >= before);
                before = watermark.position();
                reported += watermark.take_progress().map_or(0, |progress| progress.records);
                prop_assert_eq!(reported + watermark.open(), model.len());
            }
        }
    }
}
