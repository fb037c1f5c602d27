//! Evaluation on a set of series: a recording that was read, or other tools' output.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use mitra_model::{Entity, Series, SeriesSet, Span};

use crate::ast::GroupBy;
use crate::compile::{Attribute, Domain, MetricUse, Program, Selector, Test};
use crate::eval::{At, Evaluation, Memo, Source};
use crate::watch::Details;

/// Different files sample at different moments: a value holds for so many of its own steps.
const FRESH_STEPS: f64 = 2.0;
/// What other tools wrote in another unit is not the same to the last bit.
const ROUNDING: f64 = 1e-9;

/// A stretch in which a rule held for as long as it has to.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    /// When it had held for long enough.
    pub fired: i64,
    /// The last moment of it.
    pub until: i64,
    /// Of which row, and by which numbers when it fired.
    pub details: Details,
}

/// Where a rule held in a set of series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// The stretches, by time.
    pub stretches: Vec<Stretch>,
    /// Metrics that the set has nothing of.
    pub missing: Vec<&'static str>,
}

struct SetSource<'a> {
    set: &'a SeriesSet,
    /// The names of the rows of each entity.
    rows: BTreeMap<Entity, Vec<&'a str>>,
    /// For each use of a metric the series of each row.
    series: HashMap<&'static str, Vec<Option<&'a Series>>>,
    now: Cell<i64>,
    ids: RefCell<HashMap<String, u64>>,
    page_bytes: f64,
}

/// Finds where a rule held.
#[must_use]
pub fn replay(program: &Program, set: &SeriesSet, span: Span) -> Replayed {
    let source = SetSource::new(program, set);
    let mut memo = Memo::new([program]);
    let mut replayed = Replayed { missing: source.missing(program), ..Replayed::default() };
    let Some(axis) = source.axis(program) else { return replayed };
    // For each row that holds: since how many seconds, and its stretch once that is enough.
    let mut held: BTreeMap<String, (f64, Option<usize>, bool)> = BTreeMap::new();
    let step = axis.step_s();
    for i in axis.range(span) {
        let (Some(t), Some(dt)) = (axis.t.get(i).copied(), axis.dt.get(i).copied()) else { break };
        // The first sample covers no known time; a hole between two is not covered by either.
        let dt = if dt.is_finite() {
            dt
        } else if step.is_finite() && i > 0 {
            step
        } else {
            0.0
        };
        source.now.set(t);
        memo.clear();
        let run = Evaluation { program, source: &source, memo: &memo };
        held.values_mut().for_each(|held| held.2 = false);
        run.each(&mut |at, value| {
            if value != 1.0 {
                return;
            }
            let name = source.name(program.domain, at);
            let (seconds, stretch, is_fresh) = held.entry(name).or_insert((0.0, None, true));
            (*seconds, *is_fresh) = (*seconds + dt, true);
            if *seconds + 1e-6 < program.hold_s {
                return;
            }
            if let Some(stretch) = stretch.and_then(|i| replayed.stretches.get_mut(i)) {
                stretch.until = t;
                return;
            }
            *stretch = Some(replayed.stretches.len());
            let mut details = source.details(&run, at);
            details.seconds = *seconds;
            replayed.stretches.push(Stretch { fired: t, until: t, details });
        });
        held.retain(|_, held| held.2);
    }
    replayed
}

impl<'a> SetSource<'a> {
    fn new(program: &Program, set: &'a SeriesSet) -> Self {
        let mut rows: BTreeMap<Entity, Vec<&str>> = BTreeMap::new();
        for of in &program.uses {
            let names = rows.entry(of.metric.entity).or_default();
            names.extend(set.each(of.metric.name).map(|(row, _)| row));
        }
        for names in rows.values_mut() {
            names.sort_unstable();
            names.dedup();
        }
        let mut series = HashMap::new();
        for of in &program.uses {
            let names = rows.get(&of.metric.entity).map(Vec::as_slice).unwrap_or_default();
            series.insert(of.metric.name, names.iter().map(|row| set.get(of.metric.name, row)).collect());
        }
        let page_bytes = if set.host.page_bytes == 0 { 4096.0 } else { set.host.page_bytes as f64 };
        SetSource { set, rows, series, now: Cell::new(0), ids: RefCell::default(), page_bytes }
    }

    /// The moments that are looked at: of the metric that has most of them.
    fn axis(&self, program: &Program) -> Option<&'a mitra_model::series::Axis> {
        let all = program.uses.iter().filter_map(|of| self.series.get(of.metric.name)).flatten().flatten();
        all.map(|series| series.axis.as_ref()).max_by_key(|axis| axis.len())
    }

    fn missing(&self, program: &Program) -> Vec<&'static str> {
        let mut missing: Vec<&'static str> = Vec::new();
        for of in &program.uses {
            let selector = of.selector.and_then(|i| program.selectors.get(i));
            let names = self.rows.get(&of.metric.entity).map(Vec::as_slice).unwrap_or_default();
            let series = self.series.get(of.metric.name).map(Vec::as_slice).unwrap_or_default();
            let is_there = (0..names.len()).any(|row| {
                let is_meant = !of.is_one || selector.is_none_or(|s| self.is_selected(s, row));
                let has = |s: &&Series| s.values.iter().any(|v| v.is_finite());
                is_meant && series.get(row).copied().flatten().as_ref().is_some_and(has)
            });
            if !is_there && !missing.contains(&of.metric.name) {
                missing.push(of.metric.name);
            }
        }
        missing
    }

    fn series(&self, of: &MetricUse, row: Option<usize>) -> Option<&'a Series> {
        *self.series.get(of.metric.name)?.get(row.unwrap_or(0))?
    }

    fn row(&self, entity: Entity, row: usize) -> &'a str {
        self.rows.get(&entity).and_then(|names| names.get(row)).copied().unwrap_or("")
    }

    fn text(&self, metric: &str, row: &str) -> Option<&'a str> {
        self.set.text(metric, row)?.at(self.now.get())
    }

    fn number(&self, metric: &str, row: &str) -> Option<f64> {
        position(self.set.get(metric, row)?, self.now.get()).map(|(_, value)| value)
    }

    fn id(&self, text: &str) -> u64 {
        let mut ids = self.ids.borrow_mut();
        let next = ids.len() as u64;
        *ids.entry(text.to_owned()).or_insert(next)
    }

    fn passes(&self, entity: Entity, test: &Test, row: usize) -> bool {
        let name = self.row(entity, row);
        let fits = |text: Option<&str>| text.is_some_and(|text| test.fits(text));
        let equals = |number: Option<f64>| {
            number.is_some_and(|n| (n - test.value).abs() <= ROUNDING * test.value.abs())
        };
        let fits = match test.of {
            Attribute::Name if entity == Entity::Exited => fits(name.split_once(':').map(|(_, comm)| comm)),
            Attribute::Name => fits(Some(name)),
            Attribute::Tid => equals(name.split_once('@').and_then(|(tid, _)| tid.parse().ok())),
            Attribute::Text(_, metric) => fits(self.text(metric, name)),
            Attribute::Number(_, metric) => equals(self.number(metric, name)),
        };
        fits != test.negated
    }

    fn name(&self, domain: Domain, at: At<usize>) -> String {
        match (domain, at) {
            (Domain::Rows(entity), At::Row(row)) => self.row(entity, row).to_owned(),
            (Domain::Groups(GroupBy::Pid), At::Group(pid)) => pid.to_string(),
            (_, At::Group(group)) => {
                let ids = self.ids.borrow();
                ids.iter().find(|(_, id)| **id == group).map(|(text, _)| text.clone()).unwrap_or_default()
            }
            _ => String::new(),
        }
    }

    fn details(&self, run: &Evaluation<'_, Self>, at: At<usize>) -> Details {
        let mut details = Details { rows: 1, ..Details::default() };
        let name = self.name(run.program.domain, at);
        match run.program.domain {
            Domain::One => {}
            Domain::Rows(Entity::Task) => self.name_task(&name, &mut details),
            Domain::Rows(entity) => {
                details.cgroup = (entity == Entity::Cgroup).then(|| name.clone());
                details.row = Some(name);
            }
            Domain::Groups(GroupBy::Pid) => {
                let pid = name.parse::<f64>().unwrap_or(f64::NAN);
                let tasks = self.rows.get(&Entity::Task).map(Vec::as_slice).unwrap_or_default();
                if let Some(row) = tasks.iter().find(|row| self.number("task.tgid", row) == Some(pid)) {
                    self.name_task(row, &mut details);
                }
                details.pid = name.parse().ok();
                details.row = Some(format!("{} ({name})", details.comm.as_deref().unwrap_or("?")));
            }
            Domain::Groups(GroupBy::Comm) => (details.comm, details.row) = (Some(name.clone()), Some(name)),
            Domain::Groups(GroupBy::Cgroup) => {
                (details.cgroup, details.row) = (Some(name.clone()), Some(name));
            }
        }
        details.values = run.shown(at);
        details
    }

    fn name_task(&self, row: &str, details: &mut Details) {
        let own = |text: Option<&str>| text.map(str::to_owned);
        details.comm = own(self.text("task.comm", row));
        details.cgroup = own(self.text("task.cgroup", row));
        let tid = row.split_once('@').map_or(row, |(tid, _)| tid);
        details.pid = self.number("task.tgid", row).map(|pid| pid as u32).or_else(|| tid.parse().ok());
        details.row = Some(format!("{} ({tid})", details.comm.as_deref().unwrap_or("?")));
    }
}

/// The sample that holds at a moment: its position and its value.
fn position(series: &Series, now: i64) -> Option<(usize, f64)> {
    let axis = &series.axis;
    let i = axis.t.partition_point(|t| *t <= now).checked_sub(1)?;
    let t = *axis.t.get(i)?;
    let value = series.at(i);
    if t == now {
        return Some((i, value));
    }
    let step = axis.step_s();
    let age = mitra_model::series::seconds_between(t, now);
    (step.is_finite() && age <= FRESH_STEPS * step).then_some((i, value))
}

impl Source for SetSource<'_> {
    type Row = usize;

    fn value(&self, of: &MetricUse, row: Option<usize>) -> f64 {
        let Some(series) = self.series(of, row) else { return f64::NAN };
        let Some((i, value)) = position(series, self.now.get()) else { return f64::NAN };
        if !of.is_slope {
            return value;
        }
        let Some(before) = i.checked_sub(1) else { return f64::NAN };
        let dt = series.axis.dt.get(i).copied().unwrap_or(f64::NAN);
        (value - series.at(before)) / dt
    }

    fn is_selected(&self, selector: &Selector, row: usize) -> bool {
        selector.tests.iter().all(|test| self.passes(selector.entity, test, row))
    }

    fn find(&self, selector: &Selector) -> Option<usize> {
        self.rows(selector.entity).find(|row| self.is_selected(selector, *row))
    }

    fn rows(&self, entity: Entity) -> impl Iterator<Item = usize> {
        0..self.rows.get(&entity).map_or(0, Vec::len)
    }

    fn group(&self, by: GroupBy, row: usize) -> Option<u64> {
        let name = self.row(Entity::Task, row);
        match by {
            // Whole numbers, and far below where they would not be exact.
            GroupBy::Pid => self.number("task.tgid", name).filter(|n| *n >= 0.0).map(|n| n as u64),
            GroupBy::Comm => self.text("task.comm", name).map(|text| self.id(text)),
            GroupBy::Cgroup => self.text("task.cgroup", name).map(|text| self.id(text)),
        }
    }

    fn page_bytes(&self) -> f64 {
        self.page_bytes
    }
}
