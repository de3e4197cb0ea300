//! Where every decision of a run comes from: a tape of choices, drawn from a seed or given. Zero is always the most
//! harmless choice, and behind its end the tape is all zeros: so a shorter tape is a simpler run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The tape. Clones share it.
#[derive(Clone)]
pub struct Choices(Arc<Mutex<Tape>>);

struct Tape {
    source: Source,
    taken: Vec<u32>,
    calm: bool,
    notes: Option<Vec<String>>,
}

enum Source {
    Seed(u64),
    Given(Vec<u32>),
}

impl Choices {
    /// Choices that depend on nothing but the seed, until [`Choices::end`]. With `noted`, what they meant is kept.
    pub fn of_seed(seed: u64, noted: bool) -> Self {
        Self::new(Source::Seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)), noted)
    }

    /// These choices, and then zeros.
    pub fn given(tape: Vec<u32>, noted: bool) -> Self {
        Self::new(Source::Given(tape), noted)
    }

    fn new(source: Source, noted: bool) -> Self {
        let notes = noted.then(Vec::new);
        Self(Arc::new(Mutex::new(Tape { source, taken: vec![], calm: false, notes })))
    }

    /// One of `n` possibilities.
    pub fn pick(&self, n: usize) -> usize {
        let mut tape = self.lock();
        if n <= 1 || tape.calm {
            return 0;
        }
        let position = tape.taken.len();
        let drawn = match &mut tape.source {
            Source::Seed(state) => next(state),
            Source::Given(given) => given.get(position).copied().map_or(0, u64::from),
        };
        let choice = (drawn % n as u64) as u32;
        tape.taken.push(choice);
        if matches!(&tape.source, Source::Given(given) if tape.taken.len() >= given.len()) {
            tape.calm = true;
        }
        choice as usize
    }

    /// True in `rate` of 256 cases. A rate of zero costs no choice.
    pub fn chance(&self, rate: usize) -> bool {
        rate > 0 && self.pick(256) >= 256 - rate
    }

    /// From here on all choices are zeros.
    pub fn end(&self) {
        self.lock().calm = true;
    }

    /// Whether only zeros follow: nothing fails any more.
    pub fn are_over(&self) -> bool {
        self.lock().calm
    }

    /// What was chosen.
    pub fn taken(&self) -> Vec<u32> {
        self.lock().taken.clone()
    }

    /// Says what happened, for the one who reads a schedule.
    pub fn note(&self, text: impl FnOnce() -> String) {
        let mut tape = self.lock();
        if let Some(notes) = &mut tape.notes {
            notes.push(text());
        }
    }

    /// What happened.
    pub fn notes(&self) -> Vec<String> {
        self.lock().notes.clone().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Tape> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next number of a SplitMix64 sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A tape as it is printed: `0x12` stands for twelve zeros.
pub fn print(tape: &[u32]) -> String {
    let parts = tape.chunk_by(|one, next| one == next).map(|same| match same {
        [choice] => choice.to_string(),
        _ => format!("{}x{}", same[0], same.len()),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// The tape that was printed.
pub fn parse(text: &str) -> Option<Vec<u32>> {
    let parts = text.split(',').map(|part| match part.trim().split_once('x') {
        None => Some(vec![part.trim().parse().ok()?]),
        Some((choice, times)) => Some(vec![choice.parse().ok()?; times.parse().ok()?]),
    });
    Some(parts.collect::<Option<Vec<_>>>()?.concat())
}

/// Makes a failing tape small: `fails` says whether a tape still fails in the same way, and is asked at most `tries`
/// times.
pub fn shrink(mut tape: Vec<u32>, mut tries: usize, fails: impl Fn(&[u32]) -> bool) -> Vec<u32> {
    let mut attempt = |candidate: Vec<u32>, tape: &mut Vec<u32>| {
        let worth = tries > 0 && candidate != *tape && fails(&candidate);
        tries = tries.saturating_sub(1);
        if worth {
            *tape = candidate;
            while tape.last() == Some(&0) {
                tape.pop();
            }
        }
        worth
    };
    loop {
        let before = tape.clone();
        let mut size = tape.len().next_power_of_two();
        while size > 0 {
            for (deletes, start) in [true, false]
                .into_iter()
                .flat_map(|way| (0..before.len().div_ceil(size)).rev().map(move |chunk| (way, chunk * size)))
            {
                let end = tape.len().min(start + size);
                if start >= end || !deletes && tape[start..end].iter().all(|choice| *choice == 0) {
                    continue;
                }
                let mut candidate = tape.clone();
                if deletes {
                    drop(candidate.drain(start..end));
                } else {
                    candidate[start..end].fill(0);
                }
                attempt(candidate, &mut tape);
            }
            size /= 2;
        }
        for index in (0..tape.len()).rev() {
            let choice = tape.get(index).copied().unwrap_or(0);
            for smaller in [1, choice / 2, choice.saturating_sub(1)] {
                if tape.get(index).is_some_and(|choice| smaller > 0 && smaller < *choice) {
                    let mut candidate = tape.clone();
                    candidate[index] = smaller;
                    attempt(candidate, &mut tape);
                }
            }
        }
        if tape == before {
            return tape;
        }
    }
}

#[test]
fn a_tape_shrinks_to_what_its_failure_needs() {
    let tape: Vec<u32> = (0..398).map(|index| index % 7).collect();
    let fails =
        |tape: &[u32]| tape.get(1).is_some_and(|choice| *choice >= 3) && tape.last() >= Some(&3) && tape.len() > 2;
    assert_eq!(shrink(tape, 5_000, fails), [0, 3, 3]);
}

#[test]
fn a_tape_that_is_given_again_gives_the_same_choices() {
    let drawn = Choices::of_seed(7, false);
    let first: Vec<usize> = (2..60).map(|n| drawn.pick(n)).collect();
    let again = Choices::given(drawn.taken(), false);
    assert_eq!((2..60).map(|n| again.pick(n)).collect::<Vec<_>>(), first);
    assert!(again.are_over() && again.pick(9) == 0);
    let tape = [0, 0, 0, 5, 7, 7];
    assert_eq!((print(&tape).as_str(), parse("0x3,5,7x2").as_deref()), ("0x3,5,7x2", Some(tape.as_slice())));
}
