//! The mark of a lane: who owns it, whether the last owner let go of it or died, and how far the search for what killed
//! it has come. Plain data; what follows from it is decided in `delivery/search`.

use uuid::Uuid;

use crate::claim::ConsumerGroup;
use crate::record::{Committable, LaneId, LogIdentity, Offset};

/// A lane of a group, in the log that it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneLog {
    /// The group.
    pub group: ConsumerGroup,
    /// The lane.
    pub lane: LaneId,
    /// The log.
    pub identity: LogIdentity,
}

/// One assignment of one lane, told apart from those of all other processes that ever were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The run of the process.
    pub process: Uuid,
    /// Which of its assignments of the lane.
    pub epoch: u64,
}

/// Whether an owner let go of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It owns the lane, or died while it did.
    Owned,
    /// It let go of it, and nothing of it runs any more.
    Clean,
}

/// The mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneMark {
    /// Who wrote it.
    pub owner: Owner,
    /// Whether it still owns the lane.
    pub standing: Standing,
    /// Grows with every mark of the lane, so that one which arrives late replaces none that is newer.
    pub revision: i64,
    /// The search, if something killed an owner and is not found yet.
    pub search: Option<Search>,
    /// The records that were given up because they kill whoever handles them, until an owner lets go of the lane: no claim
    /// answers for them, and a broker that lags behind the store delivers them again.
    pub given_up: Vec<Offset>,
}

/// The answer to a mark that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkAnswer {
    /// It stands.
    Written,
    /// The mark that is there is another owner's, or a newer one; it was left alone.
    Superseded,
}

/// Where the search for a record that kills whoever handles it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// How many records may be in flight together; with one, each is run alone in the process.
    pub window: u32,
    /// How many records, from the stored position on, can have been in flight at the last death.
    pub left: u32,
    /// No record from here on was there at the first death.
    pub end: Committable,
    /// The record that runs alone, noted before it starts.
    pub alone: Option<Offset>,
    /// The process has shown that it lives without the suspect, since the suspect's last strike.
    pub witnessed: bool,
    /// The record that died alone.
    pub suspect: Option<Suspect>,
}

/// A record during whose run alone a process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    /// Where it lies.
    pub offset: Offset,
    /// How often that counts against it.
    pub strikes: u32,
    /// No record up to here is a witness any more: a process died while it ran alone.
    pub failed_witness: Option<Offset>,
}
