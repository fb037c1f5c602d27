//! From the runs of a folder to an answer.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_diagnose::compare::{against, compare, mark_sure, measured, median};
use mitra_model::experiment::{Cell, Outcome, SCHEMA};
use mitra_model::report::Moment;

use super::folder::{Folder, Ran};
use super::machine::{self, Recorded};
use super::words;

/// Why runs failed, per variant and step.
const REASONS_MAX: usize = 3;

/// The outcome of all runs that there are.
pub fn outcome(folder: &Folder) -> Result<Outcome> {
    let (about, experiment) = (&folder.about, &folder.experiment);
    let variants: Vec<String> =
        experiment.plan.variant.iter().map(|variant| variant.get_ref().name.get_ref().clone()).collect();
    let mut outcome = Outcome {
        schema: SCHEMA,
        title: experiment.plan.title.get_ref().clone(),
        question: experiment.plan.question.clone(),
        host: about.host.clone(),
        kernel: about.kernel.clone(),
        began: folder.ran.iter().map(|ran| ran.since).filter(|since| *since > 0).min().map(Moment),
        seed: about.seed,
        repetitions: about.repetitions,
        warm_up: about.warm_up,
        metrics: experiment.metrics.iter().map(|metric| metric.info.clone()).collect(),
        steps: experiment.steps.iter().flatten().cloned().collect(),
        variants,
        ..Outcome::default()
    };
    let reader = recording(folder, &mut outcome);
    let (mut firsts, mut counted): (Vec<Recorded>, Vec<&Ran>) = (Vec::new(), Vec::new());
    for (v, variant) in outcome.variants.clone().iter().enumerate() {
        for (s, step) in experiment.steps.iter().enumerate() {
            let runs = folder.of(v, s);
            let good: Vec<&Ran> = runs.iter().copied().filter(|ran| ran.failed.is_none()).collect();
            let mut cell = cell(folder, &good, v * experiment.steps.len() + s);
            cell.variant.clone_from(variant);
            cell.step.clone_from(step);
            cell.failed = reasons(&runs);
            cell.failed_runs = runs.len() - good.len();
            let recorded = match &reader {
                Some(reader) => machine::read(reader, &good).context("cannot read the recording")?,
                None => Recorded::default(),
            };
            add_recorded(&mut cell, &recorded, firsts.get(s).filter(|_| v > 0), &outcome, about.seed);
            outcome.cells.push(cell);
            if v == 0 {
                firsts.push(recorded);
            }
            counted.extend(good);
        }
    }
    compare_with_first(&mut outcome);
    outcome.verdicts = words::verdicts(&outcome);
    outcome.remarks.extend(words::remarks(&outcome, folder.left().len()));
    outcome.remarks.extend(missing(&counted));
    Ok(outcome)
}

/// The recording, or a remark why there is none.
fn recording(folder: &Folder, outcome: &mut Outcome) -> Option<Reader> {
    let Some(dir) = &folder.about.archive else {
        outcome.remarks.push("nothing was recorded, so what the machine did is not known".to_owned());
        return None;
    };
    match Reader::open(dir) {
        Ok(reader) => Some(reader),
        Err(error) => {
            outcome.remarks.push(format!("the recording cannot be read: {error}"));
            None
        }
    }
}

/// What the workload said. Each place has a seed of its own.
fn cell(folder: &Folder, runs: &[&Ran], place: usize) -> Cell {
    let metrics = &folder.experiment.metrics;
    let measure = |(m, metric): (usize, &super::plan::MetricReader)| {
        let values = runs.iter().filter_map(|ran| ran.values.get(&metric.info.name)).copied().collect();
        measured(values, seed(folder.about.seed, place, m))
    };
    let mut also: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in runs.iter().flat_map(|ran| &ran.also) {
        also.entry(name.clone()).or_default().push(*value);
    }
    let middle = |(name, mut values): (String, Vec<f64>)| Some((name, median(&mut values)?));
    Cell {
        runs: runs.len(),
        measured: metrics.iter().enumerate().map(measure).collect(),
        also: also.into_iter().filter_map(middle).collect(),
        ..Cell::default()
    }
}

fn seed(seed: u64, place: usize, metric: usize) -> u64 {
    seed.wrapping_add((place * 1000 + metric) as u64)
}

/// Why runs failed, each reason once.
fn reasons(runs: &[&Ran]) -> Vec<String> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for why in runs.iter().filter_map(|ran| ran.failed.as_deref()) {
        *count.entry(why).or_default() += 1;
    }
    let mut reasons: Vec<(&str, usize)> = count.into_iter().collect();
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let words = |(why, n): (&str, usize)| if n == 1 { why.to_owned() } else { format!("{why} ({n} runs)") };
    reasons.into_iter().take(REASONS_MAX).map(words).collect()
}

/// Metrics that runs do not have, each with a reason.
fn missing(runs: &[&Ran]) -> Vec<String> {
    let mut metrics: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (name, why) in runs.iter().flat_map(|run| &run.missing) {
        metrics.entry(name.as_str()).or_insert((0, why.as_str())).0 += 1;
    }
    let all = runs.len();
    let words = |(name, (n, why)): (&str, (usize, &str))| format!("{n} of {all} runs have no {name}: {why}");
    metrics.into_iter().map(words).collect()
}

fn add_recorded(
    cell: &mut Cell,
    recorded: &Recorded,
    first: Option<&Recorded>,
    outcome: &Outcome,
    seed: u64,
) {
    cell.recorded = recorded.runs;
    cell.conditions.clone_from(&recorded.conditions);
    if !recorded.lost.is_empty() {
        cell.lost = Some(measured(recorded.lost.clone(), seed));
    }
    if let (Some(first), Some(name)) = (first.filter(|first| first.runs > 0), outcome.variants.first())
        && recorded.runs > 0
    {
        let compared = compare(vec![first.side(name), recorded.side(&cell.variant)], false);
        cell.machine = compared.pairs.into_iter().next();
    }
}

/// Compares each variant with the first one at the same step. The comparisons of the primary metric are judged together,
/// and those of all others.
fn compare_with_first(outcome: &mut Outcome) {
    let steps = outcome.steps.len().max(1);
    let firsts = steps.min(outcome.cells.len());
    let (firsts, others) = outcome.cells.split_at_mut(firsts);
    let primary_count = others.len();
    let other_count = primary_count * outcome.metrics.len().saturating_sub(1);
    let (mut of_primary, mut of_others) = (Vec::new(), Vec::new());
    for (i, other) in others.iter_mut().enumerate() {
        for (metric, measured) in other.measured.iter_mut().enumerate() {
            let Some(first) = firsts.get(i % steps).and_then(|cell| cell.measured.get(metric)) else {
                continue;
            };
            let (count, all) =
                if metric == 0 { (primary_count, &mut of_primary) } else { (other_count, &mut of_others) };
            let seed = seed(outcome.seed, i, metric);
            measured.against_first = against(&first.values, &measured.values, seed, count);
            all.extend(measured.against_first.as_mut());
        }
    }
    mark_sure(&mut of_primary);
    mark_sure(&mut of_others);
    for (i, other) in others.iter_mut().enumerate() {
        if let (Some(first), Some(lost)) =
            (firsts.get(i % steps).and_then(|c| c.lost.as_ref()), &mut other.lost)
        {
            lost.against_first = against(&first.values, &lost.values, outcome.seed, 1);
        }
    }
}
