//! A record that the client library cannot write: one with a header key that is not UTF-8.
#![allow(unsafe_code)]

use std::ffi::CString;

use core_delivery::record::Topic;
use rdkafka::bindings as sys;
use rdkafka::bindings::rd_kafka_vtype_t as Kind;
use rdkafka::producer::{BaseProducer, Producer};

use crate::broker::{LIMIT, client};

/// Writes a record to partition 0 with these headers.
pub(crate) fn produce_with_raw_headers(topic: &Topic, headers: &[(&[u8], &str)]) {
    let producer: BaseProducer = client().create().expect("producer");
    let topic = CString::new(topic.as_str()).expect("no NUL");
    let names: Vec<CString> = headers.iter().map(|(name, _)| CString::new(*name).expect("no NUL")).collect();
    let value = |vtype, u| sys::rd_kafka_vu_t { vtype, u };
    let mut values = vec![
        value(Kind::RD_KAFKA_VTYPE_TOPIC, sys::rd_kafka_vu_s__bindgen_ty_1 { cstr: topic.as_ptr() }),
        value(Kind::RD_KAFKA_VTYPE_PARTITION, sys::rd_kafka_vu_s__bindgen_ty_1 { i32_: 0 }),
    ];
    for (name, (_, text)) in names.iter().zip(headers) {
        let size = isize::try_from(text.len()).expect("short");
        let header =
            sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2 { name: name.as_ptr(), val: text.as_ptr().cast(), size };
        values.push(value(Kind::RD_KAFKA_VTYPE_HEADER, sys::rd_kafka_vu_s__bindgen_ty_1 { header }));
    }
    // SAFETY: the client lives until the flush below has ended, every pointer refers to a value that outlives the
    // call, and librdkafka copies them.
    let error = unsafe { sys::rd_kafka_produceva(producer.client().native_ptr(), values.as_ptr(), values.len()) };
    assert!(error.is_null(), "not queued");
    producer.flush(LIMIT).expect("acknowledged");
}
