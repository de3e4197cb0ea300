//! The part of the contract that is about the marks of lanes: what was written is found again, and neither a former owner
//! nor an older mark replaces it.

use super::new_group;
use crate::event::EventId;
use crate::ports::{LaneLog, LaneMark, MarkAnswer, Owner, Search, Standing, Suspect, UnitOfWorkFactory};
use crate::record::{Committable, LaneId, LogIdentity, Offset, Topic};

use MarkAnswer::{Superseded, Written};

pub(super) async fn keep_the_contract<F: UnitOfWorkFactory>(store: &F) {
    a_mark_is_found_as_it_was_written(store).await;
    a_former_owner_replaces_nothing(store).await;
    an_older_mark_replaces_nothing(store).await;
    logs_lanes_and_groups_have_marks_of_their_own(store).await;
}

fn lane() -> LaneLog {
    LaneLog {
        group: new_group(),
        lane: LaneId { topic: Topic::new("contract"), partition: 3 },
        identity: LogIdentity { cluster: "cluster".into(), topic: "topic".into() },
    }
}

fn owner(epoch: u64) -> Owner {
    Owner { process: EventId::generate().as_uuid(), epoch }
}

fn owned(owner: Owner, revision: i64) -> LaneMark {
    LaneMark { owner, standing: Standing::Owned, revision, search: None, given_up: vec![] }
}

async fn set<F: UnitOfWorkFactory>(store: &F, lane: &LaneLog, from: Option<Owner>, to: &LaneMark) -> MarkAnswer {
    store.set_mark(lane, from, to).await.expect("the store answers")
}

async fn found<F: UnitOfWorkFactory>(store: &F, lane: &LaneLog) -> Option<LaneMark> {
    store.mark(lane).await.expect("the store answers")
}

async fn a_mark_is_found_as_it_was_written<F: UnitOfWorkFactory>(store: &F) {
    let (lane, owner) = (lane(), owner(7));
    assert_eq!(found(store, &lane).await, None);
    let bare = Search {
        window: 1_000,
        left: 20_000,
        end: Committable(5_000_000_000),
        alone: None,
        witnessed: false,
        suspect: None,
    };
    let suspect = Suspect { offset: Offset(4_999_999_998), strikes: 2, failed_witness: None };
    let failed = Suspect { failed_witness: Some(Offset(4_999_999_999)), ..suspect };
    let alone = Search { window: 1, alone: Some(Offset(4_999_999_998)), witnessed: true, ..bare.clone() };
    let searches = [
        None,
        Some(bare),
        Some(Search { suspect: Some(suspect), ..alone.clone() }),
        Some(Search { suspect: Some(failed), ..alone }),
        None,
    ];
    let mut from = None;
    for (search, revision) in searches.into_iter().zip(0..) {
        for standing in [Standing::Owned, Standing::Clean] {
            let given_up = vec![Offset(5_000_000_001), Offset(7)].into_iter().skip(revision as usize).collect();
            let mark = LaneMark { owner, standing, revision, search: search.clone(), given_up };
            assert_eq!(set(store, &lane, from, &mark).await, Written);
            assert_eq!(found(store, &lane).await, Some(mark));
            from = Some(owner);
        }
    }
}

async fn a_former_owner_replaces_nothing<F: UnitOfWorkFactory>(store: &F) {
    let (lane, first) = (lane(), owner(1));
    let (again, other) = (Owner { epoch: 2, ..first }, owner(1));
    assert_eq!(set(store, &lane, None, &owned(first, 0)).await, Written);
    assert_eq!(set(store, &lane, None, &owned(other, 1)).await, Superseded, "there is one");
    for new in [again, other] {
        let last = found(store, &lane).await.expect("there is a mark");
        let taken = owned(new, last.revision + 1);
        assert_eq!(set(store, &lane, Some(last.owner), &taken).await, Written);
        let late = LaneMark { standing: Standing::Clean, revision: 100, ..last };
        assert_eq!(set(store, &lane, Some(late.owner), &late).await, Superseded);
        assert_eq!(found(store, &lane).await, Some(taken));
    }
}

async fn an_older_mark_replaces_nothing<F: UnitOfWorkFactory>(store: &F) {
    let (lane, owner) = (lane(), owner(1));
    assert_eq!(set(store, &lane, None, &owned(owner, 0)).await, Written);
    let released = LaneMark { standing: Standing::Clean, ..owned(owner, 5) };
    assert_eq!(set(store, &lane, Some(owner), &released).await, Written);
    assert_eq!(set(store, &lane, Some(owner), &owned(owner, 4)).await, Superseded);
    assert_eq!(set(store, &lane, Some(owner), &released).await, Written, "whoever did not hear the answer asks again");
    assert_eq!(found(store, &lane).await, Some(released));
}

async fn logs_lanes_and_groups_have_marks_of_their_own<F: UnitOfWorkFactory>(store: &F) {
    let one = lane();
    let identity = LogIdentity { topic: "made anew".into(), ..one.identity.clone() };
    let lanes = [
        LaneLog { group: new_group(), ..one.clone() },
        LaneLog { lane: LaneId { partition: 4, ..one.lane.clone() }, ..one.clone() },
        LaneLog { identity, ..one.clone() },
        one,
    ];
    let marks: Vec<LaneMark> = (0..4).map(|epoch| owned(owner(epoch), 0)).collect();
    for (lane, mark) in lanes.iter().zip(&marks) {
        assert_eq!(set(store, lane, None, mark).await, Written);
    }
    for (lane, mark) in lanes.iter().zip(marks) {
        assert_eq!(found(store, lane).await, Some(mark));
    }
}
