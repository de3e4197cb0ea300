//! Questions that the client library does not ask in safe code: the ids of topics, and the members of a group at its
//! coordinator. Each blocks, up to its limit.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use core_delivery::record::Topic;
use rdkafka::bindings as sys;
use rdkafka::bindings::rd_kafka_resp_err_t as Code;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;

/// What the brokers tell about a topic.
pub(crate) struct TopicDescription {
    /// Its id, as Kafka's own tools print it. Brokers before 2.8 have none, and then it is the same for all topics.
    pub(crate) id: Arc<str>,
    /// The leader of each partition, if it has one.
    pub(crate) leaders: HashMap<i32, Option<i32>>,
}

/// A topic as the brokers describe it, or why they do not.
pub(crate) type Described = (Topic, Result<TopicDescription, RDKafkaErrorCode>);

/// Asks this broker for topics. Blocks, up to the limit.
pub(crate) fn describe_topics<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    broker: i32,
    topics: &[Topic],
    limit: Duration,
) -> Result<Vec<Described>, RDKafkaErrorCode> {
    let names = topics.iter().map(|topic| CString::new(topic.as_str())).collect::<Result<Vec<_>, _>>();
    let names = names.map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let mut names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let event = ask(
        consumer,
        sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
        Some(broker),
        limit,
        |client, options, to| {
            // SAFETY: all pointers are valid; names and collection are copied by the calls that take them.
            unsafe {
                let collection = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
                sys::rd_kafka_DescribeTopics(client, collection, options, to);
                sys::rd_kafka_TopicCollection_destroy(collection);
            }
        },
    )?;
    // SAFETY: the event is one of the asked kind without an error; what it gives lives as long as it does, and its
    // lists are as long as it says.
    unsafe {
        let mut count = 0;
        let result = sys::rd_kafka_event_DescribeTopics_result(event.0);
        let described = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        Ok(elements(described, count).iter().map(|topic| topic_of(*topic)).collect())
    }
}

/// # Safety
/// The description must be valid.
unsafe fn topic_of(topic: *const sys::rd_kafka_TopicDescription_t) -> Described {
    // SAFETY: the caller's, and what a description gives lives as long as it does.
    unsafe {
        let name = Topic::new(text(sys::rd_kafka_TopicDescription_name(topic)));
        match sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(topic)) {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => {}
            code => return (name, Err(code.into())),
        }
        let id = text(sys::rd_kafka_Uuid_base64str(sys::rd_kafka_TopicDescription_topic_id(topic)));
        let mut count = 0;
        let partitions = sys::rd_kafka_TopicDescription_partitions(topic, &mut count);
        let leaders = elements(partitions, count).iter().map(|partition| {
            let leader = sys::rd_kafka_TopicPartitionInfo_leader(*partition);
            let leader = (!leader.is_null()).then(|| sys::rd_kafka_Node_id(leader)).filter(|leader| *leader >= 0);
            (sys::rd_kafka_TopicPartitionInfo_partition(*partition), leader)
        });
        (name, Ok(TopicDescription { id: id.into(), leaders: leaders.collect() }))
    }
}

/// Asks a group's coordinator how many members it has; none if there is no such group. Blocks, up to the limit.
pub(crate) fn group_members<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    group: &str,
    limit: Duration,
) -> Result<usize, RDKafkaErrorCode> {
    let group = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidGroupId)?;
    let mut groups = [group.as_ptr()];
    let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let event = ask(consumer, operation, None, limit, |client, options, to| {
        // SAFETY: all pointers are valid, and the name is copied.
        unsafe { sys::rd_kafka_DescribeConsumerGroups(client, groups.as_mut_ptr(), 1, options, to) };
    })?;
    // SAFETY: as in `describe_topics`.
    unsafe {
        let mut count = 0;
        let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event.0);
        let described = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
        let group = *elements(described, count).first().ok_or(RDKafkaErrorCode::BadMessage)?;
        match sys::rd_kafka_error_code(sys::rd_kafka_ConsumerGroupDescription_error(group)) {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(sys::rd_kafka_ConsumerGroupDescription_member_count(group)),
            Code::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND => Ok(0),
            code => Err(code.into()),
        }
    }
}

/// Asks one question and waits for its answer. The question is put by `put`, with the client, the options and the
/// queue for the answer.
fn ask<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    operation: sys::rd_kafka_admin_op_t,
    broker: Option<i32>,
    limit: Duration,
    put: impl FnOnce(*mut sys::rd_kafka_t, *const sys::rd_kafka_AdminOptions_t, *mut sys::rd_kafka_queue_t),
) -> Result<Event, RDKafkaErrorCode> {
    let client = consumer.client().native_ptr();
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the client is borrowed and outlives the queue and the options, which are ours, are valid until they are
    // destroyed at the end of this block, and are not used after it. The question copies its options. An answer that
    // comes later is thrown away by librdkafka.
    let event = unsafe {
        let options = sys::rd_kafka_AdminOptions_new(client, operation);
        let mut code = sys::rd_kafka_AdminOptions_set_request_timeout(options, limit, ptr::null_mut(), 0);
        if let (Some(broker), Code::RD_KAFKA_RESP_ERR_NO_ERROR) = (broker, code) {
            code = sys::rd_kafka_AdminOptions_set_broker(options, broker, ptr::null_mut(), 0);
        }
        let answers = sys::rd_kafka_queue_new(client);
        let event = if code == Code::RD_KAFKA_RESP_ERR_NO_ERROR {
            put(client, options, answers);
            // The client itself gives up first.
            sys::rd_kafka_queue_poll(answers, limit.saturating_add(100))
        } else {
            ptr::null_mut()
        };
        sys::rd_kafka_queue_destroy(answers);
        sys::rd_kafka_AdminOptions_destroy(options);
        if code != Code::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(code.into());
        }
        event
    };
    if event.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut);
    }
    let event = Event(event);
    // SAFETY: the event is not null, and is destroyed when it is dropped.
    match unsafe { sys::rd_kafka_event_error(event.0) } {
        Code::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(event),
        code => Err(code.into()),
    }
}

/// An answer, which owns all that it gives.
struct Event(*mut sys::rd_kafka_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is ours, and is not used after this.
        unsafe { sys::rd_kafka_event_destroy(self.0) };
    }
}

/// # Safety
/// The list must be valid and as long as `count` for as long as the result is used, or null or empty.
unsafe fn elements<'e, T>(list: *mut *const T, count: usize) -> &'e [*const T] {
    if list.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(list, count) }
}

/// # Safety
/// The text must end with a NUL, or be null.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
