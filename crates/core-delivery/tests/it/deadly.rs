//! An event that kills whoever handles it: each life of the process is a runtime of its own, over one store, and ends with
//! everything that runs in it.

use std::sync::Arc;
use std::time::Duration;

use core_delivery::claim::ConsumerGroup;
use core_delivery::ports::{LaneMark, Search, Standing, Suspect, UnitOfWorkFactory};
use core_delivery::record::{Committable, LaneId, Offset, OutgoingRecord, Record, Topic};
use core_delivery::testing::{MemoryStore, Script};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::support::{Act, DEADLY_TO_READ, Note, Scripted, World, note, raw, record};

/// A log that many lives of a process consume.
struct Lives {
    store: MemoryStore,
    log: Vec<Record>,
    deadly: Vec<Note>,
    /// By how many records the broker's offset is behind the stored position when a life begins.
    lag: Option<i64>,
    deaths: usize,
    letters: Vec<OutgoingRecord>,
    reasons: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Life {
    Died,
    Through,
}

fn keyed(offset: i64, note: &Note) -> Record {
    Record { key: Some(note.key.clone().into_bytes().into()), ..record(offset, note) }
}

fn notes(count: u8) -> Vec<Note> {
    (1..=count).map(|number| note(number, &format!("key-{}", number % 7))).collect()
}

fn process() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

impl Lives {
    fn of(notes: &[Note], deadly: &[&Note]) -> Self {
        let log = (0..).zip(notes).map(|(offset, note)| keyed(offset, note)).collect();
        Self {
            store: MemoryStore::default(),
            log,
            deadly: deadly.iter().map(|note| (*note).clone()).collect(),
            lag: None,
            deaths: 0,
            letters: vec![],
            reasons: vec![],
        }
    }

    fn position(&self) -> i64 {
        let lane = LaneId { topic: Topic::new("orders"), partition: 0 };
        self.store.position(&ConsumerGroup::new("g"), &lane).map_or(0, |position| position.0)
    }

    /// Runs until an event kills the process or everything has its verdict and the process was stopped.
    fn live(&mut self) -> Life {
        let process = process();
        let life = process.block_on(async {
            let (handler, dies) = (Scripted::default(), Arc::new(Notify::new()));
            for note in &self.deadly {
                handler.script(note, &[Act::Die(Arc::clone(&dies))]);
            }
            let world = World::start_with(self.store.clone(), handler);
            let committed = self.lag.map(|lag| self.position() - lag).filter(|committed| *committed > 0);
            let lane = world.script.assign_with("orders", 0, Script::arrival(committed));
            world.until("the start", || world.script.started(&lane).is_some()).await;
            let start = world.script.started(&lane).expect("it started");
            let records = self.log.iter().filter(|record| record.offset.0 >= start.0).cloned();
            world.script.deliver(&lane, records.collect());
            let end = self.log.len() as i64;
            let through = async {
                while self.position() < end {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    for reason in world.health.reasons() {
                        if self.reasons.last() != Some(&reason) {
                            self.reasons.push(reason);
                        }
                    }
                    if world.has_ended() {
                        return Life::Died;
                    }
                }
                Life::Through
            };
            let life = tokio::select! {
                () = dies.notified() => Life::Died,
                life = through => life,
                () = tokio::time::sleep(Duration::from_secs(600)) => panic!("neither dead nor through"),
            };
            self.letters.extend(world.publisher.written());
            if life == Life::Through {
                world.stop().await.expect("it stops clean");
            }
            life
        });
        self.deaths += usize::from(life == Life::Died);
        life
    }

    fn live_on(&mut self) {
        for _ in 0..100 {
            if self.live() == Life::Through {
                return;
            }
        }
        panic!("it dies for ever: {:?}", self.store.marks());
    }

    fn texts(&self, notes: &[Note]) -> Vec<String> {
        let mut lines: Vec<String> = notes.iter().map(|note| note.text.clone()).collect();
        lines.sort();
        lines
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = self.store.lines();
        lines.sort();
        lines
    }
}

fn header(letter: &OutgoingRecord, key: &str) -> String {
    let header = letter.headers.iter().find(|header| header.key == key);
    let value = header.and_then(|header| header.value.as_deref()).unwrap_or_default();
    String::from_utf8_lossy(value).into_owned()
}

#[test]
fn an_event_that_kills_whoever_performs_it_becomes_a_dead_letter_and_the_rest_is_applied() {
    let all = notes(40);
    let mut lives = Lives::of(&all, &[&all[17]]);
    lives.live_on();
    assert_eq!(lives.lines(), lives.texts(&[&all[..17], &all[18..]].concat()));
    let [letter] = &*lives.letters else { panic!("{:?}", lives.letters) };
    assert_eq!((letter.topic.as_str(), header(letter, "delivery-origin-offset").as_str()), ("dlq", "17"));
    assert_eq!(header(letter, "delivery-error-class"), "in_doubt", "nobody knows how far those came who died");
    assert!(header(letter, "delivery-error-text").starts_with("kills the process"), "{letter:?}");
    // One in full company, six while a hundred in company become one, one that names it, and three strikes.
    assert!(lives.deaths <= 12, "{} deaths", lives.deaths);
    assert!(lives.reasons.iter().any(|reason| reason.contains("looking for what killed")), "{:?}", lives.reasons);
}

/// What the store has passed is delivered again, and must not be taken for what was in flight at the death.
#[test]
fn a_broker_that_lags_behind_the_store_does_not_lead_the_search_astray() {
    let all = notes(200);
    let mut lives = Lives::of(&all, &[&all[150]]);
    lives.lag = Some(40);
    lives.live_on();
    assert_eq!(lives.lines(), lives.texts(&[&all[..150], &all[151..]].concat()));
    assert_eq!(lives.letters.len(), 1, "{:?}", lives.letters);
    // One in full company, six while a hundred in company become one, one that names it, and three strikes.
    assert!(lives.deaths <= 12, "{} deaths", lives.deaths);
}

#[test]
fn two_events_that_kill_become_two_dead_letters() {
    let all = notes(40);
    let mut lives = Lives::of(&all, &[&all[20], &all[21]]);
    lives.live_on();
    assert_eq!(lives.lines(), lives.texts(&[&all[..20], &all[22..]].concat()));
    let offsets: Vec<String> = lives.letters.iter().map(|it| header(it, "delivery-origin-offset")).collect();
    assert_eq!(offsets, ["20", "21"]);
}

#[test]
fn an_event_that_kills_and_is_alone_in_its_partition_is_struck_out_after_rests() {
    let all = notes(1);
    let mut lives = Lives::of(&all, &[&all[0]]);
    lives.live_on();
    assert_eq!((lives.lines(), lives.letters.len()), (vec![], 1));
}

#[test]
fn a_record_that_kills_whoever_reads_it_becomes_a_dead_letter() {
    let all = notes(20);
    let mut lives = Lives::of(&all, &[]);
    lives.log[9] = Record { key: Some("key-x".into()), ..raw(9, DEADLY_TO_READ) };
    lives.live_on();
    assert_eq!(lives.lines(), lives.texts(&[&all[..9], &all[10..]].concat()));
    let [letter] = &*lives.letters else { panic!("{:?}", lives.letters) };
    assert_eq!(letter.payload.as_deref(), Some(DEADLY_TO_READ.as_bytes()));
    assert_eq!(header(letter, "delivery-error-class"), "in_doubt");
}

#[test]
fn a_process_that_nobody_kills_writes_one_mark_when_it_takes_a_lane_and_one_when_it_gives_it_away() {
    let all = notes(40);
    let mut lives = Lives::of(&all, &[]);
    assert_eq!(lives.live(), Life::Through);
    assert_eq!(lives.store.marks_written(), 2);
    let marks = lives.store.marks();
    assert!(marks.iter().all(|(_, mark)| mark.standing == Standing::Clean && mark.search.is_none()), "{marks:?}");
}

#[test]
fn a_process_that_is_killed_from_outside_costs_nobody_a_letter() {
    let all = notes(200);
    let mut lives = Lives::of(&all, &[]);
    // Each life ends wherever it is after some milliseconds, which are few enough to be in the middle of something.
    for round in 0..40_u64 {
        let process = process();
        process.block_on(async {
            let world = World::start_with(lives.store.clone(), Scripted::default());
            let lane = world.script.assign("orders", 0);
            world.until("the start", || world.script.started(&lane).is_some()).await;
            let start = world.script.started(&lane).expect("it started");
            let records = lives.log.iter().filter(|record| record.offset.0 >= start.0).cloned();
            world.script.deliver(&lane, records.collect());
            tokio::time::sleep(Duration::from_millis(round * 7 % 13)).await;
            lives.letters.extend(world.publisher.written());
        });
    }
    lives.live_on();
    assert_eq!((lives.lines(), lives.letters.len()), (lives.texts(&all), 0));
}

#[test]
fn a_lane_that_is_given_away_in_a_search_hands_it_over_and_a_late_mark_changes_nothing() {
    let all = notes(40);
    let mut lives = Lives::of(&all, &[&all[30]]);
    (0..4).for_each(|_| assert_eq!(lives.live(), Life::Died));
    let process = process();
    process.block_on(async {
        let world = World::start_with(lives.store.clone(), Scripted::default());
        let lane = world.script.assign("orders", 0);
        world.until("the start", || world.script.started(&lane).is_some()).await;
        world.script.revoke(&lane);
        world.until("the release", || world.script.is_released(&lane)).await;
    });
    let marks = lives.store.marks();
    let [(_, mark)] = &*marks else { panic!("{marks:?}") };
    let search = mark.search.clone().expect("the search is not over");
    assert_eq!((mark.standing, search.alone), (Standing::Clean, None));
    assert!(search.window < 50, "four deaths have narrowed it: {search:?}");
}

/// What was done and is not noted as ended yet did not kill: its claim answers before it is given up.
#[test]
fn a_record_that_is_done_is_not_given_up_for_a_death_after_it() {
    let all = notes(10);
    let mut lives = Lives::of(&all, &[]);
    assert_eq!(lives.live(), Life::Through);
    lives.log.extend([keyed(10, &note(11, "key-x"))]);
    let [(lane, mark)] = &*lives.store.marks() else { panic!("one lane") };
    let suspect = Suspect { offset: Offset(9), strikes: 2, failed_witness: None };
    let (alone, suspect) = (Some(suspect.offset), Some(suspect));
    let search = Some(Search { window: 1, left: 1, end: Committable(11), alone, witnessed: true, suspect });
    let died = LaneMark { standing: Standing::Owned, search, ..mark.clone() };
    process().block_on(lives.store.set_mark(lane, Some(mark.owner), &died)).expect("the memory store writes");
    lives.lag = Some(3);
    assert_eq!(lives.live(), Life::Through);
    assert_eq!((lives.lines().len(), lives.letters.len()), (11, 0));
}

/// Its letter is there and no claim is: the broker delivers it again, and nobody may run it again.
#[test]
fn a_record_that_was_given_up_is_not_run_again_when_the_broker_lags_behind() {
    let all = notes(40);
    let mut lives = Lives::of(&all, &[&all[20], &all[23]]);
    lives.lag = Some(30);
    lives.live_on();
    assert_eq!(lives.lines(), lives.texts(&[&all[..20], &all[21..23], &all[24..]].concat()));
    let offsets: Vec<String> = lives.letters.iter().map(|it| header(it, "delivery-origin-offset")).collect();
    assert!(offsets.contains(&"20".to_owned()) && offsets.contains(&"23".to_owned()), "{offsets:?}");
    assert!(offsets.iter().all(|offset| offset == "20" || offset == "23"), "{offsets:?}");
    // Eleven for each; the second one dies as a witness of the first, whose strikes are taken back, once.
    assert!(lives.deaths <= 2 * 11 + 3, "{} deaths", lives.deaths);
}

/// What an operator reads again after the cause is mended is run again.
#[test]
fn what_was_given_up_is_forgotten_when_the_lane_is_given_away() {
    let all = notes(20);
    let mut lives = Lives::of(&all, &[&all[10]]);
    lives.live_on();
    assert!(lives.store.marks().iter().all(|(_, mark)| mark.given_up.is_empty()), "{:?}", lives.store.marks());
    lives.deadly.clear();
    lives.log.extend([keyed(20, &note(21, "key-x"))]);
    lives.lag = Some(15);
    assert_eq!(lives.live(), Life::Through);
    assert_eq!(lives.lines().len(), 21);
}
