//! Runs of `mitra load` on this machine, which it notes in the kernel log.

use mitra_model::report::{LOAD_MARK, LoadRun, Moment};
use mitra_model::{EventKind, SeriesSet, Span};

/// More are not told.
const RUNS_MAX: usize = 100;

/// The runs that touch a window.
pub(crate) fn runs(set: &SeriesSet, window: Span) -> Vec<LoadRun> {
    let mut runs: Vec<LoadRun> = Vec::new();
    let texts = set.events.iter().filter_map(|event| match &event.kind {
        EventKind::KernelLog { text, .. } => text.strip_prefix(LOAD_MARK),
        _ => None,
    });
    for run in texts.filter_map(run) {
        let is_full = runs.len() >= RUNS_MAX;
        match runs.iter_mut().find(|known| (&known.what, known.since) == (&run.what, run.since)) {
            Some(known) => known.until = known.until.or(run.until),
            None if is_full => {}
            None => runs.push(run),
        }
    }
    runs.retain(|run| run.since.0 <= window.until && run.until.is_none_or(|until| until.0 >= window.since));
    runs.sort_by_key(|run| run.since);
    runs
}

/// `offers WHAT from @SECONDS`, `offered WHAT from @SECONDS to @SECONDS`.
fn run(text: &str) -> Option<LoadRun> {
    let (text, until) = match text.strip_prefix("offered ") {
        Some(text) => {
            let (text, until) = text.rsplit_once(" to @")?;
            (text, Some(moment(until)?))
        }
        None => (text.strip_prefix("offers ")?, None),
    };
    let (what, since) = text.rsplit_once(" from @")?;
    Some(LoadRun { what: what.to_owned(), since: moment(since)?, until })
}

fn moment(seconds: &str) -> Option<Moment> {
    let seconds: f64 = seconds.parse().ok()?;
    // Up to the year 2200, which nanoseconds can count.
    (0.0..7.3e9).contains(&seconds).then_some(Moment((seconds * 1e9) as i64))
}

#[cfg(test)]
mod tests {
    use mitra_model::Event;
    use mitra_model::time::SECOND;

    use super::*;

    #[test]
    fn a_run_is_told_once() {
        let line = |text: &str| {
            Event::at(0, EventKind::KernelLog { priority: 6, text: format!("{LOAD_MARK}{text}") })
        };
        let mut set = SeriesSet::default();
        set.events = vec![
            line("offers 500/s for 60s to 127.0.0.1:80 from @1000.500"),
            line("offered 500/s for 60s to 127.0.0.1:80 from @1000.500 to @1060.5"),
            line("offers 1/s to a from @1100.0"),
            line("offered 9/s to b from @10 to @20"),
            line("offered 9/s to b from @x to @20"),
            line("offered 9/s to b from @1e300 to @20"),
            line("says something else"),
        ];
        let runs = runs(&set, Span { since: 900 * SECOND, until: 1200 * SECOND });
        let told: Vec<(&str, i64, Option<i64>)> = runs
            .iter()
            .map(|run| (run.what.as_str(), run.since.0 / SECOND, run.until.map(|m| m.0 / SECOND)))
            .collect();
        assert_eq!(told, [("500/s for 60s to 127.0.0.1:80", 1000, Some(1060)), ("1/s to a", 1100, None)]);
    }
}
