//! Sizes that grow: by how much, and whether they level off. A warm-up levels off, a leak does not.

use mitra_model::Span;

use crate::signal::{Run, Signal};
use crate::view::View;

/// A size that grew inside a view.
pub struct Growth {
    /// At the beginning.
    pub from: f64,
    /// At the end.
    pub to: f64,
    /// Units a second over the whole stretch.
    pub per_s: f64,
    /// Whether the last third grew at less than a quarter of that.
    pub levels_off: bool,
    /// The stretch.
    pub run: Run,
}

/// Less than half a minute says nothing of a trend, and neither do fewer samples than make thirds.
const LEAST_SAMPLES: usize = 6;

/// How a metric of the whole machine, or of one thing, grew; `None` where it did not or is not known.
#[must_use]
pub fn of(view: &View<'_>, metric: &str, row: &str) -> Option<Growth> {
    climb(&view.of(metric, row)?)
}

/// How a signal grew until it was largest: what came after (the process ended, memory was freed) is not part of the growth.
#[must_use]
pub fn climb(signal: &Signal) -> Option<Growth> {
    let most = signal.max()?;
    let least = signal.v.iter().copied().fold(f64::INFINITY, f64::min);
    // A level that it holds with some noise belongs to it.
    let top = signal.v.iter().rposition(|v| *v >= most - LEVEL * (most - least))?;
    let until = Span { since: i64::MIN, until: signal.t.get(top)?.saturating_add(1) };
    let mut growth = growth(&signal.within(until))?;
    growth.run.lasts = top + 2 >= signal.t.len();
    growth.run.seen = signal.seen();
    Some(growth)
}

/// A fiftieth of all the growth is noise.
const LEVEL: f64 = 0.02;

/// Memory that was to be had before anything grew: of the good time, or of the first samples.
#[must_use]
pub fn room(view: &View<'_>) -> Option<f64> {
    let metric = if view.system("mem.available").is_some() { "mem.available" } else { "mem.free" };
    let first = || view.system(metric).and_then(|s| s.v.first().copied());
    view.before(metric, "").or_else(first).filter(|room| *room > 0.0)
}

/// A third of what was to be had.
const ROOM_SHARE: f64 = 0.3;
/// As much comes and goes with any program.
const LEAST_BYTES: f64 = 1e8;

/// Whether a growth is of a size that matters: a share of memory, or of what was left of it.
#[must_use]
pub fn matters(view: &View<'_>, growth: &Growth, memory_share: f64) -> bool {
    let grew = growth.to - growth.from;
    view.memory_bytes().is_some_and(|memory| grew >= memory_share * memory)
        || (grew >= LEAST_BYTES && room(view).is_some_and(|room| grew >= ROOM_SHARE * room))
}

/// Whether something that grows will have taken everything sooner than it has been growing: half of what was to be had.
#[must_use]
pub fn runs_out(view: &View<'_>, growth: &Growth) -> bool {
    !growth.levels_off && room(view).is_some_and(|room| growth.to - growth.from >= 0.5 * room)
}

fn growth(signal: &Signal) -> Option<Growth> {
    let n = signal.t.len();
    if n < LEAST_SAMPLES {
        return None;
    }
    // Means of the first and the last tenth: single samples jump.
    let tenth = (n / 10).max(1);
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (from, to) = (mean(&signal.v[..tenth]), mean(&signal.v[n - tenth..]));
    let seconds = (signal.t[n - 1] - signal.t[0]) as f64 / 1e9;
    if to <= from || seconds <= 0.0 {
        return None;
    }
    let third = n / 3;
    let last = (to - signal.v[n - 1 - third]) / ((signal.t[n - 1] - signal.t[n - 1 - third]) as f64 / 1e9);
    let per_s = (to - from) / seconds;
    // It began where the size left its level for good.
    let level = from + 0.05 * (to - from);
    let begin = (0..n).rev().find(|i| signal.v[*i] < level).map_or(0, |i| i + 1).min(n - 1);
    let step_s = signal.step_s();
    let onset = signal.t[begin] - (signal.dt[begin] * 1e9) as i64;
    let run = Run { onset, end: signal.t[n - 1], high_s: seconds, lasts: true, step_s, seen: signal.seen() };
    Some(Growth { from, to, per_s, levels_off: last < 0.25 * per_s, run })
}

/// Whether memory ran short inside the view, by any of the signs that there are; `None` where there are none.
#[must_use]
pub fn memory_short(view: &View<'_>) -> Option<bool> {
    // One per cent of the time, a few pages a second, a twentieth of memory: each is nothing on a machine with room.
    let signs =
        [("psi.memory_some", 0.01), ("vm.pgscan_direct", 10.0), ("vm.pswpout", 10.0), ("vm.oom_kill", 1e-9)];
    let mut any = None;
    for (metric, limit) in signs {
        if let Some(high) = view.system(metric).and_then(|s| s.max()) {
            any = Some(any.unwrap_or(false) || high >= limit);
        }
    }
    let available = view.system("mem.available").or_else(|| view.system("mem.free"));
    if let (Some(least), Some(memory)) =
        (available.map(|s| s.v.into_iter().fold(f64::INFINITY, f64::min)), view.memory_bytes())
    {
        any = Some(any.unwrap_or(false) || least < 0.05 * memory);
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(values: impl Iterator<Item = f64>) -> Signal {
        let v: Vec<f64> = values.collect();
        Signal { t: (1..=v.len() as i64).map(|i| i * 1_000_000_000).collect(), dt: vec![1.0; v.len()], v }
    }

    #[test]
    fn a_warm_up_levels_off_and_a_leak_does_not() {
        let leak = growth(&signal((0..60).map(f64::from))).unwrap();
        assert!(!leak.levels_off && (leak.per_s - 0.9).abs() < 0.1);
        let warm = growth(&signal((0..60).map(|i| 60.0 * (1.0 - (-f64::from(i) / 5.0).exp())))).unwrap();
        assert!(warm.levels_off);
        assert!(growth(&signal((0..60).map(|i| 60.0 - f64::from(i)))).is_none());
        let ended = signal((0..60).map(|i| if i < 40 { f64::from(i) } else { 0.0 }));
        let until = climb(&ended).unwrap();
        assert!(!until.levels_off && !until.run.lasts && until.to > 36.0 && until.run.end == 40_000_000_000);
        assert!(growth(&signal((0..3).map(f64::from))).is_none());
    }
}
