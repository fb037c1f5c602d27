//! What a compiled expression comes to, over whatever has rows.
//!
//! Truth has three values: 1, 0 and not a number, which is "cannot tell". What was not measured is not a number and
//! stays so through arithmetic and comparisons; `and` and `or` can be settled by one side.

use std::cell::RefCell;
use std::collections::HashMap;

use mitra_model::Entity;

use crate::ast::{Function, GroupBy, Operator};
use crate::compile::{Aggregate, Domain, MetricUse, Op, Program, Selector, Shown};

/// Where values come from: a frame with the one before it, or a moment of a set of series.
pub trait Source {
    /// A row of an entity.
    type Row: Copy;

    /// The value of a metric: the rate of a counter, the level of a gauge, or how fast that changes.
    fn value(&self, of: &MetricUse, row: Option<Self::Row>) -> f64;
    /// Whether a selector means the row.
    fn is_selected(&self, selector: &Selector, row: Self::Row) -> bool;
    /// The row that a selector of one row means.
    fn find(&self, selector: &Selector) -> Option<Self::Row>;
    /// The rows of an entity.
    fn rows(&self, entity: Entity) -> impl Iterator<Item = Self::Row>;
    /// What a task is put together by.
    fn group(&self, by: GroupBy, row: Self::Row) -> Option<u64>;
    /// Bytes of a page.
    fn page_bytes(&self) -> f64;
}

/// What is being looked at.
#[derive(Debug, Clone, Copy)]
pub enum At<R> {
    /// The machine.
    Machine,
    /// One row.
    Row(R),
    /// One group of tasks.
    Group(u64),
}

/// Rows brought together.
#[derive(Debug, Clone, Copy, Default)]
struct Gathered {
    rows: f64,
    sum: f64,
    min: f64,
    max: f64,
    /// Rows for which a condition cannot be told.
    unknown: f64,
    /// Whether the entity has rows at all, whoever they are.
    is_seen: bool,
}

impl Gathered {
    fn add(&mut self, value: f64) {
        if value.is_nan() {
            self.unknown += 1.0;
            return;
        }
        (self.min, self.max) =
            if self.rows == 0.0 { (value, value) } else { (self.min.min(value), self.max.max(value)) };
        self.rows += 1.0;
        self.sum += value;
    }

    fn result(&self, function: Function) -> f64 {
        match function {
            // One row that holds settles it, as in `or`; one that does not, as in `and`.
            Function::Any if self.sum > 0.0 => 1.0,
            Function::All if self.rows > self.sum => 0.0,
            Function::Any | Function::All if self.unknown > 0.0 || self.rows == 0.0 => f64::NAN,
            Function::Any => 0.0,
            Function::All => 1.0,
            // That there is no such process is known where there are others.
            Function::Count if self.unknown == 0.0 && self.is_seen => self.sum,
            _ if self.rows == 0.0 => f64::NAN,
            Function::Max => self.max,
            Function::Min => self.min,
            Function::Avg => self.sum / self.rows,
            _ => self.sum,
        }
    }
}

/// Results of functions over rows, each worked out once in a sample. The memory is used again.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Vec<RefCell<Slot>>,
}

/// Hashes ids that the kernel and the table of texts give out one after the other.
#[derive(Debug, Default, Clone, Copy)]
struct IdHasher(u64);

impl std::hash::Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The golden ratio of 2^64 spreads neighbours; the table looks at the upper bits too.
        self.0 = (self.0 ^ id).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Default)]
struct Slot {
    is_filled: bool,
    one: Gathered,
    groups: HashMap<u64, Gathered, std::hash::BuildHasherDefault<IdHasher>>,
}

impl Memo {
    /// Room for the functions of each of these programs, of which one at a time is evaluated.
    #[must_use]
    pub fn new<'a>(programs: impl IntoIterator<Item = &'a Program>) -> Memo {
        let slots = programs.into_iter().map(|program| program.aggregates.len()).max().unwrap_or(0);
        Memo { slots: std::iter::repeat_with(RefCell::default).take(slots).collect() }
    }

    /// Forgets the results: another sample, or another program.
    pub fn clear(&mut self) {
        for slot in &mut self.slots {
            let slot = slot.get_mut();
            slot.is_filled = false;
            slot.groups.clear();
        }
    }
}

/// A program with what it is evaluated on.
pub struct Evaluation<'a, S: Source> {
    /// The program.
    pub program: &'a Program,
    /// The values.
    pub source: &'a S,
    /// Results of this sample.
    pub memo: &'a Memo,
}

impl<S: Source> Evaluation<'_, S> {
    /// Hands each row or group with the program's result to `each`; the machine where it has one value.
    ///
    /// Rows are visited only if what is not of rows does not settle it: `psi.io_some > 50% and task.…` costs nothing on
    /// a machine without pressure.
    pub fn each(&self, each: &mut dyn FnMut(At<S::Row>, f64)) {
        let whole = self.value(&self.program.root, At::Machine);
        match self.program.domain {
            Domain::One => each(At::Machine, whole),
            _ if whole == 0.0 => {}
            Domain::Rows(entity) => {
                for row in self.source.rows(entity) {
                    if self.is_meant(row) {
                        each(At::Row(row), self.value(&self.program.root, At::Row(row)));
                    }
                }
            }
            Domain::Groups(_) => self.each_group(each),
        }
    }

    /// Hands each group that some leading function of the program has to `each`, once.
    fn each_group(&self, each: &mut dyn FnMut(At<S::Row>, f64)) {
        let leads = &self.program.leads;
        leads.iter().for_each(|slot| self.fill(*slot));
        let filled = |slot: &usize| self.memo.slots.get(*slot).map(RefCell::borrow);
        for (i, slot) in leads.iter().enumerate() {
            let Some(groups) = filled(slot) else { return };
            for group in groups.groups.keys() {
                let has = |slot: &usize| filled(slot).is_some_and(|before| before.groups.contains_key(group));
                // The other functions of the program are in other slots.
                if !leads.iter().take(i).any(has) {
                    each(At::Group(*group), self.value(&self.program.root, At::Group(*group)));
                }
            }
        }
    }

    /// Whether any metric of the rows means this one.
    fn is_meant(&self, row: S::Row) -> bool {
        let of_rows = |u: &&MetricUse| !u.is_one && u.metric.entity != Entity::System;
        let mut uses = self.program.uses.iter().filter(of_rows);
        uses.any(|u| self.selects(u, row))
    }

    fn selects(&self, of: &MetricUse, row: S::Row) -> bool {
        let selector = of.selector.and_then(|i| self.program.selectors.get(i));
        selector.is_none_or(|selector| self.source.is_selected(selector, row))
    }

    /// The numbers that are worth showing, with the text of each and its unit; those that are not known are left out.
    pub fn shown(&self, at: At<S::Row>) -> Vec<(String, f64, String)> {
        let value = |shown: &Shown| (shown.text.clone(), self.value(&shown.op, at), shown.unit.clone());
        self.program.shown.iter().map(value).filter(|(_, value, _)| value.is_finite()).collect()
    }

    /// The value of a part.
    pub fn value(&self, op: &Op, at: At<S::Row>) -> f64 {
        match op {
            Op::Constant(value) => *value,
            Op::PageBytes => self.source.page_bytes(),
            Op::Metric(index) => self.program.uses.get(*index).map_or(f64::NAN, |of| self.metric(of, at)),
            Op::Negative(of) => -self.value(of, at),
            Op::Abs(of) => self.value(of, at).abs(),
            Op::Not(of) => 1.0 - self.value(of, at),
            Op::Binary(operator, left, right) => self.binary(*operator, left, right, at),
            Op::Aggregate(slot) => self.aggregate(*slot, at),
        }
    }

    fn metric(&self, of: &MetricUse, at: At<S::Row>) -> f64 {
        if of.metric.entity == Entity::System {
            return self.source.value(of, None);
        }
        if of.is_one {
            let selector = of.selector.and_then(|i| self.program.selectors.get(i));
            let row = selector.and_then(|selector| self.source.find(selector));
            return row.map_or(f64::NAN, |row| self.source.value(of, Some(row)));
        }
        match at {
            At::Row(row) if self.selects(of, row) => self.source.value(of, Some(row)),
            _ => f64::NAN,
        }
    }

    fn binary(&self, operator: Operator, left: &Op, right: &Op, at: At<S::Row>) -> f64 {
        let l = self.value(left, at);
        // The side that settles it spares the other.
        match operator {
            Operator::And if l == 0.0 => return 0.0,
            Operator::Or if l == 1.0 => return 1.0,
            _ => {}
        }
        let r = self.value(right, at);
        let truth =
            |holds: bool| if l.is_nan() || r.is_nan() { f64::NAN } else { f64::from(u8::from(holds)) };
        match operator {
            Operator::And if r == 0.0 => 0.0,
            Operator::Or if r == 1.0 => 1.0,
            Operator::And => truth(l == 1.0 && r == 1.0),
            Operator::Or => truth(l == 1.0 || r == 1.0),
            Operator::Less => truth(l < r),
            Operator::LessOrEqual => truth(l <= r),
            Operator::Greater => truth(l > r),
            Operator::GreaterOrEqual => truth(l >= r),
            Operator::Equal => truth(l == r),
            Operator::NotEqual => truth(l != r),
            Operator::Add => l + r,
            Operator::Subtract => l - r,
            Operator::Multiply => l * r,
            // A part of nothing is no number, and certainly not more than any.
            Operator::Divide => {
                let quotient = l / r;
                if quotient.is_finite() { quotient } else { f64::NAN }
            }
        }
    }

    fn aggregate(&self, slot: usize, at: At<S::Row>) -> f64 {
        let Some(aggregate) = self.program.aggregates.get(slot) else { return f64::NAN };
        if aggregate.by.is_some() && !matches!(at, At::Group(_)) {
            return f64::NAN;
        }
        self.fill(slot);
        let Some(filled) = self.memo.slots.get(slot) else { return f64::NAN };
        let filled = filled.borrow();
        match (aggregate.by, at) {
            (None, _) => filled.one.result(aggregate.function),
            (Some(_), At::Group(group)) => {
                filled.groups.get(&group).map_or(f64::NAN, |g| g.result(aggregate.function))
            }
            _ => f64::NAN,
        }
    }

    /// Works a function over rows out, unless that has been done for this sample.
    fn fill(&self, slot: usize) {
        let parts = self.program.aggregates.get(slot).zip(self.memo.slots.get(slot));
        let Some((aggregate, slot)) = parts else { return };
        if slot.borrow().is_filled {
            return;
        }
        // The slot is not borrowed while the rows are looked at: inner functions have slots of their own.
        let mut filled = slot.take();
        filled.is_filled = true;
        filled.one = Gathered::default();
        self.gather(aggregate, &mut filled);
        slot.replace(filled);
    }

    fn gather(&self, aggregate: &Aggregate, into: &mut Slot) {
        let whole = self.value(&aggregate.body, At::Machine);
        let is_settled = aggregate.function == Function::Any && whole == 0.0;
        for row in self.source.rows(aggregate.entity) {
            into.one.is_seen = true;
            // A row that no selector means is not there; one that was not measured is not known.
            if !self.is_meant_by(&aggregate.body, row) {
                continue;
            }
            let value = if is_settled { 0.0 } else { self.value(&aggregate.body, At::Row(row)) };
            match aggregate.by {
                None => into.one.add(value),
                Some(by) => {
                    if let Some(group) = self.source.group(by, row) {
                        into.groups.entry(group).or_default().add(value);
                    }
                }
            }
        }
    }

    fn is_meant_by(&self, op: &Op, row: S::Row) -> bool {
        match op {
            Op::Metric(index) => {
                self.program.uses.get(*index).is_some_and(|of| {
                    !of.is_one && of.metric.entity != Entity::System && self.selects(of, row)
                })
            }
            Op::Negative(of) | Op::Abs(of) | Op::Not(of) => self.is_meant_by(of, row),
            Op::Binary(_, left, right) => self.is_meant_by(left, row) || self.is_meant_by(right, row),
            _ => false,
        }
    }
}
