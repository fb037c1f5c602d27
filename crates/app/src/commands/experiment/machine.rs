//! What the recorder saw of the runs: one value of each metric for each run, because only runs are independent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::compare::Input;
use mitra_model::compare::Side;
use mitra_model::report::Link;
use mitra_model::time::SECOND;
use mitra_model::{Axis, Metric, Series, SeriesSet, Span, lookup};

use super::folder::Ran;
use crate::diagnosis;

/// What is compared: CPU, waiting, memory, disks, network. Few, so that chance has few occasions.
const METRICS: &[&str] = &[
    "sys.cpu_user",
    "sys.cpu_system",
    "sys.cpu_iowait",
    "sys.cpu_softirq",
    "sys.cpu_steal",
    "sys.procs_running",
    "sys.ctxt",
    "sys.intr",
    "sys.forks",
    "psi.cpu_some",
    "psi.io_some",
    "psi.memory_some",
    "tasks.run_delay",
    "tasks.blkio_delay",
    "tasks.reclaim_delay",
    "tasks.thrashing_delay",
    "probe.lock_wait_time",
    "vm.pgfault",
    "vm.pgmajfault",
    "vm.pswpin",
    "vm.pswpout",
    "vm.workingset_refault_file",
    "disk.reads",
    "disk.read_bytes",
    "disk.read_time",
    "disk.writes",
    "disk.write_bytes",
    "disk.write_time",
    "disk.io_time",
    "disk.flushes",
    "netns.tcp_RetransSegs",
];

/// The recorded runs of a variant at a step.
#[derive(Default)]
pub struct Recorded {
    /// By metric and row; one value for each run that has it.
    values: BTreeMap<(&'static str, Arc<str>), Vec<f64>>,
    /// Lost task-seconds a second, of each run.
    pub lost: Vec<f64>,
    /// In how many runs a condition was active.
    pub conditions: BTreeMap<String, usize>,
    /// Runs of which there are samples.
    pub runs: usize,
}

/// Reads the spans of runs.
pub fn read(reader: &Reader, runs: &[&Ran]) -> Result<Recorded> {
    let metrics: Vec<&'static Metric> = METRICS.iter().filter_map(|name| lookup(name)).collect();
    let mut recorded = Recorded::default();
    for run in runs.iter().filter(|run| run.since < run.until) {
        let span = Span { since: run.since, until: run.until.saturating_add(1) };
        let set = reader.read(&Query::new(span, metrics.clone()))?;
        if !add_means(&mut recorded, &set, span) {
            continue;
        }
        recorded.runs += 1;
        let report = diagnosis::explain_foreign(reader, span)?;
        let seconds = (run.until - run.since) as f64 / SECOND as f64;
        recorded.lost.extend(report.ledger.lost_task_seconds.map(|lost| lost / seconds));
        let links = report.incidents.iter().flat_map(|incident| &incident.chain).chain(&report.observed);
        let active: BTreeSet<&str> = links.map(|link: &Link| link.condition.as_str()).collect();
        for id in active {
            *recorded.conditions.entry(id.to_owned()).or_default() += 1;
        }
    }
    Ok(recorded)
}

/// Adds the mean of each series over the samples that lie wholly inside of the run. Whether there are any.
fn add_means(recorded: &mut Recorded, set: &SeriesSet, span: Span) -> bool {
    let mut any = false;
    for (name, rows) in set.metrics() {
        for (row, series) in rows {
            let (mut sum, mut weight) = (0.0, 0.0);
            for (t, dt, value) in series.samples(Span::ALL) {
                let began = if dt.is_finite() { t.saturating_sub((dt * SECOND as f64) as i64) } else { t };
                if began >= span.since && t <= span.until && value.is_finite() {
                    let share = if dt.is_finite() && dt > 0.0 { dt } else { 1.0 };
                    sum += value * share;
                    weight += share;
                }
            }
            if weight > 0.0 {
                any = true;
                recorded.values.entry((name, row.clone())).or_default().push(sum / weight);
            }
        }
    }
    any
}

impl Recorded {
    /// As a side of a comparison.
    pub fn side(&self, name: &str) -> Input {
        let mut set = SeriesSet::default();
        for ((metric, row), values) in &self.values {
            let Some(metric) = lookup(metric) else { continue };
            let axis = Arc::new(Axis {
                t: (0..values.len() as i64).map(|run| run * SECOND).collect(),
                dt: vec![1.0; values.len()],
                places: Vec::new(),
            });
            let values = values.clone().into();
            set.insert(metric, row.clone(), Series { axis, start: 0, values });
        }
        Input { side: Side { name: name.to_owned(), source: "archive".to_owned(), ..Side::default() }, set }
    }
}
