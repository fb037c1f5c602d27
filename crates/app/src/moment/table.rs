//! The rows of one panel at one sample.

use std::collections::BTreeSet;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::process::{self, Process};
use mitra_model::{Axis, SeriesSet, Span, cgroup_name};

use super::samples::{Place, axis_of};
use super::value::GROWTH_NS;
use super::{Panel, metrics};
use crate::services::Services;

#[derive(Debug, Clone, Default)]
pub struct Table {
    pub panel: Panel,
    pub rows: Vec<Row>,
    /// Why there are none.
    pub why_empty: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The same in each sample: that of the leader of a process.
    pub key: String,
    /// The key of the row that it stands below in a tree.
    pub parent: Option<String>,
    pub name: String,
    pub pid: Option<u32>,
    pub ppid: Option<u32>,
    pub state: Option<char>,
    /// Ended since the sample before.
    pub is_ended: bool,
    /// How many ended, of rows that stand for several.
    pub count: f64,
    pub cgroup: Option<String>,
    /// What its threads in D state wait in.
    pub waits_in: Vec<String>,
    /// As [`Panel::columns`]; `NaN` was not measured.
    pub cells: Vec<f64>,
}

impl Table {
    pub fn empty(panel: Panel) -> Self {
        Table { panel, ..Table::default() }
    }
}

pub fn read(reader: &Reader, panel: Panel, place: &Place) -> Result<Table> {
    let Some(entity) = panel.entity() else { return Ok(Table::empty(panel)) };
    let ended = panel.columns().iter().flat_map(|column| column.ended.iter().copied());
    let numbers = panel.columns().iter().flat_map(|column| column.value.metrics());
    let names = panel.names().iter().copied().chain(numbers).chain(ended);
    // Who was there in the sample before and is no more has ended.
    let before = place.previous.filter(|_| place.gap.is_none()).unwrap_or(place.at);
    let since = if panel == Panel::Memory { place.at.saturating_sub(GROWTH_NS) } else { before };
    let span = Span { since, until: place.at.saturating_add(1) };
    let set = reader.read(&Query::new(span, metrics(names)))?;
    let Some(axis) = axis_of(&set).cloned() else { return Ok(none(panel, &set)) };
    let Ok(i) = axis.t.binary_search(&place.at) else { return Ok(none(panel, &set)) };
    let rows = match panel {
        Panel::Processes | Panel::Memory => processes(panel, &set, &axis, i),
        _ => others(panel, entity, &set, &axis, i),
    };
    if rows.is_empty() { Ok(none(panel, &set)) } else { Ok(Table { panel, rows, why_empty: None }) }
}

fn none(panel: Panel, set: &SeriesSet) -> Table {
    let services = Services { seconds: 1.0, unavailable: set.unavailable.clone(), ..Services::default() };
    let why = match panel {
        Panel::Services => services.unwatched(&set.host.kernel),
        _ => None,
    };
    let rows = if panel.has_processes() { Panel::Processes } else { panel };
    let why_empty = why.unwrap_or_else(|| format!("no {} in this sample", rows.title()));
    Table { why_empty: Some(why_empty), ..Table::empty(panel) }
}

fn cells(panel: Panel, set: &SeriesSet, rows: &[&str], axis: &Axis, i: usize) -> Vec<f64> {
    panel.columns().iter().map(|column| column.value.at(set, rows, axis, i)).collect()
}

fn others(panel: Panel, entity: mitra_model::Entity, set: &SeriesSet, axis: &Axis, i: usize) -> Vec<Row> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (metric, rows) in set.metrics() {
        if mitra_model::lookup(metric).is_some_and(|metric| metric.entity == entity) {
            let there = rows.iter().filter(|(_, series)| series.at(i).is_finite());
            names.extend(there.map(|(name, _)| name.as_ref()));
        }
    }
    let t = axis.t.get(i).copied().unwrap_or_default();
    let row = |key: &str| {
        let comm = set.text("service.comm", key).and_then(|text| text.at(t)).unwrap_or_default();
        let name = if panel == Panel::Services { format!("{comm} {key}") } else { key.to_owned() };
        let called = Some(key).filter(|_| panel == Panel::Cgroups).and_then(|key| container(set, key));
        let above = key.rsplit_once('/').filter(|_| panel == Panel::Cgroups && key != "/");
        let parent = above.map(|(above, _)| if above.is_empty() { "/" } else { above }.to_owned());
        Row {
            key: key.to_owned(),
            parent,
            // The path stays: a filter finds it.
            cgroup: called.as_ref().map(|_| key.to_owned()),
            name: called.unwrap_or(name),
            cells: cells(panel, set, &[key], axis, i),
            ..Row::default()
        }
    };
    names.into_iter().map(row).collect()
}

fn processes(panel: Panel, set: &SeriesSet, axis: &Axis, i: usize) -> Vec<Row> {
    let all = process::collect(set);
    let is_there = |p: &Process<'_>| p.series(set, "task.tgid").any(|series| series.at(i).is_finite());
    let (there, gone): (Vec<&Process<'_>>, Vec<&Process<'_>>) = all.iter().partition(|p| is_there(p));
    let key_of = |pid: u32| {
        there.iter().find(|p| p.pid == pid).and_then(|p| p.rows.first()).map(|key| (*key).to_owned())
    };
    let mut rows: Vec<Row> = there.iter().map(|p| living(panel, p, set, (axis, i), &key_of)).collect();
    // Those that have ended do not grow.
    if panel == Panel::Memory {
        return rows;
    }
    let before = rows.len();
    ended(set, i, &key_of, &mut rows);
    // Without the probe of exits they are known by name only.
    if rows.len() == before && set.each("exited.count").next().is_none() {
        rows.extend(gone.iter().map(|p| Row {
            is_ended: true,
            cells: vec![f64::NAN; Panel::Processes.columns().len()],
            ..named(p, set, &key_of)
        }));
    }
    rows
}

fn named(p: &Process<'_>, set: &SeriesSet, key_of: &dyn Fn(u32) -> Option<String>) -> Row {
    let key = p.rows.first().copied().unwrap_or_default();
    let ppid = p.ppid.or_else(|| Some(set.get("task.ppid", key)?.last(Span::ALL)? as u32));
    Row {
        key: key.to_owned(),
        parent: ppid.filter(|ppid| *ppid != p.pid).and_then(key_of),
        // Brackets as in ps.
        name: if p.kthread { format!("[{}]", p.comm) } else { p.comm.to_owned() },
        pid: Some(p.pid),
        ppid,
        cgroup: p.cgroup.map(|path| match container(set, path) {
            Some(name) => format!("{name}  {path}"),
            None => path.to_owned(),
        }),
        count: 1.0,
        ..Row::default()
    }
}

/// What a cgroup is called, if it is in a container or a pod. Units have their name in the path.
fn container(set: &SeriesSet, path: &str) -> Option<String> {
    let read = cgroup_name::read(path);
    let is_one = !read.containers.is_empty()
        || read.pod.is_some()
        || cgroup_name::METRICS.iter().any(|metric| set.text(metric, path).is_some());
    cgroup_name::recorded(set, path).filter(|_| is_one)
}

fn living(
    panel: Panel,
    p: &Process<'_>,
    set: &SeriesSet,
    (axis, i): (&Axis, usize),
    key_of: &dyn Fn(u32) -> Option<String>,
) -> Row {
    let t = axis.t.get(i).copied().unwrap_or_default();
    Row {
        state: p.state(set, t),
        waits_in: p.waits_in(set, t).into_iter().map(str::to_owned).collect(),
        cells: cells(panel, set, &p.rows, axis, i),
        ..named(p, set, key_of)
    }
}

/// Those that ended since the sample before, by parent and name.
fn ended(set: &SeriesSet, i: usize, key_of: &dyn Fn(u32) -> Option<String>, rows: &mut Vec<Row>) {
    for (key, series) in set.each("exited.count") {
        let rate = series.at(i);
        let dt = series.axis.dt.get(i).copied().unwrap_or(f64::NAN);
        if !(rate > 0.0 && dt > 0.0) {
            continue;
        }
        let (ppid, comm) = key.split_once(':').unwrap_or(("", key));
        let ppid = ppid.parse().ok();
        let pid = set.get("exited.last_pid", key).map(|series| series.at(i)).filter(|pid| pid.is_finite());
        let cell = |names: &[&str]| {
            let values = names.iter().filter_map(|name| Some(set.get(name, key)?.at(i)));
            values.filter(|value| value.is_finite()).reduce(|a, b| a + b).unwrap_or(f64::NAN)
        };
        rows.push(Row {
            key: key.to_owned(),
            parent: ppid.and_then(key_of),
            name: comm.to_owned(),
            pid: pid.map(|pid| pid as u32),
            ppid,
            is_ended: true,
            count: (rate * dt).round(),
            cells: Panel::Processes.columns().iter().map(|column| cell(column.ended)).collect(),
            ..Row::default()
        });
    }
}
