//! Functions.

use std::sync::Arc;

use promql_parser::label::MatchOp;
use promql_parser::parser::Expr;
use regex::Regex;

use super::eval::{Eval, each, unwrapped};
use super::over_time::{self, quantile};
use super::{Error, Item, Labels, NAME, Value, without_name};

pub(super) fn value(eval: &mut Eval<'_>, name: &str, args: &[Box<Expr>], t: i64) -> Result<Value, Error> {
    let arg =
        |i: usize| args.get(i).map(|arg| &**arg).ok_or_else(|| Error::Wrong(format!("{name}: want more")));
    if let Some(function) = over_time::function(name) {
        return ranged(eval, arg(0)?, t, name == "last_over_time", function);
    }
    if name == "quantile_over_time" {
        let at = eval.scalar(arg(0)?, t)?;
        return ranged(eval, arg(1)?, t, false, |samples, _, _| {
            (!samples.is_empty()).then(|| quantile(at, samples.iter().map(|(_, value)| *value).collect()))
        });
    }
    let plain: Option<fn(f64) -> f64> = match name {
        "abs" => Some(f64::abs),
        "ceil" => Some(f64::ceil),
        "floor" => Some(f64::floor),
        "sqrt" => Some(f64::sqrt),
        "exp" => Some(f64::exp),
        "ln" => Some(f64::ln),
        "log2" => Some(f64::log2),
        "log10" => Some(f64::log10),
        "sgn" => Some(|value| if value == 0.0 { value } else { value.signum() }),
        _ => None,
    };
    if let Some(plain) = plain {
        return Ok(Value::Vector(each(eval.vector(arg(0)?, t)?, plain)));
    }
    Ok(Value::Vector(match name {
        "time" => return Ok(Value::Scalar(t as f64 / 1000.0)),
        "scalar" => {
            let items = eval.vector(arg(0)?, t)?;
            return Ok(Value::Scalar(if let [one] = &items[..] { one.value } else { f64::NAN }));
        }
        "vector" => vec![Item { labels: Arc::default(), value: eval.scalar(arg(0)?, t)? }],
        "timestamp" => match unwrapped(arg(0)?) {
            Expr::VectorSelector(selector) => {
                let samples = eval.samples(selector, t)?.into_iter();
                samples.map(|(item, at)| (without_name(&item.labels), at)).map(stamped).collect()
            }
            other => each(eval.vector(other, t)?, |_| t as f64 / 1000.0),
        },
        "round" => {
            let to = if args.len() > 1 { eval.scalar(arg(1)?, t)? } else { 1.0 };
            // As a fraction it is exact for 0.1.
            let part = 1.0 / to;
            each(eval.vector(arg(0)?, t)?, |value| (value * part + 0.5).floor() / part)
        }
        "clamp" | "clamp_min" | "clamp_max" => {
            let (first, last) = (eval.scalar(arg(1)?, t)?, eval.scalar(arg(args.len() - 1)?, t)?);
            let (least, most) = match name {
                "clamp" => (first, last),
                "clamp_min" => (first, f64::INFINITY),
                _ => (f64::NEG_INFINITY, first),
            };
            let items = eval.vector(arg(0)?, t)?;
            if least > most {
                return Ok(Value::Vector(Vec::new()));
            }
            let bound = |value: f64| {
                if least.is_nan() || most.is_nan() { f64::NAN } else { value.max(least).min(most) }
            };
            each(items, bound)
        }
        "sort" | "sort_desc" => {
            let mut items = eval.vector(arg(0)?, t)?;
            items.sort_by(|a, b| {
                let order = if name == "sort" {
                    a.value.partial_cmp(&b.value)
                } else {
                    b.value.partial_cmp(&a.value)
                };
                order.unwrap_or_else(|| a.value.is_nan().cmp(&b.value.is_nan()))
            });
            items
        }
        "absent" => {
            let inner = unwrapped(arg(0)?);
            if eval.vector(inner, t)?.is_empty() {
                vec![Item { labels: Arc::new(wanted(inner)), value: 1.0 }]
            } else {
                Vec::new()
            }
        }
        "label_replace" => {
            let texts = [1, 2, 3, 4].map(|i| arg(i).and_then(text));
            let [to, by, from, pattern] = texts;
            let (to, by, from, pattern) = (to?, by?, from?, pattern?);
            let pattern =
                eval.pattern(pattern).map_err(|error| Error::Wrong(format!("label_replace: {error}")))?;
            if !is_label(&to) {
                return Err(Error::Wrong(format!("label_replace: {to:?} is no name of a label")));
            }
            let items = eval.vector(arg(0)?, t)?.into_iter();
            items.map(|item| replaced(item, &to, &by, &from, &pattern)).collect()
        }
        other => return Err(Error::unknown(format!("{other}()"))),
    }))
}

fn stamped((labels, at): (Arc<Labels>, i64)) -> Item {
    Item { labels, value: at as f64 / 1000.0 }
}

fn ranged(
    eval: &mut Eval<'_>,
    expr: &Expr,
    t: i64,
    keeps_name: bool,
    function: impl Fn(&[(i64, f64)], i64, i64) -> Option<f64>,
) -> Result<Value, Error> {
    let Expr::MatrixSelector(matrix) = unwrapped(expr) else { return Err(Error::unknown("a subquery")) };
    let (series, from, to) = eval.matrix(matrix, t)?;
    let items = series.iter().filter_map(|one| {
        let value = function(one.within(from, to), from, to)?;
        Some(Item { labels: Arc::clone(if keeps_name { &one.labels } else { &one.nameless }), value })
    });
    Ok(Value::Vector(items.collect()))
}

fn text(expr: &Expr) -> Result<String, Error> {
    match unwrapped(expr) {
        Expr::StringLiteral(text) => Ok(text.val.clone()),
        _ => Err(Error::Wrong("want a text".to_owned())),
    }
}

fn is_label(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

fn replaced(item: Item, to: &str, by: &str, from: &str, pattern: &Regex) -> Item {
    let source = item.labels.get(from).map_or("", String::as_str);
    let Some(found) = pattern.captures(source) else { return item };
    let mut text = String::new();
    found.expand(by, &mut text);
    let mut labels = Labels::clone(&item.labels);
    if text.is_empty() {
        labels.remove(to);
    } else {
        labels.insert(to.to_owned(), text);
    }
    Item { labels: Arc::new(labels), ..item }
}

/// The labels that a series would have that is not there.
fn wanted(expr: &Expr) -> Labels {
    let selector = match expr {
        Expr::VectorSelector(selector) => selector,
        _ => return Labels::new(),
    };
    let mut labels = Labels::new();
    let all = &selector.matchers.matchers;
    for matcher in all.iter().filter(|matcher| matcher.name != NAME && matcher.op == MatchOp::Equal) {
        let is_alone = all.iter().filter(|other| other.name == matcher.name).count() == 1;
        if is_alone && !matcher.value.is_empty() {
            labels.insert(matcher.name.clone(), matcher.value.clone());
        }
    }
    labels
}
