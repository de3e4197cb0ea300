//! What the client library does not offer in safe code: headers whose key is not UTF-8, a commit whose answer is
//! waited for with a limit, and questions to the brokers. All unsafe code of this crate is here.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::slice;
use std::time::Duration;

use bytes::Bytes;
use core_delivery::record::Header;
use rdkafka::TopicPartitionList;
use rdkafka::bindings as sys;
use rdkafka::bindings::rd_kafka_resp_err_t as Code;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;

pub(crate) use self::questions::{Described, describe_topics, group_members};

mod questions;

/// Lets the mock cluster that the client owns form a group as soon as its first member asks, and not after three
/// seconds.
#[cfg(feature = "embedded")]
pub(crate) fn form_groups_at_once<C: rdkafka::ClientContext>(owner: &rdkafka::client::Client<C>) {
    // SAFETY: the client lives for as long as it is borrowed, and owns the cluster, which is null if it has none.
    unsafe {
        let cluster = sys::rd_kafka_handle_mock_cluster(owner.native_ptr());
        if !cluster.is_null() {
            sys::rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0);
        }
    }
}

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
