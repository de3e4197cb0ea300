//! Which points lie on which path, and which of their hits are tried. A table, and nothing that runs.

use core_delivery::crash::CrashPoint;

use crate::trial::{Armed, Trial};

/// A way that events take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    /// Delivered for the first time, and charged.
    Fresh,
    /// Delivered again after it was charged.
    Duplicate,
    /// The first try fails, the second comes from the tier and succeeds.
    Retry,
    /// Declined, or not to be read.
    DeadLetter,
    /// A letter that was sent round again after the provider changed its mind.
    Replay,
    /// The call takes longer than its unit may.
    Straggler,
    /// SIGTERM while the calls of a unit run.
    Stop,
    /// Old claims are removed, and no event is on its way.
    Expiry,
    /// The operator's command that sends letters round again.
    Command,
}

impl Path {
    pub(crate) const ALL: [Self; 9] = [
        Self::Fresh,
        Self::Duplicate,
        Self::Retry,
        Self::DeadLetter,
        Self::Replay,
        Self::Straggler,
        Self::Stop,
        Self::Expiry,
        Self::Command,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Duplicate => "duplicate",
            Self::Retry => "retry",
            Self::DeadLetter => "dead letter",
            Self::Replay => "replay",
            Self::Straggler => "straggler",
            Self::Stop => "stop",
            Self::Expiry => "expiry",
            Self::Command => "dlq replay",
        }
    }
}

/// What is done about a point on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The process ends there, at each of these hits, in a trial of its own.
    Tried(&'static [u32]),
    /// It is met before the path differs from that of a first delivery.
    AsFresh,
    /// It is not met; why.
    Absent(&'static str),
}

const FIRST: Cell = Cell::Tried(&[1]);

/// The table.
pub(crate) fn cell(path: Path, point: CrashPoint) -> Cell {
    use CrashPoint as P;
    match (path, point) {
        (Path::Expiry, P::PartitionDetached) => FIRST,
        (Path::Expiry, _) => Cell::Absent("no event is on its way"),
        (Path::Command, P::CopyHeld | P::CopySent | P::ReplaySent) => FIRST,
        (Path::Command, _) => Cell::Absent("the command consumes nothing"),
        (_, P::PartitionDetached) => Cell::Absent("no claim is old"),
        (_, P::ReplaySent) => Cell::Absent("only the command replays"),

        (Path::Stop, P::AfterClaim | P::AfterAdmit) => Cell::AsFresh,
        (Path::Stop, P::DuringDrain) => FIRST,
        (_, P::DuringDrain) => Cell::Absent("no unit runs when it is stopped"),

        (Path::Straggler, P::StragglerReleased) => Cell::Tried(&[1, 2]),
        (Path::Straggler, P::StragglerTakenUp) => FIRST,
        (_, P::StragglerReleased | P::StragglerTakenUp) => Cell::Absent("no call outlives its unit"),

        (Path::Duplicate, P::AfterAdmit | P::AfterPerform | P::AfterRecord) => Cell::Absent("nothing is claimed"),
        (Path::DeadLetter, P::AfterRecord) => Cell::Absent("nothing is done"),

        // Of three events: the first and the last copy, and then the tier's unit after the source's two.
        (Path::Retry, P::CopyHeld | P::CopySent | P::CopyAcknowledged) => Cell::Tried(&[1, 3]),
        (Path::Retry, P::AfterClaim | P::AfterAdmit | P::AfterPerform) => Cell::Tried(&[1, 2]),
        (Path::Retry, P::BeforeCommit | P::CommitHeld | P::CommitSent | P::AfterCommit) => Cell::Tried(&[1, 2, 3]),
        (Path::Retry, P::AfterSettle) => Cell::Tried(&[1, 4]),
        (Path::DeadLetter, P::CopyHeld | P::CopySent | P::CopyAcknowledged | P::AfterSettle) => Cell::Tried(&[1, 3]),
        (Path::DeadLetter, P::CommitHeld) => Cell::Tried(&[1, 2]),
        (Path::Retry | Path::DeadLetter, P::PositionOutsideUnit) => FIRST,
        (_, P::CopyHeld | P::CopySent | P::CopyAcknowledged) => Cell::Absent("nothing is copied"),
        (_, P::PositionOutsideUnit) => Cell::Absent("every verdict is a unit's"),

        // The unit that lets the calls go, and the one that records them.
        (
            Path::Straggler,
            P::AfterClaim | P::AfterAdmit | P::BeforeCommit | P::CommitHeld | P::CommitSent | P::AfterCommit,
        ) => Cell::Tried(&[1, 2]),
        _ => FIRST,
    }
}

/// A trial for each hit of the table, and for each path one that meets none of the points that are not on it.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for path in Path::ALL {
        let mut absent = Vec::new();
        for &point in CrashPoint::ALL {
            match cell(path, point) {
                Cell::Tried(hits) => {
                    trials.extend(hits.iter().map(|&hit| Trial { path, armed: Armed::Fatal(point, hit) }));
                }
                Cell::Absent(_) => absent.push(point),
                Cell::AsFresh => {}
            }
        }
        trials.push(Trial { path, armed: Armed::Harmless(absent) });
    }
    trials
}
