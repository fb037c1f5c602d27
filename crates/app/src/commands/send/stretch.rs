//! A stretch of the archive as series: of each one the last sample in every interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, Series as Recorded, Span, lookup};
use mitra_send::{Kind, Output, Series, SeriesKind};

use super::top;
use crate::commands::select::glob;
use crate::recording::{all_metrics, chunks};
use crate::serve::openmetrics::{METRICS, family};

/// A longer interval is read in parts of this length.
const READ_NS_MAX: i64 = 600 * SECOND;

/// Series by the place of the metric and the row.
type Found = BTreeMap<(usize, Arc<str>), Series>;

/// What an output wants of an archive.
pub struct Wanted {
    pub metrics: Vec<&'static Metric>,
    labels: Vec<(Arc<str>, Arc<str>)>,
    pub every_ns: i64,
    top: usize,
}

impl Wanted {
    pub fn of(output: &Output) -> Self {
        let labels = output.labels.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
        Wanted {
            metrics: metrics(output),
            labels: labels.collect(),
            every_ns: i64::try_from(output.every.as_nanos()).unwrap_or(i64::MAX),
            top: output.top,
        }
    }

    /// Whether tasks are read.
    pub fn is_of_tasks(&self) -> bool {
        self.top > 0
    }

    /// The labels of a series, in order. The name of the host can be given.
    pub fn labels(&self, host: &str, own: &[(&str, &str)]) -> Vec<(Arc<str>, Arc<str>)> {
        let mut labels: Vec<(Arc<str>, Arc<str>)> =
            own.iter().map(|(name, value)| (Arc::from(*name), Arc::from(*value))).collect();
        let host = if host.is_empty() { "unknown" } else { host };
        let given = self.labels.iter().cloned().chain([("host".into(), host.into())]);
        for (name, value) in given {
            if !labels.iter().any(|(known, _)| *known == name) {
                labels.push((name, value));
            }
        }
        labels.retain(|(_, value)| !value.is_empty());
        labels.sort_unstable();
        labels
    }

    /// Reads the intervals of a stretch.
    pub fn read(&self, reader: &Reader, part: Span) -> Result<Vec<Series>> {
        let mut found = Found::new();
        for chunk in chunks(part, READ_NS_MAX) {
            self.read_chunk(reader, chunk, &mut found)?;
        }
        let mut all: Vec<Series> = found.into_values().collect();
        if self.top > 0 {
            all.extend(top::read(reader, part, self, self.top)?);
        }
        Ok(all)
    }

    /// Adds what was measured in a chunk, which follows the chunks before it.
    fn read_chunk(&self, reader: &Reader, chunk: Span, found: &mut Found) -> Result<()> {
        let set = reader.read(&Query { raw: true, ..Query::new(chunk, self.metrics.clone()) })?;
        for (place, metric) in self.metrics.iter().enumerate() {
            let Some((family, scale)) = family(metric, set.host.page_bytes as f64) else { continue };
            let name: Arc<str> = family.of_samples().into();
            for (row, recorded) in set.each(metric.name) {
                if recorded.samples(chunk).next().is_none() {
                    continue;
                }
                let series = found.entry((place, row.into())).or_insert_with(|| {
                    let label = [(metric.entity.name(), row)];
                    let own = if metric.entity == Entity::System { &[] } else { &label[..] };
                    Series {
                        name: Arc::clone(&name),
                        kind: if family.kind == "counter" { SeriesKind::Counter } else { SeriesKind::Gauge },
                        unit: family.unit,
                        help: metric.help,
                        labels: self.labels(&set.host.hostname, own),
                        samples: Vec::new(),
                    }
                });
                self.add(&mut series.samples, recorded, chunk, scale);
            }
        }
        Ok(())
    }

    /// The number of the interval that a time is in.
    pub fn interval(&self, t: i64) -> i64 {
        t.div_euclid(self.every_ns)
    }

    /// Adds later samples: of each interval the last one stays.
    fn add(&self, samples: &mut Vec<(i64, f64)>, recorded: &Recorded, part: Span, scale: f64) {
        for (t, _, value) in recorded.samples(part) {
            match samples.last_mut() {
                Some(last) if self.interval(last.0) == self.interval(t) => *last = (t, value * scale),
                _ => samples.push((t, value * scale)),
            }
        }
    }
}

/// The metrics of an output. Tasks come as processes, with `top`; files have whatever is named.
fn metrics(output: &Output) -> Vec<&'static Metric> {
    if output.metrics.is_empty() {
        return METRICS.iter().filter_map(|name| lookup(name)).collect();
    }
    let is_named = |metric: &&'static Metric| output.metrics.iter().any(|name| glob(name, metric.name));
    all_metrics().filter(is_named).filter(|metric| is_sent(output.kind, metric)).collect()
}

fn is_sent(kind: Kind, metric: &'static Metric) -> bool {
    kind == Kind::Parquet || metric.entity != Entity::Task && family(metric, 1.0).is_some()
}

/// Why a pattern selects nothing that is sent.
pub fn check(kind: Kind, pattern: &str) -> Result<(), String> {
    let named: Vec<&'static Metric> = all_metrics().filter(|metric| glob(pattern, metric.name)).collect();
    if named.is_empty() {
        let names = all_metrics().map(|metric| metric.name);
        let hint = crate::commands::similar::hint(pattern, names, "mitra metrics");
        return Err(format!("no metric is called '{pattern}'{hint}"));
    }
    if named.iter().all(|metric| metric.entity == Entity::Task) && kind != Kind::Parquet {
        return Err("tasks are sent as processes: top = 10 has those that use and lose most".to_owned());
    }
    if named.into_iter().any(|metric| is_sent(kind, metric)) {
        Ok(())
    } else {
        Err("texts and histograms are not sent".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use mitra_archive::simulate::Machine;
    use mitra_archive::{Options, Writer};
    use mitra_model::Axis;

    use super::*;

    fn wanted(table: &str) -> Wanted {
        let text = format!("[[output]]\nto = \"influx\"\nurl = \"http://[::1]/\"\n{table}");
        Wanted::of(&mitra_send::Config::read(&text, &check).unwrap().outputs[0])
    }

    #[test]
    fn each_interval_has_its_last_measured_sample() {
        let t: Vec<i64> = [0, 4, 9, 10, 15, 19, 31].map(|s| s * SECOND).to_vec();
        let axis = Arc::new(Axis { dt: vec![1.0; t.len()], t, places: Vec::new() });
        let values = vec![1.0, 2.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN, 7.0];
        let recorded = Recorded { axis, start: 0, values: values.into() };
        let mut samples = vec![(-SECOND, 5.0), (SECOND / 2, 6.0)];
        wanted("").add(&mut samples, &recorded, Span::ALL, 0.5);
        assert_eq!(samples, [(-SECOND, 5.0), (4 * SECOND, 1.0), (31 * SECOND, 3.5)]);
    }

    #[test]
    fn of_a_long_interval_all_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(0, 0, 1);
        let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
        for second in 0..10 {
            machine.tick();
            let mut frame = machine.frame().clone();
            if second >= 5 {
                // Half an hour later a disk is gone.
                let time = &mut frame.time;
                for clock in [&mut time.real, &mut time.mono, &mut time.boot] {
                    *clock += 1_800 * SECOND;
                }
                frame.table_mut(Entity::Disk).swap_remove(0);
            }
            writer.append(&frame, machine.strings()).unwrap();
        }
        writer.finish().unwrap();
        let reader = Reader::open(dir.path()).unwrap();
        let part = reader.span().unwrap();
        let wanted = wanted("every = \"1h\"\nmetrics = [\"disk.read_bytes\"]");
        let found: Vec<(String, Vec<i64>)> = wanted
            .read(&reader, part)
            .unwrap()
            .iter()
            .map(|series| {
                let disk = series.labels.iter().find(|(name, _)| &**name == "disk").unwrap().1.to_string();
                let seconds = |(t, _): &(i64, f64)| (t - part.since + SECOND / 2) / SECOND;
                (disk, series.samples.iter().map(seconds).collect())
            })
            .collect();
        let at = |disk: &str, second: i64| (disk.to_owned(), vec![second]);
        assert_eq!(found, [at("disk0", 4), at("disk1", 1_809), at("disk2", 1_809)]);
    }

    #[test]
    fn the_host_is_always_a_label_and_a_row_keeps_its_own() {
        let labels = |wanted: &Wanted| {
            let labels = wanted.labels("web1", &[("disk", "vda")]);
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(&wanted("")), "disk=vda host=web1");
        assert_eq!(
            labels(&wanted("labels = { host = \"db\", disk = \"x\", Zone = \"a\" }")),
            "Zone=a disk=vda host=db"
        );
    }

    #[test]
    fn patterns_select_what_is_sent() {
        assert_eq!(wanted("").metrics.len(), METRICS.len());
        let names: Vec<&str> =
            wanted("metrics = [\"mem.free\", \"disk.*\"]").metrics.iter().map(|m| m.name).collect();
        assert!(names.contains(&"mem.free") && names.contains(&"disk.io_time"), "{names:?}");
        assert!(names.iter().all(|name| *name == "mem.free" || name.starts_with("disk.")), "{names:?}");
        let check = |pattern: &str| check(Kind::Influx, pattern).unwrap_err();
        assert!(check("mem.fre").contains("mem.free"));
        assert!(check("task.*").contains("top = 10"));
        assert_eq!(super::check(Kind::Parquet, "task.*"), Ok(()));
        let all = wanted("metrics = [\"*\"]").metrics;
        assert!(all.len() > 500 && all.iter().all(|metric| metric.entity != Entity::Task));
    }
}
