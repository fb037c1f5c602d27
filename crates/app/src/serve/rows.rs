//! Which rows of a metric are large, and how large.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::StatusCode;
use mitra_archive::Query;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, Series, Span, lookup};
use serde_json::{Value, json};

use super::archive::View;
use super::pool::Cancel;
use super::response::Failure;
use crate::recording::chunks;

pub const LIMIT: usize = 20;
pub const LIMIT_MAX: usize = 1000;
const CHUNK_NS: i64 = 3600 * SECOND;
const CHUNK_TASKS_NS: i64 = 60 * SECOND;
/// A range may have so many; a table of them would not be read.
const ROWS_MAX: usize = 500_000;

struct Sum {
    /// Of value times seconds.
    total: f64,
    seconds: f64,
    max: f64,
}

impl Sum {
    fn add(&mut self, series: &Series, span: Span) {
        for (_, dt, value) in series.samples(span) {
            let dt = if dt.is_finite() { dt } else { 1.0 };
            self.total += value * dt;
            self.seconds += dt;
            self.max = self.max.max(value);
        }
    }

    fn mean(&self) -> f64 {
        self.total / self.seconds
    }
}

/// Rates by what they add up to, everything else by its mean.
pub fn answer(
    view: &View,
    metric: &'static Metric,
    span: Span,
    limit: usize,
    cancel: &Cancel,
) -> Result<Value, Failure> {
    let is_of_tasks = metric.entity == Entity::Task;
    let name = lookup("task.comm").filter(|_| is_of_tasks);
    let metrics: Vec<&'static Metric> = name.into_iter().chain([metric]).collect();
    let mut sums: HashMap<Arc<str>, (Sum, Option<Arc<str>>)> = HashMap::new();
    for part in chunks(span, if is_of_tasks { CHUNK_TASKS_NS } else { CHUNK_NS }) {
        if cancel.is_set() {
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "gone", "nobody waits for it"));
        }
        let query = Query { moving_only: true, ..Query::new(part, metrics.clone()) };
        let set = view.reader.read(&query).map_err(anyhow::Error::from)?;
        for (row, series) in set.each(metric.name) {
            let new = || (Sum { total: 0.0, seconds: 0.0, max: f64::NEG_INFINITY }, None);
            let (sum, label) = match sums.get_mut(row) {
                Some(known) => known,
                None => sums.entry(row.into()).or_insert_with(new),
            };
            sum.add(series, part);
            if let Some(comm) = name.and_then(|name| set.text(name.name, row)?.last()) {
                let thread = row.split_once('@').map_or(row, |(thread, _)| thread);
                let text = format!("{comm} ({thread})");
                if label.as_deref() != Some(text.as_str()) {
                    *label = Some(text.into());
                }
            }
        }
        if sums.len() > ROWS_MAX {
            return Err(Failure::bad("too_many_rows", "too many rows in that time; ask for a shorter one"));
        }
    }
    let size = |sum: &Sum| if metric.is_rate() { sum.total } else { sum.mean() };
    let mut rows: Vec<_> = sums.into_iter().filter(|(_, (sum, _))| sum.seconds > 0.0).collect();
    rows.sort_by(|(a_row, (a, _)), (b_row, (b, _))| {
        size(b).total_cmp(&size(a)).then_with(|| a_row.cmp(b_row))
    });
    rows.truncate(limit);
    let row = |(row, (sum, label)): &(Arc<str>, (Sum, Option<Arc<str>>))| {
        let label = label.as_deref().unwrap_or(row);
        json!({ "row": &**row, "label": label, "mean": sum.mean(), "max": sum.max })
    };
    Ok(rows.iter().map(row).collect())
}
