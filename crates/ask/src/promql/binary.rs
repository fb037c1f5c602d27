//! Operators between two values.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use promql_parser::parser::{BinModifier, LabelModifier, VectorMatchCardinality, VectorMatchFillValues};

use super::{Error, Item, Labels, NAME, Value, without_name};

pub(super) fn value(
    op: &str,
    modifier: Option<&BinModifier>,
    left: Value,
    right: Value,
) -> Result<Value, Error> {
    if modifier.is_some_and(|modifier| modifier.fill_values != VectorMatchFillValues::default()) {
        return Err(Error::unknown("fill"));
    }
    let bool = modifier.is_some_and(|modifier| modifier.return_bool);
    match (left, right) {
        (Value::Scalar(a), Value::Scalar(b)) => match compared(op, a, b) {
            Some(holds) => Ok(Value::Scalar(f64::from(u8::from(holds)))),
            None => Ok(Value::Scalar(worked(op, a, b)?)),
        },
        (Value::Vector(items), Value::Scalar(b)) => {
            with_scalar(op, bool, items, |a| (a, b)).map(Value::Vector)
        }
        (Value::Scalar(a), Value::Vector(items)) => {
            with_scalar(op, bool, items, |b| (a, b)).map(Value::Vector)
        }
        (Value::Vector(left), Value::Vector(right)) => {
            let keys = Keys(modifier.and_then(|modifier| modifier.matching.as_ref()));
            let items = match op {
                "and" | "or" | "unless" => Ok(set(op, &keys, left, right)),
                _ => matched(op, bool, modifier.map(|modifier| &modifier.card), &keys, left, right),
            };
            items.map(Value::Vector)
        }
        _ => Err(Error::unknown(format!("{op} with a text"))),
    }
}

fn compared(op: &str, a: f64, b: f64) -> Option<bool> {
    Some(match op {
        "==" => a == b,
        "!=" => a != b,
        "<" => a < b,
        ">" => a > b,
        "<=" => a <= b,
        ">=" => a >= b,
        _ => return None,
    })
}

fn worked(op: &str, a: f64, b: f64) -> Result<f64, Error> {
    Ok(match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        "%" => a % b,
        "^" => a.powf(b),
        "atan2" => a.atan2(b),
        other => return Err(Error::unknown(other)),
    })
}

/// Both sides of each item are what `sides` makes of its value.
fn with_scalar(
    op: &str,
    bool: bool,
    items: Vec<Item>,
    sides: impl Fn(f64) -> (f64, f64),
) -> Result<Vec<Item>, Error> {
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        let (a, b) = sides(item.value);
        match compared(op, a, b) {
            Some(holds) if bool => {
                out.push(Item { labels: without_name(&item.labels), value: f64::from(u8::from(holds)) });
            }
            Some(true) => out.push(item),
            Some(false) => {}
            None => out.push(Item { labels: without_name(&item.labels), value: worked(op, a, b)? }),
        }
    }
    Ok(out)
}

/// What has to be the same on both sides.
struct Keys<'a>(Option<&'a LabelModifier>);

impl Keys<'_> {
    fn of(&self, labels: &Labels) -> Labels {
        let mut key = labels.clone();
        match self.0 {
            Some(LabelModifier::Include(names)) => key.retain(|name, _| names.labels.contains(name)),
            Some(LabelModifier::Exclude(names)) => {
                key.retain(|name, _| name != NAME && !names.labels.contains(name));
            }
            None => {
                key.remove(NAME);
            }
        }
        key
    }

    /// What a comparison that only filters leaves: the name stays, unless it was not looked at.
    fn of_filtered(&self, labels: &Labels) -> Labels {
        let mut left = self.of(labels);
        if let (Some(name), None | Some(LabelModifier::Exclude(_))) = (labels.get(NAME), self.0) {
            left.insert(NAME.to_owned(), name.clone());
        }
        left
    }
}

fn set(op: &str, keys: &Keys<'_>, left: Vec<Item>, right: Vec<Item>) -> Vec<Item> {
    let of =
        |items: &[Item]| -> BTreeSet<Labels> { items.iter().map(|item| keys.of(&item.labels)).collect() };
    let there = of(&right);
    let here = of(&left);
    match op {
        "and" => left.into_iter().filter(|item| there.contains(&keys.of(&item.labels))).collect(),
        "unless" => left.into_iter().filter(|item| !there.contains(&keys.of(&item.labels))).collect(),
        _ => {
            let others = right.into_iter().filter(|item| !here.contains(&keys.of(&item.labels)));
            left.into_iter().chain(others).collect()
        }
    }
}

fn matched(
    op: &str,
    bool: bool,
    card: Option<&VectorMatchCardinality>,
    keys: &Keys<'_>,
    left: Vec<Item>,
    right: Vec<Item>,
) -> Result<Vec<Item>, Error> {
    let (swapped, copied) = match card {
        Some(VectorMatchCardinality::ManyToOne(copied)) => (false, Some(copied)),
        Some(VectorMatchCardinality::OneToMany(copied)) => (true, Some(copied)),
        _ => (false, None),
    };
    let (many, one) = if swapped { (right, left) } else { (left, right) };
    let mut ones: BTreeMap<Labels, Item> = BTreeMap::new();
    for item in one {
        if ones.insert(keys.of(&item.labels), item).is_some() {
            let side = if swapped { "left" } else { "right" };
            return Err(Error::Execution(format!(
                "several series on the {side} have the same labels to match by"
            )));
        }
    }
    let mut seen: HashSet<Labels> = HashSet::new();
    let mut out = Vec::new();
    for item in many {
        let key = keys.of(&item.labels);
        let Some(other) = ones.get(&key) else { continue };
        let (a, b) = if swapped { (other.value, item.value) } else { (item.value, other.value) };
        let (value, keeps_name) = match compared(op, a, b) {
            Some(holds) if bool => (f64::from(u8::from(holds)), false),
            Some(true) => (a, true),
            Some(false) => continue,
            None => (worked(op, a, b)?, false),
        };
        let labels = match copied {
            Some(copied) => {
                let mut labels = Labels::clone(&item.labels);
                if !keeps_name {
                    labels.remove(NAME);
                }
                for name in &copied.labels {
                    match other.labels.get(name) {
                        Some(text) => labels.insert(name.clone(), text.clone()),
                        None => labels.remove(name),
                    };
                }
                labels
            }
            None if keeps_name => keys.of_filtered(&item.labels),
            None => key,
        };
        if !seen.insert(labels.clone()) {
            let why = "several series match one of the other side: want group_left or group_right";
            return Err(Error::Execution(why.to_owned()));
        }
        out.push(Item { labels: Arc::new(labels), value });
    }
    Ok(out)
}
