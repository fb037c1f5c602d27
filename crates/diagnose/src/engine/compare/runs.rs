//! Runs of benchmarks against each other: which is how much faster, and what its number leaves out.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::{Comparison, Quote, RunResult};
use mitra_model::{Entity, SeriesSet, Span, columns};

use crate::words;

/// What a benchmark is run for, the most telling first: the metrics that add up to it, and its unit.
const MAIN: [(&[&str], &str); 5] = [
    (&["run.requests_per_s"], "requests/s"),
    (&["run.transactions_per_s"], "transactions/s"),
    (&["run.events_per_s"], "events/s"),
    (&["run.read_iops", "run.write_iops"], "I/O operations/s"),
    (&["run.bytes_per_s"], "bytes/s"),
];
/// Names in the sentence; a table has the others.
const NAMED_MAX: usize = 8;
/// A single run of the same program on the same machine easily strays this far.
const NEAR: f64 = 1.1;
/// What must be the same for a comparison of two programs, with words for it.
const SETTINGS: [(&str, &str); 3] =
    [("run.connections", "connections"), ("run.threads", "threads"), ("run.duration", "duration")];

/// One run: what it is called, where its numbers are, and what they say.
pub(super) struct Run<'a> {
    pub name: String,
    pub set: &'a SeriesSet,
    pub row: &'a str,
    /// The place of its main result in [`MAIN`], and that result.
    pub main: Option<(usize, f64)>,
    pub values: BTreeMap<String, f64>,
}

impl Run<'_> {
    fn result(&self) -> f64 {
        self.main.map_or(f64::NAN, |(_, result)| result)
    }

    pub(super) fn tool(&self) -> &str {
        self.set.text("run.tool", self.row).and_then(|t| t.last()).unwrap_or_default()
    }

    fn get(&self, metric: &str) -> Option<f64> {
        self.values.get(metric).copied()
    }

    fn count(&self, metric: &str) -> Option<f64> {
        self.get(metric).filter(|n| *n > 0.0)
    }
}

/// Puts the runs side by side, the best first, where there are at least two with the same kind of result.
#[must_use]
pub fn comparison(set: &SeriesSet) -> Option<Comparison> {
    compare(runs_of(set))
}

/// The same for runs of several sets, which have names of their own.
pub(super) fn compare(runs: Vec<Run<'_>>) -> Option<Comparison> {
    let (kind, mut runs) = same_kind(runs)?;
    let (parts, unit) = MAIN.get(kind)?;
    runs.sort_by(|a, b| b.result().total_cmp(&a.result()).then(a.name.cmp(&b.name)));
    let results = runs.iter().map(|run| RunResult {
        name: run.name.clone(),
        values: run.values.clone(),
        quotes: quotes(run, parts),
    });
    Some(Comparison { statement: statement(&runs, unit), remarks: remarks(&runs), runs: results.collect() })
}

/// The largest group of runs that measured the same kind of thing.
fn same_kind(runs: Vec<Run<'_>>) -> Option<(usize, Vec<Run<'_>>)> {
    let mut groups: Vec<Vec<Run<'_>>> = MAIN.iter().map(|_| Vec::new()).collect();
    for run in runs {
        if let Some((kind, _)) = run.main
            && let Some(group) = groups.get_mut(kind)
        {
            group.push(run);
        }
    }
    // Of groups of the same size the first: it is the more telling.
    let (kind, runs) = groups.into_iter().enumerate().rev().max_by_key(|(_, runs)| runs.len())?;
    (runs.len() >= 2).then_some((kind, runs))
}

/// The runs of a set with what they measured. A run that reports on itself as it goes counts with its last word.
pub(super) fn runs_of(set: &SeriesSet) -> Vec<Run<'_>> {
    let mut values: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
    for metric in columns(Entity::Run) {
        for (row, series) in set.each(metric.name) {
            if let Some(value) = series.last(Span::ALL) {
                values.entry(row).or_default().insert(metric.name.to_owned(), value);
            }
        }
    }
    let sum = |values: &BTreeMap<String, f64>, parts: &[&str]| {
        let there: Vec<f64> = parts.iter().filter_map(|m| values.get(*m).copied()).collect();
        (!there.is_empty()).then(|| there.iter().sum::<f64>())
    };
    let mut runs = Vec::new();
    for (row, values) in values {
        let main = MAIN.iter().enumerate().find_map(|(kind, (parts, _))| Some((kind, sum(&values, parts)?)));
        runs.push(Run { name: row.to_owned(), set, row, main, values });
    }
    runs
}

/// `sanic 4,907.53 > tornado 1,743.52 requests/s: …`.
fn statement(runs: &[Run<'_>], unit: &str) -> String {
    let mut text = String::new();
    let left_out = runs.len().saturating_sub(NAMED_MAX);
    for (i, run) in runs.iter().enumerate() {
        // The first ones and the last.
        if left_out > 0 && (NAMED_MAX - 1..runs.len() - 1).contains(&i) {
            if i == NAMED_MAX - 1 {
                text.push_str(" > …");
            }
            continue;
        }
        if i > 0 {
            let same = runs.get(i - 1).is_some_and(|before| before.result() == run.result());
            text.push_str(if same { " = " } else { " > " });
        }
        text.push_str(&format!("{} {}", run.name, amount(run.result(), unit)));
    }
    if unit != "bytes/s" {
        text.push_str(&format!(" {unit}"));
    }
    let (Some(first), Some(second), Some(last)) = (runs.first(), runs.get(1), runs.last()) else {
        return text;
    };
    let times = |other: &Run<'_>| (other.result() > 0.0).then(|| factor(first.result() / other.result()));
    match (runs.len(), times(second), times(last)) {
        (2, Some(second), _) => text.push_str(&format!(": {} does {second} times as much", first.name)),
        (_, Some(second), Some(last)) => text.push_str(&format!(
            ": {} does {second} times as much as the second and {last} times as much as the last",
            first.name
        )),
        _ => {}
    }
    text
}

fn amount(value: f64, unit: &str) -> String {
    if unit == "bytes/s" { format!("{}/s", words::bytes(value)) } else { grouped(value) }
}

/// `2.8`, `14`, and below two more exactly, because there it matters.
fn factor(ratio: f64) -> String {
    match ratio {
        r if r < 2.0 => format!("{r:.2}"),
        r if r < 10.0 => format!("{r:.1}"),
        r => grouped(r.round()),
    }
}

/// `4,907.53`: two decimals where there are any, and a comma for each thousand.
fn grouped(value: f64) -> String {
    let text = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    let (whole, decimals) = text.split_once('.').map_or((text.as_str(), None), |(w, d)| (w, Some(d)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = sign.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(decimals) = decimals {
        out.push('.');
        out.push_str(decimals);
    }
    out
}

fn remarks(runs: &[Run<'_>]) -> Vec<String> {
    let mut remarks = Vec::new();
    for run in runs {
        remarks.extend(failures(run));
        remarks.extend(bad_answers(run));
        remarks.extend(idle_connections(run));
    }
    remarks.extend(quicker_but_fewer(runs));
    remarks.extend(SETTINGS.iter().filter_map(|(metric, words)| setting(runs, metric, words)));
    remarks.extend(
        [("run.tool", "benchmarks"), ("run.target", "targets")]
            .into_iter()
            .filter_map(|(m, w)| texts(runs, m, w)),
    );
    if let (Some(first), Some(second)) = (runs.first(), runs.get(1))
        && second.result() > 0.0
        && first.result() / second.result() < NEAR
    {
        remarks.push(format!(
            "{} and {} differ by {}: one run each does not tell that from chance",
            first.name,
            second.name,
            words::percent(first.result() / second.result() - 1.0)
        ));
    }
    remarks
}

fn failures(run: &Run<'_>) -> Option<String> {
    let count = |metric, one: &str, many: &str| {
        let n = run.count(metric)?;
        Some(format!("{} {}", grouped(n), if n == 1.0 { one } else { many }))
    };
    let parts: Vec<String> = [
        count("run.timeouts", "timeout", "timeouts"),
        count(
            "run.errors",
            "error of connections, reads or writes",
            "errors of connections, reads or writes",
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    if parts.is_empty() {
        return None;
    }
    let beside = run
        .count("run.requests")
        .map_or_else(String::new, |n| format!(" beside {} answered requests", grouped(n)));
    Some(format!(
        "{} had {}{beside}: its throughput counts only what succeeded, and its latency leaves out what did not",
        run.name,
        parts.join(" and ")
    ))
}

fn bad_answers(run: &Run<'_>) -> Option<String> {
    let bad = run.count("run.non_2xx")?;
    let of = run
        .count("run.requests")
        .map_or_else(String::new, |n| format!(" of {} ({})", grouped(n), words::percent(bad / n)));
    Some(format!(
        "{} answered {}{of} requests with a status other than 2xx and 3xx: errors are often quicker than answers",
        run.name,
        grouped(bad)
    ))
}

/// Little's law: requests under way are throughput times latency. A generator that sends the next request as soon as
/// the answer is there keeps every connection busy; where that is far fewer than it had, connections hung.
fn idle_connections(run: &Run<'_>) -> Option<String> {
    let connections = run.count("run.connections")?;
    let (rate, latency) = (run.get("run.requests_per_s")?, run.get("run.latency_mean")?);
    let busy = rate * latency;
    (2.0 * busy < connections && connections - busy >= 2.0).then(|| {
        format!(
            "of the {} connections of {} only {busy:.0} had, on average, a request under way whose latency counts \
             (throughput times mean latency): the others hung, or the load generator held back",
            grouped(connections),
            run.name
        )
    })
}

/// The run with the best median latency, where it is not the one with the most throughput.
fn quicker_but_fewer(runs: &[Run<'_>]) -> Option<String> {
    let first = runs.first()?;
    let of_first = first.get("run.latency_p50")?;
    let quickest = runs
        .iter()
        .filter_map(|run| Some((run, run.get("run.latency_p50")?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    (quickest.0.name != first.name && quickest.1 * NEAR < of_first).then(|| {
        format!(
            "{} has the better median latency: {} against {} of {}",
            quickest.0.name,
            words::seconds(quickest.1),
            words::seconds(of_first),
            first.name
        )
    })
}

/// A setting that is not the same for all.
fn setting(runs: &[Run<'_>], metric: &str, words: &str) -> Option<String> {
    let all: Vec<(f64, &str)> = runs.iter().filter_map(|r| Some((r.get(metric)?, r.name.as_str()))).collect();
    let least = all.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let most = all.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    // How long a run took is measured, and never twice the same.
    let same = if metric == "run.duration" { most.0 <= least.0 * NEAR } else { most.0 == least.0 };
    let show = |value: f64| {
        if metric == "run.duration" { words::seconds(value) } else { grouped(value) }
    };
    (!same).then(|| {
        format!(
            "not run alike: {words} {} of {} against {} of {}",
            show(least.0),
            least.1,
            show(most.0),
            most.1
        )
    })
}

fn texts(runs: &[Run<'_>], metric: &str, words: &str) -> Option<String> {
    const SHOWN: usize = 4;
    let all: BTreeSet<&str> =
        runs.iter().filter_map(|r| r.set.text(metric, r.row).and_then(|t| t.last())).collect();
    // Different targets are what is compared where each has an address of its own.
    if all.len() < 2 || (metric == "run.target" && all.len() == runs.len()) {
        return None;
    }
    let mut list: Vec<&str> = all.iter().copied().take(SHOWN).collect();
    if all.len() > SHOWN {
        list.push("…");
    }
    Some(format!("not run alike: different {words}: {}", list.join(", ")))
}

/// The lines that hold the result and what failed.
fn quotes(run: &Run<'_>, main: &[&str]) -> Vec<Quote> {
    let mut quotes: Vec<Quote> = Vec::new();
    for metric in main.iter().chain(&["run.timeouts", "run.errors", "run.non_2xx", "run.latency_p99"]) {
        let is_main = main.contains(metric);
        let Some(value) = run.get(metric).filter(|v| is_main || *v > 0.0) else { continue };
        let Some(series) = run.set.get(metric, run.row) else { continue };
        let Some(at) = series.values.iter().rposition(|v| v.is_finite()) else { continue };
        let Some(place) = series.axis.places.get(series.start + at) else { continue };
        let Some(file) = run.set.files.get(place.file as usize) else { continue };
        if place.line > 0 && !quotes.iter().any(|q| q.line == place.line && q.file == *file) {
            quotes.push(Quote {
                file: file.clone(),
                line: place.line,
                value: Some(value),
                at: None,
                text: None,
            });
        }
    }
    quotes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Era, Series, SourceLine, lookup};

    use super::*;

    fn put(set: &mut SeriesSet, run: &str, line: u32, values: &[(&str, f64)]) {
        set.files.push(format!("{run}.txt"));
        let file = set.files.len() as u32 - 1;
        let axis = Arc::new(Axis {
            t: vec![Era::Fact.zero() + i64::from(file)],
            dt: vec![f64::NAN],
            places: vec![SourceLine { file, line }],
        });
        for (metric, value) in values {
            let series = Series { axis: axis.clone(), start: 0, values: vec![*value].into() };
            set.insert(lookup(metric).unwrap(), run.into(), series);
        }
    }

    #[test]
    fn the_order_the_ratio_and_what_failed() {
        let mut set = SeriesSet::default();
        put(
            &mut set,
            "slow",
            7,
            &[
                ("run.requests_per_s", 350.25),
                ("run.requests", 42_000.0),
                ("run.timeouts", 1200.0),
                ("run.errors", 1.0),
                ("run.connections", 200.0),
                ("run.latency_mean", 0.1),
            ],
        );
        put(
            &mut set,
            "middle",
            8,
            &[("run.requests_per_s", 1700.0), ("run.connections", 200.0), ("run.latency_mean", 0.117)],
        );
        put(&mut set, "quick", 9, &[("run.requests_per_s", 4903.5), ("run.connections", 100.0)]);
        let comparison = comparison(&set).unwrap();
        assert_eq!(
            comparison.statement,
            "quick 4,903.50 > middle 1,700 > slow 350.25 requests/s: quick does 2.9 times as much as the second and \
             14 times as much as the last"
        );
        let remarks = comparison.remarks.join("\n");
        for part in [
            "slow had 1,200 timeouts and 1 error of",
            "beside 42,000 answered requests",
            "of the 200 connections of slow only 35 had",
            "not run alike: connections 100 of quick against 200 of slow",
        ] {
            assert!(remarks.contains(part), "{part}: {remarks}");
        }
        assert!(!remarks.contains("middle had") && !remarks.contains("connections of middle"), "{remarks}");
        let names: Vec<&str> = comparison.runs.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["quick", "middle", "slow"]);
        let quote = &comparison.runs[0].quotes[0];
        assert_eq!((quote.file.as_str(), quote.line, quote.value), ("quick.txt", 9, Some(4903.5)));
    }

    #[test]
    fn one_run_or_two_of_different_kinds_are_no_comparison() {
        let mut set = SeriesSet::default();
        assert!(comparison(&set).is_none());
        put(&mut set, "web", 1, &[("run.requests_per_s", 1.0), ("run.bytes_per_s", 10.0)]);
        put(&mut set, "disk", 1, &[("run.read_iops", 5.0), ("run.bytes_per_s", 20_480.0)]);
        assert!(comparison(&set).is_none());
        put(&mut set, "disk2", 1, &[("run.read_iops", 4.0), ("run.write_iops", 4.0)]);
        let found = comparison(&set).unwrap();
        assert!(found.statement.starts_with("disk2 8 > disk 5 I/O operations/s"), "{}", found.statement);
        assert_eq!(found.runs.len(), 2);
    }

    #[test]
    fn near_results_are_called_near_and_many_are_not_all_named() {
        let mut set = SeriesSet::default();
        for i in 0..12_u32 {
            put(&mut set, &format!("r{i:02}"), 1, &[("run.events_per_s", 1000.0 - f64::from(i))]);
        }
        let found = comparison(&set).unwrap();
        assert!(
            found.remarks.iter().any(|r| r.starts_with("r00 and r01 differ by 0.1 %")),
            "{:?}",
            found.remarks
        );
        assert!(found.statement.contains("r06 994 > … > r11 989 events/s"), "{}", found.statement);
        assert_eq!(found.runs.len(), 12);
    }
}
