//! Answers of Prometheus' HTTP API: `query` and `query_range` of metrics of node_exporter and cAdvisor.
//!
//! ```text
//! {"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"node_load1","instance":"a:9100"},
//!  "values":[[1795821001,"0.21"],[1795821016,"0.25"]]}]}}
//! ```
//!
//! The result of an expression has no name and says nothing by itself. Of several machines the first is read. A text on
//! one line is read up to the length that lines may have: `jq .` lays it out.

use super::node_names;
use super::wide::Cell;
use crate::text::json::{Value, each_value};
use crate::text::lines::LINE_MAX;
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "Prometheus answer",
    "`query_range` and `query` of metrics of node_exporter and cAdvisor, as JSON",
    starts,
    read,
);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    if !lines.at(|line| line.trim_ascii_start().starts_with(b"{")) {
        return false;
    }
    let is = |line: &[u8]| has(line, b"\"resultType\"");
    (lines.at(|line| has(line, b"\"status\"")) || lines.soon(2, |line| has(line, b"\"status\"")))
        && (lines.at(is) || lines.soon(6, is))
}

#[derive(Default)]
struct Series {
    labels: Vec<(String, String)>,
    cell: Option<Cell>,
    is_known: bool,
    time: Option<f64>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let mut series = Series::default();
    let mut instance: Option<String> = None;
    if lines.line().len() >= LINE_MAX {
        import.note("the JSON stands on one line that is too long: its end was not read; `jq .` lays it out");
    }
    each_value(lines, import, |path, value, at, import| {
        let mut keys = path.iter().map(String::as_str);
        if (keys.next(), keys.next(), keys.next()) != (Some("data"), Some("result"), Some("")) {
            return;
        }
        match (keys.next(), keys.next(), value) {
            // The end of one series.
            (None, None, Value::End) => series = Series::default(),
            (Some("metric"), Some(key), Value::Text(text)) => {
                series.labels.push((key.to_owned(), text.to_owned()));
            }
            (Some("values" | "value"), _, Value::Number(seconds)) => series.time = Some(seconds),
            (Some("values" | "value"), _, Value::Text(word)) => {
                if !std::mem::replace(&mut series.is_known, true) {
                    series.cell = cell(&series.labels, &mut instance, import);
                }
                let time = series.time.take().filter(|t| (1e9..4e9).contains(t));
                if let (Some(cell), Some(t), Some(value)) = (&series.cell, time, number(word.as_bytes())) {
                    cell.put(value, When::At((t * SECOND as f64) as i64), at, &mut sink, import);
                }
            }
            _ => {}
        }
    });
}

/// What a series is; nothing where it is of another machine than the first.
fn cell(labels: &[(String, String)], instance: &mut Option<String>, import: &mut Import) -> Option<Cell> {
    let label = |key: &[u8]| {
        let found = labels.iter().find(|(k, _)| k.as_bytes() == key);
        found.map(|(_, value)| value.clone().into_bytes())
    };
    let name = label(b"__name__")?;
    let found = node_names::cell(&name, label)?;
    let of =
        labels.iter().find(|(key, _)| key == "instance").map(|(_, value)| value.clone()).unwrap_or_default();
    let first = instance.get_or_insert_with(|| of.clone());
    if *first != of {
        import.note(format!("series of several machines: only those of {first} are read"));
        return None;
    }
    if found.metric.name.starts_with("cpu.") {
        let cpu = std::str::from_utf8(&found.row).ok().and_then(|cpu| cpu.parse::<u32>().ok());
        let cpus = cpu.filter(|cpu| *cpu < 65_536).map_or(0, |cpu| cpu + 1);
        import.host.cpus = import.host.cpus.max(cpus);
        import.has_all_cpus = true;
    }
    Some(found)
}
