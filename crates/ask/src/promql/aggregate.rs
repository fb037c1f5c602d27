//! One value of many series.

use std::collections::BTreeMap;
use std::sync::Arc;

use promql_parser::parser::LabelModifier;

use super::over_time::quantile;
use super::{Error, Item, Labels, NAME, Value};

pub(super) fn value(
    op: &str,
    modifier: Option<&LabelModifier>,
    param: Option<Value>,
    items: Vec<Item>,
) -> Result<Vec<Item>, Error> {
    let param = match param {
        None => f64::NAN,
        Some(Value::Scalar(number)) => number,
        Some(_) => return Err(Error::unknown(format!("{op} with a parameter that is no number"))),
    };
    let mut groups: BTreeMap<Labels, Vec<Item>> = BTreeMap::new();
    for item in items {
        groups.entry(group(modifier, &item.labels)).or_default().push(item);
    }
    let mut out = Vec::new();
    for (labels, mut items) in groups {
        if let "topk" | "bottomk" = op {
            if param.is_nan() {
                return Err(Error::Execution(format!("{op}: want a number")));
            }
            let down = op == "topk";
            // What is no number comes last.
            items.sort_by(|a, b| {
                let order = if down { b.value.partial_cmp(&a.value) } else { a.value.partial_cmp(&b.value) };
                order.unwrap_or_else(|| a.value.is_nan().cmp(&b.value.is_nan()))
            });
            items.truncate(param.max(0.0) as usize);
            out.extend(items);
            continue;
        }
        let values: Vec<f64> = items.iter().map(|item| item.value).collect();
        let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
        let variance = || {
            let mean = sum / count;
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count
        };
        let value = match op {
            "sum" => sum,
            "avg" => sum / count,
            "count" => count,
            "group" => 1.0,
            "min" => values.iter().copied().reduce(f64::min).unwrap_or(f64::NAN),
            "max" => values.iter().copied().reduce(f64::max).unwrap_or(f64::NAN),
            "stddev" => variance().sqrt(),
            "stdvar" => variance(),
            "quantile" => quantile(param, values),
            other => return Err(Error::unknown(other)),
        };
        out.push(Item { labels: Arc::new(labels), value });
    }
    Ok(out)
}

/// The labels that the series of a group have in common.
fn group(modifier: Option<&LabelModifier>, labels: &Labels) -> Labels {
    let mut group = match modifier {
        None => return Labels::new(),
        Some(_) => labels.clone(),
    };
    match modifier {
        Some(LabelModifier::Include(names)) => group.retain(|name, _| names.labels.contains(name)),
        Some(LabelModifier::Exclude(names)) => {
            group.retain(|name, _| name != NAME && !names.labels.contains(name))
        }
        None => {}
    }
    group
}
