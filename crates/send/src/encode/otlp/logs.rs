//! Incidents and findings: `opentelemetry/proto/logs/v1/logs.proto`.

use prost::Message;

use super::{AnyValue, KeyValue, Resource, Scope, resource, scope, text};
use crate::record::{AttributeValue, LogRecord};

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    log_records: Vec<Entry>,
}

/// A `LogRecord` of the protocol.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    severity_number: i32,
    #[prost(string, tag = "3")]
    severity_text: String,
    #[prost(message, optional, tag = "5")]
    body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "11")]
    observed_time_unix_nano: u64,
    #[prost(string, tag = "12")]
    event_name: String,
}

fn value(value: &AttributeValue) -> AnyValue {
    match value {
        AttributeValue::Text(value) => text(value),
        AttributeValue::Bool(value) => AnyValue { bool_value: Some(*value), ..AnyValue::default() },
        AttributeValue::Number(value) => AnyValue { double_value: Some(*value), ..AnyValue::default() },
    }
}

fn entry(record: &LogRecord) -> Entry {
    let attribute =
        |(key, of): &(String, AttributeValue)| KeyValue { key: key.clone(), value: Some(value(of)) };
    // 0 says that the time is not known.
    let time = |ns: i64| u64::try_from(ns).unwrap_or(0);
    Entry {
        time_unix_nano: time(record.time_ns),
        severity_number: record.severity.number(),
        severity_text: record.severity.name().to_owned(),
        body: Some(text(&record.body)),
        attributes: record.attributes.iter().map(attribute).collect(),
        observed_time_unix_nano: time(record.observed_ns),
        event_name: record.event.to_owned(),
    }
}

/// The body of a request. All records are of one host.
pub fn body(records: &[LogRecord]) -> Vec<u8> {
    let host = records.first().map_or("", |record| record.host.as_str());
    let scope_logs = ScopeLogs { scope: Some(scope()), log_records: records.iter().map(entry).collect() };
    let resource_logs = ResourceLogs { resource: Some(resource(host)), scope_logs: vec![scope_logs] };
    ExportRequest { resource_logs: vec![resource_logs] }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn byte_by_byte() {
        // Lengths up to 16,383 bytes.
        let length =
            |n: usize| if n < 128 { vec![n as u8] } else { vec![(n & 0x7f) as u8 | 0x80, (n >> 7) as u8] };
        let field = |number: u8, value: &[u8]| [&[number << 3 | 2], &length(value.len())[..], value].concat();
        let text = |number: u8, value: &str| field(number, value.as_bytes());
        let fixed = |number: u8, value: u64| [&[number << 3 | 1], &value.to_le_bytes()[..]].concat();
        let pair =
            |number: u8, key: &str, value: &[u8]| field(number, &[text(1, key), field(2, value)].concat());
        let resource =
            [pair(1, "service.name", &text(1, "mitra")), pair(1, "host.name", &text(1, "web1"))].concat();
        let scope = [text(1, "mitra"), text(2, env!("CARGO_PKG_VERSION"))].concat();
        let entry = [
            fixed(1, 7),
            vec![0x10, 13],
            text(3, "WARN"),
            field(5, &text(1, "dd wrote 500 MB/s")),
            pair(6, "mitra.root", &text(1, "disk-hog")),
            pair(6, "mitra.unexplained", &[0x10, 0]),
            pair(6, "mitra.strength", &[&[0x21], &0.5_f64.to_le_bytes()[..]].concat()),
            fixed(11, 9),
            text(12, "mitra.incident"),
        ];
        let scoped = [field(1, &scope), field(2, &entry.concat())].concat();
        let wanted = field(1, &[field(1, &resource), field(2, &scoped)].concat());
        assert_eq!(body(&[record("dd wrote 500 MB/s")]), wanted);
    }

    #[test]
    fn a_time_that_is_not_known_is_none() {
        let undated = LogRecord { time_ns: -5, ..record("x") };
        assert_eq!(entry(&undated).time_unix_nano, 0);
    }
}
