//! Programs that end with a failure, by who starts them.
//!
//! Ends are recorded by the id of the parent and the name of the program. A supervisor of containers has a process of its own
//! for each start, so that each life has another parent: ends of one name under parents of one name are put together where
//! each of these parents saw a single one. The first process keeps services of all kinds, which are told apart by name.
//!
//! Deaths of a minute are found whatever their distance. A supervisor that waits longer between two starts, or a new parent
//! each time, is told from chance by the rhythm: it waits as long as before, or twice as long.

use std::collections::BTreeMap;

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::signal::Signal;
use crate::words;

/// The metric that tells of them.
pub const METRIC: &str = "exited.failed";
/// Whose names the parents are.
pub const PARENT: &str = "exited.parent_comm";
/// The first process, which keeps services.
pub const INIT: u32 = 1;

/// Deaths of one program that make a loop: once is a crash, twice may be an accident.
pub const LEAST: usize = 3;
/// Within a minute they do whatever their distance.
const CLOSE_S: f64 = 60.0;
/// The longest that a supervisor waits (`CrashLoopBackOff`), and the life itself.
const GAP_MAX_S: f64 = 330.0;
/// Supervisors double the time that they wait, or leave it as it is.
const RHYTHM: f64 = 2.5;
/// Each death is known to a sample.
const SLACK_S: f64 = 1.0;

/// The ends of one program under one parent, or under several of one name.
#[derive(Debug, Clone)]
pub struct Deaths<'a> {
    /// The name of the program.
    pub child: &'a str,
    /// The rows of `exited`.
    pub rows: Vec<&'a str>,
    /// Their parents.
    pub parents: Vec<u32>,
}

impl Deaths<'_> {
    /// Whether each had a parent of its own.
    pub fn has_many_parents(&self) -> bool {
        self.rows.len() > 1
    }

    /// A metric of `exited` over time.
    pub fn signal(&self, set: &SeriesSet, metric: &str, span: Span) -> Option<Signal> {
        Signal::sum(self.rows.iter().filter_map(|row| set.get(metric, row)), span)
    }

    /// What it came to.
    pub fn total(&self, set: &SeriesSet, metric: &str, span: Span) -> f64 {
        self.signal(set, metric, span).map_or(0.0, |signal| signal.total())
    }

    /// The name of the parent, or of all of them.
    pub fn parent_comm<'s>(&self, set: &'s SeriesSet) -> Option<&'s str> {
        set.text(PARENT, self.rows.first()?)?.last()
    }
}

/// The parent's number and the name of its children, as a row of ended processes has them. `None` of the row of those for
/// which the recorder had no room: they have neither.
pub fn family(row: &str) -> Option<(u32, &str)> {
    let (parent, child) = row.split_once(':')?;
    Some((parent.parse().ok().filter(|parent| *parent > 0)?, child))
}

/// Everything that ended with a failure in a span.
pub fn all(set: &SeriesSet, span: Span) -> Vec<Deaths<'_>> {
    let mut list = Vec::new();
    let mut by_name: BTreeMap<(&str, &str), Deaths<'_>> = BTreeMap::new();
    for (row, series) in set.each(METRIC) {
        let Some((parent, child)) = family(row) else { continue };
        let failed = series.total(span).unwrap_or(0.0);
        if failed <= 0.0 {
            continue;
        }
        let name = set.text(PARENT, row).and_then(|text| text.last());
        match name.filter(|_| parent != INIT && failed < 1.5) {
            Some(name) => {
                let new = || Deaths { child, rows: Vec::new(), parents: Vec::new() };
                let group = by_name.entry((name, child)).or_insert_with(new);
                group.rows.push(row);
                group.parents.push(parent);
            }
            None => list.push(Deaths { child, rows: vec![row], parents: vec![parent] }),
        }
    }
    list.extend(by_name.into_values());
    list
}

/// The moments at which something died.
pub fn times(signal: &Signal) -> Vec<i64> {
    signal.t.iter().zip(&signal.v).filter(|(_, v)| **v > 0.0).map(|(t, _)| *t).collect()
}

/// The last of some deaths, as far back as they come in a rhythm.
pub fn in_rhythm(times: &[i64]) -> &[i64] {
    let gap = |i: usize| Some(words::between(*times.get(i.checked_sub(1)?)?, *times.get(i)?));
    let mut from = times.len().saturating_sub(1);
    while let Some(own) = gap(from) {
        if own > GAP_MAX_S || gap(from + 1).is_some_and(|next| !is_alike(own, next)) {
            break;
        }
        from -= 1;
    }
    times.get(from..).unwrap_or_default()
}

fn is_alike(a: f64, b: f64) -> bool {
    a <= RHYTHM * b + SLACK_S && b <= RHYTHM * a + SLACK_S
}

/// The stretches in which one program died again and again. Of those in a slow rhythm just the last death: between them
/// there is time enough for anything else.
pub fn stretches(set: &SeriesSet, window: Span) -> Vec<Span> {
    let mut spans = Vec::new();
    for group in all(set, window) {
        let Some(signal) = group.signal(set, METRIC, window) else { continue };
        let times = times(&signal);
        for some in times.windows(LEAST) {
            let (Some(first), Some(last)) = (some.first(), some.last()) else { continue };
            let is_close = words::between(*first, *last) <= CLOSE_S;
            let is_rhythm = in_rhythm(some).len() == some.len();
            if is_close && (is_rhythm || !group.has_many_parents()) {
                spans.push(Span { since: first - SECOND, until: *last });
            } else if is_rhythm {
                spans.push(Span { since: last - SECOND, until: *last });
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Series, TextSeries, lookup};

    use super::*;

    /// Deaths of a program in these seconds; each under a parent of its own, or all under one.
    fn deaths(seconds: &[i64], one_parent: bool) -> SeriesSet {
        let mut set = SeriesSet::default();
        let t: Vec<i64> = (1..=900).map(|i| i * SECOND).collect();
        let axis = Arc::new(Axis { dt: vec![1.0; t.len()], t, places: Vec::new() });
        let rows: Vec<(String, Vec<i64>)> = if one_parent {
            vec![("70:app".to_owned(), seconds.to_vec())]
        } else {
            seconds.iter().enumerate().map(|(i, s)| (format!("{}:app", 700 + i), vec![*s])).collect()
        };
        for (row, seconds) in rows {
            let values = (1..=900).map(|i| f64::from(u8::from(seconds.contains(&i)))).collect();
            let series = Series { axis: Arc::clone(&axis), start: 0, values };
            set.insert(lookup(METRIC).unwrap(), row.as_str().into(), series);
            let parent = TextSeries { changes: vec![(0, Some("shim".into()))], place: None };
            set.insert_text(lookup(PARENT).unwrap(), row.as_str().into(), parent);
        }
        set
    }

    #[test]
    fn three_in_a_minute_or_in_a_rhythm() {
        let found = |seconds: &[i64], one_parent| stretches(&deaths(seconds, one_parent), Span::ALL).len();
        assert_eq!(found(&[100, 104, 130], true), 1);
        assert_eq!(found(&[100, 104, 200], true), 0, "no rhythm");
        assert_eq!(found(&[100, 190, 280, 370], true), 2);
        assert_eq!(found(&[100, 140, 220, 380], true), 2, "twice as long each time");
        // A new parent each time.
        assert_eq!(found(&[100, 110, 121], false), 1);
        assert_eq!(found(&[100, 101, 130], false), 0, "no rhythm");
        assert_eq!(all(&deaths(&[100, 110, 121], false), Span::ALL).len(), 1);
    }

    #[test]
    fn a_rhythm_is_followed_back_to_where_it_begins() {
        let times: Vec<i64> = [3, 400, 500, 600, 700].iter().map(|s| s * SECOND).collect();
        assert_eq!(in_rhythm(&times), &times[1..]);
        assert_eq!(in_rhythm(&[]), &[] as &[i64]);
        assert_eq!(in_rhythm(&times[..1]), &times[..1]);
    }
}
