//! What is delivered and not settled is bounded, and the member stays in its group all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use adapters_kafka::KafkaSettings;
use core_delivery::record::{LaneId, Topic};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::broker::{LIMIT, committed_becomes, numbers, produce, settings, topic, unique};
use crate::member::Member;

/// One wake reads at most this much beyond the limit.
const BURST: usize = 1_000;

#[tokio::test]
async fn a_lane_without_progress_is_held_at_its_limit_and_the_member_stays() {
    let (topic, group) = (topic("limit", 1).await, unique("group"));
    produce(&topic, 0, numbers(0..5_000)).await;
    let mut settings = settings();
    settings.lane_records_max = 100;
    settings.session_timeout = Duration::from_secs(2);
    settings.drain_limit = Duration::from_secs(1);
    // A member that stopped polling would be put out of the group after this time.
    settings.properties.push(("max.poll.interval.ms".into(), "2000".into()));
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.count(0) >= 100).await;
    member.for_a_while(Duration::from_secs(4)).await;
    assert!(member.count(0) <= 100 + BURST, "{} records were delivered", member.count(0));
    assert!(member.lost.is_empty() && member.revoked.is_empty());

    while member.count(0) < 5_000 {
        member.settle_all();
        assert!(member.step().await);
    }
    let expected: Vec<String> = numbers(0..5_000).collect();
    assert_eq!(member.payloads(0), expected);
    assert!(member.lost.is_empty(), "pausing repeats nothing");
    member.stop().await;
}

#[tokio::test]
async fn bytes_have_a_limit_too() {
    let (topic, group) = (topic("bytes", 1).await, unique("group"));
    produce(&topic, 0, (0..200).map(|_| "x".repeat(100_000))).await;
    let mut settings = settings();
    settings.lane_bytes_max = 1_000_000;
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.count(0) >= 10).await;
    member.for_a_while(Duration::from_secs(1)).await;
    // The limit and one burst of 4 MiB.
    assert!(member.count(0) <= 53, "{} records were delivered", member.count(0));
    while member.count(0) < 200 {
        member.settle_all();
        assert!(member.step().await);
    }
    member.stop().await;
}

#[tokio::test]
async fn a_full_lane_does_not_hold_up_another_one() {
    let (topic, group) = (topic("other", 2).await, unique("group"));
    produce(&topic, 0, numbers(0..5_000)).await;
    let mut settings = settings();
    settings.lane_records_max = 10;
    let mut member = Member::start(&settings, &group, &topic);
    member.until(|m| m.count(0) >= 10).await;
    produce(&topic, 1, numbers(0..3)).await;
    member.until(|m| m.count(1) == 3).await;
    member.stop().await;
}

#[tokio::test]
async fn a_lane_that_was_paused_when_it_left_is_read_when_it_comes_back() {
    let (topic, group) = (topic("unpause", 2).await, unique("group"));
    for partition in 0..2 {
        produce(&topic, partition, numbers(0..3_000)).await;
    }
    let mut settings = settings();
    settings.lane_records_max = 10;
    let mut first = Member::start(&settings, &group, &topic);
    first.until(|m| m.count(0) >= 10 && m.count(1) >= 10).await;
    let mut second = Member::start(&settings, &group, &topic);
    first.until(|m| !m.revoked.is_empty()).await;
    let moved = first.revoked[0].clone();
    first.control.released(&moved);
    let partition = moved.lane.partition;
    second.until(|m| m.count(partition) >= 10).await;
    // The lane that stayed is still paused.
    let kept = 1 - partition;
    assert!(first.count(kept) <= 10 + BURST);
    second.stop().await;
    first.until(|m| m.owns(partition) && m.count(partition) >= 10).await;
    while first.count(0) < 3_000 || first.count(1) < 3_000 {
        first.settle_all();
        assert!(first.step().await);
    }
    let expected: Vec<String> = numbers(0..3_000).collect();
    assert_eq!(first.payloads(0), expected);
    assert_eq!(first.payloads(1), expected);
    first.stop().await;
}

/// How many partitions there are, how many records are written to each at a time, and how often a second member comes.
const MOVING: i32 = 4;
const AT_A_TIME: usize = 300;
const VISITS: usize = 6;

/// What members have settled, by lane and offset.
type Settled = BTreeSet<(LaneId, i64)>;

/// A member that settles slowly.
struct Slow {
    stop: watch::Sender<bool>,
    count: watch::Receiver<usize>,
    running: JoinHandle<Settled>,
}

impl Slow {
    /// Its lanes are full and paused nearly all the time, and now and then it gives one up and restarts it, which leads
    /// the client to an offset.
    fn start(settings: &KafkaSettings, group: &str, topic: &Topic) -> Self {
        let mut member = Member::start(settings, group, topic);
        let ((stop, stopped), (counted, count)) = (watch::channel(false), watch::channel(0));
        let running = tokio::spawn(async move {
            let (mut settled, mut released, mut turns) = (Settled::new(), 0, 0_usize);
            while !*stopped.borrow() {
                member.for_a_while(Duration::from_millis(5)).await;
                for (lane, records) in &member.records {
                    if member.owned.contains_key(lane) {
                        settled.extend(records.iter().map(|record| (lane.clone(), record.offset.0)));
                    }
                }
                counted.send_replace(settled.len());
                member.settle_all();
                for assignment in &member.revoked[released..] {
                    member.control.released(assignment);
                }
                released = member.revoked.len();
                turns += 1;
                // One that has read something: on a slow machine all would be restarted for ever.
                let mut read = member.owned.values().filter(|owned| !member.records[&owned.lane].is_empty());
                if turns.is_multiple_of(20)
                    && let Some(assignment) = read.nth(turns / 20 % 2)
                {
                    member.control.restart(assignment);
                }
            }
            member.stop().await;
            settled
        });
        Self { stop, count, running }
    }

    async fn has_settled(&mut self, count: usize) {
        let waited = timeout(LIMIT, self.count.wait_for(|settled| *settled >= count)).await;
        waited.expect("it settles within the limit").expect("it works");
    }

    async fn stop(self) -> Settled {
        self.stop.send_replace(true);
        self.running.await.expect("it works to its end")
    }
}

/// O9: lanes are paused, resumed and led to offsets all the time while their partitions are taken away and given back.
/// None of it reaches a partition that is another's by then, both members go on, and every record is settled.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_are_taken_away_while_they_are_paused_or_led_break_no_member() {
    let (topic, group) = (topic("moving", MOVING).await, unique("group"));
    let mut tight = settings();
    tight.lane_records_max = 10;
    tight.drain_limit = Duration::from_secs(2);
    let first = Slow::start(&tight, &group, &topic);
    let (enough, is_enough) = watch::channel(false);
    let flow = {
        let topic = topic.clone();
        tokio::spawn(async move {
            let mut written = 0;
            while !*is_enough.borrow() {
                for partition in 0..MOVING {
                    produce(&topic, partition, numbers(written..written + AT_A_TIME)).await;
                }
                written += AT_A_TIME;
            }
            written
        })
    };
    let mut settled = Settled::new();
    for visit in 1..=VISITS {
        let mut second = Slow::start(&tight, &group, &topic);
        second.has_settled(visit * 100).await;
        settled.extend(second.stop().await);
    }
    enough.send_replace(true);
    let written = i64::try_from(flow.await.expect("it writes to its end")).expect("few");
    for partition in 0..MOVING {
        committed_becomes(&group, &topic, partition, written).await;
    }
    settled.extend(first.stop().await);
    let lane = |partition| LaneId { topic: topic.clone(), partition };
    let expected = (0..MOVING).flat_map(|partition| (0..written).map(move |offset| (partition, offset)));
    let expected = expected.map(|(partition, offset)| (lane(partition), offset));
    assert!(settled.into_iter().eq(expected), "every record was settled by one of them");
}
