//! `CRASH_AT`: the process ends itself at a named point, as a crash would. `CRASH_BEFORE_CHARGE`, `CRASH_AFTER_CHARGE`: it
//! does so for each order of such an id, as an event does that kills whoever handles it. For tests only, and in no build without the
//! feature `crash-points`. Where the points are is the business of whoever reaches them.

use std::env;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use core_delivery::crash::{self, CrashPoint, Then};
use core_order::OrderId;

/// Points separated by commas, each with the number of the hit that counts: `before_commit` or `before_commit:2`.
const VARIABLE: &str = "CRASH_AT";

/// What a client's own thread is to write has left the process after this long.
const ON_ITS_WAY: Duration = Duration::from_millis(20);

/// In this time whatever does not wait for what is held has gone far ahead: positions are stored and offsets committed
/// several times.
const HELD: Duration = Duration::from_secs(1);

/// On which side of its charge an order kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// `CRASH_BEFORE_CHARGE`: nothing was sent.
    BeforeTheCharge,
    /// `CRASH_AFTER_CHARGE`: the provider has answered.
    AfterTheCharge,
}

/// Ends the process if the order is one that kills at this moment: the variable has their ids, separated by commas.
pub fn at_order(moment: Moment, order: &OrderId) {
    let variable = match moment {
        Moment::BeforeTheCharge => "CRASH_BEFORE_CHARGE",
        Moment::AfterTheCharge => "CRASH_AFTER_CHARGE",
    };
    let named = env::var(variable).unwrap_or_default();
    if named.split(',').any(|named| named == order.to_string()) {
        eprintln!("{variable}: the process ends here, for order {order}");
        std::process::abort();
    }
}

/// Where the process is to end.
#[derive(Debug)]
struct Trap {
    point: CrashPoint,
    /// Counted from 1.
    hit: u32,
    hits: AtomicU32,
}

/// Reads `CRASH_AT` and ends the process (`SIGABRT`) at what it names.
///
/// # Errors
/// If it names an unknown point; the error names all.
pub fn arm() -> Result<()> {
    let Some(named) = env::var_os(VARIABLE) else { return Ok(()) };
    let named = named.to_str().with_context(|| format!("{VARIABLE} is not UTF-8"))?;
    let traps = traps(named)?;
    ensure!(crash::arm(move |point| fate(&traps, point)), "the crash points are armed");
    Ok(())
}

fn fate(traps: &[Trap], point: CrashPoint) -> Then {
    let ends = traps.iter().filter(|trap| trap.ends_at(point)).count() > 0;
    if ends { end(point) } else { Then::GoOn }
}

/// The end, at once or where something is held a while later.
fn end(point: CrashPoint) -> Then {
    eprintln!("crash point {}: the process ends here", point.name());
    match point {
        CrashPoint::CommitHeld | CrashPoint::CopyHeld => {
            thread::spawn(|| {
                thread::sleep(HELD);
                std::process::abort();
            });
            return Then::Wait;
        }
        CrashPoint::CommitSent | CrashPoint::CopySent => thread::sleep(ON_ITS_WAY),
        _ => {}
    }
    std::process::abort();
}

fn traps(named: &str) -> Result<Vec<Trap>> {
    named.split(',').map(|text| trap(text.trim()).with_context(|| format!("{VARIABLE}={named}"))).collect()
}

fn trap(text: &str) -> Result<Trap> {
    let (name, hit) = match text.split_once(':') {
        None => (text, 1),
        Some((name, hit)) => (name, hit.parse().with_context(|| format!("{hit:?} is no number of a hit"))?),
    };
    ensure!(hit > 0, "hits are counted from 1");
    let point = CrashPoint::ALL.iter().copied().find(|point| point.name() == name).ok_or_else(|| {
        let names: Vec<&str> = CrashPoint::ALL.iter().map(|point| point.name()).collect();
        anyhow!("there is no crash point {name:?}; there are {}", names.join(", "))
    })?;
    Ok(Trap { point, hit, hits: AtomicU32::new(0) })
}

impl Trap {
    /// Counts the hit, and tells whether it is the one.
    fn ends_at(&self, point: CrashPoint) -> bool {
        point == self.point && self.hits.fetch_add(1, Ordering::Relaxed) + 1 == self.hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(named: &str) -> Result<Vec<(CrashPoint, u32)>> {
        Ok(traps(named)?.iter().map(|trap| (trap.point, trap.hit)).collect())
    }

    #[test]
    fn points_are_read_with_the_hit_that_counts() {
        let expected = [(CrashPoint::AfterClaim, 1), (CrashPoint::CommitSent, 3)];
        assert_eq!(read("after_claim, commit_sent:3").expect("known"), expected);
    }

    #[test]
    fn what_is_unknown_is_refused_with_all_names() {
        let error = format!("{:#}", read("after_claim,nowhere").expect_err("unknown"));
        assert!(CrashPoint::ALL.iter().all(|point| error.contains(point.name())), "{error}");
        for wrong in ["", "after_claim:0", "after_claim:x", "After_claim"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_hit_that_counts_is_the_end() {
        let trap = trap("after_claim:2").expect("known");
        let seen = [CrashPoint::AfterClaim, CrashPoint::AfterAdmit, CrashPoint::AfterClaim, CrashPoint::AfterClaim];
        assert_eq!(seen.map(|point| trap.ends_at(point)), [false, false, true, false]);
    }
}
