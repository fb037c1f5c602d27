//! Sizes that grow: by how much, and whether they level off. A warm-up levels off, a leak does not.
//!
//! A look ends soon after the size has stopped to grow, so whether it levelled off is seen by what comes after the look. A
//! program that touches all its memory when it starts grows as fast and as straight as a leak, and then stands still.

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span, growth};

use crate::process::{self, Process, Top};
use crate::signal::{Run, Signal};
use crate::view::View;
use crate::words;

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
    /// What became of it, as far as is known beyond the view.
    pub then: Then,
    /// For how many seconds it climbed, as far as is known beyond the view.
    pub climb_s: f64,
    /// The stretch.
    pub run: Run,
}

impl Growth {
    /// `grew from 1.2 GB to 3.4 GB, 20 MB/s`, of bytes.
    pub fn words(&self) -> String {
        let [from, to, per_s] = [self.from, self.to, self.per_s].map(words::bytes);
        format!("grew from {from} to {to}, {per_s}/s")
    }
}

/// What a size did when it had grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It stood still for a third of the time that it had taken to grow.
    Stood,
    /// It went back.
    Fell,
    /// Nobody knows: too little is known of the time after.
    Unknown,
}

/// What tells here whether memory runs short.
pub const NEEDS: &[&str] = &[
    "mem.available",
    "mem.free",
    "mem.total",
    "psi.memory_some",
    "vm.pgscan_kswapd",
    "vm.pgscan_direct",
    "vm.pswpout",
    "vm.oom_kill",
];

/// Fewer samples than make thirds say nothing of a trend.
const LEAST_SAMPLES: usize = 6;

/// What is read of the whole recording to see what became of a growth.
pub const LEVELS: &[&str] = &["mem.anon", "mem.swap_total", "mem.swap_free", "mem.shmem", "mem.sunreclaim"];

/// How a metric of the whole machine, or of one thing, grew; `None` where it did not or is not known.
pub fn of(view: &View<'_>, metric: &str, row: &str) -> Option<Growth> {
    climb(view, |set, span| Some(Signal::of(set.get(metric, row)?, span)))
}

/// How a signal grew until it was largest, and what became of it after the view.
pub fn climb(view: &View<'_>, signal: impl Fn(&SeriesSet, Span) -> Option<Signal>) -> Option<Growth> {
    let mut growth = until_top(&signal(view.set, view.window)?)?;
    let since = Span { since: growth.run.onset, until: i64::MAX };
    // What was loaded for a longer time may lack single things.
    let known = [view.around, view.set].map(|set| signal(set, since)).into_iter().flatten();
    if let Some(known) = known.max_by_key(|known| known.t.last().copied()) {
        (growth.climb_s, growth.then) = became(&growth, &known);
    }
    Some(growth)
}

/// How a signal grew until it was largest: what came after that (the process ended, memory was freed) is not part of it.
pub fn until_top(signal: &Signal) -> Option<Growth> {
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

/// A tenth of the growth more or less is still the same level.
const SAME: f64 = 0.1;
/// It is reached when a twentieth is missing.
const REACHED: f64 = 0.95;
/// So much of the time of the climb it has to stand still.
const STOOD_SHARE: f64 = 1.0 / 3.0;

/// For how long a size climbed, and what it did then. `known` begins with the growth and goes on beyond the view.
fn became(growth: &Growth, known: &Signal) -> (f64, Then) {
    let seconds = |from: i64, to: i64| to.saturating_sub(from) as f64 / SECOND as f64;
    // It may have gone on to grow after the view.
    let (mut reached, mut top, mut then) = (growth.run.onset, growth.to, Then::Unknown);
    for (t, v) in known.t.iter().zip(&known.v) {
        let grown = top - growth.from;
        if *v > top + SAME * grown || reached == growth.run.onset {
            if *v >= growth.from + REACHED * grown {
                (reached, top) = (*t, top.max(*v));
            }
            continue;
        }
        if *v < top - SAME * grown {
            then = Then::Fell;
            break;
        }
        if seconds(reached, *t) >= STOOD_SHARE * seconds(growth.run.onset, reached) {
            then = Then::Stood;
            break;
        }
    }
    (seconds(growth.run.onset, reached), then)
}

/// A fiftieth of all the growth is noise.
const LEVEL: f64 = 0.02;

/// Memory that was to be had before anything grew: of the baseline, or of the first samples.
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
pub fn matters(view: &View<'_>, growth: &Growth, memory_share: f64) -> bool {
    let grew = growth.to - growth.from;
    view.memory_bytes().is_some_and(|memory| grew >= memory_share * memory)
        || (grew >= LEAST_BYTES && room(view).is_some_and(|room| grew >= ROOM_SHARE * room))
}

/// Whether something that grows will have taken everything sooner than it has been growing, half of what was to be had.
/// Of what grew for a few minutes only nobody can tell whether it would have gone on; memory that runs short tells.
pub fn runs_out(view: &View<'_>, growth: &Growth) -> bool {
    growth.then != Then::Stood
        && !growth.levels_off
        && growth.climb_s >= growth::TREND_S
        && room(view).is_some_and(|room| growth.to - growth.from >= 0.5 * room)
}

/// Whether it stood still by itself: it was not memory that stopped it.
pub fn settled(view: &View<'_>, growth: &Growth) -> bool {
    if memory_short(view) != Some(true) {
        return growth.levels_off || growth.then == Then::Stood;
    }
    growth.levels_off && !(took_the_room(view, growth) && pays(view) == Some(true))
}

/// What a process held at the beginning and at the end of a span, in bytes, what went to swap included. One that came while it
/// was recorded had nothing before.
pub fn held(view: &View<'_>, process: &Process<'_>, span: Span) -> Option<(f64, f64)> {
    let series = ["task.rss_anon", "task.swap"].iter().flat_map(|metric| process.series(view.set, metric));
    let held = Signal::sum(series, span)?;
    let began = view.set.span().map_or(i64::MIN, |s| s.since) + 2 * SECOND;
    let is_new = process.first_seen(view.set).is_some_and(|t| t > began.max(span.since));
    let first = if is_new { 0.0 } else { *held.v.first()? };
    Some((first * view.page_bytes(), held.v.last()? * view.page_bytes()))
}

/// The user processes by name, those that took most memory in a span first: a total is in bytes.
pub fn takers<'a>(view: &View<'a>, processes: &[Process<'a>], span: Span) -> Vec<Top<'a>> {
    process::ranking(processes, span, |p| {
        held(view, p, span).map_or(0.0, |(first, last)| (last - first).max(0.0))
    })
}

/// What grew for longer had the time to be found as a growth.
const BEFORE_NS: i64 = 60 * SECOND;
/// It took twice as much as the one that waits took itself.
const MORE: f64 = 2.0;
/// And at least half of what was pushed out meanwhile: the rest may be others'.
const PUSHED_OUT: f64 = 0.5;

/// A span with the time shortly before it.
pub fn with_shortly_before(span: Span) -> Span {
    Span { since: span.since.saturating_sub(BEFORE_NS), ..span }
}

/// The program for which so many bytes of others were pushed out of memory in a span, where it is not the one that waits for them.
pub fn who_came<'a>(
    view: &View<'a>,
    all: &[Process<'a>],
    waits: Option<&str>,
    span: Span,
    pushed_out: f64,
) -> Option<Top<'a>> {
    let tops = takers(view, all, span);
    let own = tops.iter().find(|top| waits == Some(top.comm)).map_or(0.0, |top| top.total);
    let top = tops.into_iter().next()?;
    let is_other = waits != Some(top.comm);
    (is_other && pushed_out > 0.0 && top.total >= MORE * own && top.total >= PUSHED_OUT * pushed_out)
        .then_some(top)
}

/// Whether most of what grew is missing from what was to be had before.
fn took_the_room(view: &View<'_>, growth: &Growth) -> bool {
    let left = view.system("mem.available").map(|s| s.v.into_iter().fold(f64::INFINITY, f64::min));
    let before = view.before("mem.available", "");
    before.zip(left).is_some_and(|(before, left)| before - left >= 0.5 * (growth.to - growth.from))
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
    let third = n - 1 - n / 3;
    let at = |i: usize| signal.t[i] as f64 / 1e9;
    let levels_off = growth::levels_off((at(0), from), (at(third), signal.v[third]), (at(n - 1), to));
    let per_s = (to - from) / seconds;
    // It began where the size left its level for good.
    let level = from + 0.05 * (to - from);
    let begin = (0..n).rev().find(|i| signal.v[*i] < level).map_or(0, |i| i + 1).min(n - 1);
    let step_s = signal.step_s();
    let onset = signal.t[begin] - (signal.dt[begin] * 1e9) as i64;
    let run = Run { onset, end: signal.t[n - 1], high_s: seconds, lasts: true, step_s, seen: signal.seen() };
    Some(Growth { from, to, per_s, levels_off, then: Then::Unknown, climb_s: run.seconds(), run })
}

/// A single sample of a second is chance.
const SHORT_NEED_S: f64 = 1.5;
/// Four megabytes of pages that were looked at in one second are no chance.
const SCANS_AT_ONCE: f64 = 1000.0;
/// While as large a part of memory is to be had, who waits for memory waits inside a limit of its own.
const LOW_SHARE: f64 = 0.2;
/// A twentieth of memory is next to nothing.
const NOTHING_SHARE: f64 = 0.05;

/// Whether memory of the whole machine ran short inside the view, by any of the signs that there are; `None` where there
/// are none.
pub fn memory_short(view: &View<'_>) -> Option<bool> {
    let least = left_share(view).map(|share| share.v.into_iter().fold(f64::INFINITY, f64::min));
    match (pays(view), least.map(|least| least < NOTHING_SHARE)) {
        (Some(a), Some(b)) => Some(a || b),
        (one, other) => one.or(other),
    }
}

/// What is to be had of memory, as a share of all of it.
fn left_share(view: &View<'_>) -> Option<Signal> {
    let available = view.system("mem.available").or_else(|| view.system("mem.free"));
    available.zip(view.memory_bytes()).map(|(signal, memory)| signal.map(|left| left / memory))
}

/// Whether somebody pays for a shortage of the whole machine. Cgroups at limits of their own wait and swap too,
/// while the machine has room.
fn pays(view: &View<'_>) -> Option<bool> {
    let share = left_share(view);
    let scans = view.system_sum(&["vm.pgscan_kswapd", "vm.pgscan_direct"]);
    // Files of other tools may have one sample of all that matters.
    let need_s = if view.is_case { 0.0 } else { SHORT_NEED_S };
    let mut signs: Vec<bool> = Vec::new();
    // One per cent of the time, a few pages a second: each is nothing on a machine with room.
    let of_machine = |metric: &str| {
        let signal = view.system(metric)?;
        Some(match (&share, &scans) {
            (None, None) => signal,
            (share, scans) => where_low(&signal, share.as_ref(), scans.as_ref()),
        })
    };
    for (metric, limit) in [("psi.memory_some", 0.01), ("vm.pswpout", 10.0)] {
        signs.extend(of_machine(metric).map(|signal| signal.run(limit, need_s).is_some()));
    }
    if let Some(direct) = view.system("vm.pgscan_direct") {
        signs.push(direct.run(10.0, need_s).is_some() || direct.max() >= Some(SCANS_AT_ONCE));
    }
    signs.extend(of_machine("vm.oom_kill").and_then(|s| s.max()).map(|kills| kills > 0.0));
    (!signs.is_empty()).then(|| signs.contains(&true))
}

/// A signal where the machine has little left or looks for pages to free, and nothing elsewhere.
fn where_low(signal: &Signal, share: Option<&Signal>, scans: Option<&Signal>) -> Signal {
    let at = |other: Option<&Signal>, is_low: fn(f64) -> bool| {
        other.map(|other| signal.zip(other, |v, other| if is_low(other) { v } else { 0.0 }))
    };
    match (at(share, |share| share < LOW_SHARE), at(scans, |scans| scans >= 10.0)) {
        (Some(a), Some(b)) => a.zip(&b, f64::max),
        (one, other) => one.or(other).unwrap_or_default(),
    }
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
        let until = until_top(&ended).unwrap();
        assert!(!until.levels_off && !until.run.lasts && until.to > 36.0 && until.run.end == 40_000_000_000);
        assert_eq!(became(&until, &ended).1, Then::Fell);
        assert!(growth(&signal((0..3).map(f64::from))).is_none());
    }

    #[test]
    fn what_came_after_the_look_tells_a_start_from_a_leak() {
        // Grows for eight seconds from the fifth on, and then?
        let grown = |then: fn(f64) -> f64| {
            signal((0..40).map(move |i| match f64::from(i) {
                i if i < 5.0 => 0.0,
                i if i < 13.0 => i - 5.0,
                i => then(i),
            }))
        };
        let look = |all: &Signal| until_top(&all.within(Span { since: 0, until: 19 * SECOND })).unwrap();
        for (then, what) in [
            (grown(|_| 8.0), Then::Stood),
            (grown(|i| i - 5.0), Then::Unknown),
            (grown(|i| if i < 15.0 { 8.0 } else { 0.0 }), Then::Fell),
        ] {
            let growth = look(&then);
            let known = then.within(Span { since: growth.run.onset, until: i64::MAX });
            assert_eq!(became(&growth, &known).1, what);
        }
        let goes_on = grown(|i| i - 5.0);
        let growth = look(&goes_on);
        let known = goes_on.within(Span { since: growth.run.onset, until: i64::MAX });
        assert!(became(&growth, &known).0 > 30.0, "the climb is as long as what is known of it");
    }
}
