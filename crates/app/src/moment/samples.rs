//! Which sample is meant.

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_model::series::Gap;
use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use super::metrics;

/// One of them is in every frame of a recorder, others in what was imported.
const CLOCK: &[&str] = &["mem.total", "sys.cpu_idle", "sys.load1", "psi.cpu_some", "vm.pgpgin"];
/// How far to look for samples: more only where these have too few.
const REACHES_NS: [i64; 4] = [60 * SECOND, 3600 * SECOND, 86_400 * SECOND, i64::MAX];

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    /// The latest sample, also when there are more.
    End,
    /// The sample that covers this time.
    Time(i64),
    /// So many samples after a time, or before it.
    Step { from: i64, by: i64 },
}

/// A sample, or a place where none is.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub at: i64,
    pub is_sample: bool,
    pub covers_s: f64,
    /// The sample before.
    pub previous: Option<i64>,
    pub gap: Option<Gap>,
}

/// Samples in a part of the recording.
struct Seen {
    t: Vec<i64>,
    dt: Vec<f64>,
    gaps: Vec<Gap>,
}

fn seen(reader: &Reader, span: Span) -> Result<Seen> {
    let set = reader.read(&Query::new(span, metrics(CLOCK.iter().copied())))?;
    let axis = axis_of(&set);
    let (t, dt) = axis.map_or_else(Default::default, |axis| (axis.t.clone(), axis.dt.clone()));
    Ok(Seen { t, dt, gaps: set.gaps })
}

/// All series of an archive have one axis.
pub fn axis_of(set: &SeriesSet) -> Option<&std::sync::Arc<mitra_model::Axis>> {
    set.metrics().flat_map(|(_, rows)| rows.values()).next().map(|series| &series.axis)
}

/// The last samples before `end`, at least `count` of them if there are, the oldest first.
fn before(reader: &Reader, recorded: Span, end: i64, count: usize) -> Result<Seen> {
    reach(count, |reach| Span { since: end.saturating_sub(reach).max(recorded.since), until: end }, reader)
}

/// The first samples from `start` on.
fn after(reader: &Reader, recorded: Span, start: i64, count: usize) -> Result<Seen> {
    reach(
        count,
        |reach| Span { since: start, until: start.saturating_add(reach).min(recorded.until) },
        reader,
    )
}

fn reach(count: usize, span: impl Fn(i64) -> Span, reader: &Reader) -> Result<Seen> {
    let mut found = Seen { t: Vec::new(), dt: Vec::new(), gaps: Vec::new() };
    let mut looked = None;
    for reach in REACHES_NS {
        let span = span(reach);
        if span.since >= span.until || looked == Some(span) {
            break;
        }
        found = seen(reader, span)?;
        if found.t.len() >= count {
            break;
        }
        looked = Some(span);
    }
    Ok(found)
}

pub fn find(reader: &Reader, recorded: Span, at: At) -> Result<Place> {
    let last = recorded.until.saturating_sub(1);
    let at = match at {
        At::End => last,
        At::Time(t) | At::Step { from: t, by: 0 } => t.clamp(recorded.since, last),
        At::Step { from, by } => {
            let count = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX);
            let stepped = if by > 0 {
                let seen = after(reader, recorded, from.saturating_add(1), count)?;
                seen.t.get(count - 1).or(seen.t.last()).copied().unwrap_or(last)
            } else {
                let seen = before(reader, recorded, from, count)?;
                let first = seen.t.first().copied();
                seen.t
                    .len()
                    .checked_sub(count)
                    .map(|i| seen.t[i.min(seen.t.len() - 1)])
                    .or(first)
                    .unwrap_or(recorded.since)
            };
            stepped.clamp(recorded.since, last)
        }
    };
    let until = at.saturating_add(1);
    let mut near = before(reader, recorded, until, 2)?;
    let Some(sample) = near.t.pop() else {
        return Ok(Place { at, is_sample: false, covers_s: f64::NAN, previous: None, gap: None });
    };
    let covers_s = near.dt.last().copied().unwrap_or(f64::NAN);
    let previous = near.t.last().copied();
    if sample < at {
        let next = after(reader, recorded, sample, 2)?;
        if let Some(gap) = next.gaps.into_iter().find(|gap| gap.span.since <= at && at < gap.span.until) {
            return Ok(Place {
                at,
                is_sample: false,
                covers_s: f64::NAN,
                previous: Some(sample),
                gap: Some(gap),
            });
        }
    }
    let gap = near.gaps.into_iter().find(|gap| gap.span.until == sample);
    Ok(Place { at: sample, is_sample: true, covers_s, previous, gap })
}
