//! What is kept of the sample before: the counters that some rule needs, and which row is which.

use mitra_model::{Entity, Frame, Key, NA, Stamp};

use crate::compile::MetricUse;

/// No row of the sample before.
const NONE: u32 = u32::MAX;
/// Rows that are passed over in search of the next one before the whole table is searched.
const NEAR: usize = 64;
/// A hole: so many intervals, and at least so many seconds, without a sample.
const HOLE_INTERVALS: f64 = 10.0;
const HOLE_S: f64 = 30.0;
/// The clocks of a machine that slept differ by more than this.
const SUSPEND_NS: i64 = 1_000_000_000;

/// The sample before.
#[derive(Debug)]
pub struct Past {
    time: Option<Stamp>,
    generation: u32,
    tables: Vec<PastTable>,
    /// Seconds between the two samples; not a number where there is none before, or a hole between.
    pub dt_s: f64,
}

#[derive(Debug)]
struct PastTable {
    entity: Entity,
    columns: Vec<usize>,
    keys: Vec<Key>,
    cells: Vec<i64>,
    /// For each row of this sample its row in the one before.
    rows: Vec<u32>,
    /// Positions of `keys` in order of the keys, for rows that do not stand where they stood. Made when needed.
    sorted: Vec<u32>,
}

impl Past {
    /// Keeps what these metrics need.
    #[must_use]
    pub fn new<'a>(uses: impl Iterator<Item = &'a MetricUse>) -> Past {
        let mut tables: Vec<PastTable> = Vec::new();
        for of in uses.filter(|of| of.needs_past()) {
            let entity = of.metric.entity;
            let i = tables.iter().position(|t| t.entity == entity).unwrap_or_else(|| {
                tables.push(PastTable {
                    entity,
                    columns: Vec::new(),
                    keys: Vec::new(),
                    cells: Vec::new(),
                    rows: Vec::new(),
                    sorted: Vec::new(),
                });
                tables.len() - 1
            });
            if let Some(table) = tables.get_mut(i).filter(|t| !t.columns.contains(&of.column)) {
                table.columns.push(of.column);
            }
        }
        Past { time: None, generation: 0, tables, dt_s: f64::NAN }
    }

    /// Puts a new sample beside the one before.
    pub fn compare(&mut self, frame: &Frame, generation: u32) {
        self.dt_s = self.time.map_or(f64::NAN, |before| seconds(before, frame));
        let before = self.time;
        let are_names_known = generation == self.generation;
        self.generation = generation;
        for table in &mut self.tables {
            // Ids of names mean something else in another table of texts. Tasks have their keys from the kernel.
            if !are_names_known && !matches!(table.entity, Entity::System | Entity::Task) {
                table.keys.clear();
            }
            if self.dt_s.is_nan() {
                table.keys.clear();
            }
            table.compare(frame, before);
        }
    }

    /// Keeps the sample for the next one.
    pub fn keep(&mut self, frame: &Frame) {
        self.time = Some(frame.time);
        for table in &mut self.tables {
            table.keep(frame);
        }
    }

    /// What a cell held before; [`NA`] where there is no telling.
    #[must_use]
    pub fn cell(&self, of: &MetricUse, row: usize) -> i64 {
        let Some(table) = self.tables.iter().find(|t| t.entity == of.metric.entity) else { return NA };
        let Some(before) = table.rows.get(row).filter(|before| **before != NONE) else { return NA };
        let Some(column) = table.columns.iter().position(|c| *c == of.column) else { return NA };
        table.cells.get(*before as usize * table.columns.len() + column).copied().unwrap_or(NA)
    }
}

/// Seconds between two samples; not a number across a reboot, a suspend or a hole.
fn seconds(before: Stamp, frame: &Frame) -> f64 {
    let now = frame.time;
    let ns = now.mono - before.mono;
    let slept_ns = (now.boot - now.mono) - (before.boot - before.mono);
    let seconds = ns as f64 * 1e-9;
    let interval_s = frame.interval_ns as f64 * 1e-9;
    let is_hole = seconds > HOLE_S.max(HOLE_INTERVALS * interval_s);
    if ns <= 0 || slept_ns.abs() > SUSPEND_NS || is_hole { f64::NAN } else { seconds }
}

impl PastTable {
    /// Finds for each row of the frame its row in the sample before. Rows keep their order, so both lists are walked
    /// side by side; what was born since needs no search.
    fn compare(&mut self, frame: &Frame, before: Option<Stamp>) {
        self.rows.clear();
        self.sorted.clear();
        let keys = frame.table(self.entity).keys();
        let mut next = 0;
        for key in keys {
            let found = self.find(*key, next, before);
            next = found.map_or(next, |found| found + 1);
            self.rows.push(found.and_then(|found| u32::try_from(found).ok()).unwrap_or(NONE));
        }
    }

    fn find(&mut self, key: Key, next: usize, before: Option<Stamp>) -> Option<usize> {
        let near = self.keys.get(next..).unwrap_or_default();
        if near.first() == Some(&key) {
            return Some(next);
        }
        let is_task = self.entity == Entity::Task;
        if is_task && before.is_some_and(|t| i64::try_from(key.born).is_ok_and(|born| born > t.boot)) {
            return None;
        }
        if let Some(ahead) = near.iter().take(NEAR).position(|k| *k == key) {
            return Some(next + ahead);
        }
        if self.sorted.is_empty() {
            self.sorted.extend(0..u32::try_from(self.keys.len()).unwrap_or(0));
            let keys = &self.keys;
            self.sorted.sort_unstable_by_key(|i| keys.get(*i as usize));
        }
        let keys = &self.keys;
        let i = self.sorted.binary_search_by_key(&Some(&key), |i| keys.get(*i as usize)).ok()?;
        self.sorted.get(i).map(|i| *i as usize)
    }

    fn keep(&mut self, frame: &Frame) {
        let table = frame.table(self.entity);
        self.keys.clear();
        self.cells.clear();
        self.keys.extend_from_slice(table.keys());
        for (_, row) in table.rows() {
            self.cells.extend(self.columns.iter().map(|c| row.get(*c).copied().unwrap_or(NA)));
        }
    }
}
