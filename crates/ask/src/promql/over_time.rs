//! Functions of the samples of a range.

type Samples = [(i64, f64)];
/// Of the samples of a range, its beginning and its end.
type OverTime = fn(&Samples, i64, i64) -> Option<f64>;

/// The function of that name. `None` of one where there are too few samples.
pub(super) fn function(name: &str) -> Option<OverTime> {
    Some(match name {
        "rate" => |samples, from, to| extrapolated(samples, from, to, true, true),
        "increase" => |samples, from, to| extrapolated(samples, from, to, true, false),
        "delta" => |samples, from, to| extrapolated(samples, from, to, false, false),
        "irate" => |samples, _, _| {
            let [.., (before, old), (now, new)] = samples else { return None };
            // A counter that has begun again.
            let grown = if new < old { *new } else { new - old };
            Some(grown / seconds(now - before))
        },
        "idelta" => |samples, _, _| {
            let [.., (_, old), (_, new)] = samples else { return None };
            Some(new - old)
        },
        "avg_over_time" => |samples, _, _| mean(samples),
        "sum_over_time" => |samples, _, _| some(samples)?.iter().map(|(_, v)| v).sum::<f64>().into(),
        "count_over_time" => |samples, _, _| Some(some(samples)?.len() as f64),
        "last_over_time" => |samples, _, _| samples.last().map(|(_, v)| *v),
        "present_over_time" => |samples, _, _| some(samples).map(|_| 1.0),
        "min_over_time" => |samples, _, _| samples.iter().map(|(_, v)| *v).reduce(f64::min),
        "max_over_time" => |samples, _, _| samples.iter().map(|(_, v)| *v).reduce(f64::max),
        "stddev_over_time" => |samples, _, _| Some(variance(samples)?.sqrt()),
        "stdvar_over_time" => |samples, _, _| variance(samples),
        "changes" => |samples, _, _| {
            let pairs = some(samples)?.windows(2);
            Some(pairs.filter(|two| two[0].1 != two[1].1).count() as f64)
        },
        "resets" => |samples, _, _| {
            let pairs = some(samples)?.windows(2);
            Some(pairs.filter(|two| two[1].1 < two[0].1).count() as f64)
        },
        _ => return None,
    })
}

fn some(samples: &Samples) -> Option<&Samples> {
    (!samples.is_empty()).then_some(samples)
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

fn mean(samples: &Samples) -> Option<f64> {
    let sum: f64 = some(samples)?.iter().map(|(_, v)| v).sum();
    Some(sum / samples.len() as f64)
}

fn variance(samples: &Samples) -> Option<f64> {
    let mean = mean(samples)?;
    Some(samples.iter().map(|(_, v)| (v - mean).powi(2)).sum::<f64>() / samples.len() as f64)
}

/// What a counter grew by, or a gauge changed by, as far as the range goes: the samples do not reach to its ends.
fn extrapolated(samples: &Samples, from: i64, to: i64, is_counter: bool, per_second: bool) -> Option<f64> {
    let [(first_t, first), .., (last_t, last)] = samples else { return None };
    let mut grown = last - first;
    if is_counter {
        grown += samples.windows(2).filter(|two| two[1].1 < two[0].1).map(|two| two[0].1).sum::<f64>();
    }
    let sampled = seconds(last_t - first_t);
    let between = sampled / (samples.len() - 1) as f64;
    // A sample further from the end than that says that the series ended.
    let far = between * 1.1;
    let near = |distance: f64| if distance < far { distance } else { between / 2.0 };
    let mut to_start = near(seconds(first_t - from));
    if is_counter && grown > 0.0 && *first >= 0.0 {
        // It was not below zero.
        to_start = to_start.min(sampled * (first / grown));
    }
    let whole = sampled + to_start + near(seconds(to - last_t));
    let factor = whole / sampled / if per_second { seconds(to - from) } else { 1.0 };
    Some(grown * factor)
}

/// A quantile of values in any order, as Prometheus interpolates it.
pub(super) fn quantile(at: f64, mut values: Vec<f64>) -> f64 {
    if values.is_empty() || at.is_nan() {
        return f64::NAN;
    }
    if at < 0.0 {
        return f64::NEG_INFINITY;
    }
    if at > 1.0 {
        return f64::INFINITY;
    }
    // What is no number comes first.
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan())));
    let rank = at * (values.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(values.len() - 1);
    let part = rank - rank.floor();
    values[below] * (1.0 - part) + values[above] * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_begins_again_has_grown() {
        let samples = [(1000, 5.0), (2000, 8.0), (3000, 1.0), (4000, 2.0)];
        let of = |name: &str| function(name).unwrap()(&samples, 0, 5000).unwrap();
        // 3 + 1 + 1 = 8 of the old counter and 2 of the new, in three seconds of five; both ends are one interval away.
        assert!((of("increase") - 5.0 * 5.0 / 3.0).abs() < 1e-9, "{}", of("increase"));
        assert!((of("rate") - 5.0 / 3.0).abs() < 1e-9);
        assert_eq!((of("irate"), of("resets"), of("changes")), (1.0, 1.0, 3.0));
        assert_eq!(function("rate").unwrap()(&samples[..1], 0, 5000), None);
    }

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(quantile(0.5, vec![3.0, 1.0]), 2.0);
        assert_eq!(quantile(0.0, vec![3.0, 1.0]), 1.0);
        assert_eq!(quantile(2.0, vec![1.0]), f64::INFINITY);
        assert!(quantile(0.5, Vec::new()).is_nan());
    }
}
