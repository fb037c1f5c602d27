//! One row of a panel over time.

use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::process;
use mitra_model::{Series, SeriesSet, Span};

use super::samples::axis_of;
use super::value::Value;
use super::{Panel, metrics};

#[derive(Debug, Clone)]
pub struct Detail {
    /// Of the row.
    pub key: String,
    pub span: Span,
    /// As [`Panel::columns`]; `None` was not measured.
    pub curves: Vec<Option<Series>>,
    /// When it was first and last there, inside the span.
    pub seen: Option<(i64, i64)>,
}

/// `None` if the row is not there.
pub fn read(reader: &Reader, panel: Panel, key: &str, span: Span) -> Result<Option<Detail>> {
    let Some(entity) = panel.entity() else { return Ok(None) };
    let is_task = panel.has_processes();
    // Rows of ended processes have another form: the parent's id and a name.
    let is_ended = is_task && !key.contains('@');
    let rows = if is_task && !is_ended { threads(reader, span, key)? } else { vec![key.to_owned()] };
    let names = panel.columns().iter().flat_map(|column| -> Box<dyn Iterator<Item = &'static str>> {
        if is_ended { Box::new(column.ended.iter().copied()) } else { Box::new(column.value.metrics()) }
    });
    let entity = if is_ended { mitra_model::Entity::Exited } else { entity };
    let wanted: std::collections::BTreeSet<String> = rows.iter().cloned().collect();
    let filter = move |of: mitra_model::Entity, row: &str| of == entity && wanted.contains(row);
    let set = reader.read(&Query { rows: Some(Arc::new(filter)), ..Query::new(span, metrics(names)) })?;
    let Some(axis) = axis_of(&set).cloned() else { return Ok(None) };
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let curve = |value: Value| {
        let series = value.series(&set, &rows, &axis);
        series.values.iter().any(|value| value.is_finite()).then_some(series)
    };
    let curves = panel.columns().iter().map(|column| match (is_ended, column.ended) {
        (false, _) => curve(column.value),
        (true, []) => None,
        (true, names) => curve(Value::Sum(names)),
    });
    let curves: Vec<_> = curves.collect();
    let seen = seen(&set, &axis.t);
    Ok(Some(Detail { key: key.to_owned(), span, curves, seen }))
}

/// The threads that the process of a leader has in a span.
fn threads(reader: &Reader, span: Span, leader: &str) -> Result<Vec<String>> {
    let set = reader.read(&Query::new(span, metrics(["task.tgid"])))?;
    let all = process::collect(&set);
    let own = all.into_iter().find(|process| process.rows.contains(&leader));
    Ok(own.map_or_else(Vec::new, |process| process.rows.into_iter().map(str::to_owned).collect()))
}

fn seen(set: &SeriesSet, t: &[i64]) -> Option<(i64, i64)> {
    let measured =
        |i: &usize| set.metrics().flat_map(|(_, rows)| rows.values()).any(|series| series.at(*i).is_finite());
    let first = (0..t.len()).find(measured)?;
    let last = (0..t.len()).rev().find(measured)?;
    Some((*t.get(first)?, *t.get(last)?))
}
