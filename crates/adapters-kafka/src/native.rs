//! What the client library does not offer in safe code: headers whose key is not UTF-8, a commit whose answer is
//! waited for with a limit, the ids of topics, and the members of a group at its coordinator. All unsafe code of this
//! crate is here.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use core_delivery::record::{Header, Topic};
use rdkafka::TopicPartitionList;
use rdkafka::bindings as sys;
use rdkafka::bindings::rd_kafka_resp_err_t as Code;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;

/// The readable headers of a message, and how many are not: the library's own iteration panics at a key that is not
/// UTF-8.
pub(crate) fn headers(message: &BorrowedMessage<'_>) -> (Vec<Header>, usize) {
    let mut list = ptr::null_mut();
    // SAFETY: the message is borrowed, so it and the headers it owns live until this function returns.
    match unsafe { sys::rd_kafka_message_headers(message.ptr(), &mut list) } {
        Code::RD_KAFKA_RESP_ERR_NO_ERROR => {}
        Code::RD_KAFKA_RESP_ERR__NOENT => return (Vec::new(), 0),
        // The block of headers as a whole cannot be parsed.
        _ => return (Vec::new(), 1),
    }
    // SAFETY: `list` was set by the successful call above.
    let count = unsafe { sys::rd_kafka_header_cnt(list) };
    let mut readable = Vec::with_capacity(count);
    for index in 0..count {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: `list` is valid, and the three places are written only on success.
        let code = unsafe { sys::rd_kafka_header_get_all(list, index, &mut name, &mut value, &mut size) };
        if code != Code::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
            continue;
        }
        // SAFETY: librdkafka ends a header's name with a NUL, and it lives as long as the message.
        let Ok(key) = unsafe { CStr::from_ptr(name) }.to_str() else { continue };
        readable.push(Header { key: key.to_owned(), value: value_of(value, size) });
    }
    let unreadable = count - readable.len();
    (readable, unreadable)
}

fn value_of(value: *const c_void, size: usize) -> Option<Bytes> {
    if value.is_null() {
        return None;
    }
    // SAFETY: librdkafka gives the length of the value that the pointer refers to; it is copied before the message
    // goes.
    Some(Bytes::copy_from_slice(unsafe { slice::from_raw_parts(value.cast::<u8>(), size) }))
}

/// Sends commits and collects their answers. The library's own commits either wait without a limit or hide their
/// errors.
pub(crate) struct Commits<'c> {
    client: *mut sys::rd_kafka_t,
    answers: *mut sys::rd_kafka_queue_t,
    in_flight: usize,
    consumer: PhantomData<&'c ()>,
}

impl<'c> Commits<'c> {
    pub(crate) fn new<C: ConsumerContext>(consumer: &'c BaseConsumer<C>) -> Self {
        let client = consumer.client().native_ptr();
        // SAFETY: the client is borrowed for `'c`, so it outlives the queue.
        let answers = unsafe { sys::rd_kafka_queue_new(client) };
        Self { client, answers, in_flight: 0, consumer: PhantomData }
    }

    /// How many commits have no answer yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Sends positions. Returns at once.
    pub(crate) fn send(&mut self, positions: &TopicPartitionList) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: client, list and queue are valid, and the list is copied. Without a callback the answer arrives on
        // the queue.
        let code =
            unsafe { sys::rd_kafka_commit_queue(self.client, positions.ptr(), self.answers, None, ptr::null_mut()) };
        if code != Code::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(code.into());
        }
        self.in_flight += 1;
        Ok(())
    }

    /// The answer to the oldest commit; `None` if none came within `wait`. The error is that of the commit as a whole,
    /// else the first of a partition.
    pub(crate) fn answer(&mut self, wait: Duration) -> Option<Result<(), RDKafkaErrorCode>> {
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is valid.
        let event = unsafe { sys::rd_kafka_queue_poll(self.answers, wait) };
        if event.is_null() {
            return None;
        }
        // SAFETY: the event is not null and is destroyed only at the end of this block; its list belongs to it.
        let code = unsafe {
            let list = sys::rd_kafka_event_topic_partition_list(event);
            let code = match sys::rd_kafka_event_error(event) {
                Code::RD_KAFKA_RESP_ERR_NO_ERROR if !list.is_null() => first_error(&*list),
                code => code,
            };
            sys::rd_kafka_event_destroy(event);
            code
        };
        self.in_flight = self.in_flight.saturating_sub(1);
        Some(if code == Code::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(code.into()) })
    }
}

impl Drop for Commits<'_> {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and is not used after this; an answer that comes later is thrown away by
        // librdkafka.
        unsafe { sys::rd_kafka_queue_destroy(self.answers) };
    }
}

fn first_error(list: &sys::rd_kafka_topic_partition_list_t) -> Code {
    let count = usize::try_from(list.cnt).unwrap_or(0);
    if count == 0 {
        return Code::RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    // SAFETY: librdkafka keeps `cnt` elements at `elems`.
    let elements = unsafe { slice::from_raw_parts(list.elems, count) };
    let failed = elements.iter().map(|element| element.err).find(|code| *code != Code::RD_KAFKA_RESP_ERR_NO_ERROR);
    failed.unwrap_or(Code::RD_KAFKA_RESP_ERR_NO_ERROR)
}

/// What the brokers tell about a topic.
pub(crate) struct TopicDescription {
    /// Its id, as Kafka's own tools print it. Brokers before 2.8 have none, and then it is the same for all topics.
    pub(crate) id: Arc<str>,
    /// The leader of each partition, if it has one.
    pub(crate) leaders: HashMap<i32, Option<i32>>,
}

/// Asks a broker for topics. Blocks, up to the limit.
pub(crate) fn describe_topics<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topics: &[Topic],
    limit: Duration,
) -> Result<Vec<(Topic, Result<TopicDescription, RDKafkaErrorCode>)>, RDKafkaErrorCode> {
    let names = topics.iter().map(|topic| CString::new(topic.as_str())).collect::<Result<Vec<_>, _>>();
    let names = names.map_err(|_| RDKafkaErrorCode::InvalidTopic)?;
    let mut names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let event =
        ask(consumer, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, limit, |client, options, to| {
            // SAFETY: all pointers are valid; names and collection are copied by the calls that take them.
            unsafe {
                let collection = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
                sys::rd_kafka_DescribeTopics(client, collection, options, to);
                sys::rd_kafka_TopicCollection_destroy(collection);
            }
        })?;
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
unsafe fn topic_of(
    topic: *const sys::rd_kafka_TopicDescription_t,
) -> (Topic, Result<TopicDescription, RDKafkaErrorCode>) {
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
    let event = ask(consumer, operation, limit, |client, options, to| {
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
        let code = sys::rd_kafka_AdminOptions_set_request_timeout(options, limit, ptr::null_mut(), 0);
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
