//! What a query means for rows, and which days of them a scope has.
//!
//! ```text
//! +content:ext4 -host:web1        contents with `ext4` → rows that have one  ∩  not (rows of web1)
//!                                 → of each row the days in the scope on which it is the document of the day
//! ```
//!
//! Each leaf becomes a set of rows once; groups are operations on sets. The field `day` is no test of rows: where a query has
//! it, sets are made for each day (for days of which the query says the same, once).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::bits::Bits;
use super::leaves::{self, Contents};
use super::order::Order;
use super::table::{Row, Table};
use crate::day::Day;
use crate::error::Error;
use crate::query::{Leaf, Set};
use crate::scope::Scope;

/// Everything that is asked.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub table: &'a Table,
    pub order: &'a Order,
    pub contents: Contents<'a>,
}

/// A query whose leaves are known.
enum Plan<'a> {
    All,
    Nothing,
    And(Vec<Plan<'a>>),
    Or(Vec<Plan<'a>>),
    Not(Box<Plan<'a>>),
    Rows(Bits),
    Day(&'a Leaf),
}

/// Whether a query asks anything of contents.
pub(super) fn asks_contents(set: &Set) -> bool {
    match set {
        Set::All | Set::Nothing => false,
        Set::And(sets) | Set::Or(sets) => sets.iter().any(asks_contents),
        Set::Not(set) => asks_contents(set),
        Set::Leaf { field, .. } => leaves::of_content(field),
    }
}

/// Whether texts have to be read for a query.
fn reads_texts(set: &Set) -> bool {
    match set {
        Set::All | Set::Nothing => false,
        Set::And(sets) | Set::Or(sets) => sets.iter().any(reads_texts),
        Set::Not(set) => reads_texts(set),
        Set::Leaf { leaf, .. } => matches!(leaf, Leaf::Phrase { .. }),
    }
}

/// The first states of a host are no change: nobody knows what was before.
pub(super) fn is_change(row: &Row) -> bool {
    row.previous.is_some() || row.known_before_ns.is_some()
}

impl<'a> Asked<'a> {
    /// Calls `each` for every row that is found, in order, with its days.
    pub(super) fn found(
        &self,
        set: &Set,
        scope: Scope,
        mut each: impl FnMut(u32, &Row, &[Day]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let within = reads_texts(set).then(|| self.within(scope));
        let matches = Matches::new(self, set, within.as_ref())?;
        let candidates = matches.candidates();
        let mut scratch = Vec::new();
        for place in candidates.iter() {
            let Some((at, row)) = self.order.row(self.table, place) else { continue };
            let days = match scope {
                Scope::Days { first, last } => days_of(self.table, row, first, last),
                Scope::At { ns } => {
                    scratch.clear();
                    scratch.extend(day_at(self.table, row, ns));
                    scratch.as_slice()
                }
                Scope::Changed { since_ns, until_ns } => {
                    scratch.clear();
                    scratch.extend(self.day_of_change(place, row, since_ns, until_ns));
                    scratch.as_slice()
                }
            };
            if days.is_empty() {
                continue;
            }
            if !matches.by_day {
                each(at, row, days)?;
                continue;
            }
            let days: Vec<Day> = days.iter().copied().filter(|day| matches.on(*day).has(place)).collect();
            if !days.is_empty() {
                each(at, row, &days)?;
            }
        }
        Ok(())
    }

    /// The rows that changed in a time, of one host or of all, and match after it or matched before, with the row before.
    pub(super) fn changed(
        &self,
        set: &Set,
        host: Option<u32>,
        since_ns: i64,
        until_ns: i64,
    ) -> Result<Vec<(u32, Option<u32>)>, Error> {
        let matches = Matches::new(self, set, None)?;
        let mut found = Vec::new();
        let places = host.map_or(0..self.order.len(), |host| self.order.of_host(host));
        for place in places {
            let Some((at, row)) = self.order.row(self.table, place) else { continue };
            if !(since_ns..until_ns).contains(&row.since_ns) || !is_change(row) {
                continue;
            }
            let on = matches.on(Day::of(row.since_ns));
            // States of one document follow each other. What was gone was not there before.
            let was_there = |at: u32| self.table.rows.get(at as usize).is_some_and(|before| !before.gone);
            let before = row.previous.filter(|at| was_there(*at)).and_then(|_| place.checked_sub(1));
            if on.has(place) || before.is_some_and(|place| on.has(place)) {
                found.push((row.since_ns, at, row.previous));
            }
        }
        found.sort_by_key(|(since_ns, ..)| *since_ns);
        Ok(found.into_iter().map(|(_, at, previous)| (at, previous)).collect())
    }

    /// The day of a state that began in a time, if it is the last one of its document on that day and in that time.
    fn day_of_change(&self, place: u32, row: &Row, since_ns: i64, until_ns: i64) -> Option<Day> {
        if !(since_ns..until_ns).contains(&row.since_ns) || !is_change(row) {
            return None;
        }
        let day = Day::of(row.since_ns);
        let next = place.checked_add(1).and_then(|place| self.order.row(self.table, place));
        let superseded = next.is_some_and(|(_, next)| {
            (next.host, next.file) == (row.host, row.file)
                && next.since_ns < until_ns
                && Day::of(next.since_ns) == day
        });
        (!superseded).then_some(day)
    }

    /// The contents of the rows that a scope may have.
    fn within(&self, scope: Scope) -> Bits {
        let may = |row: &Row| match scope {
            Scope::Days { first, last } => row.first_day <= last && row.last_day >= first,
            Scope::At { ns } => (row.since_ns..row.until_ns).contains(&ns),
            Scope::Changed { since_ns, until_ns } => (since_ns..until_ns).contains(&row.since_ns),
        };
        let places = Bits::of(self.order.len(), |place| {
            self.order.row(self.table, place).is_some_and(|(_, row)| may(row))
        });
        self.order.contents_of(&places, self.contents.count)
    }

    /// Texts are read only of contents that are within a set: of others nobody wants to know.
    fn plan<'s>(&self, set: &'s Set, within: Option<&Bits>) -> Result<Plan<'s>, Error> {
        Ok(match set {
            Set::All => Plan::All,
            Set::Nothing => Plan::Nothing,
            Set::And(sets) => Plan::And(self.plans_of_all(sets, within)?),
            Set::Or(sets) => {
                Plan::Or(sets.iter().map(|set| self.plan(set, within)).collect::<Result<_, _>>()?)
            }
            Set::Not(set) => Plan::Not(Box::new(self.plan(set, within)?)),
            Set::Leaf { field, leaf } if field == "day" => Plan::Day(leaf),
            Set::Leaf { field, leaf } => Plan::Rows(self.leaf(field, leaf, within)?),
        })
    }

    /// Of sets of which all have to match, first those that the dictionaries know; texts are read of what is left then.
    fn plans_of_all<'s>(&self, sets: &'s [Set], within: Option<&Bits>) -> Result<Vec<Plan<'s>>, Error> {
        let (slow, quick): (Vec<&Set>, Vec<&Set>) = sets.iter().partition(|set| reads_texts(set));
        let mut plans = Vec::with_capacity(sets.len());
        for set in quick {
            plans.push(self.plan(set, within)?);
        }
        if slow.is_empty() {
            return Ok(plans);
        }
        let mut rows = Bits::all(self.order.len());
        for plan in &plans {
            if let Plan::Rows(bits) = plan {
                rows.and(bits);
            }
        }
        let mut left = self.order.contents_of(&rows, self.contents.count);
        if let Some(within) = within {
            left.and(within);
        }
        for set in slow {
            plans.push(self.plan(set, Some(&left))?);
        }
        Ok(plans)
    }

    fn leaf(&self, field: &str, leaf: &Leaf, within: Option<&Bits>) -> Result<Bits, Error> {
        if !leaves::of_content(field) {
            return Ok(leaves::rows(self.table, self.order, field, leaf));
        }
        let mut rows = self.order.by_content(&self.contents.leaf(field, leaf, within)?);
        if field == "flags"
            && let Some(gone) = leaves::gone(self.table, self.order, leaf)
        {
            rows.or(&gone);
        }
        Ok(rows)
    }
}

/// The days between two on which a row is the document of the day.
pub(super) fn days_of<'t>(table: &'t Table, row: &Row, first: Day, last: Day) -> &'t [Day] {
    let Some(cover) = table.cover(row.host) else { return &[] };
    let (first, last) = (first.max(row.first_day), last.min(row.last_day));
    let start = cover.days.partition_point(|day| *day < first);
    let end = cover.days.partition_point(|day| *day <= last);
    cover.days.get(start..end).unwrap_or_default()
}

/// The day under which a row answers for a moment, if it does. Before a host was looked at on a day, and when it was not, the
/// day before answers.
pub(super) fn day_at(table: &Table, row: &Row, ns: i64) -> Option<Day> {
    if row.gone || !(row.since_ns..row.until_ns).contains(&ns) {
        return None;
    }
    let day = Day::of(ns);
    [day, day.before()].into_iter().find(|day| table.covered(row.host, *day))
}

/// Which places match, on which day.
struct Matches<'a> {
    plan: Plan<'a>,
    len: u32,
    /// Whether the day makes a difference.
    by_day: bool,
    known: RefCell<Known>,
}

#[derive(Default)]
struct Known {
    days: BTreeMap<Day, Rc<Bits>>,
    /// By what the query says of a day: one answer for each of its tests.
    sets: BTreeMap<Vec<bool>, Rc<Bits>>,
}

impl<'a> Matches<'a> {
    fn new(asked: &Asked<'_>, set: &'a Set, within: Option<&Bits>) -> Result<Self, Error> {
        let plan = asked.plan(set, within)?;
        let mut tests = Vec::new();
        days_asked(&plan, &mut tests);
        let by_day = !tests.is_empty();
        Ok(Self { plan, len: asked.order.len(), by_day, known: RefCell::default() })
    }

    /// The places that may match on some day.
    fn candidates(&self) -> Rc<Bits> {
        if self.by_day { Rc::new(Bits::all(self.len)) } else { self.on(Day(0)) }
    }

    /// The places that match on a day.
    fn on(&self, day: Day) -> Rc<Bits> {
        let mut known = self.known.borrow_mut();
        let key = if self.by_day { day } else { Day(0) };
        if let Some(bits) = known.days.get(&key) {
            return Rc::clone(bits);
        }
        let mut tests = Vec::new();
        days_asked(&self.plan, &mut tests);
        let says: Vec<bool> = tests.iter().map(|leaf| leaves::takes_time(leaf, key.start_ns())).collect();
        let bits = match known.sets.get(&says) {
            Some(bits) => Rc::clone(bits),
            None => Rc::new(places(&self.plan, self.len, key)),
        };
        known.sets.insert(says, Rc::clone(&bits));
        known.days.insert(key, Rc::clone(&bits));
        bits
    }
}

/// The tests of days within a query.
fn days_asked<'a>(plan: &Plan<'a>, tests: &mut Vec<&'a Leaf>) {
    match plan {
        Plan::All | Plan::Nothing | Plan::Rows(_) => {}
        Plan::And(plans) | Plan::Or(plans) => plans.iter().for_each(|plan| days_asked(plan, tests)),
        Plan::Not(plan) => days_asked(plan, tests),
        Plan::Day(leaf) => tests.push(leaf),
    }
}

fn places(plan: &Plan<'_>, len: u32, day: Day) -> Bits {
    match plan {
        Plan::All => Bits::all(len),
        Plan::Nothing => Bits::none(len),
        Plan::Rows(bits) => bits.clone(),
        Plan::Day(leaf) if leaves::takes_time(leaf, day.start_ns()) => Bits::all(len),
        Plan::Day(_) => Bits::none(len),
        Plan::And(plans) => {
            let mut all = Bits::all(len);
            for plan in plans {
                match plan {
                    Plan::Rows(bits) => all.and(bits),
                    other => all.and(&places(other, len, day)),
                }
            }
            all
        }
        Plan::Or(plans) => {
            let mut any = Bits::none(len);
            for plan in plans {
                match plan {
                    Plan::Rows(bits) => any.or(bits),
                    other => any.or(&places(other, len, day)),
                }
            }
            any
        }
        Plan::Not(plan) => {
            let mut others = places(plan, len, day);
            others.invert();
            others
        }
    }
}

#[cfg(test)]
mod tests;
