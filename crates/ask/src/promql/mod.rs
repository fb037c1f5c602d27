//! PromQL over anything that has series of samples.
//!
//! A question is parsed by `promql-parser` and evaluated step by step, as Prometheus does. What is not known here is refused by
//! name. Two things differ on purpose: a sample holds for as long as its series says and not for five minutes, and a range is
//! open at its beginning, as in Prometheus 3.

mod aggregate;
mod binary;
mod call;
mod eval;
mod over_time;

use std::collections::BTreeMap;
use std::sync::Arc;

use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, Expr};

pub use promql_parser::label::Matcher;

/// The label that a metric's name is.
pub const NAME: &str = "__name__";
/// A longer query is nobody's.
const BYTES_MAX: usize = 8 << 10;
/// Of expressions in each other.
const DEPTH_MAX: usize = 100;
/// As many as Prometheus answers at most.
pub const STEPS_MAX: i64 = 11_000;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The query, or a parameter, is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The query is right, and cannot be evaluated.
    #[error("{0}")]
    Execution(String),
    /// The series could not be read.
    #[error("{0}")]
    Unreadable(String),
    /// Nobody waits for the answer any more.
    #[error("nobody waits for it")]
    Gone,
}

impl Error {
    fn unknown(what: impl std::fmt::Display) -> Self {
        Error::Execution(format!("{what} is not supported here"))
    }
}

/// Names and values; the name of the metric is [`NAME`].
pub type Labels = BTreeMap<String, String>;

/// A series.
#[derive(Debug, Clone)]
pub struct Series {
    /// With the name.
    pub labels: Labels,
    /// Milliseconds since 1970 and value, in order of time.
    pub samples: Vec<(i64, f64)>,
    /// How long a sample holds, in milliseconds.
    pub holds_ms: i64,
}

/// What has series.
pub trait Source {
    /// All series that match, with their samples after `from_ms` up to `to_ms`.
    fn select(&mut self, matchers: &[Matcher], from_ms: i64, to_ms: i64) -> Result<Vec<Series>, Error>;

    /// The longest time that a sample may hold.
    fn holds_max_ms(&self) -> i64;

    /// Asked again and again; an error ends the evaluation.
    fn goes_on(&self) -> Result<(), Error>;
}

/// When a question is evaluated, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The first one.
    pub start_ms: i64,
    /// None is later.
    pub end_ms: i64,
    /// Between two; more than nothing.
    pub step_ms: i64,
}

impl Steps {
    /// One moment.
    #[must_use]
    pub fn at(ms: i64) -> Self {
        Steps { start_ms: ms, end_ms: ms, step_ms: 1 }
    }

    fn count(self) -> i64 {
        (self.end_ms.saturating_sub(self.start_ms)).max(0) / self.step_ms.max(1) + 1
    }

    fn each(self) -> impl Iterator<Item = i64> {
        (0..self.count()).map(move |i| self.start_ms + i * self.step_ms.max(1))
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A number at a moment.
    Scalar(f64),
    /// A text.
    Text(String),
    /// A value of each series at a moment.
    Vector(Vec<(Labels, f64)>),
    /// Values of each series over time.
    Matrix(Vec<(Labels, Vec<(i64, f64)>)>),
}

/// A query that was read.
#[derive(Debug)]
pub struct Query(Expr);

impl Query {
    /// Reads a query.
    pub fn parse(text: &str) -> Result<Query, Error> {
        if text.len() > BYTES_MAX {
            return Err(Error::Wrong(format!("a query has at most {BYTES_MAX} bytes")));
        }
        let expr = parser::parse(text).map_err(Error::Wrong)?;
        let mut open = vec![(&expr, 1)];
        while let Some((expr, depth)) = open.pop() {
            if depth > DEPTH_MAX {
                return Err(Error::Wrong(format!("more than {DEPTH_MAX} expressions in each other")));
            }
            open.extend(inner(expr).into_iter().map(|expr| (expr, depth + 1)));
        }
        Ok(Query(expr))
    }

    /// The matchers, where the query is nothing but a selector: `match[]`.
    pub fn matchers(&self) -> Result<Vec<Matcher>, Error> {
        match &self.0 {
            Expr::VectorSelector(selector) => eval::matchers(selector),
            _ => Err(Error::Wrong("want a selector as up{job=\"x\"}".to_owned())),
        }
    }

    /// The value at a moment.
    pub fn instant(&self, source: &mut dyn Source, at_ms: i64) -> Result<Answer, Error> {
        eval::instant(&self.0, source, at_ms)
    }

    /// The values of all steps.
    pub fn range(&self, source: &mut dyn Source, steps: Steps) -> Result<Answer, Error> {
        if steps.step_ms <= 0 || steps.end_ms < steps.start_ms {
            return Err(Error::Wrong(
                "want a step of more than nothing, and an end after the start".to_owned(),
            ));
        }
        if steps.count() > STEPS_MAX {
            let why = format!("more than {STEPS_MAX} points for each series; ask with a longer step");
            return Err(Error::Wrong(why));
        }
        let kind = self.0.value_type();
        if !matches!(kind, ValueType::Scalar | ValueType::Vector) {
            let why = format!("a range query has a value for each step, and this is a {kind}");
            return Err(Error::Wrong(why));
        }
        eval::range(&self.0, source, steps)
    }
}

/// A duration as `1m30s`, or seconds, in milliseconds.
#[must_use]
pub fn duration_ms(text: &str) -> Option<i64> {
    let ms = match text.parse::<f64>() {
        Ok(seconds) => (seconds * 1000.0).round(),
        Err(_) => promql_parser::util::parse_duration(text).ok()?.as_millis() as f64,
    };
    // A thousand years.
    (ms.is_finite() && ms.abs() < 3.2e13).then_some(ms as i64)
}

/// What an expression consists of.
fn inner(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Aggregate(of) => of.param.iter().chain([&of.expr]).map(|expr| &**expr).collect(),
        Expr::Unary(of) => vec![&of.expr],
        Expr::Binary(of) => vec![&of.lhs, &of.rhs],
        Expr::Paren(of) => vec![&of.expr],
        Expr::Subquery(of) => vec![&of.expr],
        Expr::Call(of) => of.args.args.iter().map(|expr| &**expr).collect(),
        Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::Extension(_) => Vec::new(),
    }
}

/// A value of one series while it is worked out.
#[derive(Debug, Clone)]
struct Item {
    labels: Arc<Labels>,
    value: f64,
}

/// What an expression is at one step.
#[derive(Debug, Clone)]
enum Value {
    Scalar(f64),
    Text(String),
    Vector(Vec<Item>),
}

fn without_name(labels: &Arc<Labels>) -> Arc<Labels> {
    if !labels.contains_key(NAME) {
        return Arc::clone(labels);
    }
    let mut labels = Labels::clone(labels);
    labels.remove(NAME);
    Arc::new(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_or_too_deep_is_refused() {
        let why =
            |text: &str| Query::parse(text).map_err(|error| error.to_string()).err().unwrap_or_default();
        assert_eq!(why("1 + 1"), "");
        assert!(why(&"x".repeat(9000)).contains("bytes"));
        assert!(why(&format!("{}1{}", "(".repeat(4000), ")".repeat(4000))).contains("in each other"));
        assert!(why(&vec!["1"; 4000].join("+")).contains("in each other"));
        assert!(why(&format!("{}x", "-".repeat(8000))).contains("in each other"));
    }

    #[test]
    fn durations_are_those_of_prometheus() {
        assert_eq!(duration_ms("1m30s"), Some(90_000));
        assert_eq!(duration_ms("0.25"), Some(250));
        for bad in ["", "x", "NaN", "1e300", "-inf"] {
            assert_eq!(duration_ms(bad), None, "{bad}");
        }
    }
}
