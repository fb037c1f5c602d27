//! The answer of an experiment in sentences.

use mitra_diagnose::compare::RUNS_MIN;
use mitra_model::experiment::{Against, Cell, Measured, MetricInfo, Outcome};

use crate::render::compare::{change, name};
use crate::render::experiment::{percent, percents};
use crate::render::units;

/// Differences of the machine in a sentence.
const BESIDE_MAX: usize = 3;

/// The sentences, the clearest difference first.
pub fn verdicts(outcome: &Outcome) -> Vec<String> {
    let (Some(metric), Some(first)) = (outcome.metrics.first(), outcome.variants.first()) else {
        return Vec::new();
    };
    let mut found: Vec<(f64, String)> = Vec::new();
    for variant in outcome.variants.iter().skip(1) {
        let cells: Vec<&Cell> = outcome.cells.iter().filter(|cell| cell.variant == *variant).collect();
        let (size, mut said) = match cells.as_slice() {
            [only] => of_one(outcome, first, only, metric),
            cells => of_steps(first, variant, cells, metric),
        };
        said.push_str(&failures(outcome, [first, variant]));
        // Where it differs most.
        let most = cells.iter().max_by(|a, b| size_of(a).total_cmp(&size_of(b)));
        if let Some(beside) = most.and_then(|cell| beside(outcome, cell)) {
            said.push_str(&format!(". {beside}"));
        }
        found.push((size, said));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut said: Vec<String> = found.into_iter().map(|(_, said)| said).collect();
    if outcome.variants.len() > 2 || outcome.variants.len() == 1 {
        said.extend(ranking(outcome, metric));
    }
    said
}

fn size_of(cell: &Cell) -> f64 {
    let against = cell.measured.first().and_then(|measured| measured.against_first);
    against.map_or(0.0, |against| against.percent.abs())
}

/// ` (2 of 7 runs of nginx failed)`, of those variants that have failed runs.
fn failures(outcome: &Outcome, variants: [&str; 2]) -> String {
    let mut said = String::new();
    for variant in variants {
        let cells = outcome.cells.iter().filter(|cell| cell.variant == variant);
        let (failed, good) =
            cells.fold((0, 0), |(failed, good), cell| (failed + cell.failed_runs, good + cell.runs));
        if failed > 0 {
            said.push_str(&format!(" ({failed} of {} runs of {variant} failed)", failed + good));
        }
    }
    said
}

fn is_better(against: &Against, metric: &MetricInfo) -> bool {
    (against.percent > 0.0) == metric.higher_is_better
}

/// One variant without steps. What is sure has a size above zero.
fn of_one(outcome: &Outcome, first: &str, cell: &Cell, metric: &MetricInfo) -> (f64, String) {
    let variant = &cell.variant;
    let base = outcome.cells.first().and_then(|cell| cell.measured.first());
    let (Some(base), Some(other)) = (base, cell.measured.first()) else { return (-1.0, String::new()) };
    let (Some(mean_a), Some(mean_b)) = (base.mean, other.mean) else {
        let who = if base.mean.is_none() { first } else { variant };
        return (-1.0, format!("{variant} and {first} cannot be compared: no run of {who} succeeded"));
    };
    let values = format!("{} → {}", units::value(mean_a, &metric.unit), units::value(mean_b, &metric.unit));
    let Some(against) = other.against_first else {
        return (
            -1.0,
            format!(
                "{variant} and {first} cannot be compared, as the mean of {first} is 0: {} {values}",
                metric.name
            ),
        );
    };
    let Some(range) = against.range else {
        let few = base.values.len().min(other.values.len());
        let said = format!(
            "{variant} and {first}: {few} runs are too few to tell, {RUNS_MIN} are needed; {} {values} ({})",
            metric.name,
            percent(against.percent)
        );
        return (0.0, said);
    };
    if against.sure {
        let word = if is_better(&against, metric) { "better" } else { "worse" };
        let way = if against.percent > 0.0 { "higher" } else { "lower" };
        let (low, high) = (range.low.abs().min(range.high.abs()), range.low.abs().max(range.high.abs()));
        let between = if low == high {
            "the values did not vary".to_owned()
        } else {
            format!("{} to {} %, 95 % sure", percents(low), percents(high))
        };
        let said = format!(
            "{variant} is {word} than {first}: {} is {way} by {} % ({between}), {values}",
            metric.name,
            percents(against.percent.abs())
        );
        return (against.percent.abs(), said);
    }
    (0.0, format!("{variant} and {first}: {} ({values})", not_sure(&against, metric)))
}

/// What a comparison that is not sure says all the same.
fn not_sure(against: &Against, metric: &MetricInfo) -> String {
    let Some(range) = against.range else { return "too few runs to tell".to_owned() };
    if range.low == 0.0 && range.high == 0.0 {
        return format!("{} did not vary and is the same", metric.name);
    }
    let between = format!("{} to {}", percent(range.low), percent(range.high));
    if range.low > 0.0 || range.high < 0.0 {
        return format!(
            "{} differs by {between}, but among so many comparisons that may be chance",
            metric.name
        );
    }
    let largest = range.low.abs().max(range.high.abs());
    let seen = against.detectable_percent.map(|d| {
        format!(
            "; with this noise and so many runs {} % would have been seen four times of five",
            percents(d)
        )
    });
    format!(
        "no difference of {} larger than {} % ({between}, 95 % sure){}",
        metric.name,
        percents(largest),
        seen.unwrap_or_default()
    )
}

/// One variant over the steps.
fn of_steps(first: &str, variant: &str, cells: &[&Cell], metric: &MetricInfo) -> (f64, String) {
    let compared: Vec<(&Cell, Against)> = cells
        .iter()
        .filter_map(|cell| Some((*cell, cell.measured.first().and_then(|measured| measured.against_first)?)))
        .collect();
    let of = |wanted: bool| -> Vec<&(&Cell, Against)> {
        compared.iter().filter(|(_, a)| a.sure && is_better(a, metric) == wanted).collect()
    };
    let list = |all: &[&(&Cell, Against)]| -> String {
        let one = |(cell, against): &&(&Cell, Against)| {
            format!("{} ({})", cell.step.as_deref().unwrap_or_default(), percent(against.percent))
        };
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let (better, worse) = (of(true), of(false));
    let mut parts = Vec::new();
    if !better.is_empty() {
        parts.push(format!("better at {}", list(&better)));
    }
    if !worse.is_empty() {
        parts.push(format!("worse at {}", list(&worse)));
    }
    let steps = |all: &[&(&Cell, Against)]| -> String {
        all.iter().filter_map(|(cell, _)| cell.step.as_deref()).collect::<Vec<_>>().join(", ")
    };
    let unsure: Vec<&(&Cell, Against)> =
        compared.iter().filter(|(_, a)| !a.sure && a.range.is_some()).collect();
    let few: Vec<&(&Cell, Against)> = compared.iter().filter(|(_, a)| a.range.is_none()).collect();
    if !unsure.is_empty() {
        let largest = unsure.iter().filter_map(|(_, a)| a.range).map(|r| r.low.abs().max(r.high.abs()));
        let largest = largest.fold(0.0, f64::max);
        let bound =
            if largest > 0.0 { format!(" larger than {} %", percents(largest)) } else { String::new() };
        parts.push(format!("no sure difference{bound} at {}", steps(&unsure)));
    }
    if !few.is_empty() {
        parts.push(format!("too few runs at {}", steps(&few)));
    }
    if compared.len() < cells.len() {
        let count = cells.len() - compared.len();
        parts
            .push(format!("{count} steps cannot be compared: no run succeeded, or the mean of {first} is 0"));
    }
    let size = compared.iter().filter(|(_, a)| a.sure).map(|(_, a)| a.percent.abs()).fold(0.0, f64::max);
    (size, format!("{variant} against {first}, by {}: {}", metric.name, parts.join("; ")))
}

/// The means in order, the best first.
fn ranking(outcome: &Outcome, metric: &MetricInfo) -> Option<String> {
    let mean = |cell: &Cell| cell.measured.first().and_then(|measured| measured.mean);
    let mut means: Vec<(f64, &Cell)> =
        outcome.cells.iter().filter_map(|cell| Some((mean(cell)?, cell))).collect();
    // With several variants and steps the table says it.
    if outcome.steps.len() > 1 && outcome.variants.len() > 1 || means.len() < 2 {
        return None;
    }
    means.sort_by(|a, b| if metric.higher_is_better { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
    let one = |(mean, cell): &(f64, &Cell)| {
        let label = cell.step.as_ref().filter(|_| outcome.variants.len() == 1).unwrap_or(&cell.variant);
        format!("{label} {}", units::value(*mean, &metric.unit))
    };
    let tested = match outcome.variants.as_slice() {
        [first, _, ..] => format!("only differences to {first} are tested"),
        _ => "their differences are not tested".to_owned(),
    };
    let means: Vec<String> = means.iter().map(one).collect();
    Some(format!("Means of {} in order, the best first ({tested}): {}", metric.name, means.join(", ")))
}

/// What else differs surely between the first variant and this one.
fn beside(outcome: &Outcome, cell: &Cell) -> Option<String> {
    let pair = cell.machine.as_ref()?;
    let mut parts: Vec<String> = pair
        .differences
        .iter()
        .filter(|difference| difference.sure)
        .take(BESIDE_MAX)
        .map(|d| {
            let (a, b) = (units::value(d.a.median, &d.unit), units::value(d.b.median, &d.unit));
            format!("{} {a} → {b} ({})", name(d), change(d))
        })
        .collect();
    let first = outcome.cells.iter().find(|other| other.step == cell.step)?;
    for (own, other, who) in [(cell, first, &cell.variant), (first, cell, &first.variant)] {
        let is_only_here = |(id, n): &(&String, &usize)| {
            **n == own.recorded
                && own.recorded.min(other.recorded) >= RUNS_MIN
                && !other.conditions.contains_key(*id)
        };
        let ids: Vec<&str> = own.conditions.iter().filter(is_only_here).map(|(id, _)| id.as_str()).collect();
        if !ids.is_empty() {
            parts.push(format!("in each run of {who} and in none of the other: {}", ids.join(", ")));
        }
    }
    let at = cell.step.as_ref().map(|step| format!(" at {step}")).unwrap_or_default();
    (!parts.is_empty()).then(|| format!("Beside it{at}: {}", parts.join("; ")))
}

/// What limits the answer.
pub fn remarks(outcome: &Outcome, left: usize) -> Vec<String> {
    let mut remarks = Vec::new();
    if left > 0 {
        remarks.push(format!("{left} runs are not made yet, so intervals will become narrower"));
    }
    for cell in outcome.cells.iter().filter(|cell| !cell.failed.is_empty()) {
        let step = cell.step.as_ref().map(|step| format!(", {step}")).unwrap_or_default();
        remarks.push(format!(
            "{}{step}: runs failed and do not count: {}",
            cell.variant,
            cell.failed.join("; ")
        ));
    }
    let few = |measured: &&Measured| (1..RUNS_MIN).contains(&measured.values.len());
    if outcome.cells.iter().flat_map(|cell| &cell.measured).any(|measured| few(&measured)) {
        remarks.push(format!(
            "means of fewer than {RUNS_MIN} runs have no interval: their range would miss the truth too often"
        ));
    }
    let compared: Vec<Against> =
        outcome.cells.iter().filter_map(|cell| cell.measured.first()?.against_first).collect();
    let comparisons = compared.len();
    if comparisons > 1 {
        remarks.push(format!(
            "{comparisons} comparisons: what is called better or worse also passes a rank test at a false discovery rate of 5 %"
        ));
    }
    if compared.iter().any(|against| against.range.is_some() && against.detectable_percent.is_none()) {
        remarks.push(format!(
            "so few runs cannot make a single difference sure among {comparisons} comparisons; more runs or fewer comparisons can"
        ));
    }
    let unseen = outcome.cells.iter().filter(|cell| cell.runs > 0 && cell.recorded == 0).count();
    if unseen > 0 && outcome.cells.iter().any(|cell| cell.recorded > 0) {
        remarks.push(format!(
            "the recorder saw no run of {unseen} of the rows; runs shorter than two samples have none"
        ));
    }
    remarks
}

#[cfg(test)]
mod tests;
