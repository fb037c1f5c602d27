//! Walks an expression, step by step.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{AtModifier, Expr, MatrixSelector, Offset, VectorSelector};
use regex::Regex;

use super::{
    Answer, Error, Item, Labels, NAME, Source, Steps, Value, aggregate, binary, call, inner, without_name,
};

/// Values that are worked out for one question; a step of a series is one for each expression around it.
const VALUES_MAX: u64 = 5_000_000;

/// A series that was read.
pub(super) struct Loaded {
    pub labels: Arc<Labels>,
    pub nameless: Arc<Labels>,
    pub samples: Vec<(i64, f64)>,
    holds_ms: i64,
}

impl Loaded {
    /// The last sample that still holds at a moment.
    fn at(&self, t: i64) -> Option<(i64, f64)> {
        let end = self.samples.partition_point(|(at, _)| *at <= t);
        let last = *self.samples.get(end.checked_sub(1)?)?;
        (t.saturating_sub(last.0) < self.holds_ms).then_some(last)
    }

    /// The samples of a range, which is open at its beginning.
    pub fn within(&self, from: i64, to: i64) -> &[(i64, f64)] {
        let start = self.samples.partition_point(|(at, _)| *at <= from);
        let end = self.samples.partition_point(|(at, _)| *at <= to);
        &self.samples[start..end.max(start)]
    }
}

pub(super) struct Eval<'a> {
    source: &'a dyn Source,
    /// By the place of the selector.
    loaded: HashMap<usize, Vec<Loaded>>,
    steps: Steps,
    values: u64,
    /// Patterns of label_replace: each step asks for the same ones.
    patterns: HashMap<String, Regex>,
}

pub(super) fn instant(expr: &Expr, source: &mut dyn Source, at_ms: i64) -> Result<Answer, Error> {
    let mut eval = Eval::load(expr, source, Steps::at(at_ms))?;
    if let Expr::MatrixSelector(matrix) = unwrapped(expr) {
        let (series, from, to) = eval.matrix(matrix, at_ms)?;
        let within = series.iter().map(|one| (Labels::clone(&one.labels), one.within(from, to).to_vec()));
        return Ok(Answer::Matrix(within.filter(|(_, samples)| !samples.is_empty()).collect()));
    }
    Ok(match eval.value(expr, at_ms)? {
        Value::Scalar(value) => Answer::Scalar(value),
        Value::Text(text) => Answer::Text(text),
        Value::Vector(items) => {
            let mut seen = BTreeMap::new();
            for item in &items {
                if seen.insert(Arc::clone(&item.labels), ()).is_some() {
                    return Err(alike());
                }
            }
            Answer::Vector(items.into_iter().map(|item| (Labels::clone(&item.labels), item.value)).collect())
        }
    })
}

pub(super) fn range(expr: &Expr, source: &mut dyn Source, steps: Steps) -> Result<Answer, Error> {
    let mut eval = Eval::load(expr, source, steps)?;
    let mut rows: BTreeMap<Arc<Labels>, Vec<(i64, f64)>> = BTreeMap::new();
    for t in steps.each() {
        let items = match eval.value(expr, t)? {
            Value::Scalar(value) => vec![Item { labels: Arc::default(), value }],
            Value::Vector(items) => items,
            Value::Text(_) => return Err(Error::unknown("a text over time")),
        };
        for item in items {
            let row = rows.entry(item.labels).or_default();
            if row.last().is_some_and(|(last, _)| *last == t) {
                return Err(alike());
            }
            row.push((t, item.value));
        }
    }
    Ok(Answer::Matrix(rows.into_iter().map(|(labels, row)| (Labels::clone(&labels), row)).collect()))
}

fn alike() -> Error {
    Error::Execution("two series of the result have the same labels".to_owned())
}

pub(super) fn unwrapped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => unwrapped(&paren.expr),
        other => other,
    }
}

/// Those of the braces, and the name before them.
pub(super) fn matchers(selector: &VectorSelector) -> Result<Vec<Matcher>, Error> {
    if !selector.matchers.or_matchers.is_empty() {
        return Err(Error::unknown("or between matchers"));
    }
    let name = selector.name.iter().map(|name| Matcher::new(MatchOp::Equal, NAME, name));
    Ok(selector.matchers.matchers.iter().cloned().chain(name).collect())
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn key(selector: &VectorSelector) -> usize {
    std::ptr::from_ref(selector) as usize
}

impl<'a> Eval<'a> {
    /// Reads what the selectors of an expression want.
    fn load(expr: &Expr, source: &'a mut dyn Source, steps: Steps) -> Result<Self, Error> {
        let mut loaded = HashMap::new();
        let mut open = vec![expr];
        while let Some(expr) = open.pop() {
            let (selector, back) = match expr {
                Expr::VectorSelector(selector) => (selector, source.holds_max_ms()),
                Expr::MatrixSelector(matrix) => (&matrix.vs, ms(matrix.range)),
                Expr::Subquery(_) => return Err(Error::unknown("a subquery")),
                Expr::Extension(_) => return Err(Error::unknown("an extension")),
                other => {
                    open.extend(inner(other));
                    continue;
                }
            };
            let moved = |t| moved(selector, t, steps);
            let (from, to) = (moved(steps.start_ms), moved(steps.end_ms));
            let found = source.select(&matchers(selector)?, from.saturating_sub(back), to)?;
            let found = found.into_iter().map(|series| {
                let labels = Arc::new(series.labels);
                let nameless = without_name(&labels);
                Loaded { labels, nameless, samples: series.samples, holds_ms: series.holds_ms }
            });
            loaded.insert(key(selector), found.collect());
        }
        Ok(Eval { source, loaded, steps, values: 0, patterns: HashMap::new() })
    }

    /// A pattern that has to match a whole value.
    pub fn pattern(&mut self, text: String) -> Result<Regex, regex::Error> {
        if let Some(known) = self.patterns.get(&text) {
            return Ok(known.clone());
        }
        let pattern = Regex::new(&format!("^(?s:{text})$"))?;
        self.patterns.insert(text, pattern.clone());
        Ok(pattern)
    }

    /// Counts what is worked out.
    pub fn spend(&mut self, values: usize) -> Result<(), Error> {
        self.values += values as u64;
        if self.values > VALUES_MAX {
            let why = format!("more than {VALUES_MAX} values; ask for fewer series, or with a longer step");
            return Err(Error::Execution(why));
        }
        Ok(())
    }

    pub fn value(&mut self, expr: &Expr, t: i64) -> Result<Value, Error> {
        match expr {
            Expr::Paren(paren) => self.value(&paren.expr, t),
            Expr::NumberLiteral(number) => Ok(Value::Scalar(number.val)),
            Expr::StringLiteral(text) => Ok(Value::Text(text.val.clone())),
            Expr::VectorSelector(selector) => {
                let items = self.samples(selector, t)?;
                Ok(Value::Vector(items.into_iter().map(|(item, _)| item).collect()))
            }
            Expr::Unary(unary) => Ok(match self.value(&unary.expr, t)? {
                Value::Scalar(value) => Value::Scalar(-value),
                Value::Vector(items) => Value::Vector(each(items, |value| -value)),
                Value::Text(_) => return Err(Error::unknown("the negative of a text")),
            }),
            Expr::Binary(of) => {
                let (left, right) = (self.value(&of.lhs, t)?, self.value(&of.rhs, t)?);
                let count = |value: &Value| if let Value::Vector(items) = value { items.len() } else { 1 };
                self.spend(count(&left) + count(&right))?;
                binary::value(&of.op.to_string(), of.modifier.as_ref(), left, right)
            }
            Expr::Aggregate(of) => {
                let param = of.param.as_ref().map(|param| self.value(param, t)).transpose()?;
                let items = self.vector(&of.expr, t)?;
                self.spend(items.len())?;
                aggregate::value(&of.op.to_string(), of.modifier.as_ref(), param, items).map(Value::Vector)
            }
            Expr::Call(of) => call::value(self, of.func.name, &of.args.args, t),
            Expr::MatrixSelector(_) => {
                Err(Error::unknown("a range where there has to be a function around it"))
            }
            Expr::Subquery(_) | Expr::Extension(_) => Err(Error::unknown("a subquery")),
        }
    }

    pub fn vector(&mut self, expr: &Expr, t: i64) -> Result<Vec<Item>, Error> {
        match self.value(expr, t)? {
            Value::Vector(items) => Ok(items),
            _ => Err(Error::Wrong("want a vector".to_owned())),
        }
    }

    pub fn scalar(&mut self, expr: &Expr, t: i64) -> Result<f64, Error> {
        match self.value(expr, t)? {
            Value::Scalar(value) => Ok(value),
            _ => Err(Error::Wrong("want a number".to_owned())),
        }
    }

    /// The samples that hold, and when they were taken.
    pub fn samples(&mut self, selector: &VectorSelector, t: i64) -> Result<Vec<(Item, i64)>, Error> {
        self.source.goes_on()?;
        let at = moved(selector, t, self.steps);
        let series = self.loaded.get(&key(selector)).map_or(&[][..], Vec::as_slice);
        let count = series.len();
        let found = series.iter().filter_map(|one| {
            let (when, value) = one.at(at)?;
            Some((Item { labels: Arc::clone(&one.labels), value }, when))
        });
        let found = found.collect();
        self.spend(count)?;
        Ok(found)
    }

    /// The series of a range, and its beginning and end.
    pub fn matrix(&mut self, matrix: &MatrixSelector, t: i64) -> Result<(&[Loaded], i64, i64), Error> {
        self.source.goes_on()?;
        let to = moved(&matrix.vs, t, self.steps);
        let from = to.saturating_sub(ms(matrix.range));
        let key = key(&matrix.vs);
        let all = |loaded: &HashMap<usize, Vec<Loaded>>| {
            loaded.get(&key).map_or(0, |list| list.iter().map(|one| 1 + one.within(from, to).len()).sum())
        };
        self.spend(all(&self.loaded))?;
        Ok((self.loaded.get(&key).map_or(&[][..], Vec::as_slice), from, to))
    }
}

/// The moment that a selector looks at.
fn moved(selector: &VectorSelector, t: i64, steps: Steps) -> i64 {
    let at = match &selector.at {
        None => t,
        Some(AtModifier::Start) => steps.start_ms,
        Some(AtModifier::End) => steps.end_ms,
        Some(AtModifier::At(time)) => since_epoch(*time),
    };
    match &selector.offset {
        None => at,
        Some(Offset::Pos(by)) => at.saturating_sub(ms(*by)),
        Some(Offset::Neg(by)) => at.saturating_add(ms(*by)),
    }
}

fn since_epoch(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ms(after),
        Err(before) => -ms(before.duration()),
    }
}

/// Works on values; a result has no name any more.
pub(super) fn each(items: Vec<Item>, f: impl Fn(f64) -> f64) -> Vec<Item> {
    let one = |item: Item| Item { labels: without_name(&item.labels), value: f(item.value) };
    items.into_iter().map(one).collect()
}
