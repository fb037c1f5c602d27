//! Numbers with the lines of the files that say so.
//!
//! An engineer believes what he can look up. Of a series that was high for a while the lines that are quoted are the
//! first and the last one before, the first ones of the stretch, and the most extreme one.

use mitra_model::report::{Evidence, Moment, Quote};
use mitra_model::{Era, Series, SeriesSet, SourceLine, Span};

use crate::view::View;

/// Lines of a stretch that are quoted from its beginning.
const FIRST: usize = 3;

/// One sample: its position on the axis, its time, how long it is and its value.
type Sample = (usize, i64, f64, f64);

fn samples(series: &Series, span: Span) -> Vec<Sample> {
    let range = series.axis.range(span);
    range
        .map(|i| (i, series.axis.t[i], series.axis.dt[i], series.at(i)))
        .filter(|s| s.3.is_finite())
        .collect()
}

/// The mean over time of some samples; of equal weight where nothing is known of their length.
pub(crate) fn mean(samples: &[Sample]) -> f64 {
    let dt = |s: &Sample| if s.2.is_finite() { s.2 } else { 0.0 };
    let weight: f64 = samples.iter().map(dt).sum();
    if weight > 0.0 {
        samples.iter().map(|s| s.3 * dt(s)).sum::<f64>() / weight
    } else {
        samples.iter().map(|s| s.3).sum::<f64>() / samples.len().max(1) as f64
    }
}

/// What a series of a case was outside a stretch: its samples before, of the same files if there are any, or else those
/// after.
pub(crate) fn own_before(view: &View<'_>, metric: &str, row: &str, span: Span) -> Option<Vec<Sample>> {
    if !view.is_case {
        return None;
    }
    let series = view.set.get(metric, row)?;
    let mut list = outside(series, span)?;
    // The sample in which the change falls belongs to neither side.
    let inside = samples(series, span);
    if let Some(last) =
        list.last().copied().filter(|l| list.len() > 1 && l.1 < span.since && !inside.is_empty())
    {
        let rest = mean(&list[..list.len() - 1]);
        if (last.3 - mean(&inside)).abs() < (last.3 - rest).abs() {
            list.pop();
        }
    }
    Some(list)
}

fn outside(series: &Series, span: Span) -> Option<Vec<Sample>> {
    let inside = series.axis.range(span);
    let file = |i: usize| series.axis.places.get(i).map(|p| p.file);
    let files: Vec<Option<u32>> = inside.map(file).collect();
    let era = Era::of(span.since.max(span.until.saturating_sub(2)));
    let same_era = |s: &Sample| Era::of(s.1) == era;
    let pick = |span: Span| -> Option<Vec<Sample>> {
        let all: Vec<Sample> = samples(series, span).into_iter().filter(same_era).collect();
        let same_file: Vec<Sample> = all.iter().copied().filter(|s| files.contains(&file(s.0))).collect();
        let best = if same_file.is_empty() { all } else { same_file };
        (!best.is_empty()).then_some(best)
    };
    pick(Span { since: i64::MIN, until: span.since })
        .or_else(|| pick(Span { since: span.until, until: i64::MAX }))
}

/// The quote of a position of a series.
pub(crate) fn at(set: &SeriesSet, series: &Series, i: usize) -> Option<Quote> {
    let place = *series.axis.places.get(i)?;
    of_place(set, place, series.axis.t[i], Some(series.at(i)))
}

/// The quote of a line.
pub(crate) fn of_place(set: &SeriesSet, place: SourceLine, t: i64, value: Option<f64>) -> Option<Quote> {
    let file = set.files.get(place.file as usize)?.clone();
    if place.line == 0 {
        return None;
    }
    let at = Some(Moment(t)).filter(|m| m.is_known());
    Some(Quote { file, line: place.line, value, at, text: None })
}

/// Fills in the lines and the peak of evidence about a stretch of a series.
pub(crate) fn fill(view: &View<'_>, evidence: &mut Evidence, series: &Series, span: Span) {
    let inside = samples(series, span);
    let fell = evidence.before.is_some_and(|before| evidence.during < before);
    let by_value = |a: &&Sample, b: &&Sample| a.3.total_cmp(&b.3);
    let farthest = if fell { inside.iter().min_by(by_value) } else { inside.iter().max_by(by_value) };
    let farthest = farthest.copied();
    evidence.peak = farthest.map(|s| s.3).filter(|_| inside.len() > 1);
    if series.axis.places.is_empty() {
        return;
    }
    let mut wanted: Vec<(&SeriesSet, &Series, usize)> = Vec::new();
    if let Some(good) =
        view.baseline.and_then(|b| Some((view.base_set.get(&evidence.metric, &evidence.entity)?, b)))
    {
        let all = samples(good.0, good.1);
        wanted.extend(all.first().map(|s| (view.base_set, good.0, s.0)));
        wanted.extend(all.last().map(|s| (view.base_set, good.0, s.0)));
    } else if let Some(own) = outside(series, span).filter(|_| view.is_case) {
        wanted.extend(own.first().map(|s| (view.set, series, s.0)));
        wanted.extend(own.last().map(|s| (view.set, series, s.0)));
    }
    wanted.extend(inside.iter().take(FIRST).chain(farthest.iter()).map(|s| (view.set, series, s.0)));
    for (set, series, i) in wanted {
        let Some(quote) = at(set, series, i) else { continue };
        if !evidence.quotes.contains(&quote) {
            evidence.quotes.push(quote);
        }
    }
}

/// Fills in the lines of a process: the first one of its busiest thread in a span, and the one with most.
pub(crate) fn fill_of_task<'s>(
    set: &SeriesSet,
    evidence: &mut Evidence,
    threads: impl Iterator<Item = &'s Series>,
    span: Span,
) {
    let most = |list: &[Sample]| list.iter().copied().max_by(|a, b| a.3.total_cmp(&b.3));
    let busiest = threads
        .filter_map(|series| {
            let inside = samples(series, span);
            Some((series, *inside.first()?, most(&inside)?))
        })
        .max_by(|a, b| a.2.3.total_cmp(&b.2.3));
    let Some((series, first, most)) = busiest else { return };
    for sample in [first, most] {
        if let Some(quote) = at(set, series, sample.0).filter(|quote| !evidence.quotes.contains(quote)) {
            evidence.quotes.push(quote);
        }
    }
}

/// The last reading of a metric: of its series, or of the readings of a counter.
pub(crate) fn reading<'s>(set: &'s SeriesSet, metric: &str, row: &str) -> Option<(&'s Series, usize, f64)> {
    let last = |series: &'s Series| samples(series, Span::ALL).last().map(|s| (series, s.0, s.3));
    set.total(metric, row).and_then(last).or_else(|| set.get(metric, row).and_then(last))
}
