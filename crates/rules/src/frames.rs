//! Evaluation on the frames of a recorder, one after the other.

use std::cell::{Cell, RefCell};

use mitra_model::series::{level, rate};
use mitra_model::{Entity, Frame, NA, StrId, Strings};

use crate::ast::GroupBy;
use crate::compile::{Attribute, MetricUse, Program, Selector, Test};
use crate::eval::Source;
use crate::past::Past;

/// A frame beside the one before.
pub struct FrameSource<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) strings: &'a Strings,
    pub(crate) past: &'a Past,
    pub(crate) texts: &'a Texts,
    pub(crate) columns: TaskColumns,
    pub(crate) page_bytes: f64,
}

/// Where the columns are that a task is known by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskColumns {
    pub(crate) tgid: Option<usize>,
    pub(crate) comm: Option<usize>,
    pub(crate) cgroup: Option<usize>,
}

impl Default for TaskColumns {
    fn default() -> Self {
        let column = mitra_model::column;
        TaskColumns { tgid: column("task.tgid"), comm: column("task.comm"), cgroup: column("task.cgroup") }
    }
}

/// Which texts fit which pattern, remembered by their ids.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    generation: Cell<u32>,
    /// For each test and text: 0 not looked at, 1 does not fit, 2 fits.
    verdicts: Vec<RefCell<Vec<u8>>>,
    /// For each test the row where the one row of its selector was found last.
    places: Vec<Cell<usize>>,
}

impl Texts {
    pub(crate) fn new(program: &Program) -> Texts {
        Texts {
            generation: Cell::new(0),
            verdicts: (0..program.caches).map(|_| RefCell::default()).collect(),
            places: (0..program.caches).map(|_| Cell::default()).collect(),
        }
    }

    /// Ids mean other texts from now on.
    pub(crate) fn check(&mut self, strings: &Strings) {
        if self.generation.replace(strings.generation()) != strings.generation() {
            self.verdicts.iter_mut().for_each(|known| known.get_mut().clear());
        }
    }

    fn fits(&self, test: &Test, id: StrId, strings: &Strings) -> bool {
        let look = || strings.get(id).is_some_and(|text| test.fits(text));
        let Some(known) = self.verdicts.get(test.cache) else { return look() };
        let mut known = known.borrow_mut();
        // An id beyond the table is no text; nothing is remembered of it, so nothing grows by it.
        if id as usize >= strings.len() {
            return false;
        }
        if known.len() <= id as usize {
            known.resize(strings.len(), 0);
        }
        let verdict = &mut known[id as usize];
        if *verdict == 0 {
            *verdict = 1 + u8::from(look());
        }
        *verdict == 2
    }
}

impl FrameSource<'_> {
    fn cell(&self, entity: Entity, row: usize, column: usize) -> i64 {
        let table = self.frame.table(entity);
        if row >= table.len() {
            return NA;
        }
        table.row(row).get(column).copied().unwrap_or(NA)
    }

    /// A cell of a task.
    pub(crate) fn task_cell(&self, row: usize, column: Option<usize>) -> i64 {
        column.map_or(NA, |column| self.cell(Entity::Task, row, column))
    }

    fn passes(&self, entity: Entity, test: &Test, row: usize) -> bool {
        let text = |id: i64| StrId::try_from(id).is_ok_and(|id| self.texts.fits(test, id, self.strings));
        let key = self.frame.table(entity).keys().get(row).copied().unwrap_or_default();
        let fits = match test.of {
            // Ended tasks are named by parent and command; the command is what one selects.
            Attribute::Name if entity == Entity::Exited => text(i64::try_from(key.born).unwrap_or(NA)),
            Attribute::Name => text(i64::try_from(key.id).unwrap_or(NA)),
            Attribute::Tid => test.number.is_some_and(|n| i64::try_from(key.id) == Ok(n)),
            Attribute::Text(column, _) => text(self.cell(entity, row, column)),
            Attribute::Number(column, _) => {
                let cell = self.cell(entity, row, column);
                cell != NA && Some(cell) == test.number
            }
        };
        fits != test.negated
    }
}

impl Source for FrameSource<'_> {
    type Row = usize;

    fn value(&self, of: &MetricUse, row: Option<usize>) -> f64 {
        let row = row.unwrap_or(0);
        let now = self.cell(of.metric.entity, row, of.column);
        if of.metric.is_rate() {
            return rate(of.metric, self.past.cell(of, row), now, self.past.dt_s);
        }
        let now = level(of.metric, now);
        if of.is_slope { (now - level(of.metric, self.past.cell(of, row))) / self.past.dt_s } else { now }
    }

    fn is_selected(&self, selector: &Selector, row: usize) -> bool {
        selector.tests.iter().all(|test| self.passes(selector.entity, test, row))
    }

    fn find(&self, selector: &Selector) -> Option<usize> {
        let rows = self.frame.table(selector.entity).len();
        let place = selector.tests.first().and_then(|test| self.texts.places.get(test.cache));
        let last = place.map_or(0, Cell::get);
        if last < rows && self.is_selected(selector, last) {
            return Some(last);
        }
        let found = (0..rows).find(|row| self.is_selected(selector, *row))?;
        if let Some(place) = place {
            place.set(found);
        }
        Some(found)
    }

    fn rows(&self, entity: Entity) -> impl Iterator<Item = usize> {
        0..self.frame.table(entity).len()
    }

    fn group(&self, by: GroupBy, row: usize) -> Option<u64> {
        let column = match by {
            GroupBy::Pid => self.columns.tgid,
            GroupBy::Comm => self.columns.comm,
            GroupBy::Cgroup => self.columns.cgroup,
        };
        u64::try_from(self.task_cell(row, column)).ok()
    }

    fn page_bytes(&self) -> f64 {
        self.page_bytes
    }
}
