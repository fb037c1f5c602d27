//! Samples: `opentelemetry/proto/metrics/v1/metrics.proto`.

use prost::Message;

use super::{KeyValue, Resource, Scope, attribute, resource, scope};
use crate::series::{Series, SeriesKind};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

/// Either a gauge or a sum.
#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(message, optional, tag = "5")]
    gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    sum: Option<Sum>,
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<Point>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<Point>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Point {
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

/// Units as UCUM writes them.
fn unit(unit: &str) -> &str {
    match unit {
        "bytes" => "By",
        "seconds" => "s",
        other => other,
    }
}

fn points(series: &Series) -> Vec<Point> {
    let attributes: Vec<KeyValue> =
        series.labels.iter().map(|(name, value)| attribute(name, value)).collect();
    let point = |(t, value): &(i64, f64)| Point {
        time_unix_nano: u64::try_from(*t).unwrap_or(0),
        as_double: Some(*value),
        attributes: attributes.clone(),
    };
    series.samples.iter().map(point).collect()
}

/// All series of one name, which stand beside one another.
fn metric(alike: &[Series]) -> Option<Metric> {
    let first = alike.first()?;
    let data_points = alike.iter().flat_map(points).collect();
    let (gauge, sum) = match first.kind {
        SeriesKind::Gauge => (Some(Gauge { data_points }), None),
        SeriesKind::Counter => {
            let sum = Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true };
            (None, Some(sum))
        }
    };
    Some(Metric {
        name: first.name.to_string(),
        description: first.help.to_owned(),
        unit: unit(first.unit).to_owned(),
        gauge,
        sum,
    })
}

fn request(batch: &[Series], host: &str) -> ExportRequest {
    let metrics = batch.chunk_by(|a, b| a.name == b.name).filter_map(metric).collect();
    ExportRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource(host)),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope()), metrics }],
        }],
    }
}

/// The body of a request.
pub fn body(batch: &[Series]) -> Vec<u8> {
    let host = batch.first().and_then(|series| series.labels.iter().find(|(name, _)| &**name == "host"));
    request(batch, host.map_or("", |(_, host)| host)).encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::series;

    #[test]
    fn byte_by_byte() {
        let field = |number: u8, value: &[u8]| [&[number << 3 | 2, value.len() as u8], value].concat();
        let text = |number: u8, value: &str| field(number, value.as_bytes());
        let pair = |number: u8, key: &str, value: &str| {
            field(number, &[text(1, key), field(2, &text(1, value))].concat())
        };
        let point = |t: u64, value: f64| {
            let number = |tag: u8, bytes: [u8; 8]| [&[tag << 3 | 1], &bytes[..]].concat();
            [number(3, t.to_le_bytes()), number(4, value.to_le_bytes()), pair(7, "host", "web1")].concat()
        };
        let resource = field(1, &[pair(1, "service.name", "mitra"), pair(1, "host.name", "web1")].concat());
        let scope = field(1, &[text(1, "mitra"), text(2, env!("CARGO_PKG_VERSION"))].concat());
        let gauge = field(5, &field(1, &point(5, 0.0)));
        let sum = field(7, &[field(1, &point(6, 1.5)), vec![0x10, 2, 0x18, 1]].concat());
        let metrics = [
            field(2, &[text(1, "mitra_load1"), text(2, "Help."), gauge].concat()),
            field(2, &[text(1, "a_bytes_total"), text(2, "Help."), text(3, "By"), sum].concat()),
        ];
        let scoped = [scope, metrics.concat()].concat();
        // Longer than 127 bytes: two bytes of length.
        let long = |number: u8, value: &[u8]| {
            [&[number << 3 | 2, (value.len() as u8 & 0x7f) | 0x80, (value.len() >> 7) as u8], value].concat()
        };
        let wanted = long(1, &[resource, long(2, &scoped)].concat());
        let batch = [series("mitra_load1", None, &[(5, 0.0)]), series("a_bytes_total", None, &[(6, 1.5)])];
        assert_eq!(body(&batch), wanted);
    }

    #[test]
    fn rows_of_one_name_are_one_metric() {
        let batch = [
            series("mitra_a", Some("vda"), &[(1, 1.0)]),
            series("mitra_a", Some("vdb"), &[(1, 2.0), (2, 3.0)]),
        ];
        let request = ExportRequest::decode(&*body(&batch)).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        assert_eq!((metrics.len(), metrics[0].gauge.as_ref().unwrap().data_points.len()), (1, 3));
    }
}
