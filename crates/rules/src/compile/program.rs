//! A compiled expression: what is evaluated.

use mitra_model::{Entity, Metric};

use crate::ast::{Function, GroupBy, LogPattern, Operator};
use crate::glob;

/// What an expression has one value for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The machine.
    One,
    /// Each row of an entity.
    Rows(Entity),
    /// Each process, name or control group of tasks.
    Groups(GroupBy),
}

/// A metric as an expression uses it.
#[derive(Debug, Clone)]
pub struct MetricUse {
    /// Which.
    pub metric: &'static Metric,
    /// Its column in the table of its entity.
    pub column: usize,
    /// Which rows; an index into [`Program::selectors`].
    pub selector: Option<usize>,
    /// Whether the selector names just one row.
    pub is_one: bool,
    /// Whether its change per second is meant, of a level.
    pub is_slope: bool,
}

impl MetricUse {
    /// Whether its value needs the sample before.
    #[must_use]
    pub fn needs_past(&self) -> bool {
        self.is_slope || self.metric.is_rate()
    }
}

/// Which rows of an entity.
#[derive(Debug, Clone)]
pub struct Selector {
    /// Of what.
    pub entity: Entity,
    /// All of these have to match.
    pub tests: Vec<Test>,
}

/// One match of a selector.
#[derive(Debug, Clone)]
pub struct Test {
    /// What of the row.
    pub of: Attribute,
    /// Whether it must not match.
    pub negated: bool,
    /// The pattern of a text.
    pub pattern: String,
    /// Whether `*` and `?` in the pattern mean themselves.
    pub is_exact: bool,
    /// The pattern as a number, where it is one: as the kernel writes it.
    pub number: Option<i64>,
    /// The same in base units, as series have it.
    pub value: f64,
    /// The position among all tests of texts of the program, for what is remembered of each text.
    pub cache: usize,
}

impl Test {
    /// Whether a text fits the pattern.
    #[must_use]
    pub fn fits(&self, text: &str) -> bool {
        if self.is_exact { self.pattern == text } else { glob::matches(&self.pattern, text) }
    }
}

/// What of a row a selector looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// The row's name.
    Name,
    /// A task's thread id.
    Tid,
    /// A text in this column.
    Text(usize, &'static str),
    /// A number in this column.
    Number(usize, &'static str),
}

/// A function over rows.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Which.
    pub function: Function,
    /// Of what.
    pub body: Op,
    /// The rows.
    pub entity: Entity,
    /// One value for each of these instead of one in all.
    pub by: Option<GroupBy>,
}

/// A part that can be evaluated. Truth is 1, 0, or not a number where it cannot be told.
#[derive(Debug, Clone)]
pub enum Op {
    /// A number.
    Constant(f64),
    /// A metric; an index into [`Program::uses`].
    Metric(usize),
    /// Bytes of a page.
    PageBytes,
    /// `-x`.
    Negative(Box<Op>),
    /// Without the sign.
    Abs(Box<Op>),
    /// `not x`.
    Not(Box<Op>),
    /// Two parts.
    Binary(Operator, Box<Op>, Box<Op>),
    /// A function over rows; an index into [`Program::aggregates`].
    Aggregate(usize),
}

/// A part whose value is worth showing.
#[derive(Debug, Clone)]
pub struct Shown {
    /// As it was written.
    pub text: String,
    /// How to get it.
    pub op: Op,
    /// The unit of its value.
    pub unit: String,
}

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Program {
    /// The condition, or the number.
    pub root: Op,
    /// What it has values for.
    pub domain: Domain,
    /// For how many seconds it has to hold.
    pub hold_s: f64,
    /// The metrics.
    pub uses: Vec<MetricUse>,
    /// The selectors.
    pub selectors: Vec<Selector>,
    /// The patterns that are looked for in logs.
    pub logs: Vec<LogPattern>,
    /// The functions over rows, inner ones before outer ones.
    pub aggregates: Vec<Aggregate>,
    /// Of these the ones whose groups have to be looked at: for a group that none of them has it cannot hold.
    pub leads: Vec<usize>,
    /// The numbers that it compares.
    pub shown: Vec<Shown>,
    /// What orders rows for which it holds, most first; -1 where less is more.
    pub score: Option<(Op, f64)>,
    /// Tests of texts.
    pub caches: usize,
}

/// The functions whose groups have to be looked at to find all for which a part is as wanted. What is not known of a group
/// is not known of the part, unless one side of `or`, or of an `and` that is not to hold, settles it alone.
pub(super) fn leads(op: &Op, aggregates: &[Aggregate], wanted: bool) -> Vec<usize> {
    let settles = if wanted { Operator::Or } else { Operator::And };
    match op {
        Op::Aggregate(slot) if aggregates.get(*slot).is_some_and(|a| a.by.is_some()) => vec![*slot],
        Op::Not(of) => leads(of, aggregates, !wanted),
        Op::Negative(of) | Op::Abs(of) => leads(of, aggregates, wanted),
        Op::Binary(operator, left, right) => {
            let mut of = leads(left, aggregates, wanted);
            if of.is_empty() || *operator == settles {
                of.extend(leads(right, aggregates, wanted));
            }
            of
        }
        _ => Vec::new(),
    }
}
