//! Where numbers of saved files go: each with the line that it stands on, in the base unit that readers see.

use std::collections::HashMap;

use mitra_model::{Entity, Frame, Kind, Metric, NA, Strings, columns, frame::row_name};

use crate::text::{Column, Form, GroupId, Import, When};

/// The groups that are in use, so that none is looked for twice.
#[derive(Debug, Default)]
pub(in crate::text) struct Sink {
    /// One for each metric and form; the metric table bounds them.
    single: HashMap<(&'static str, bool), GroupId>,
    /// One for each set of columns that a table's rows had, at most [`SHAPES_MAX`].
    shapes: Vec<(Entity, Vec<usize>, GroupId)>,
    found: Vec<usize>,
}

/// A file's rows have one set of columns, seldom two.
const SHAPES_MAX: usize = 256;

/// What a counter or a level of the table is when its file is read once.
fn form(metric: &Metric) -> Form {
    if metric.kind == Kind::Counter { Form::Total } else { Form::Level }
}

impl Sink {
    /// Puts a number that is in the unit in which the kernel prints the metric: KiB for `mem.free`.
    pub(in crate::text) fn put(
        &mut self,
        import: &mut Import,
        metric: &'static Metric,
        row: &[u8],
        when: When,
        line: u32,
        value: f64,
    ) {
        self.put_as(import, metric, form(metric), metric.unit.scale(), row, when, line, value);
    }

    /// Puts a number of another form or unit than the kernel's.
    #[expect(clippy::too_many_arguments, reason = "what, of which, when, where and how much")]
    pub(in crate::text) fn put_as(
        &mut self,
        import: &mut Import,
        metric: &'static Metric,
        form: Form,
        factor: f64,
        row: &[u8],
        when: When,
        line: u32,
        value: f64,
    ) {
        let group = *self
            .single
            .entry((metric.name, form == Form::Total))
            .or_insert_with(|| import.group(vec![Column { metric, form, factor: 1.0 }]));
        if let Some(slot) = import.row(group, row, when, line).first_mut() {
            *slot = value * factor;
        }
    }

    /// Puts every measured cell of a frame that a parser of a `/proc` file has filled from one line.
    pub(in crate::text) fn frame(
        &mut self,
        import: &mut Import,
        frame: &Frame,
        strings: &Strings,
        when: When,
        line: u32,
    ) {
        for table in &frame.tables {
            let metrics = columns(table.entity());
            for (key, cells) in table.rows() {
                let numbers = cells.iter().zip(metrics).enumerate();
                self.found.clear();
                self.found.extend(
                    numbers
                        .filter(|(_, (cell, metric))| **cell != NA && metric.kind != Kind::Text)
                        .map(|(i, _)| i),
                );
                if self.found.is_empty() {
                    continue;
                }
                let group = self.shape(import, table.entity());
                let name = row_name(table.entity(), key, strings);
                let slots = import.row(group, name.as_bytes(), when, line);
                for (slot, i) in slots.iter_mut().zip(&self.found) {
                    *slot = cells.get(*i).map_or(f64::NAN, |cell| *cell as f64);
                }
            }
        }
    }

    /// The group of rows that have the columns in `found`.
    fn shape(&mut self, import: &mut Import, entity: Entity) -> GroupId {
        if let Some((_, _, group)) =
            self.shapes.iter().find(|(e, list, _)| *e == entity && *list == self.found)
        {
            return *group;
        }
        let metrics = columns(entity);
        let list = self.found.iter().filter_map(|i| metrics.get(*i));
        let group =
            import.group(list.map(|m| Column { metric: m, form: form(m), factor: m.unit.scale() }).collect());
        if self.shapes.len() >= SHAPES_MAX {
            self.shapes.clear();
        }
        self.shapes.push((entity, self.found.clone(), group));
        group
    }
}
