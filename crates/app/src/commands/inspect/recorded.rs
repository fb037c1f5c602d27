//! The recorded memory of a process: what has been growing, and since when.

use std::sync::Arc;

use mitra_archive::Query;
use mitra_inspect::verdict::RecordedSize;
use mitra_model::time::SECOND;
use mitra_model::{Metric, Series, SeriesSet, Span, growth, lookup};

use crate::cli::ArchiveArgs;
use crate::recording;
use crate::render::inspect::growth::{Growth, MemoryHistory};

/// The metrics of a process that are read.
const METRICS: [(&str, &str); 4] = [
    ("task.rss_anon", "its own memory"),
    ("task.rss_file", "mapped files"),
    ("task.rss_shmem", "shared memory"),
    ("task.swap", "what is in swap"),
];
/// A day of the recording is read.
const BACK_NS: i64 = 86_400 * SECOND;
/// Allocators take and give back some megabytes at once.
const STEP_BYTES: f64 = 4e6;
/// Growth begins where it left its minimum for good, by a twentieth of the growth.
const LEFT: f64 = 0.05;

/// The metrics of a process that grew. `Err` says why nothing is known.
pub fn of(archive: &ArchiveArgs, pid: u32, start_ticks: u64) -> Result<MemoryHistory, String> {
    let (set, row) = read(archive, pid, start_ticks, None)?;
    let bytes = |metric: &str| set.get(metric, &row);
    let span = METRICS.iter().find_map(|(metric, _)| whole(bytes(metric)?));
    let span = span.ok_or("the recording has no sizes of the process")?;
    let mut grown: Vec<Growth> =
        METRICS.iter().filter_map(|(metric, what)| grown(metric, what, bytes(metric)?)).collect();
    grown.sort_by(|a, b| b.bytes_per_hour.total_cmp(&a.bytes_per_hour));
    Ok(MemoryHistory { since_ns: span.since, until_ns: span.until, grown })
}

/// The sizes of a process' own memory between two moments.
pub fn sizes(archive: &ArchiveArgs, pid: u32, start_ticks: u64, span: Span) -> Vec<RecordedSize> {
    let Ok((set, row)) = read(archive, pid, start_ticks, Some(span)) else { return Vec::new() };
    let Some(anonymous) = set.get("task.rss_anon", &row) else { return Vec::new() };
    let swap = set.get("task.swap", &row);
    let swapped = |t: i64| {
        let swap = swap?;
        let at = swap.axis.t.binary_search(&t).ok()?;
        Some(swap.at(at)).filter(|v| v.is_finite())
    };
    anonymous
        .samples(span)
        .filter(|(_, _, value)| value.is_finite())
        .map(|(t, _, value)| RecordedSize { time_ns: t, bytes: (value + swapped(t).unwrap_or(0.0)) * page() })
        .collect()
}

/// The series of one process, and the name of its row.
fn read(
    archive: &ArchiveArgs,
    pid: u32,
    start_ticks: u64,
    span: Option<Span>,
) -> Result<(SeriesSet, String), String> {
    let (_, reader) = recording::open(archive).map_err(|error| format!("{error:#}"))?;
    let here = rustix::system::uname();
    if here.nodename().to_string_lossy() != reader.host().hostname {
        return Err(format!("the recording is of another machine, {}", reader.host().hostname));
    }
    let known = reader.span().ok_or("the recording is empty")?;
    let wanted = span.unwrap_or(Span { since: known.until.saturating_sub(BACK_NS), until: known.until });
    let span = known.intersect(wanted).ok_or("nothing was recorded then")?;
    let metrics: Vec<&'static Metric> = METRICS.iter().filter_map(|(name, _)| lookup(name)).collect();
    let query = Query {
        rows: Some(Arc::new(move |_, row| is_of(row, pid, start_ticks))),
        ..Query::new(span, metrics)
    };
    let set = reader.read(&query).map_err(|error| error.to_string())?;
    let row = METRICS.iter().find_map(|(metric, _)| set.each(metric).next().map(|(row, _)| row.to_owned()));
    let row = row.ok_or("the recording does not know the process")?;
    Ok((set, row))
}

/// `4242@81230000000`: the id, and the start in nanoseconds since boot.
fn is_of(row: &str, pid: u32, start_ticks: u64) -> bool {
    let Some((id, born)) = row.split_once('@') else { return false };
    let (Ok(id), Ok(born)) = (id.parse::<u32>(), born.parse::<u64>()) else { return false };
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    id == pid && (born / tick_ns).abs_diff(start_ticks) <= 1
}

/// Sizes are recorded in pages.
fn page() -> f64 {
    rustix::param::page_size() as f64
}

fn whole(series: &Series) -> Option<Span> {
    let mut times = series.samples(Span::ALL).filter(|(_, _, value)| value.is_finite()).map(|(t, _, _)| t);
    let first = times.next()?;
    Some(Span { since: first, until: times.next_back().unwrap_or(first) })
}

fn grown(metric: &'static str, what: &'static str, series: &Series) -> Option<Growth> {
    let samples: Vec<(i64, f64)> = series
        .samples(Span::ALL)
        .filter(|(_, _, value)| value.is_finite())
        .map(|(t, _, value)| (t, value * page()))
        .collect();
    let (until, to) = *samples.last()?;
    // The last time that it was at its minimum.
    let least = samples.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let grew = to - least;
    if grew < STEP_BYTES.max(growth::NOISE_SHARE * to) {
        return None;
    }
    let begin = samples.iter().rposition(|(_, value)| *value <= least + LEFT * grew)?;
    let (since, from) = samples[begin];
    let seconds = until.saturating_sub(since) as f64 / SECOND as f64;
    if seconds <= 0.0 {
        return None;
    }
    let per_s = (to - from) / seconds;
    let after = |t: i64| (t - since) as f64;
    let third = until - (until - since) / 3;
    let (at, value) = *samples.iter().find(|(t, _)| *t >= third)?;
    Some(Growth {
        metric,
        what,
        since_ns: since,
        until_ns: until,
        from_bytes: from,
        to_bytes: to,
        bytes_per_hour: per_s * 3600.0,
        levels_off: growth::levels_off((0.0, from), (after(at), value), (after(until), to)),
    })
}

#[cfg(test)]
mod tests {
    use mitra_model::Axis;

    use super::*;

    fn series(values: &[f64]) -> Series {
        let t: Vec<i64> = (0..values.len() as i64).map(|i| i * 60 * SECOND).collect();
        let dt = vec![60.0; values.len()];
        let values = values.iter().map(|bytes| bytes / page()).collect();
        Series { axis: Arc::new(Axis { t, dt, places: Vec::new() }), start: 0, values }
    }

    #[test]
    fn it_grows_since_it_left_its_level() {
        let values: Vec<f64> = (0..120).map(|i| 1e8 + f64::from((i - 60).max(0)) * 1e7).collect();
        let found = grown("task.rss_anon", "its own memory", &series(&values)).unwrap();
        assert!((60..65).contains(&(found.since_ns / SECOND / 60)), "{found:?}");
        assert!((found.bytes_per_hour - 6e8).abs() < 1e7 && !found.levels_off);
        let still = vec![1e8; 50];
        assert_eq!(grown("task.rss_anon", "", &series(&still)), None);
        let warm: Vec<f64> = (0..120).map(|i| 1e9 * (1.0 - (-f64::from(i) / 10.0).exp())).collect();
        assert!(grown("task.rss_anon", "", &series(&warm)).unwrap().levels_off);
        assert_eq!(grown("task.rss_anon", "", &series(&[f64::NAN, 5.0])), None);
    }

    #[test]
    fn a_process_is_its_id_and_its_start() {
        assert!(is_of("4242@81230000000", 4242, 8123) && is_of("4242@81234999999", 4242, 8123));
        assert!(!is_of("4242@81250000000", 4242, 8123) && !is_of("424@81230000000", 4242, 8123));
        assert!(!is_of("x", 1, 1) && !is_of("1@y", 1, 1));
    }
}
