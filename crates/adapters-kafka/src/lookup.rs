//! What the brokers know of lanes, asked with a client of its own that joins no group and changes nothing. It blocks,
//! up to its limit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use core_delivery::ports::Arrival;
use core_delivery::record::{Committable, LaneId, LogIdentity, Topic};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::{ClientContext, Offset};

use crate::cluster::hear_the_reason;
use crate::context::Callbacks;
use crate::native::{self, Described};
use crate::positions;
use crate::settings::KafkaSettings;

/// How long one broker of several may take: one that is away must not use up the time of the others.
const BROKER_LIMIT: Duration = Duration::from_secs(3);

/// A connection for one round of questions. What a client remembers of the cluster, its topics and a group's
/// coordinator can be out of date, so each round has a new one.
pub(crate) struct Lookup {
    client: BaseConsumer<Callbacks>,
    group: String,
    deadline: Instant,
}

/// What was learned.
pub(crate) struct Findings {
    /// Of the lanes of which everything is known.
    pub(crate) arrivals: HashMap<LaneId, Arrival>,
    /// Why something is not known of the others.
    pub(crate) trouble: Option<LookupError>,
}

/// Something could not be learned: ask again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
pub(crate) struct LookupError {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) text: String,
}

impl LookupError {
    pub(crate) fn new(what: impl std::fmt::Display, code: RDKafkaErrorCode) -> Self {
        Self { code, text: format!("{what}: {code}") }
    }

    pub(crate) fn of(what: &str, error: &ClientError) -> Self {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        Self { code, text: format!("{what}: {error}") }
    }
}

impl Lookup {
    pub(crate) fn new(settings: &KafkaSettings, group: &str, limit: Duration) -> Result<Self, LookupError> {
        let client = settings.observer(group).create_with_context(Callbacks::default());
        let client = client.map_err(|error| LookupError::of("the client cannot be made", &error))?;
        Ok(Self { client, group: group.to_owned(), deadline: Instant::now() + limit })
    }

    /// Everything about these lanes, or what is missing. A lane's identity is asked before and after its offsets, so
    /// that the offsets of one log are never told with the identity of another.
    pub(crate) fn arrivals(&self, lanes: &[LaneId]) -> Findings {
        let mut findings = Findings { arrivals: HashMap::new(), trouble: None };
        if let Err(trouble) = self.learn(lanes, &mut findings) {
            findings.arrivals.clear();
            findings.trouble = Some(self.with_reason(trouble));
        }
        findings
    }

    /// The topics as they are now; a topic that does not exist is an error of its own.
    pub(crate) fn topics(&self, topics: &[Topic]) -> Result<Vec<Described>, LookupError> {
        let what = "the topics are not described";
        let metadata = self.client.fetch_metadata(topics.first().map(Topic::as_str), self.left());
        let metadata = metadata.map_err(|error| self.with_reason(LookupError::of(what, &error)))?;
        // Left to itself, the client would ask the controller, which librdkafka's mock cluster lacks.
        let mut failure = RDKafkaErrorCode::AllBrokersDown;
        for broker in metadata.brokers() {
            let limit = self.left().min(BROKER_LIMIT);
            match native::describe_topics(&self.client, broker.id(), topics, limit) {
                Ok(described) => return Ok(described),
                Err(code) => failure = code,
            }
        }
        Err(self.with_reason(LookupError::new(what, failure)))
    }

    /// How many members the group has, of either protocol.
    pub(crate) fn members(&self) -> Result<usize, LookupError> {
        let counted = native::group_members(&self.client, &self.group, self.left());
        counted.map_err(|code| self.with_reason(LookupError::new("the group is not described", code)))
    }

    fn learn(&self, lanes: &[LaneId], findings: &mut Findings) -> Result<(), LookupError> {
        let unknown = LookupError::new("the cluster's id is not known", RDKafkaErrorCode::OperationTimedOut);
        let cluster: Arc<str> = self.client.client().fetch_cluster_id(self.left()).ok_or(unknown)?.into();
        let mut topics: Vec<Topic> = lanes.iter().map(|lane| lane.topic.clone()).collect();
        topics.sort_unstable();
        topics.dedup();
        let before = self.topics(&topics)?;

        let mut led: BTreeMap<i32, Vec<LaneId>> = BTreeMap::new();
        for lane in lanes {
            match leader(&before, lane) {
                Ok(leader) => led.entry(leader).or_default().push(lane.clone()),
                Err(trouble) => note(&mut findings.trouble, trouble),
            }
        }
        let (mut first, mut end) = (HashMap::new(), HashMap::new());
        for lanes in led.values() {
            let limit = self.left().min(BROKER_LIMIT);
            let ends = offsets(&self.client, lanes, Offset::Beginning, limit)
                .and_then(|first| Ok((first, offsets(&self.client, lanes, Offset::End, limit)?)));
            match ends {
                Ok((firsts, ends)) => {
                    first.extend(firsts);
                    end.extend(ends);
                }
                Err(trouble) => note(&mut findings.trouble, self.with_reason(trouble)),
            }
        }
        let known: Vec<LaneId> = led.into_values().flatten().filter(|lane| end.contains_key(lane)).collect();
        if known.is_empty() {
            return Ok(());
        }
        let mut committed = self.committed(&known)?;
        let after = self.topics(&topics)?;
        for lane in known {
            let told = (first.remove(&lane), end.remove(&lane), committed.remove(&lane));
            let (Some(first), Some(end), Some(committed)) = told else { continue };
            let id = id(&before, &lane.topic).filter(|before| Some(*before) == self::id(&after, &lane.topic));
            let Some(topic) = id.cloned() else {
                let what = format!("the topic `{}` was made anew just now", lane.topic);
                note(&mut findings.trouble, LookupError::new(what, RDKafkaErrorCode::UnknownTopicId));
                continue;
            };
            let identity = LogIdentity { cluster: Arc::clone(&cluster), topic };
            let (first, end) = (Committable(first), Committable(end));
            findings.arrivals.insert(lane, Arrival { identity, committed, first, end });
        }
        Ok(())
    }

    fn committed(&self, lanes: &[LaneId]) -> Result<HashMap<LaneId, Option<Committable>>, LookupError> {
        let what = "the group's offsets are not known";
        let list = self.client.committed_offsets(positions::list_of(lanes), self.left());
        let list = list.map_err(|error| LookupError::of(what, &error))?;
        let mut committed = HashMap::with_capacity(lanes.len());
        for element in list.elements() {
            element.error().map_err(|error| LookupError::of(what, &error))?;
            let next = match element.offset() {
                Offset::Offset(next) => Some(Committable(next)),
                _ => None,
            };
            let lane = LaneId { topic: Topic::new(element.topic()), partition: element.partition() };
            committed.insert(lane, next);
        }
        Ok(committed)
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// The call says that it failed, and the client's events say why.
    fn with_reason(&self, error: LookupError) -> LookupError {
        hear_the_reason(&self.client);
        match self.client.context().health.last_error() {
            Some(reason) if !error.text.contains(&reason) => {
                LookupError { text: format!("{} ({reason})", error.text), ..error }
            }
            _ => error,
        }
    }
}

/// The first or the last offset of each lane, in the client's isolation level.
pub(crate) fn offsets<C>(
    client: &BaseConsumer<C>,
    lanes: &[LaneId],
    at: Offset,
    limit: Duration,
) -> Result<HashMap<LaneId, i64>, LookupError>
where
    C: ClientContext + ConsumerContext,
{
    let what = "the log's offsets are not known";
    let mut list = positions::list_of(lanes);
    let asked = list.set_all_offsets(at).and_then(|()| client.offsets_for_times(list, limit));
    let list = asked.map_err(|error| LookupError::of(what, &error))?;
    let mut offsets = HashMap::with_capacity(lanes.len());
    for element in list.elements() {
        element.error().map_err(|error| LookupError::of(what, &error))?;
        let Offset::Offset(offset) = element.offset() else {
            return Err(LookupError::new(what, RDKafkaErrorCode::OffsetNotAvailable));
        };
        offsets.insert(LaneId { topic: Topic::new(element.topic()), partition: element.partition() }, offset);
    }
    Ok(offsets)
}

fn leader(topics: &[Described], lane: &LaneId) -> Result<i32, LookupError> {
    let missing = LookupError::new(format!("`{lane}` is missing"), RDKafkaErrorCode::UnknownTopicOrPartition);
    let (_, described) = topics.iter().find(|(topic, _)| *topic == lane.topic).ok_or_else(|| missing.clone())?;
    let of = |code: &RDKafkaErrorCode| LookupError::new(format!("the topic `{}` is not described", lane.topic), *code);
    let leaders = &described.as_ref().map_err(of)?.leaders;
    let leader = leaders.get(&lane.partition).ok_or(missing)?;
    let headless = || LookupError::new(format!("`{lane}` has no leader"), RDKafkaErrorCode::LeaderNotAvailable);
    leader.ok_or_else(headless)
}

fn id<'t>(topics: &'t [Described], topic: &Topic) -> Option<&'t Arc<str>> {
    let (_, described) = topics.iter().find(|(described, _)| described == topic)?;
    described.as_ref().ok().map(|described| &described.id)
}

fn note(trouble: &mut Option<LookupError>, another: LookupError) {
    trouble.get_or_insert(another);
}
