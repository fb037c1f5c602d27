//! Everything that two sides both have, thing by thing, and which of it differs surely.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::compare::{Compared, Difference, Pair, SCHEMA, Side};
use mitra_model::{Entity, Kind, Metric, SeriesSet, Span, Unit, columns, lookup};

use crate::condition::Condition;

use super::ranks;
use super::runs::{self, Run};

/// Less than this share of the level is small, however sure.
const SMALL: f64 = 0.05;
/// A level below this share of the highest that the metric has anywhere counts as nothing: 0 against 3 is no factor of
/// infinity.
const NOTHING: f64 = 0.01;
/// Of everything that is called sure, this share is expected to be chance.
const FALSE_SHARE: f64 = 0.05;
/// Fewer samples than this are few.
const FEW: f64 = 10.0;

/// One side and its evidence.
pub struct Input {
    /// What it is.
    pub side: Side,
    /// Its numbers.
    pub set: SeriesSet,
}

/// The values of one metric of one thing on one side.
struct Sample {
    values: Vec<f64>,
    /// How many independent values they are worth.
    worth: f64,
    is_run: bool,
}

type Samples = BTreeMap<(&'static str, String), Sample>;

/// Compares the first side with each of the others. With `all`, what is not sure or small is listed as well.
#[must_use]
pub fn compare(inputs: Vec<Input>, all: bool) -> Compared {
    let mut compared = Compared { schema: SCHEMA, ..Compared::default() };
    let runs: Vec<Vec<Run<'_>>> = inputs.iter().map(|i| runs::runs_of(&i.set)).collect();
    let single = runs.iter().all(|r| r.len() <= 1) && runs.iter().filter(|r| r.len() == 1).count() >= 2;
    let keys = if single || runs.iter().all(Vec::is_empty) { None } else { Some(keys(&runs)) };
    let samples: Vec<Samples> = inputs
        .iter()
        .zip(&runs)
        .map(|(input, runs)| {
            let mut samples = of_set(&input.set);
            if let Some(by_job) = keys {
                of_runs(runs, by_job, &mut samples);
            }
            samples
        })
        .collect();
    if let (Some(first), Some(a)) = (samples.first(), inputs.first()) {
        for (other, b) in samples.iter().zip(&inputs).skip(1) {
            let pair = pair(first, other, all);
            compared.pairs.push(Pair { a: a.side.name.clone(), b: b.side.name.clone(), ..pair });
        }
    }
    if single || inputs.len() == 1 {
        compared.runs = runs::compare(named_apart(runs, &inputs));
    }
    compared.sides = inputs.into_iter().map(|i| i.side).collect();
    compared
        .pairs
        .retain(|p| compared.runs.is_none() || !p.differences.is_empty() || p.unsure + p.small + p.same > 0);
    compared
}

/// Runs of the same name on several sides get the name of their side.
fn named_apart<'a>(runs: Vec<Vec<Run<'a>>>, inputs: &[Input]) -> Vec<Run<'a>> {
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs.iter().flatten() {
        *count.entry(run.name.clone()).or_default() += 1;
    }
    let rename = |(side, mut list): (usize, Vec<Run<'a>>)| {
        for run in &mut list {
            if count.get(&run.name).is_some_and(|n| *n > 1)
                && let Some(input) = inputs.get(side)
            {
                run.name.clone_from(&input.side.name);
            }
        }
        list
    };
    runs.into_iter().enumerate().flat_map(rename).collect()
}

/// Whether runs are told apart by the names of their jobs, which every side has once; otherwise the runs of one
/// benchmark are repetitions of each other.
fn keys(runs: &[Vec<Run<'_>>]) -> bool {
    let jobs = |list: &Vec<Run<'_>>| -> Option<BTreeSet<String>> {
        let names: BTreeSet<String> =
            list.iter().map(|r| job(r.row).map(str::to_owned)).collect::<Option<_>>()?;
        (names.len() == list.len()).then_some(names)
    };
    let mut sides = runs.iter().filter(|r| !r.is_empty()).map(jobs);
    let first = sides.next().flatten();
    first.is_some() && sides.all(|s| s == first)
}

/// The job of a run: rows are `file:job`.
fn job(row: &str) -> Option<&str> {
    row.split_once(':').map(|(_, job)| job)
}

fn of_runs(runs: &[Run<'_>], by_job: bool, samples: &mut Samples) {
    for run in runs {
        let name = if by_job { job(run.row).unwrap_or(run.row) } else { run.tool() };
        for (metric, value) in &run.values {
            let Some(metric) = lookup(metric) else { continue };
            let sample = samples.entry((metric.name, name.to_owned())).or_insert_with(|| Sample {
                values: Vec::new(),
                worth: 0.0,
                is_run: true,
            });
            sample.values.push(*value);
            sample.worth += 1.0;
        }
    }
}

/// Whether a comparison reads a metric. Of the levels of tasks only sizes can be added up: the sum of priorities means nothing.
#[must_use]
pub fn reads(metric: &Metric) -> bool {
    match metric.entity {
        Entity::Exited => false,
        Entity::Task => {
            metric.kind == Kind::Text
                || metric.is_rate()
                || matches!(metric.unit, Unit::Bytes | Unit::KiB | Unit::Pages)
        }
        _ => true,
    }
}

/// Every number over time. Tasks are added up by name: ids are not the same on two sides.
fn of_set(set: &SeriesSet) -> Samples {
    let mut samples = Samples::new();
    for (name, rows) in set.metrics() {
        let Some(metric) = lookup(name).filter(|metric| reads(metric)) else { continue };
        match metric.entity {
            Entity::Run => continue,
            Entity::Task => of_tasks(set, metric, &mut samples),
            _ => {
                for (row, series) in rows {
                    insert(&mut samples, metric, row.to_string(), series.values(Span::ALL));
                }
            }
        }
    }
    samples
}

fn of_tasks(set: &SeriesSet, metric: &'static Metric, samples: &mut Samples) {
    let mut sums: BTreeMap<&str, BTreeMap<i64, f64>> = BTreeMap::new();
    for (row, series) in set.each(metric.name) {
        let Some(name) = set.text("task.comm", row).and_then(|t| t.last()) else { continue };
        let sum = sums.entry(name).or_default();
        for (t, _, value) in series.samples(Span::ALL) {
            *sum.entry(t).or_default() += value;
        }
    }
    for (name, sum) in sums {
        insert(samples, metric, name.to_owned(), sum.into_values().collect());
    }
}

fn insert(samples: &mut Samples, metric: &'static Metric, row: String, values: Vec<f64>) {
    if !values.is_empty() {
        let worth = ranks::worth(&values);
        samples.insert((metric.name, row), Sample { values, worth, is_run: false });
    }
}

/// What two sides have to do with each other.
fn pair(a: &Samples, b: &Samples, all: bool) -> Pair {
    let mut pair = Pair::default();
    let mut found: Vec<(f64, Difference)> = Vec::new();
    let highest = highest(a, b);
    for ((metric, row), of_a) in a {
        let Some(of_b) = b.get(&(*metric, row.clone())) else { continue };
        let top = highest.get(metric).copied().unwrap_or(0.0);
        match difference(metric, row, of_a, of_b) {
            Some(difference) => found.push((size(&difference, top), difference)),
            None => pair.same += 1,
        }
    }
    mark_sure(&mut found);
    for (size, difference) in &found {
        match (difference.sure || difference.p.is_none(), *size < SMALL.ln_1p()) {
            (false, _) => pair.unsure += 1,
            (true, true) => pair.small += 1,
            (true, false) => {}
        }
    }
    if !all {
        found.retain(|(size, d)| (d.sure || d.p.is_none()) && *size >= SMALL.ln_1p());
    }
    let needed: BTreeSet<&str> = crate::conditions().iter().flat_map(Condition::needs).collect();
    let rank = |(size, d): &(f64, Difference)| {
        let effect = (2.0 * d.superiority - 1.0).abs() * size;
        // What is sure first; of about the same effect what matters to a diagnosis.
        (!d.sure, -(effect * 10.0).round() as i64, !needed.contains(d.metric.as_str()))
    };
    found.sort_by(|x, y| rank(x).cmp(&rank(y)).then_with(|| x.1.metric.cmp(&y.1.metric)));
    pair.differences = found.into_iter().map(|(_, d)| d).collect();
    pair.only_a = only(a, b);
    pair.only_b = only(b, a);
    pair
}

/// The metrics that only the first has.
fn only(a: &Samples, b: &Samples) -> Vec<String> {
    let names = |samples: &Samples| samples.keys().map(|(metric, _)| *metric).collect::<BTreeSet<_>>();
    names(a).difference(&names(b)).map(|name| (*name).to_owned()).collect()
}

/// The highest level of each metric on either side.
fn highest(a: &Samples, b: &Samples) -> BTreeMap<&'static str, f64> {
    let mut highest: BTreeMap<&'static str, f64> = BTreeMap::new();
    for ((metric, _), sample) in a.iter().chain(b) {
        if let Some(level) = ranks::level(&sample.values) {
            let top = highest.entry(metric).or_default();
            *top = top.max(level.q3.abs());
        }
    }
    highest
}

/// How large a difference is: the logarithm of the factor between the medians, or between the upper quartiles of
/// something that comes in bursts.
fn size(difference: &Difference, highest: f64) -> f64 {
    let nothing = highest * NOTHING;
    if nothing <= 0.0 {
        return 0.0;
    }
    let factor = |a: f64, b: f64| {
        if a.signum() * b.signum() < 0.0 {
            return (1.0 / NOTHING).ln();
        }
        ((b.abs() + nothing) / (a.abs() + nothing)).ln().abs()
    };
    let (a, b) = (&difference.a, &difference.b);
    factor(a.median, b.median).max(factor(a.q3, b.q3))
}

/// `None` where all values are the same.
fn difference(metric: &str, row: &str, a: &Sample, b: &Sample) -> Option<Difference> {
    let (level_a, level_b) = (ranks::level(&a.values)?, ranks::level(&b.values)?);
    if level_a.min == level_b.max && level_a.max == level_b.min {
        return None;
    }
    let (worth_a, worth_b) = worth(a, b);
    let ranked = ranks::compare(&a.values, &b.values, worth_a, worth_b)?;
    let ratio = level_b.median / level_a.median;
    Some(Difference {
        metric: metric.to_owned(),
        entity: row.to_owned(),
        unit: lookup(metric).map(Metric::unit_label).unwrap_or_default(),
        a: level_a,
        b: level_b,
        shift: ranked.shift,
        range: ranked.range,
        ratio: ratio.is_finite().then_some(ratio),
        superiority: ranked.superiority,
        p: ranked.p,
        sure: false,
        note: note(a, b),
    })
}

/// How many independent values either side is worth. If the sides were the same, their values would follow one another
/// alike on both, so the calmer side tells: a long stretch that only one side has is what is looked for, not noise.
fn worth(a: &Sample, b: &Sample) -> (f64, f64) {
    let (n, m) = (a.values.len() as f64, b.values.len() as f64);
    let share = (a.worth / n).max(b.worth / m).min(1.0);
    ((n * share).max(1.0), (m * share).max(1.0))
}

fn note(a: &Sample, b: &Sample) -> Option<String> {
    let what = if a.is_run { "run" } else { "sample" };
    match (a.values.len(), b.values.len()) {
        (1, 1) => Some(format!("one {what} each")),
        (1, _) | (_, 1) => Some(format!("one {what} on one side")),
        (n, m) if n.min(m) < FEW as usize => Some(format!("few {what}s: {n} against {m}")),
        _ => {
            let (worth_a, worth_b) = worth(a, b);
            (worth_a.min(worth_b) < FEW)
                .then(|| format!("consecutive samples are correlated: worth {worth_a:.0} and {worth_b:.0}"))
        }
    }
}

/// Benjamini and Hochberg: among many tests a few look sure by chance, so each has to be surer the more there are. A
/// handful of repeated runs cannot be surer than their number allows: there what nothing contradicts is sure.
fn mark_sure(found: &mut [(f64, Difference)]) {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.retain(|i| found.get(*i).is_some_and(|f| f.1.p.is_some()));
    let p = |i: usize, found: &[(f64, Difference)]| found.get(i).and_then(|f| f.1.p).unwrap_or(1.0);
    order.sort_by(|x, y| p(*x, found).total_cmp(&p(*y, found)));
    let tests = order.len() as f64;
    let last = (0..order.len()).rev().find(|rank| {
        order.get(*rank).is_some_and(|i| p(*i, found) <= FALSE_SHARE * (*rank as f64 + 1.0) / tests)
    });
    for i in order.iter().take(last.map_or(0, |last| last + 1)) {
        if let Some((_, difference)) = found.get_mut(*i) {
            difference.sure = true;
        }
    }
    let is_run = |d: &Difference| columns(Entity::Run).iter().any(|m| m.name == d.metric);
    for (_, d) in found.iter_mut().filter(|f| is_run(&f.1)) {
        let apart = d.superiority == 0.0 || d.superiority == 1.0;
        d.sure |= apart && d.a.samples >= 3 && d.b.samples >= 3;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::time::SECOND;
    use mitra_model::{Axis, Era, Series, TextSeries};

    use super::*;

    /// Reproducible noise between 0 and 1.
    fn noise(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(88_172_645_463_325_252);
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        })
    }

    fn put(set: &mut SeriesSet, metric: &str, row: &str, values: Vec<f64>) {
        let t = (0..values.len() as i64).map(|i| i * SECOND).collect();
        let axis = Arc::new(Axis { t, dt: vec![1.0; values.len()], places: Vec::new() });
        set.insert(lookup(metric).unwrap(), row.into(), Series { axis, start: 0, values: values.into() });
    }

    fn comm(set: &mut SeriesSet, row: &str, name: &str) {
        let changes = vec![(0, Some(name.into()))];
        set.insert_text(
            lookup("task.comm").unwrap(),
            row.into(),
            TextSeries { changes, ..TextSeries::default() },
        );
    }

    fn run(set: &mut SeriesSet, row: &str, rate: f64) {
        let axis = Arc::new(Axis { t: vec![Era::Fact.zero()], dt: vec![f64::NAN], places: Vec::new() });
        let series = Series { axis, start: 0, values: vec![rate].into() };
        set.insert(lookup("run.requests_per_s").unwrap(), row.into(), series);
        let changes = vec![(0, Some("wrk".into()))];
        set.insert_text(
            lookup("run.tool").unwrap(),
            row.into(),
            TextSeries { changes, ..TextSeries::default() },
        );
    }

    fn input(name: &str, set: SeriesSet) -> Input {
        Input { side: Side { name: name.into(), ..Side::default() }, set }
    }

    #[test]
    fn what_differs_surely_is_found_and_noise_is_not() {
        let side = |seed: u64, reads: f64, cpu: f64| {
            let mut set = SeriesSet::default();
            for (i, metric) in ["sys.ctxt", "sys.intr", "sys.forks", "vm.pgfault"].into_iter().enumerate() {
                put(&mut set, metric, "", noise(seed * 10 + i as u64).take(200).map(|v| 100.0 + v).collect());
            }
            let many = noise(seed + 77).take(200).map(|v| reads * (1.0 + 0.2 * v)).collect();
            put(&mut set, "disk.read_bytes", "sda", many);
            put(&mut set, "disk.read_bytes", "sdb", vec![0.0; 200]);
            // Two workers of one name, whose ids are new on the other side.
            for pid in [seed * 100, seed * 100 + 1] {
                let row = format!("{pid}@5");
                let values = noise(seed + pid).take(200).map(|v| cpu * (0.9 + 0.2 * v)).collect();
                put(&mut set, "task.cpu_time", &row, values);
                comm(&mut set, &row, "worker");
            }
            set
        };
        let compared = compare(vec![input("A", side(1, 1e6, 0.1)), input("B", side(2, 3e6, 0.4))], false);
        let pair = &compared.pairs[0];
        let names: Vec<(&str, &str)> =
            pair.differences.iter().map(|d| (d.metric.as_str(), d.entity.as_str())).collect();
        assert_eq!(names, [("task.cpu_time", "worker"), ("disk.read_bytes", "sda")]);
        let cpu = &pair.differences[0];
        assert!((cpu.ratio.unwrap() - 4.0).abs() < 0.3 && (cpu.a.median - 0.2).abs() < 0.02, "{cpu:?}");
        assert!(cpu.sure && cpu.superiority == 1.0 && cpu.range.is_some());
        assert_eq!((pair.unsure + pair.small, pair.same), (4, 1));
        let all = compare(vec![input("A", side(1, 1e6, 0.1)), input("B", side(2, 3e6, 0.4))], true);
        assert_eq!(all.pairs[0].differences.len(), 6);
    }

    #[test]
    fn repeated_runs_are_repetitions() {
        let side = |rates: &[f64]| {
            let mut set = SeriesSet::default();
            for (i, rate) in rates.iter().enumerate() {
                run(&mut set, &format!("run{i}"), *rate);
            }
            set
        };
        let compared = compare(
            vec![input("old", side(&[100.0, 102.0, 101.0])), input("new", side(&[121.0, 119.0, 120.0]))],
            false,
        );
        assert!(compared.runs.is_none());
        let d = &compared.pairs[0].differences[0];
        assert_eq!((d.entity.as_str(), d.a.median, d.b.median, d.shift), ("wrk", 101.0, 120.0, 19.0));
        let range = d.range.unwrap();
        assert_eq!((range.low, range.high), (17.0, 21.0));
        assert!((range.confidence - 0.9).abs() < 1e-9);
        assert!(d.sure && d.note.as_deref() == Some("few runs: 3 against 3"));
    }

    #[test]
    fn single_runs_are_put_in_order_even_when_files_share_a_name() {
        let side = |rate: f64| {
            let mut set = SeriesSet::default();
            run(&mut set, "wrk", rate);
            set
        };
        let compared = compare(
            vec![
                input("a/wrk.txt", side(100.0)),
                input("b/wrk.txt", side(300.0)),
                input("c/wrk.txt", side(200.0)),
            ],
            false,
        );
        let runs = compared.runs.unwrap();
        let names: Vec<&str> = runs.runs.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["b/wrk.txt", "c/wrk.txt", "a/wrk.txt"]);
        assert!(compared.pairs.is_empty());
    }

    #[test]
    fn one_sample_each_is_a_difference_without_sureness() {
        let side = |free: f64| {
            let mut set = SeriesSet::default();
            put(&mut set, "mem.free", "", vec![free]);
            set
        };
        let compared = compare(vec![input("A", side(1e9)), input("B", side(5e8))], false);
        let d = &compared.pairs[0].differences[0];
        assert!(!d.sure && d.p.is_none() && d.note.as_ref().unwrap().starts_with("one sample each"));
    }
}
