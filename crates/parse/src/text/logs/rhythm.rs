//! Bursts and silences of a log, against what is usual for it.
//!
//! A burst has at least ten lines, ten times as many as the median bucket, and six times the median deviation more
//! than it. Where most buckets are empty, usual is what those have that are not: a job that writes twelve lines every
//! minute has no bursts. A gap is ten times as long as 99 of 100 gaps; where silences are a habit, ten times as long
//! as the median one.

use mitra_model::EventKind;
use mitra_model::time::SECOND;

use super::grid::Bucket;

/// With fewer lines nothing is usual.
const LINES_MIN: u64 = 50;
const BURST_LINES_MIN: u32 = 10;
/// How many times the usual a burst or a gap is.
const TIMES_USUAL: f64 = 10.0;
/// Standard deviations of a burst above the median.
const SIGMAS: f64 = 6.0;
/// A standard deviation in median absolute deviations, of a normal distribution.
const SIGMA_OF_MAD: f64 = 1.4826;
/// Bursts and gaps of one program that are reported.
const EVENTS_MAX: usize = 64;
/// So many silences of a second or more are a habit.
const HABIT: u64 = 10;
/// A shorter gap is none.
const GAP_MIN_NS: i64 = SECOND;

/// The bursts: the first bucket of each, and the event.
pub fn bursts(program: &str, buckets: &[Bucket], width: i64) -> Vec<(usize, EventKind)> {
    let total: u64 = buckets.iter().map(|b| u64::from(b.lines)).sum();
    if total < LINES_MIN || buckets.len() < 2 {
        return Vec::new();
    }
    let counts: Vec<f64> = buckets.iter().map(|b| f64::from(b.lines)).collect();
    let busy: Vec<f64> = counts.iter().copied().filter(|c| *c > 0.0).collect();
    let usual = if busy.len() * 2 < counts.len() { busy } else { counts };
    let middle = median(usual.clone());
    let deviation = median(usual.iter().map(|c| (c - middle).abs()).collect());
    // Counts scatter by their root at least.
    let sigma = (SIGMA_OF_MAD * deviation).max(middle.sqrt());
    let is_burst = |b: &Bucket| {
        let lines = f64::from(b.lines);
        b.lines >= BURST_LINES_MIN && lines > middle + SIGMAS * sigma && lines >= TIMES_USUAL * middle
    };
    let width_s = width as f64 / SECOND as f64;
    let (mut lines_usual, mut buckets_usual) = (0_u64, 0_u32);
    for bucket in buckets.iter().filter(|b| !is_burst(b)) {
        lines_usual += u64::from(bucket.lines);
        buckets_usual += 1;
    }
    if buckets_usual == 0 {
        return Vec::new();
    }
    let usual_per_s = lines_usual as f64 / (f64::from(buckets_usual) * width_s);
    let mut found = Vec::new();
    let mut i = 0;
    while let Some(rest) = buckets.get(i..).filter(|r| !r.is_empty()) {
        let run = rest.iter().take_while(|b| is_burst(b)).count();
        if run > 0 && found.len() < EVENTS_MAX {
            let lines = rest.iter().take(run).map(|b| u64::from(b.lines)).sum();
            let seconds = run as f64 * width_s;
            found.push((i, EventKind::LogBurst { program: program.to_owned(), lines, seconds, usual_per_s }));
        }
        i += run.max(1);
    }
    found
}

fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Steps of the distribution of gaps for each doubling.
const STEPS: f64 = 8.0;
/// Steps that there are: from a microsecond to weeks.
const STEPS_MAX: usize = 360;

/// The distribution of the gaps between lines, and the longest of them.
#[derive(Debug)]
pub struct Gaps {
    lines: u64,
    last: Option<(i64, u32)>,
    steps: Vec<u64>,
    longest: Vec<Gap>,
    /// Whether all times are whole seconds, so that none is finer.
    is_coarse: bool,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    ns: i64,
    since: i64,
    line: u32,
}

impl Default for Gaps {
    fn default() -> Self {
        Gaps { lines: 0, last: None, steps: Vec::new(), longest: Vec::new(), is_coarse: true }
    }
}

impl Gaps {
    /// A line at a moment.
    pub fn add(&mut self, t: i64, line: u32, has_decimals: bool) {
        self.lines += 1;
        self.is_coarse &= !has_decimals;
        let Some((before, line_before)) = self.last.replace((t, line)) else { return };
        // Where the newest line comes first, the gap begins at the later line.
        let ns = t.saturating_sub(before).saturating_abs();
        let (since, line) = if t >= before { (before, line_before) } else { (t, line) };
        if self.steps.is_empty() {
            self.steps = vec![0; STEPS_MAX];
        }
        if let Some(count) = self.steps.get_mut(step(ns)) {
            *count += 1;
        }
        if ns < GAP_MIN_NS {
            return;
        }
        if self.longest.len() < EVENTS_MAX {
            self.longest.push(Gap { ns, since, line });
        } else if let Some(least) = self.longest.iter_mut().min_by_key(|g| g.ns).filter(|g| g.ns < ns) {
            *least = Gap { ns, since, line };
        }
    }

    /// The gaps that are far longer than usual: since when, the line before, and the event.
    pub fn found(&self, program: &str) -> Vec<(i64, u32, EventKind)> {
        if self.lines < LINES_MIN {
            return Vec::new();
        }
        let resolution = if self.is_coarse { 1.0 } else { 0.0 };
        let mut usual_s = quantile(&self.steps, 0.99).max(resolution);
        let silences = self.steps.get(step(GAP_MIN_NS)..).unwrap_or_default();
        if silences.iter().sum::<u64>() >= HABIT {
            let habit = quantile_from(silences, step(GAP_MIN_NS), 0.5);
            usual_s = usual_s.max(habit);
        }
        let least = (TIMES_USUAL * usual_s).max(GAP_MIN_NS as f64 / SECOND as f64);
        let mut found: Vec<(i64, u32, EventKind)> = self
            .longest
            .iter()
            .map(|gap| (gap, gap.ns as f64 / SECOND as f64))
            .filter(|(_, seconds)| *seconds >= least)
            .map(|(gap, seconds)| {
                (gap.since, gap.line, EventKind::LogGap { program: program.to_owned(), seconds, usual_s })
            })
            .collect();
        found.sort_by_key(|(t, _, _)| *t);
        found
    }
}

/// The step of a gap; each holds what is above the one before it, up to [`upper_s`].
fn step(ns: i64) -> usize {
    let micros = ns as f64 / 1e3;
    if micros <= 1.0 {
        return 0;
    }
    ((micros.log2() * STEPS).ceil() as usize).min(STEPS_MAX - 1)
}

/// The longest gap of a step, in seconds.
fn upper_s(step: usize) -> f64 {
    if step == 0 { 0.0 } else { (step as f64 / STEPS).exp2() / 1e6 }
}

fn quantile(steps: &[u64], share: f64) -> f64 {
    quantile_from(steps, 0, share)
}

/// The value below which a share of the gaps lies; the last one is not usual by itself.
fn quantile_from(steps: &[u64], first: usize, share: f64) -> f64 {
    let total: u64 = steps.iter().sum();
    let Some(last) = total.checked_sub(1) else { return 0.0 };
    let rank = (share * last as f64).floor() as u64;
    let mut below = 0;
    for (i, count) in steps.iter().enumerate() {
        below += count;
        if below > rank {
            return upper_s(first + i);
        }
    }
    0.0
}
