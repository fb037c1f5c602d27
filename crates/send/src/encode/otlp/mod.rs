//! OpenTelemetry's protocol over HTTP: protocol buffers of `opentelemetry/proto`.

pub mod logs;
pub mod metrics;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// One of them.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
    #[prost(bool, optional, tag = "2")]
    bool_value: Option<bool>,
    #[prost(double, optional, tag = "4")]
    double_value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// Of samples `rejected_data_points`, of records `rejected_log_records`.
#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

fn text(text: &str) -> AnyValue {
    AnyValue { string_value: Some(text.to_owned()), ..AnyValue::default() }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(text(value)) }
}

fn resource(host: &str) -> Resource {
    Resource { attributes: vec![attribute("service.name", "mitra"), attribute("host.name", host)] }
}

fn scope() -> Scope {
    Scope { name: "mitra".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// How many points or records an answer refuses, and why.
pub fn refused(answer: &[u8]) -> Option<(u64, String)> {
    let partial = ExportResponse::decode(answer).ok()?.partial_success?;
    let count = u64::try_from(partial.rejected).ok().filter(|count| *count > 0)?;
    Some((count, partial.error_message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_refuse_some() {
        let partial = PartialSuccess { rejected: 3, error_message: "too old".to_owned() };
        let answer = ExportResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(refused(&answer), Some((3, "too old".to_owned())));
        assert_eq!((refused(b""), refused(b"{}")), (None, None));
    }
}
