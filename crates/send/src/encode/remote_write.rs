//! Prometheus' remote write, version 1.0 and 2.0: protocol buffers, compressed by snappy.
//!
//! The messages are those of <https://prometheus.io/docs/specs/prw/remote_write_spec/> and of
//! `prompb/io/prometheus/write/v2/types.proto`.

use std::collections::HashMap;

use prost::Message;

use super::ms;
use crate::series::{Series, SeriesKind};

const NAME: &str = "__name__";

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp_ms: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeries2>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries2 {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Metadata {
    /// 1 is a counter, 2 a gauge.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "3")]
    help_ref: u32,
    #[prost(uint32, tag = "4")]
    unit_ref: u32,
}

/// Labels with the name, in the order that is wanted.
fn labels(series: &Series) -> Vec<(&str, &str)> {
    let own = series.labels.iter().map(|(name, value)| (&**name, &**value));
    let mut labels: Vec<(&str, &str)> = [(NAME, &*series.name)].into_iter().chain(own).collect();
    labels.sort_unstable();
    labels
}

fn samples(series: &Series) -> Vec<Sample> {
    series.samples.iter().map(|(t, value)| Sample { value: *value, timestamp_ms: ms(*t) }).collect()
}

fn request(batch: &[Series]) -> WriteRequest {
    let label = |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
    let one = |series: &Series| TimeSeries {
        labels: labels(series).into_iter().map(label).collect(),
        samples: samples(series),
    };
    WriteRequest { timeseries: batch.iter().map(one).collect() }
}

/// Texts that stand once, with their numbers. The first one is empty.
struct Symbols<'a> {
    list: Vec<String>,
    numbers: HashMap<&'a str, u32>,
}

impl<'a> Symbols<'a> {
    fn number(&mut self, text: &'a str) -> u32 {
        *self.numbers.entry(text).or_insert_with(|| {
            self.list.push(text.to_owned());
            (self.list.len() - 1) as u32
        })
    }
}

fn request_2(batch: &[Series]) -> Request2 {
    let mut symbols = Symbols { list: vec![String::new()], numbers: HashMap::from([("", 0)]) };
    let mut timeseries = Vec::with_capacity(batch.len());
    for series in batch {
        let labels = labels(series).into_iter().flat_map(|(name, value)| [name, value]);
        timeseries.push(TimeSeries2 {
            labels_refs: labels.map(|text| symbols.number(text)).collect(),
            samples: samples(series),
            metadata: Some(Metadata {
                kind: if series.kind == SeriesKind::Counter { 1 } else { 2 },
                help_ref: symbols.number(series.help),
                unit_ref: symbols.number(series.unit),
            }),
        });
    }
    Request2 { symbols: symbols.list, timeseries }
}

/// The body of a request.
///
/// # Errors
/// If it is larger than snappy can say.
pub fn body(batch: &[Series], is_version_2: bool) -> Result<Vec<u8>, String> {
    let bytes = if is_version_2 { request_2(batch).encode_to_vec() } else { request(batch).encode_to_vec() };
    snap::raw::Encoder::new().compress_vec(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::series;

    fn bytes(batch: &[Series], is_version_2: bool) -> Vec<u8> {
        snap::raw::Decoder::new().decompress_vec(&body(batch, is_version_2).unwrap()).unwrap()
    }

    /// A field whose value has a length before it.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, value.len() as u8], value].concat()
    }

    #[test]
    fn version_1_byte_by_byte() {
        let label = |name: &str, value: &str| {
            field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
        };
        let sample =
            |value: f64, ms: u8| field(2, &[&[0x09], &value.to_le_bytes()[..], &[0x10, ms]].concat());
        let one = [
            label("__name__", "mitra_a"),
            label("disk", "vda"),
            label("host", "web1"),
            sample(1.5, 1),
            sample(2.5, 2),
        ];
        let batch = [series("mitra_a", Some("vda"), &[(1_999_999, 1.5), (2_000_000, 2.5)])];
        assert_eq!(bytes(&batch, false), field(1, &one.concat()));
    }

    #[test]
    fn version_2_byte_by_byte() {
        let symbols = ["", "__name__", "mitra_bytes_total", "host", "web1", "Help.", "bytes"];
        let symbols: Vec<u8> = symbols.iter().flat_map(|text| field(4, text.as_bytes())).collect();
        let one = [
            field(1, &[1, 2, 3, 4]),
            field(2, &[&[0x09], &0.5_f64.to_le_bytes()[..], &[0x10, 3]].concat()),
            field(5, &[0x08, 1, 0x18, 5, 0x20, 6]),
        ];
        let batch = [series("mitra_bytes_total", None, &[(3_000_000, 0.5)])];
        assert_eq!(bytes(&batch, true), [symbols, field(5, &one.concat())].concat());
    }

    #[test]
    fn labels_are_in_order_whatever_they_are_called() {
        let mut one = series("mitra_a", Some("vda"), &[(0, 0.0)]);
        one.labels.insert(0, ("Datacenter".into(), "eu".into()));
        let names: Vec<&str> = labels(&one).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["Datacenter", "__name__", "disk", "host"]);
    }
}
