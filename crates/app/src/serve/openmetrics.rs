//! The newest sample as OpenMetrics text, for Prometheus and others that scrape.
//!
//! Counters are as the kernel has them, so that whoever scrapes takes the rates.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use mitra_archive::Query;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Kind, Metric, Span, Unit, lookup};

use super::archive::View;
use crate::render::text::culprit;

pub const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is watched of a machine from outside; everything else is asked for by name.
pub const METRICS: &[&str] = &[
    "sys.cpu_user",
    "sys.cpu_nice",
    "sys.cpu_system",
    "sys.cpu_idle",
    "sys.cpu_iowait",
    "sys.cpu_irq",
    "sys.cpu_softirq",
    "sys.cpu_steal",
    "sys.ctxt",
    "sys.forks",
    "sys.load1",
    "psi.cpu_some",
    "psi.io_some",
    "psi.io_full",
    "psi.memory_some",
    "psi.memory_full",
    "mem.total",
    "mem.free",
    "mem.available",
    "mem.cached",
    "mem.dirty",
    "mem.writeback",
    "mem.swap_total",
    "mem.swap_free",
    "vm.pgmajfault",
    "vm.pswpin",
    "vm.pswpout",
    "vm.oom_kill",
    "tasks.total",
    "tasks.running",
    "tasks.uninterruptible",
    "tasks.run_delay",
    "tasks.blkio_delay",
    "tcp.RetransSegs",
    "disk.reads",
    "disk.writes",
    "disk.read_bytes",
    "disk.write_bytes",
    "disk.read_time",
    "disk.write_time",
    "disk.io_time",
    "nic.rx_bytes",
    "nic.tx_bytes",
    "nic.rx_errs",
    "nic.tx_errs",
    "nic.rx_drop",
    "nic.tx_drop",
    "fs.total_bytes",
    "fs.avail_bytes",
    "mitra.cpu_time",
    "mitra.rss",
    "mitra.sample_time",
    "mitra.missed_ticks",
    "mitra.written_bytes",
    "mitra.waiting_bytes",
    "mitra.lost_samples",
    "mitra.disk_errors",
    "mitra.shed_level",
];

/// One family: its name, what it is, and its samples.
pub struct Family<'a> {
    name: String,
    pub kind: &'static str,
    pub unit: &'static str,
    pub help: &'a str,
}

/// How a metric is told to Prometheus, and the factor of its stored values. Texts and histograms are not.
pub fn family(metric: &'static Metric, page_bytes: f64) -> Option<(Family<'static>, f64)> {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Bucket | Kind::Text => return None,
    };
    let (unit, scale) = match metric.unit {
        Unit::Pages => ("bytes", page_bytes),
        unit => (if unit.label() == "s" { "seconds" } else { unit.label() }, unit.scale()),
    };
    Some((Family { name: name(metric.name, unit), kind, unit, help: metric.help }, scale))
}

impl Family<'_> {
    /// The name of its samples.
    pub fn of_samples(&self) -> String {
        format!("{}{}", self.name, if self.kind == "counter" { "_total" } else { "" })
    }

    fn head(&self, out: &mut String) {
        let Family { name, kind, unit, help } = self;
        _ = writeln!(out, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            _ = writeln!(out, "# UNIT {name} {unit}");
        }
        _ = writeln!(out, "# HELP {name} {}", escaped(help));
    }

    fn sample(&self, out: &mut String, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, text)| format!("{name}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        _ = writeln!(out, "{}{labels} {value}", self.of_samples());
    }
}

/// The newest sample, and the incidents of the last minutes.
pub fn text(view: &View, report: Option<&Report>) -> Result<String> {
    let step_s = if view.interval_s.is_finite() { view.interval_s } else { 1.0 };
    // Some are not read with each sample.
    let back = ((10.0 * step_s) * SECOND as f64) as i64;
    let last = Span { since: view.span.until.saturating_sub(back), until: view.span.until };
    let metrics: Vec<&'static Metric> = METRICS.iter().filter_map(|name| lookup(name)).collect();
    let set = view.reader.read(&Query { raw: true, ..Query::new(last, metrics.clone()) })?;
    let mut out = String::with_capacity(32 << 10);
    for metric in metrics {
        let Some((family, scale)) = family(metric, set.host.page_bytes as f64) else { continue };
        let mut has_head = false;
        for (row, series) in set.each(metric.name) {
            // What is gone has no sample at the end.
            let Some((_, _, value)) = series.samples(last).next_back() else { continue };
            if !std::mem::replace(&mut has_head, true) {
                family.head(&mut out);
            }
            let label = [(metric.entity.name(), row)];
            family.sample(
                &mut out,
                if metric.entity == Entity::System { &[] } else { &label },
                value * scale,
            );
        }
    }
    own(view, report, &mut out);
    out.push_str("# EOF\n");
    Ok(out)
}

/// What incidents cost, if that is known of any, and how many are not over; by root and culprit. Alike ones are one sample: the same
/// labels must not stand twice.
fn lost(report: &Report) -> BTreeMap<(&str, String), (Option<f64>, f64)> {
    let mut lost: BTreeMap<_, (Option<f64>, f64)> = BTreeMap::new();
    for incident in &report.incidents {
        let root = &incident.root_cause;
        let who = culprit(&root.culprit).unwrap_or_default();
        let sum = lost.entry((root.condition.as_str(), who)).or_default();
        sum.0 = incident.lost_task_seconds.map(|lost| sum.0.unwrap_or(0.0) + lost).or(sum.0);
        sum.1 += f64::from(u8::from(incident.end.is_none()));
    }
    lost
}

fn own(view: &View, report: Option<&Report>, out: &mut String) {
    let mut gauge = |name: &str, unit: &'static str, help: &str, samples: &[(&[(&str, &str)], f64)]| {
        let family = Family { name: name.to_owned(), kind: "gauge", unit, help };
        family.head(out);
        samples.iter().for_each(|(labels, value)| family.sample(out, labels, *value));
    };
    let at = view.span.until as f64 / SECOND as f64;
    gauge("mitra_sample_timestamp_seconds", "seconds", "When the newest sample was taken.", &[(&[], at)]);
    let is_live = f64::from(u8::from(view.is_live()));
    gauge("mitra_recorder_up", "", "1 if a recorder writes the archive.", &[(&[], is_live)]);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    gauge("mitra_build_info", "", "The version of mitra that answers.", &[(&version, 1.0)]);
    let Some(report) = report else { return };
    let lost = lost(report);
    let labels: Vec<_> =
        lost.keys().map(|(id, who)| [("condition", *id), ("culprit", who.as_str())]).collect();
    // What is not known has no sample.
    let each = |of: fn(&(Option<f64>, f64)) -> Option<f64>| -> Vec<(&[(&str, &str)], f64)> {
        let samples = labels.iter().zip(lost.values());
        samples.filter_map(|(labels, sum)| Some((&labels[..], of(sum)?))).collect()
    };
    let help = "Task-seconds that the incidents of the last ten minutes cost.";
    gauge("mitra_incident_lost_seconds", "seconds", help, &each(|sum| sum.0));
    let help = "How many incidents of the last ten minutes are not over.";
    gauge("mitra_incident_open", "", help, &each(|sum| Some(sum.1)));
}

/// `mitra_disk_read_bytes` of `disk.read_bytes`: the unit is the end of the name.
fn name(metric: &str, unit: &str) -> String {
    let of_recorder = metric.strip_prefix("mitra.").map(|rest| format!("recorder_{rest}"));
    let mut name = format!("mitra_{}", of_recorder.as_deref().unwrap_or(metric).replace(['.', '-'], "_"));
    if !unit.is_empty() && !name.ends_with(&format!("_{unit}")) {
        name = format!("{name}_{unit}");
    }
    name
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::all_metrics;

    #[test]
    fn each_chosen_metric_is_in_the_table_and_has_a_name_of_its_own() {
        let mut names: Vec<String> = Vec::new();
        for metric in METRICS {
            let known = lookup(metric).unwrap_or_else(|| panic!("{metric} is in no table"));
            assert!(matches!(known.kind, Kind::Counter | Kind::Gauge), "{metric}");
            let named = name(metric, "bytes");
            assert!(named.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{named}");
            assert!(!names.contains(&named), "{named}");
            names.push(named);
        }
        assert_eq!(name("disk.read_bytes", "bytes"), "mitra_disk_read_bytes");
        assert_eq!(name("mitra.rss", "bytes"), "mitra_recorder_rss_bytes");
    }

    #[test]
    fn no_two_metrics_have_the_same_name() {
        let mut names: Vec<String> =
            all_metrics().filter_map(|metric| Some(family(metric, 4096.0)?.0.of_samples())).collect();
        let is_good = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        assert!(names.len() > 500 && names.iter().all(is_good), "{names:?}");
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|two| two[0] == two[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn alike_incidents_are_one_sample_and_an_unknown_cost_is_not_zero() {
        let mut report = crate::render::examples::flood();
        report.incidents.truncate(1);
        report.incidents[0].lost_task_seconds = None;
        let sum = |report: &Report| lost(report).into_values().collect::<Vec<_>>();
        assert_eq!(sum(&report).iter().map(|sum| sum.0).collect::<Vec<_>>(), [None]);
        let mut again = report.incidents[0].clone();
        again.lost_task_seconds = Some(2.5);
        report.incidents.push(again);
        assert_eq!(sum(&report).iter().map(|sum| sum.0).collect::<Vec<_>>(), [Some(2.5)]);
    }

    #[test]
    fn names_of_hostile_things_stay_inside_of_their_label() {
        let family = Family { name: "a".to_owned(), kind: "counter", unit: "", help: "x\ny" };
        let mut out = String::new();
        family.head(&mut out);
        family.sample(&mut out, &[("fs", "/a\"} 1\n# EOF\\")], 2.5);
        assert_eq!(out, "# TYPE a counter\n# HELP a x\\ny\na_total{fs=\"/a\\\"} 1\\n# EOF\\\\\"} 2.5\n");
    }
}
