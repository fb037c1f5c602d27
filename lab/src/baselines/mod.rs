//! Simpler methods on the same recordings. A root-cause tool that does not beat them is not worth
//! its cost.
//!
//! All four methods get the true start of the trouble, which Mitra does not. Of a ranking, the
//! first metric that stands for any condition counts, see [`conditions`].
//!
//! - *Most frequent*: always names the most frequent truth of all runs, this one included.
//! - *Largest z*: mean and standard deviation of the healthy time; the metric with the largest mean
//!   |z| afterwards.
//! - *N-sigma*: the metric that first leaves three standard deviations; of several in the same
//!   second, the one that leaves furthest.
//! - *BARO*: median and interquartile range of the healthy time; the metric with the largest |x −
//!   median| / IQR in any later sample (the scorer of Pham, Ha, Zhang: BARO, FSE 2024).
//!
//! The libraries of the published methods replace a scale of zero by one: one byte, one second, one
//! fault. On a quiet machine nearly every metric has a scale of zero, and metrics counted in bytes
//! then win by their unit. Here the replacement is [`LEAST_SHARE`] of the metric's largest value,
//! which has its unit. It is also the lower bound of the scale for the mean |z|, which is an
//! average of many samples. On the recordings of four rounds the three methods together were right
//! more often with this scale than with one, with other shares, or with the scales of other metrics
//! of the same unit.

mod conditions;

use std::collections::BTreeMap;
use std::path::Path;

use mitra_archive::{Query, Reader};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, Series, Span};

use crate::record::{Kind, Record, State};

/// In the order of [`Answers`].
pub const NAMES: [&str; 4] = ["most frequent", "largest z", "N-sigma", "BARO"];

/// The rule for the scale, as printed on the score page.
pub const RULE: &str =
    "what never changed while nothing was wrong is measured by three hundredths of its largest value";

/// Entities of which there are few. Tasks and mappings are left out: thousands of them come and go.
const ENTITIES: [Entity; 14] = [
    Entity::System,
    Entity::Cpu,
    Entity::Node,
    Entity::Zone,
    Entity::Disk,
    Entity::Filesystem,
    Entity::Nic,
    Entity::Slab,
    Entity::Cgroup,
    Entity::Netns,
    Entity::Listener,
    Entity::Drop,
    Entity::Peer,
    Entity::Resolver,
];
/// With fewer healthy samples a metric has no usable spread.
const NORMAL_MIN: usize = 4;
const SIGMAS: f64 = 3.0;
/// The scale of a metric without spread, as a share of its largest value.
const LEAST_SHARE: f64 = 0.03;

/// What the baselines said of one run, in the order of [`NAMES`]. Empty if there is no archive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// Condition ids.
    pub said: Vec<String>,
    /// Whether the answer is the true root.
    pub right: Vec<bool>,
}

/// One metric of one entity: its values in the healthy time and afterwards.
struct Column {
    metric: &'static str,
    normal: Vec<f64>,
    /// With timestamps in nanoseconds: not all sources are sampled at the same moments.
    since: Vec<(i64, f64)>,
}

/// How far a metric moved, by each method. Larger is further.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score {
    z_mean: f64,
    /// Second of the first sample beyond [`SIGMAS`], and its z.
    first: Option<(i64, f64)>,
    robust: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Linear interpolation between the neighbours. `sorted` must not be empty.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Statistics of a metric in the healthy time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Normal {
    mean: f64,
    sd: f64,
    median: f64,
    iqr: f64,
}

impl Normal {
    /// `None` if there are too few healthy samples.
    fn of(column: &Column) -> Option<Self> {
        let mut values: Vec<f64> = column.normal.iter().copied().filter(|v| v.is_finite()).collect();
        if values.len() < NORMAL_MIN {
            return None;
        }
        let mean = mean(&values);
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        values.sort_by(f64::total_cmp);
        let iqr = quantile(&values, 0.75) - quantile(&values, 0.25);
        // The computed mean of equal numbers can differ from them in the last digit.
        let sd = if values.first() == values.last() { 0.0 } else { variance.sqrt() };
        Some(Self { mean, sd, median: quantile(&values, 0.5), iqr })
    }
}

/// `None` if the metric has too few healthy samples or never moves.
fn score(column: &Column) -> Option<Score> {
    let normal = Normal::of(column)?;
    let since: Vec<(i64, f64)> = column.since.iter().copied().filter(|(_, v)| v.is_finite()).collect();
    if since.is_empty() || normal.sd == 0.0 && since.iter().all(|(_, v)| *v == normal.median) {
        return None;
    }
    let all = column.normal.iter().copied().filter(|v| v.is_finite()).chain(since.iter().map(|(_, v)| *v));
    let least = LEAST_SHARE * all.map(f64::abs).fold(0.0, f64::max);
    let scale = |spread: f64| if spread > 0.0 { spread } else { least };
    let z = |v: f64, sd: f64| ((v - normal.mean) / sd).abs();
    let outside = since.iter().map(|(t, v)| (t, z(*v, scale(normal.sd)))).find(|(_, z)| *z > SIGMAS);
    Some(Score {
        z_mean: since.iter().map(|(_, v)| z(*v, normal.sd.max(least))).sum::<f64>() / since.len() as f64,
        // Whole seconds: the order of reads within one second must not decide.
        first: outside.map(|(t, z)| (t.div_euclid(SECOND), z)),
        robust: since.iter().map(|(_, v)| (v - normal.median).abs() / scale(normal.iqr)).fold(0.0, f64::max),
    })
}

/// The condition of the top metric by `further` that stands for one.
fn best(scores: &[(&'static str, Score)], further: impl Fn(&Score, &Score) -> bool) -> String {
    let mut top: Option<(&str, &Score)> = None;
    for (metric, score) in scores {
        let Some(condition) = conditions::of(metric) else { continue };
        if top.is_none_or(|(_, best)| further(score, best)) {
            top = Some((condition, score));
        }
    }
    top.map(|(condition, _)| condition.to_owned()).unwrap_or_default()
}

/// What the three methods that read the recording say.
fn rank(columns: &[Column]) -> [String; 3] {
    let scores: Vec<(&'static str, Score)> =
        columns.iter().filter_map(|c| Some((c.metric, score(c)?))).collect();
    let left: Vec<_> = scores.iter().copied().filter(|(_, s)| s.first.is_some()).collect();
    [
        best(&scores, |a, b| a.z_mean > b.z_mean),
        best(&left, |a, b| match (a.first, b.first) {
            (Some((i, far)), Some((j, near))) => i < j || (i == j && far > near),
            _ => false,
        }),
        best(&scores, |a, b| a.robust > b.robust),
    ]
}

fn columns(archive: &Path, since_s: f64, started_s: f64, until_s: f64) -> anyhow::Result<Vec<Column>> {
    let at = |s: f64| (s * SECOND as f64) as i64;
    let healthy = Span { since: at(since_s), until: at(started_s) };
    let trouble = Span { since: at(started_s), until: at(until_s) };
    let metrics: Vec<&'static Metric> = ENTITIES
        .into_iter()
        .flat_map(mitra_model::columns)
        .copied()
        .filter(|m| !m.name.starts_with("mitra."))
        .collect();
    let window = Span { since: healthy.since, until: trouble.until };
    let set = Reader::open(archive)?.read(&Query::new(window, metrics))?;
    let column = |metric: &'static str, series: &Series| Column {
        metric,
        normal: series.values(healthy),
        since: series.samples(trouble).map(|(t, _, value)| (t, value)).collect(),
    };
    Ok(set.metrics().flat_map(|(metric, rows)| rows.values().map(move |s| column(metric, s))).collect())
}

/// Whether the methods that read the recording can name this condition at all.
pub fn can_name(condition: &str) -> bool {
    conditions::is_made(condition) && conditions::TABLE.iter().any(|(_, named)| *named == condition)
}

/// The most frequent truth; of several, the first by name.
fn most_frequent(all: &[Record]) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    let told = all.iter().filter(|r| r.kind == Kind::Incident && r.state.is_judged());
    for act in told.flat_map(|r| &r.acts) {
        *counts.entry(&act.condition).or_default() += 1;
    }
    let top = counts.iter().max_by_key(|(name, count)| (**count, std::cmp::Reverse(**name)));
    top.map(|(name, _)| (*name).to_owned()).unwrap_or_default()
}

/// What all four methods say of a run with one incident. `all` has every run of the results.
pub fn answers(record: &Record, archive: &Path, all: &[Record]) -> Answers {
    let Some(act) =
        record.acts.first().filter(|_| record.kind == Kind::Incident && record.state == State::Made)
    else {
        return Answers::default();
    };
    let Ok(columns) = columns(archive, record.since_s, act.started_s, record.until_s) else {
        return Answers::default();
    };
    let mut said = vec![most_frequent(all)];
    said.extend(rank(&columns));
    let right = said.iter().map(|s| crate::score::is_true(act, s)).collect();
    Answers { said, right }
}

#[cfg(test)]
mod tests {
    use super::{Column, conditions, rank, score};

    fn column(metric: &'static str, normal: &[f64], since: &[f64]) -> Column {
        let times = (0..).map(|i| i * mitra_model::time::SECOND);
        Column { metric, normal: normal.to_vec(), since: times.zip(since.iter().copied()).collect() }
    }

    #[test]
    fn the_three_methods_as_published() {
        let s = score(&column("x", &[1.0, 2.0, 3.0, 4.0, 5.0], &[3.0, 9.0, 12.0])).unwrap();
        let sd = 2.0_f64.sqrt();
        assert!((s.z_mean - (0.0 + 6.0 + 9.0) / sd / 3.0).abs() < 1e-9);
        assert_eq!(s.first.map(|(i, _)| i), Some(1));
        // The quartiles are 2 and 4, the median 3.
        assert!((s.robust - 4.5).abs() < 1e-9);
    }

    #[test]
    fn the_first_is_the_first_by_the_clock() {
        let quiet = [0.0, 1.0, 0.0, 1.0, 0.0];
        let mut late = column("vm.pswpin", &quiet, &[900.0]);
        late.since[0].0 = 5 * mitra_model::time::SECOND;
        let columns = [late, column("vm.oom_kill", &quiet, &[0.0, 9.0])];
        assert_eq!(rank(&columns)[1], "oom-kill");
    }

    #[test]
    fn what_never_moves_or_has_no_past_is_left_out() {
        assert_eq!(score(&column("x", &[7.0; 5], &[7.0; 5])), None);
        assert_eq!(score(&column("x", &[1.0, f64::NAN, f64::NAN], &[9.0])), None);
        assert_eq!(score(&column("x", &[1.0, 2.0, 3.0, 4.0], &[f64::NAN])), None);
    }

    #[test]
    fn a_scale_of_zero_has_the_unit_of_the_metric() {
        for size in [1e-6, 1.0, 1e9] {
            let s = score(&column("x", &[0.0; 5], &[0.0, 4.0 * size])).unwrap();
            assert!((s.robust - 100.0 / 3.0).abs() < 1e-9 && (s.z_mean - 50.0 / 3.0).abs() < 1e-9, "{s:?}");
            assert!(s.first.is_some_and(|(t, z)| t == 1 && (z - 100.0 / 3.0).abs() < 1e-9), "{s:?}");
        }
        // A spread of a millionth does not make a mean of many samples large.
        let still = [1e6, 1e6 + 1.0, 1e6, 1e6 + 1.0];
        assert!(score(&column("x", &still, &[1.1e6])).unwrap().z_mean < 10.0);
    }

    #[test]
    fn an_answer_is_always_something_that_is_made() {
        let metrics = mitra_model::Entity::ALL.into_iter().flat_map(mitra_model::columns);
        let named: Vec<&str> = metrics.filter_map(|m| conditions::of(m.name)).collect();
        assert!(named.len() > 50, "{}", named.len());
        for condition in named {
            assert!(crate::incidents::all().any(|i| i.is_true(condition)), "{condition}");
        }
        for (condition, _) in crate::incidents::NOT_MADE {
            let is_also = crate::incidents::all().any(|i| i.is_true(condition));
            assert!(is_also || !super::can_name(condition), "{condition}");
        }
        assert_eq!(conditions::of("vm.numa_foreign"), None);
    }

    #[test]
    fn the_first_metric_that_stands_for_a_condition_is_the_answer() {
        let quiet = [0.0, 1.0, 0.0, 1.0, 0.0];
        let columns = [
            column("sys.load1", &quiet, &[900.0, 900.0]),
            column("vm.oom_kill", &quiet, &[5.0, 5.0]),
            column("vm.pswpin", &quiet, &[0.0, 70.0]),
        ];
        assert_eq!(rank(&columns), ["swap-thrash", "oom-kill", "swap-thrash"]);
        assert_eq!(rank(&[]), ["", "", ""]);
    }

    #[test]
    fn every_prefix_of_the_table_is_of_a_metric_and_the_longest_counts() {
        let names: Vec<&str> =
            mitra_model::Entity::ALL.into_iter().flat_map(mitra_model::columns).map(|m| m.name).collect();
        for (prefix, _) in conditions::TABLE {
            assert!(names.iter().any(|n| n.starts_with(prefix)), "no metric begins with {prefix}");
        }
        assert_eq!(conditions::of("disk.read_bytes"), Some("disk-hog"));
        assert_eq!(conditions::of("sys.load1"), None);
    }
}
