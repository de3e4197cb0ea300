//! A lane of records some of which kill, run by the machine over and over until it is through.

use proptest::prelude::*;

use super::*;

const BATCH: usize = 64;

/// How many records are delivered at a time.
const DELIVERED: usize = 200;

/// What ends the process.
#[derive(Debug, Clone, Default)]
struct Deadly {
    /// Whoever runs it dies.
    always: Vec<usize>,
    /// Whoever runs both together dies.
    together: Option<(usize, usize)>,
}

impl Deadly {
    fn is(&self, running: &[usize]) -> bool {
        let both = self.together.is_some_and(|(one, other)| running.contains(&one) && running.contains(&other));
        both || running.iter().any(|record| self.always.contains(record))
    }
}

/// A lane, what is stored of it, and what became of its records.
struct Scene {
    deadly: Deadly,
    records: usize,
    stored: Option<Search>,
    is_owned: bool,
    done: Vec<bool>,
    /// The first that is not done.
    first: usize,
    struck_out: Vec<usize>,
    deaths: usize,
}

/// How a life of the process ended.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    Died,
    Through,
}

impl Scene {
    fn new(records: usize, deadly: Deadly) -> Self {
        let done = vec![false; records];
        Self { deadly, records, stored: None, is_owned: false, done, first: 0, struck_out: vec![], deaths: 0 }
    }

    fn position(&mut self) -> usize {
        while self.done.get(self.first) == Some(&true) {
            self.first += 1;
        }
        self.first
    }

    /// One life, which is ended from outside after so many ticks: one for each run, and one for each note.
    fn live(&mut self, mut ticks: usize) -> Life {
        let end = Committable(self.records as i64);
        let position = Committable(self.position() as i64);
        let mut search = match (self.is_owned, self.stored.take()) {
            (true, found) => Some(Search::after_death(found, position, end, BATCH)),
            (false, found) => found.map(Search::handed_over),
        };
        (self.is_owned, self.stored) = (true, search.clone());
        let mut tick = || {
            let lives = ticks > 0;
            ticks = ticks.saturating_sub(1);
            lives
        };
        loop {
            let first = self.position();
            let open: Vec<usize> = (first..self.records).filter(|record| !self.done[*record]).take(DELIVERED).collect();
            if open.is_empty() && search.is_none() {
                (self.is_owned, self.stored) = (false, None);
                return Life::Through;
            }
            let keys: Vec<[u8; 1]> = open.iter().map(|record| [(record % 7) as u8]).collect();
            let held: Vec<Held<'_>> = open
                .iter()
                .zip(&keys)
                .map(|(record, key)| Held { offset: Offset(*record as i64), key: Some(key) })
                .collect();
            let position = Some(Committable(first as i64));
            let step = search.as_mut().map_or(Step::Together(BATCH.min(open.len())), |it| it.next(&held, position));
            match step {
                Step::Over | Step::AwaitRecords => (search, self.stored) = (None, None),
                Step::Together(count) => {
                    let running = &open[..count];
                    if !tick() || self.deadly.is(running) {
                        self.deaths += 1;
                        return Life::Died;
                    }
                    running.iter().for_each(|record| self.done[*record] = true);
                    search.iter_mut().for_each(|search| search.passed(count));
                }
                Step::Alone(place, treatment) => {
                    let search = search.as_mut().expect("a search runs");
                    search.begins(Offset(open[place] as i64));
                    let noted = tick();
                    if noted {
                        self.stored = Some(search.clone());
                    }
                    let kills = treatment == Treatment::Perform && self.deadly.is(&open[place..=place]);
                    if !noted || !tick() || kills {
                        self.deaths += 1;
                        return Life::Died;
                    }
                    self.done[open[place]] = true;
                    if treatment != Treatment::Perform {
                        self.struck_out.push(open[place]);
                    }
                    search.ended(Ran::Performed);
                    search.passed(usize::from(place == 0));
                    if !tick() {
                        self.deaths += 1;
                        return Life::Died;
                    }
                    self.stored = Some(search.clone());
                }
                Step::Rest => {
                    (0..600).for_each(|_| {
                        tick();
                    });
                    if !tick() {
                        self.deaths += 1;
                        return Life::Died;
                    }
                    search.as_mut().expect("a search runs").rested();
                }
            }
        }
    }

    fn live_on(&mut self) {
        for _ in 0..1_000 {
            if self.live(usize::MAX) == Life::Through {
                return;
            }
        }
        panic!("it is never through: {:?}", self.stored);
    }
}

fn one(culprit: usize) -> Deadly {
    Deadly { always: vec![culprit], together: None }
}

/// From 64 in flight to one alone are seven deaths; then one that names the suspect, and three that count.
const DEATHS_FOR_ONE: usize = 7 + 1 + 3;

proptest! {
    #[test]
    fn one_culprit_is_struck_out_after_as_many_deaths_as_the_batch_can_be_halved(
        (records, culprit) in (1_usize..400).prop_flat_map(|records| (Just(records), 0..records)),
    ) {
        let mut scene = Scene::new(records, one(culprit));
        scene.live_on();
        prop_assert_eq!(&scene.struck_out, &[culprit]);
        prop_assert!(scene.deaths <= DEATHS_FOR_ONE, "{} deaths", scene.deaths);
    }

    #[test]
    fn of_several_culprits_each_is_struck_out_and_nothing_else(
        culprits in prop::collection::btree_set(0_usize..300, 2..6),
    ) {
        let culprits: Vec<usize> = culprits.into_iter().collect();
        let mut scene = Scene::new(300, Deadly { always: culprits.clone(), together: None });
        scene.live_on();
        prop_assert_eq!(&scene.struck_out, &culprits);
        // A culprit that was to be the witness of another one costs one more death.
        prop_assert!(scene.deaths <= culprits.len() * (DEATHS_FOR_ONE + culprits.len()), "{} deaths", scene.deaths);
    }

    #[test]
    fn what_kills_only_in_company_is_passed_and_nobody_is_struck_out(
        one in 0_usize..300, other in 0_usize..300, steps in 0_usize..5,
    ) {
        prop_assume!(one != other);
        let mut scene = Scene::new(300, Deadly { always: vec![], together: Some((one, other)) });
        for _ in 0..steps {
            scene.live(3);
        }
        scene.live_on();
        prop_assert_eq!(&scene.struck_out, &Vec::<usize>::new());
    }

    /// The lives are of any length, from none at all to far beyond the search.
    #[test]
    fn a_hundred_ends_from_outside_strike_nobody_out(lives in prop::collection::vec(0_usize..60, 100)) {
        let mut scene = Scene::new(20_000, Deadly::default());
        for ticks in lives {
            scene.live(ticks);
        }
        prop_assert_eq!(&scene.struck_out, &Vec::<usize>::new());
        scene.live_on();
        prop_assert_eq!(&scene.struck_out, &Vec::<usize>::new());
    }

    /// Too short to do anything: nothing is known, and nobody is accused.
    #[test]
    fn lives_that_are_too_short_for_one_record_accuse_nobody(lives in prop::collection::vec(0_usize..2, 100)) {
        let mut scene = Scene::new(100, Deadly::default());
        for ticks in lives {
            scene.live(ticks);
        }
        let strikes = scene.stored.as_ref().and_then(|search| search.suspect).map_or(0, |suspect| suspect.strikes);
        prop_assert!(strikes <= 1, "{:?}", scene.stored);
        scene.live_on();
        prop_assert_eq!(&scene.struck_out, &Vec::<usize>::new());
    }

    #[test]
    fn a_culprit_is_found_among_ends_from_outside(culprit in 0_usize..300, lives in prop::collection::vec(0_usize..60, 100)) {
        let mut scene = Scene::new(300, one(culprit));
        for ticks in lives {
            scene.live(ticks);
        }
        scene.live_on();
        prop_assert_eq!(&scene.struck_out, &[culprit]);
    }
}

#[test]
fn a_culprit_with_nobody_beside_it_is_struck_out_after_rests() {
    let mut scene = Scene::new(1, one(0));
    assert_eq!(scene.live(500), Life::Died);
    scene.live_on();
    assert_eq!(scene.struck_out, [0]);
}

#[test]
fn a_lane_that_is_given_away_in_the_middle_of_a_search_hands_it_over() {
    let found = Search::after_death(None, Committable(10), Committable(500), BATCH);
    let (window, left) = (found.window, found.left);
    let next = Search { alone: Some(Offset(12)), ..found }.handed_over();
    assert_eq!((next.window, next.left, next.alone, next.suspect), (window, left, None, None));
}

#[test]
fn a_death_without_the_suspect_takes_its_strikes_back() {
    let suspect = Suspect { offset: Offset(4), strikes: 2, failed_witness: None };
    let search = Search {
        window: 1,
        left: 1,
        end: Committable(9),
        alone: Some(Offset(6)),
        witnessed: false,
        suspect: Some(suspect),
    };
    let search = Search::after_death(Some(search), Committable(4), Committable(9), BATCH);
    assert_eq!(search.suspect, Some(Suspect { strikes: 0, failed_witness: Some(Offset(6)), ..suspect }));
}

#[test]
fn a_witness_is_of_another_key_and_overtakes_nothing_of_its_own() {
    let suspect = Suspect { offset: Offset(1), strikes: 0, failed_witness: None };
    let held = |keys: &[&'static str]| -> Vec<Held<'static>> {
        (1..).zip(keys).map(|(offset, key)| Held { offset: Offset(offset), key: Some(key.as_bytes()) }).collect()
    };
    assert_eq!(witness(&held(&["a", "a", "a"]), suspect), None);
    assert_eq!(witness(&held(&["a", "a", "b", "c"]), suspect), Some(2));
    let failed = Suspect { failed_witness: Some(Offset(3)), ..suspect };
    assert_eq!(witness(&held(&["a", "a", "b", "b"]), failed), None, "the failed one is before it");
    assert_eq!(witness(&held(&["a", "a", "b", "c"]), failed), Some(3));
}
