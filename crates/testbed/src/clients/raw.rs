//! A record that the client library cannot write in safe code: one with a header key that is not UTF-8.
#![allow(unsafe_code)]

use std::{ffi::CString, ptr};

use anyhow::{Context, Result, ensure};
use rdkafka::{
    bindings as sys,
    bindings::{rd_kafka_vtype_t as Kind, rd_kafka_vu_s__bindgen_ty_1 as Value},
    producer::{BaseProducer, Producer},
};

use super::kafka::{LIMIT, config};

/// A record with one header, whose key is any bytes without a NUL.
#[derive(Debug, Clone, Copy)]
pub struct RawRecord<'a> {
    /// Its partition.
    pub partition: i32,
    /// Its key.
    pub key: &'a [u8],
    /// Its payload; none is a tombstone.
    pub payload: Option<&'a [u8]>,
    /// The key of its header.
    pub header_key: &'a [u8],
    /// The value of its header.
    pub header_value: &'a [u8],
}

/// Writes the record and waits until it is acknowledged.
pub(super) fn produce(brokers: &str, topic: &str, record: &RawRecord<'_>) -> Result<()> {
    let producer: BaseProducer = config(brokers).create().context("cannot make a Kafka producer")?;
    let topic = CString::new(topic)?;
    let header = CString::new(record.header_key).context("librdkafka ends a header's key with a NUL")?;
    let value = |vtype, u| sys::rd_kafka_vu_t { vtype, u };
    let bytes = |bytes: Option<&[u8]>| {
        let ptr = bytes.map_or(ptr::null(), <[u8]>::as_ptr).cast_mut().cast();
        Value { mem: sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size: bytes.map_or(0, <[u8]>::len) } }
    };
    let header = sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2 {
        name: header.as_ptr(),
        val: record.header_value.as_ptr().cast(),
        size: isize::try_from(record.header_value.len())?,
    };
    let values = [
        value(Kind::RD_KAFKA_VTYPE_TOPIC, Value { cstr: topic.as_ptr() }),
        value(Kind::RD_KAFKA_VTYPE_PARTITION, Value { i32_: record.partition }),
        value(Kind::RD_KAFKA_VTYPE_KEY, bytes(Some(record.key))),
        value(Kind::RD_KAFKA_VTYPE_VALUE, bytes(record.payload)),
        value(Kind::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: sys::RD_KAFKA_MSG_F_COPY }),
        value(Kind::RD_KAFKA_VTYPE_HEADER, Value { header }),
    ];
    // SAFETY: the client lives until the flush below has ended, every pointer refers to a value that outlives the
    // call, and librdkafka copies them.
    let error = unsafe { sys::rd_kafka_produceva(producer.client().native_ptr(), values.as_ptr(), values.len()) };
    ensure!(error.is_null(), "the record was not queued");
    producer.flush(LIMIT).context("the record was not acknowledged")
}
