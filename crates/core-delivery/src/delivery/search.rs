//! The search for a record that kills whoever handles it. Pure: it is told what the last owner left and what has run, and
//! answers with what may run next.
//!
//! What was in flight at a death lies between the stored position and as many records after it as were in flight together.
//! So each death halves how many may be: from half a batch down to one record, which takes as many deaths as the batch
//! can be halved. A record is then run alone in the process, and that is noted before it starts, so another death accuses
//! exactly it. But whoever ends processes from outside would accuse somebody too. So a death counts as a strike only if
//! the process has shown since the last one that it lives without the suspect, and a death without the suspect takes back
//! all strikes. The third strike ends it.
//!
//! If what killed lies further on than was thought, or kills only in company, the search comes to its end and the next
//! death begins another one, from a later position.

use crate::ports::{Search, Suspect};
use crate::record::{Committable, Offset};

/// How many strikes end it.
pub const STRIKES: u32 = 3;

/// How many batches of records can be in flight: as many as a stream delivers before progress is reported.
const BATCHES_AHEAD: usize = 10;

/// A record that was delivered and is not looked at.
#[derive(Debug, Clone, Copy)]
pub struct Held<'a> {
    /// Where it lies.
    pub offset: Offset,
    /// The record's key, as it is on the wire.
    pub key: Option<&'a [u8]>,
}

/// What may run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing that is left can have killed: back to full batches.
    Over,
    /// Nothing is there to run.
    AwaitRecords,
    /// The first so many, together.
    Together(usize),
    /// The one at this place, alone in the process.
    Alone(usize, Treatment),
    /// Nothing but the suspect is there. If the process lives for a while without it, that is a witness as well.
    Rest,
}

/// What is done with a record that runs alone. Each death takes one step less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// As always.
    Perform,
    /// It is struck out: the handler says what became of it.
    Inquire,
    /// That killed too: it is reserved for, and neither performed nor inquired after.
    Reserve,
    /// That killed too: it is not even read.
    Unread,
}

/// What came of a run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ran {
    /// Its event was performed, with whatever outcome.
    Performed,
    /// It was known already, not for this consumer, unreadable, or it could not run.
    NotPerformed,
}

impl Search {
    /// What the new owner searches after the last one died: `position` is where it starts, `end` is the
    /// end of the log.
    #[must_use]
    pub fn after_death(found: Option<Self>, position: Committable, end: Committable, batch_max: usize) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        match found {
            None => Self {
                window: count(batch_max / 2).max(1),
                left: count(batch_max.saturating_mul(BATCHES_AHEAD)).max(1),
                end,
                alone: None,
                witnessed: false,
                suspect: None,
            },
            Some(found) if found.window > 1 => {
                Self { window: found.window.div_ceil(2), left: found.left.min(found.window), ..found }
            }
            Some(mut found) => {
                // What is not delivered again did not kill.
                if let Some(offset) = found.alone.take().filter(|offset| offset.0 >= position.0) {
                    found.died_alone(offset);
                }
                found
            }
        }
    }

    /// What the next owner searches if nobody died.
    #[must_use]
    pub fn handed_over(self) -> Self {
        Self { alone: None, ..self }
    }

    fn died_alone(&mut self, offset: Offset) {
        self.suspect = Some(match self.suspect {
            Some(suspect) if suspect.offset == offset => {
                let counts = self.witnessed || suspect.strikes >= STRIKES;
                Suspect { strikes: suspect.strikes + u32::from(counts), ..suspect }
            }
            // It came before, so it was no witness: it is suspected first.
            Some(suspect) if offset < suspect.offset => {
                Suspect { offset, strikes: u32::from(self.witnessed), failed_witness: None }
            }
            // Whatever ends processes does it without the suspect too.
            Some(suspect) if suspect.strikes < STRIKES => {
                Suspect { strikes: 0, failed_witness: suspect.failed_witness.max(Some(offset)), ..suspect }
            }
            Some(suspect) => suspect,
            None => Suspect { offset, strikes: u32::from(self.witnessed), failed_witness: None },
        });
        self.witnessed = false;
    }

    /// What may run next, of the records that were delivered and have not run; `position` is what the store holds.
    pub fn next(&mut self, held: &[Held<'_>], position: Option<Committable>) -> Step {
        let Some(front) = held.first() else {
            return if self.left == 0 || position >= Some(self.end) { Step::Over } else { Step::AwaitRecords };
        };
        // What the store has passed is run as well: its verdict may have been a copy, and no claim answers for it.
        let is_again = Some(front.offset.committable()) <= position;
        if !is_again && self.left == 0 || front.offset.0 >= self.end.0 {
            return Step::Over;
        }
        if self.window > 1 {
            let most = if is_again { self.window } else { self.window.min(self.left) };
            return Step::Together(held.len().min(most as usize));
        }
        let suspect = self.suspect.filter(|suspect| suspect.offset >= front.offset);
        self.suspect = suspect;
        let Some(suspect) = suspect.filter(|suspect| suspect.offset == front.offset) else {
            return Step::Alone(0, Treatment::Perform);
        };
        match suspect.strikes.checked_sub(STRIKES) {
            Some(0) => Step::Alone(0, Treatment::Inquire),
            Some(1) => Step::Alone(0, Treatment::Reserve),
            Some(_) => Step::Alone(0, Treatment::Unread),
            None if self.witnessed => Step::Alone(0, Treatment::Perform),
            None => witness(held, suspect).map_or(Step::Rest, |place| Step::Alone(place, Treatment::Perform)),
        }
    }

    /// The record is about to run alone.
    pub fn begins(&mut self, offset: Offset) {
        self.alone = Some(offset);
    }

    /// It has run, and the process lives.
    pub fn ended(&mut self, ran: Ran) {
        let offset = self.alone.take();
        let is_suspect = self.suspect.is_some_and(|suspect| Some(suspect.offset) == offset);
        self.witnessed |= ran == Ran::Performed && !is_suspect;
    }

    /// The process lived for a while in which nothing of the lane ran.
    pub fn rested(&mut self) {
        self.witnessed = true;
    }

    /// So many records from the first on have their verdict and the position has passed them, which it had not before.
    pub fn passed(&mut self, records: usize) {
        self.left = self.left.saturating_sub(u32::try_from(records).unwrap_or(u32::MAX));
    }
}

/// The first record that may overtake the suspect: the first one of another key.
fn witness(held: &[Held<'_>], suspect: Suspect) -> Option<usize> {
    (1..held.len()).find(|&place| {
        let Held { offset, key } = held[place];
        let is_first = || held[..place].iter().all(|earlier| earlier.key.is_some() && earlier.key != key);
        key.is_some() && Some(offset) > suspect.failed_witness && is_first()
    })
}

#[cfg(test)]
mod tests;
