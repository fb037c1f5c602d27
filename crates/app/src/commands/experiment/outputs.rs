//! What the output of a run says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use mitra_model::{Entity, Kind, Metric, SeriesSet, Span, columns};
use mitra_parse::text::{self, Import};
use regex::Regex;
use serde_json::Value;

use super::plan::{MetricReader, Reader};

/// A program that prints more is ended.
const BYTES_MAX: u64 = 65 << 20;
/// Lines that may begin a JSON document and do not.
const TRIED_MAX: u32 = 100;

/// An output of a workload.
pub struct Output {
    text: String,
    json: Option<Value>,
    /// What Mitra knows of it as the output of a benchmark.
    set: SeriesSet,
}

impl Output {
    pub fn read(path: &Path) -> Result<Output, String> {
        let mut bytes = Vec::new();
        let file =
            File::open(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
        let read = file.take(BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
        Ok(Output::of(&bytes))
    }

    fn of(bytes: &[u8]) -> Output {
        let mut import = Import::new(None);
        // Bytes in memory are always read to their end.
        _ = text::read_as(&[text::bench::FORMATS], &mut &*bytes, "output", &mut import);
        let text = String::from_utf8_lossy(bytes).into_owned();
        Output { json: json(&text), set: import.finish().set, text }
    }

    /// The value of a metric, in base units.
    pub fn value(&self, metric: &MetricReader) -> Result<f64, String> {
        let value = match &metric.reader {
            Reader::Json(pointer) => self.by_pointer(pointer),
            Reader::Regex(regex) => self.by_regex(regex),
            Reader::Output(known) => self.of_benchmark(known),
        }?;
        let value = value * metric.factor;
        if value.is_finite() { Ok(value) } else { Err(format!("{value} is no result")) }
    }

    fn by_pointer(&self, pointer: &str) -> Result<f64, String> {
        let json = self.json.as_ref().ok_or("the output is no JSON")?;
        let value = json.pointer(pointer).ok_or_else(|| format!("the output has nothing at {pointer}"))?;
        let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
        number.ok_or_else(|| format!("no number at {pointer}"))
    }

    fn by_regex(&self, regex: &Regex) -> Result<f64, String> {
        let last = regex.captures_iter(&self.text).last().and_then(|found| found.get(1));
        let text = last.ok_or_else(|| format!("no line of the output matches {regex}"))?.as_str();
        number(text.trim()).ok_or_else(|| format!("{text:?} is no number, or none without doubt"))
    }

    /// The only run of the output. Rates of several runs are added up.
    fn of_benchmark(&self, metric: &Metric) -> Result<f64, String> {
        let values: Vec<f64> =
            self.set.each(metric.name).filter_map(|(_, series)| series.last(Span::ALL)).collect();
        let is_rate = metric.name.ends_with("_per_s") || metric.name.ends_with("_iops");
        match values.as_slice() {
            [] => Err(format!("the output has no {} that Mitra can read", metric.name)),
            [one] => Ok(*one),
            several if is_rate => Ok(several.iter().sum()),
            several => {
                Err(format!("the output has {} runs, each with its own {}", several.len(), metric.name))
            }
        }
    }

    /// All that Mitra reads of it as the output of a benchmark.
    pub fn all(&self) -> BTreeMap<String, f64> {
        let numbers = columns(Entity::Run).iter().filter(|metric| metric.kind == Kind::Gauge);
        numbers.filter_map(|metric| Some((metric.name.to_owned(), self.of_benchmark(metric).ok()?))).collect()
    }
}

/// A number. Commas are read between thousands only, because elsewhere they may stand for a decimal point.
fn number(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut groups = whole.trim_start_matches(['+', '-']).split(',');
    let begins = groups.next().is_some_and(|digits| (1..=3).contains(&digits.len()));
    if whole.contains(',') && !(begins && groups.all(|digits| digits.len() == 3)) {
        return None;
    }
    format!("{}{fraction}", whole.replace(',', "")).parse().ok()
}

/// The JSON document of an output. Some programs print warnings before it.
fn json(text: &str) -> Option<Value> {
    let (mut at, mut tried) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with(['{', '[']) || line.trim().parse::<f64>().is_ok() {
            let mut values = serde_json::Deserializer::from_str(text.get(at..)?).into_iter::<Value>();
            if let Some(Ok(value)) = values.next() {
                return Some(value);
            }
            tried += 1;
            if tried == TRIED_MAX {
                return None;
            }
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use mitra_model::experiment::MetricInfo;
    use mitra_model::lookup;

    use super::*;

    fn value(output: &str, reader: Reader, factor: f64) -> Result<f64, String> {
        Output::of(output.as_bytes()).value(&MetricReader { info: MetricInfo::default(), reader, factor })
    }

    #[test]
    fn numbers_are_found_by_pointer_pattern_and_name() {
        let pointer = |text: &str| Reader::Json(text.to_owned());
        assert_eq!(value("[note] x\n{\"a\": [{\"b\": 7.5}]}\nend", pointer("/a/0/b"), 2.0), Ok(15.0));
        assert_eq!(value("42\n", pointer(""), 1.0), Ok(42.0));
        assert_eq!(value("{\"a\": \"1.5\"}", pointer("/a"), 1.0), Ok(1.5));
        assert!(value("{\"a\": {}}", pointer("/a"), 1.0).unwrap_err().contains("no number at /a"));
        assert!(value("{\"a\": 1", pointer("/a"), 1.0).unwrap_err().contains("no JSON"));
        let pattern = || Reader::Regex(Regex::new("rate: ([0-9.,]+)").unwrap());
        assert_eq!(value("rate: 1\nrate: 1,234.5", pattern(), 1e-3), Ok(1.2345));
        assert!(value("nothing", pattern(), 1.0).is_err() && value("rate: .", pattern(), 1.0).is_err());
        for (text, want) in [
            ("1234.5", Some(1234.5)),
            ("-12,345,678", Some(-12_345_678.0)),
            (".5", Some(0.5)),
            ("1e3", Some(1e3)),
        ] {
            assert_eq!(number(text), want, "{text}");
        }
        for text in ["12,5", "1,234,5", ",123", "1.234,5", "1234,567", "", "."] {
            assert_eq!(number(text), None, "{text}");
        }
        let wrk = "Running 1s test @ http://127.0.0.1:8080/\n  1 threads and 2 connections\n  Thread Stats   Avg      Stdev     \
                   Max   +/- Stdev\n    Latency    96.51us   10.00us   1.00ms   90.00%\n    Req/Sec    20.00k     1.00k   21.00k    \
                   90.00%\n  20000 requests in 1.00s, 16.00MB read\nRequests/sec:  19999.50\nTransfer/sec:     16.00MB\n";
        let known = Reader::Output(lookup("run.requests_per_s").unwrap());
        assert!((value(wrk, known, 1.0).unwrap() - 19_999.5).abs() < 0.01);
        assert!(Output::of(wrk.as_bytes()).all().contains_key("run.latency_mean"));
        let missing = Reader::Output(lookup("run.read_iops").unwrap());
        assert!(value(wrk, missing, 1.0).unwrap_err().contains("has no run.read_iops"));
    }
}
