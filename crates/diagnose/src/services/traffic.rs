//! The requests of one service, or of all processes that call one address: how they are usually answered, and when they are
//! late.

mod dearer;
mod quick;
mod usual;

use std::ops::Range;

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::services::Side;
use crate::signal::{Run, Signal, step};
use crate::words;

pub use quick::{CLOSES, KEPT_OPEN, QUICK};
pub use usual::Usual;

/// Of fewer answers nobody can say what is usual.
pub const SERVED: f64 = 20.0;
/// Shorter is a hiccup.
pub const NEED_S: f64 = 3.0;
/// Answers that came late, or requests that still wait: by chance fewer do.
const LEAST: f64 = 5.0;
/// What clients waited longer than usual, in all: with less nobody lost anything.
const COST_S: f64 = 1.0;
/// A tenth of a second is felt, and whatever people ask for takes several requests, one after the other.
pub const LATE_S: f64 = 0.03;
/// That one answer in ten is late is felt where it is the whole of that tenth.
const TAIL_S: f64 = 0.1;
/// A delay of a second interrupts whoever waits for it, once is enough; a shorter one has to last to be noticed.
const FELT_S: f64 = 1.0;
const LASTED_S: f64 = 5.0;
/// Times as long as usual: caches, mixes of requests and queues of half-busy servers make less.
const GROWTH: f64 = 3.0;
/// More clients than one wait longer than usual: a single one that asks for something long, again and again, is a job.
pub const CROWD: f64 = 1.2;
/// Times are counted in steps of a sixteenth of a power of two, in older recordings of an eighth.
pub(super) const BUCKET: f64 = 1.125;
/// A server that stands still answers nothing; one of which a part stands still answers less than half.
const STALLED: f64 = 0.5;
/// And two clients at least wait for it meanwhile; three, where others are answered.
const STALLED_CROWD: f64 = 1.8;
const BESIDE_OTHERS: f64 = 1.0;

/// An order of magnitude is noticed also where each answer is fast, as of a database that is asked many times for a page, while
/// several clients wait for them at a time; and less, where a page is late for it.
const TENFOLD: f64 = 10.0;
/// Whoever has begun to ask for something that takes long makes half of the answers late only by asking as often as all others:
/// twice as much is then answered.
const AS_MANY: f64 = 1.5;
/// By so much fewer requests than usual are answered where clients are kept from asking: rates stray by less.
const KEPT: f64 = 0.8;

/// Programs whose answers come late at once: that both have begun to ask for something long is no chance.
const SEVERAL: f64 = 2.0;
/// A fifth of a client's time that is waited for others is felt.
pub(super) const TOGETHER: f64 = 0.2;
/// Answers that a page takes, one after the other, of a store that answers within a millisecond.
pub(super) const OF_A_PAGE: f64 = 30.0;

/// Half of the time that is waited.
const ANSWERED: f64 = 0.5;

/// Samples of requests.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    /// The end of each sample.
    pub t: Vec<i64>,
    /// Its seconds.
    pub dt: Vec<f64>,
    /// Answers per second.
    pub requests: Vec<f64>,
    /// Who waits: on average of the sample.
    pub waiting: Vec<f64>,
    /// Who is kept waiting by what others ask, where that was looked at.
    pub(super) kept: Vec<Kept>,
    /// How long the answers of the sample took in all, for each second.
    answered: Vec<f64>,
    /// Connections that were opened for each answer, where that is known.
    opened: Vec<f64>,
    p50: Vec<f64>,
    p90: Vec<f64>,
    p99: Vec<f64>,
}

/// Programs that are kept waiting in a sample by what others ask.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Kept {
    /// So many have a few of their answers late.
    pub tail: f64,
    /// One that asks no more than ever has a page late, of which each answer takes several times as long.
    pub has_late_page: bool,
    /// The same where the page is late by less.
    pub has_later_page: bool,
}

/// How requests are late in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// They are not.
    Not,
    /// Half of them.
    Half,
    /// One in ten, and several at a time.
    Tail,
    /// Less than half as many as usual are answered, and the others wait.
    Stalled,
    /// A few, by so much that less is asked: who waits asks nothing else.
    Few,
}

/// A stretch in which requests were late.
#[derive(Debug, Clone)]
pub struct Slow {
    /// When.
    pub run: Run,
    /// How, most of all.
    pub late: Late,
    /// How long an answer took, or has taken so far.
    pub during_s: f64,
    /// What was usual of the same.
    pub usual_s: f64,
    /// Answers per second.
    pub rate: f64,
    /// Who waited, on average of the stretch.
    pub waiting: f64,
    /// Seconds that clients waited longer than usual.
    pub beyond_s: f64,
}

impl Slow {
    /// `answered one request in ten in 3.2 s or more instead of 2 ms`.
    #[must_use]
    pub fn words(&self) -> String {
        let (during, usual) = (words::seconds(self.during_s), words::seconds(self.usual_s));
        match self.late {
            Late::Tail => format!("answered one request in ten in {during} or more instead of {usual}"),
            Late::Few => format!("answered one request in a hundred in {during} or more instead of {usual}"),
            Late::Stalled => format!("answered in {during} or more instead of {usual}"),
            Late::Half | Late::Not => format!("answered in {during} instead of {usual}"),
        }
    }

    /// What it cost its clients, in words.
    #[must_use]
    pub fn waits(&self) -> String {
        format!(
            "its clients waited {} longer than usual, {} of them at a time on average",
            words::seconds(self.beyond_s),
            words::count(self.waiting)
        )
    }
}

/// Where requests were counted and none of them was looked at, which is so in some seconds on a very busy machine, they took what
/// they took before.
fn carried(mut values: Vec<f64>, requests: &[f64]) -> Vec<f64> {
    for i in 1..values.len() {
        if values[i].is_nan() && requests[i] > 0.0 {
            values[i] = values[i - 1];
        }
    }
    values
}

impl Traffic {
    /// Of some rows together. `None` where none of them has been measured.
    #[must_use]
    pub fn of(set: &SeriesSet, side: &Side, rows: &[&str], span: Span) -> Option<Traffic> {
        let requests = Signal::sum(rows.iter().filter_map(|row| set.get(side.requests, row)), span)?;
        let waits = |row: &&str| set.get(side.wait_time, row).or_else(|| set.get(side.response_time, row));
        let waits = Signal::sum(rows.iter().filter_map(waits), span).unwrap_or_default();
        let at = |signal: &Signal, t: &i64| signal.t.binary_search(t).map_or(0.0, |i| signal.v[i]);
        let waiting = requests.t.iter().map(|t| at(&waits, t)).collect();
        let answered = Signal::sum(rows.iter().filter_map(|row| set.get(side.response_time, row)), span);
        let answered = answered.unwrap_or_default();
        let answered = requests.t.iter().map(|t| at(&answered, t)).collect();
        let [p50, p90, p99] = [side.p50, side.p90, side.p99]
            .map(|of| carried(quantile(set, side, of, rows, &requests), &requests.v));
        let opened = Signal::sum(rows.iter().filter_map(|row| set.get(side.connections, row)), span);
        let opened = opened.map_or_else(Vec::new, |all| {
            requests.t.iter().zip(&requests.v).map(|(t, answers)| at(&all, t) / answers).collect()
        });
        let Signal { t, dt, v } = requests;
        Some(Traffic { t, dt, requests: v, waiting, kept: Vec::new(), answered, opened, p50, p90, p99 })
    }

    /// Seconds that half of the answers took at most, in the middle of the samples of a span. `None` where in half of them nothing
    /// was answered.
    #[must_use]
    pub fn median_s(&self, span: Span) -> Option<f64> {
        let all = self.inside(&self.p50, span);
        let known = all.iter().filter(|p50| p50.is_finite()).count();
        share(&all, 0.5).filter(|_| 2 * known >= all.len())
    }

    /// Seconds that the slowest hundredth of the answers took in a fifth of the samples of a span.
    #[must_use]
    pub fn often_p99_s(&self, span: Span) -> Option<f64> {
        share(&self.inside(&self.p99, span), 0.8)
    }

    fn inside(&self, values: &[f64], span: Span) -> Vec<f64> {
        let inside = self.t.iter().zip(values).filter(|(t, _)| span.contains(**t));
        inside.map(|(_, value)| *value).collect()
    }

    /// The samples before its requests were late in a window, without those in which they were.
    #[must_use]
    pub fn before_late(&self, window: Span) -> Option<Traffic> {
        let best = self.at_best()?;
        // A closer look may find a few of them late; or each took several times as long, and still was fast.
        [self.may_be_late(&best), self.is_dearer_at(&best), self.is_slower_at(&best)].into_iter().find_map(
            |late| {
                let is_long = |run: &Run| run.lasted(NEED_S) && run.end > window.since;
                let first = late.runs(1.0).into_iter().find(is_long)?;
                Some(self.only(|i| self.t[i] <= first.onset && late.v[i] < 1.0))
            },
        )
    }

    /// The samples until a moment.
    #[must_use]
    pub(super) fn until(&self, moment: i64) -> Traffic {
        self.only(|i| self.t[i] <= moment)
    }

    /// Some of its samples, of which nothing was looked at closely.
    fn only(&self, is_wanted: impl Fn(usize) -> bool) -> Traffic {
        let all: Vec<usize> = (0..self.t.len()).filter(|i| is_wanted(*i)).collect();
        let of = |values: &[f64]| all.iter().map(|i| values[*i]).collect();
        Traffic {
            t: all.iter().map(|i| self.t[*i]).collect(),
            dt: of(&self.dt),
            requests: of(&self.requests),
            waiting: of(&self.waiting),
            kept: Vec::new(),
            answered: of(&self.answered),
            opened: if self.opened.is_empty() { Vec::new() } else { of(&self.opened) },
            p50: of(&self.p50),
            p90: of(&self.p90),
            p99: of(&self.p99),
        }
    }

    /// When the first sample begins in which more is asked than ever, and several clients wait that would not.
    pub(super) fn first_crowded(&self, usual: &Usual) -> Option<i64> {
        let first = (0..self.t.len()).find(|i| self.is_crowded(*i, usual))?;
        Some(self.t[first] - (self.dt[first] * SECOND as f64) as i64)
    }

    fn total(&self, values: &[f64]) -> f64 {
        values.iter().zip(&self.dt).map(|(v, dt)| v * dt).sum()
    }

    /// How many clients wait in a sample beyond what as many requests usually make wait.
    fn beyond(&self, i: usize, usual: &Usual) -> f64 {
        (self.waiting[i] - usual.waiting.max(self.requests[i] * usual.each_s)).max(0.0)
    }

    /// The same of each sample.
    #[must_use]
    pub fn beyond_all(&self, usual: &Usual) -> Vec<f64> {
        (0..self.t.len()).map(|i| self.beyond(i, usual)).collect()
    }

    /// Whether a few answers of a sample come so late that it is felt.
    pub(super) fn is_tail_late(&self, i: usize, usual: &Usual) -> bool {
        self.p99[i] >= usual.late_p99.max(usual.p99 + TAIL_S)
    }

    /// Whether they do, and others may wait for that.
    fn keeps_others(&self, i: usize, usual: &Usual) -> bool {
        self.is_tail_late(i, usual) && self.beyond(i, usual) >= TOGETHER
    }

    /// Whether that is so in any sample, or so much more is asked that others may wait for it.
    pub(super) fn may_keep_others(&self, usual: &Usual) -> bool {
        (0..self.t.len()).any(|i| self.keeps_others(i, usual) || self.is_crowded(i, usual))
    }

    /// Whether more is asked than ever, and several clients wait that would not.
    fn is_crowded(&self, i: usize, usual: &Usual) -> bool {
        self.requests[i] >= AS_MANY * usual.rate && self.beyond(i, usual) >= CROWD
    }

    /// Whether so much more is asked that this alone is a sign, and several clients wait that would not.
    fn is_flooded(&self, i: usize, usual: &Usual) -> bool {
        self.requests[i] >= TENFOLD * usual.rate && self.is_crowded(i, usual)
    }

    /// Whether half of the answers take several times as long, and a page of them is later by what a single answer of a person's
    /// may be, though no more is asked than ever.
    pub(super) fn is_page_later(&self, i: usize, usual: &Usual) -> bool {
        let later = (GROWTH * usual.p50).max(usual.p50 + LATE_S / OF_A_PAGE);
        self.p50[i] >= later && self.requests[i] < AS_MANY * usual.rate
    }

    /// Whether half of the answers take so much longer that a page is late, though no more is asked than ever: others keep it
    /// waiting.
    pub(super) fn is_page_kept(&self, i: usize, usual: &Usual) -> bool {
        self.p50[i] >= (TENFOLD * usual.p50).min(usual.page_p50) && self.requests[i] < AS_MANY * usual.rate
    }

    /// One in the samples in which half of the answers to no more requests than ever take so much longer that a page may be late.
    #[must_use]
    pub fn is_page_later_at(&self, usual: &Usual) -> Signal {
        self.signal(|i| self.is_page_later(i, usual))
    }

    /// One in the samples in which a closer look may find requests late.
    #[must_use]
    pub fn may_be_late(&self, usual: &Usual) -> Signal {
        let late = self.late(usual);
        self.signal(|i| late[i] != Late::Not || self.keeps_others(i, usual) || self.is_crowded(i, usual))
    }

    /// One in the samples in which something is so.
    fn signal(&self, is_so: impl Fn(usize) -> bool) -> Signal {
        let v = (0..self.t.len()).map(|i| step(is_so(i))).collect();
        Signal { t: self.t.clone(), dt: self.dt.clone(), v }
    }

    /// The samples of a stretch.
    fn samples(&self, run: &Run) -> Range<usize> {
        self.t.partition_point(|t| *t <= run.onset)..self.t.partition_point(|t| *t <= run.end)
    }

    fn slow_in(&self, run: Run, span: Range<usize>, usual: &Usual, how: (Late, f64, f64)) -> Slow {
        let sum = |of: &dyn Fn(usize) -> f64| span.clone().map(|i| of(i) * self.dt[i]).sum::<f64>();
        let seconds = sum(&|_| 1.0).max(1e-9);
        Slow {
            run,
            late: how.0,
            during_s: how.1,
            usual_s: how.2,
            rate: sum(&|i| self.requests[i]) / seconds,
            waiting: sum(&|i| self.waiting[i]) / seconds,
            beyond_s: sum(&|i| self.beyond(i, usual)),
        }
    }

    /// How requests are late in each sample.
    #[must_use]
    pub fn late(&self, usual: &Usual) -> Vec<Late> {
        let mut stalled_s = 0.0;
        let of_sample = |i: usize| {
            let beyond = self.beyond(i, usual);
            let crowd = STALLED_CROWD + if self.requests[i] > 0.0 { BESIDE_OTHERS } else { 0.0 };
            let is_few = self.requests[i] < STALLED * usual.rate;
            let is_stalled = is_few && self.waiting[i] >= usual.crowd(crowd);
            stalled_s = if is_stalled { stalled_s + beyond * self.dt[i] } else { 0.0 };
            let kept = self.kept.get(i).copied().unwrap_or_default();
            let is_dear = self.is_page_kept(i, usual) && beyond >= CROWD;
            let is_in_the_way = kept.has_late_page && self.is_crowded(i, usual)
                || kept.has_later_page && self.is_flooded(i, usual);
            if self.p50[i] >= usual.late_p50 || is_dear || is_in_the_way {
                Late::Half
            } else if is_stalled && stalled_s / beyond.max(1e-9) >= usual.late_p50 {
                Late::Stalled
            } else if self.p90[i] >= usual.late_p90 && beyond >= CROWD {
                Late::Tail
            } else if (self.p99[i] >= usual.late_p99
                && beyond >= CROWD
                && self.requests[i] < KEPT * usual.rate)
                || (self.keeps_others(i, usual) && kept.tail >= SEVERAL)
            {
                Late::Few
            } else {
                Late::Not
            }
        };
        (0..self.t.len()).map(of_sample).collect()
    }

    /// One in the samples in which requests are late.
    #[must_use]
    pub fn is_late(&self, usual: &Usual) -> Signal {
        let late = self.late(usual);
        self.signal(|i| late[i] != Late::Not)
    }

    /// The stretch in which requests were late; an error is the reason why they were not.
    pub fn slow(&self, usual: &Usual) -> Result<Slow, String> {
        let late = self.late(usual);
        let Some(mut run) = self.is_late(usual).run(1.0, NEED_S) else {
            return Err(self.at_most(usual));
        };
        let span = self.samples(&run);
        let beyond_s: f64 = span.clone().map(|i| self.beyond(i, usual) * self.dt[i]).sum();
        let of = |kind: Late| span.clone().filter(|i| late[*i] == kind).collect::<Vec<usize>>();
        let (half, tail, stalled, few) = (of(Late::Half), of(Late::Tail), of(Late::Stalled), of(Late::Few));
        let answers =
            |samples: &[usize]| samples.iter().map(|i| self.requests[*i] * self.dt[*i]).sum::<f64>();
        let open = stalled.iter().chain(&few).map(|i| self.beyond(*i, usual)).fold(0.0, f64::max);
        let hurt = 0.5 * answers(&half) + 0.1 * answers(&tail) + open;
        if beyond_s < COST_S || (hurt < LEAST && open < STALLED_CROWD && few.is_empty()) {
            return Err(format!("{} answers were late, and no more", words::count(hurt.ceil())));
        }
        // So long the first of them has waited.
        let stood_s = self.longest_s(&stalled);
        let took_s = self.weighted(&self.p50, &half);
        let (kind, during_s, usual_s) =
            if !half.is_empty() && answers(&half) >= answers(&tail).min(LEAST) && took_s >= stood_s {
                (Late::Half, took_s, usual.p50)
            } else if !stalled.is_empty() && !self.were_answered(&stalled) {
                (Late::Stalled, stood_s, usual.p50)
            } else if !stalled.is_empty() {
                // Of those that wait nothing is known, where only what does not wait was answered.
                let answered = self.weighted_by(&self.waiting, &self.p99, &stalled);
                let longest = stalled.iter().map(|i| self.p99[*i]).fold(0.0, f64::max);
                let took_s = if answered > usual.p99 { answered } else { longest };
                match took_s > usual.late_p99 {
                    true => (Late::Few, took_s, usual.p99),
                    false => (Late::Stalled, stood_s, usual.p50),
                }
            } else if answers(&few) > answers(&tail) {
                (Late::Few, self.weighted(&self.p99, &few), usual.p99)
            } else {
                (Late::Tail, self.weighted(&self.p90, &tail), usual.p90)
            };
        if during_s < FELT_S && !run.lasted(LASTED_S) {
            return Err(format!(
                "answered in {} instead of {} for {} only",
                words::seconds(during_s),
                words::seconds(usual_s),
                words::seconds(run.high_s)
            ));
        }
        self.begin_with_requests(&mut run, span.start, usual);
        Ok(self.slow_in(run, span, usual, (kind, during_s, usual_s)))
    }

    /// A late answer is to a request of before: while less than usual was answered it waited already.
    fn begin_with_requests(&self, run: &mut Run, first: usize, usual: &Usual) {
        let Some(took_s) = self.p50.get(first).copied().filter(|p50| *p50 >= usual.late_p50) else { return };
        let earliest = self.t[first] - (took_s * SECOND as f64) as i64;
        for i in (0..first).rev() {
            let begins = self.t[i] - (self.dt[i] * SECOND as f64) as i64;
            if self.requests[i] >= STALLED * usual.rate || begins < earliest - SECOND {
                break;
            }
            run.onset = begins;
        }
    }

    /// Whether it was mostly those that got their answer who waited in some samples, and not one crowd all the time.
    fn were_answered(&self, samples: &[usize]) -> bool {
        let all = |values: &[f64]| samples.iter().map(|i| values[*i] * self.dt[*i]).sum::<f64>();
        all(&self.answered) >= ANSWERED * all(&self.waiting)
    }

    /// The longest time of samples that follow each other.
    fn longest_s(&self, samples: &[usize]) -> f64 {
        let stretches = samples.chunk_by(|a, b| a + 1 == *b);
        stretches.map(|stretch| stretch.iter().map(|i| self.dt[*i]).sum()).fold(0.0, f64::max)
    }

    /// The median over the requests of some samples.
    fn weighted(&self, values: &[f64], samples: &[usize]) -> f64 {
        self.weighted_by(&self.requests, values, samples)
    }

    /// The median over some samples, of which each counts as much as it has of something.
    fn weighted_by(&self, weights: &[f64], values: &[f64], samples: &[usize]) -> f64 {
        let of = |i: &usize| (values[*i], weights[*i] * self.dt[*i]);
        let mut list: Vec<(f64, f64)> = samples.iter().map(of).filter(|(v, _)| v.is_finite()).collect();
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: f64 = list.iter().map(|(_, weight)| weight).sum();
        let mut passed = 0.0;
        for (value, weight) in &list {
            passed += weight;
            if passed >= 0.5 * all {
                return *value;
            }
        }
        0.0
    }

    fn at_most(&self, usual: &Usual) -> String {
        let most = self.p50.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        format!(
            "answered in {} at most in any second's median ({} before)",
            words::seconds(most),
            words::seconds(usual.p50)
        )
    }
}

/// A quantile over several rows, each as far as it has answers; NaN where nobody has.
fn quantile(set: &SeriesSet, side: &Side, metric: &str, rows: &[&str], all: &Signal) -> Vec<f64> {
    let (mut sum, mut weight) = (vec![0.0; all.t.len()], vec![0.0; all.t.len()]);
    for row in rows {
        let (Some(values), Some(requests)) = (set.get(metric, row), set.get(side.requests, row)) else {
            continue;
        };
        let requests = Signal::of(requests, Span::ALL);
        for (t, _, value) in values.samples(Span::ALL) {
            let (Ok(i), Ok(of)) = (all.t.binary_search(&t), requests.t.binary_search(&t)) else { continue };
            sum[i] += value * requests.v[of];
            weight[i] += requests.v[of];
        }
    }
    sum.iter().zip(&weight).map(|(sum, weight)| if *weight > 0.0 { sum / weight } else { f64::NAN }).collect()
}

/// The value that a tenth of the others does not reach: what is so at best.
#[must_use]
pub fn best_tenth(values: &[f64]) -> Option<f64> {
    share(values, 0.1)
}

/// The value that a share of the others does not reach.
fn share(values: &[f64], share: f64) -> Option<f64> {
    let mut known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let at = ((known.len() as f64 * share) as usize).min(known.len().saturating_sub(1));
    (!known.is_empty()).then(|| *known.select_nth_unstable_by(at, f64::total_cmp).1)
}

#[cfg(test)]
mod tests;
