//! How requests are usually answered.

use super::{BUCKET, GROWTH, LATE_S, OF_A_PAGE, SERVED, TAIL_S, Traffic, best_tenth, share};
use crate::{stats, words};

/// As everywhere: see [`crate::view::View::threshold`].
const SIGMAS: f64 = 6.0;
/// So much later each of them makes the page late by a tenth of a second, which is felt.
const PAGE_S: f64 = TAIL_S / OF_A_PAGE;
/// In a fifth of the samples.
const OFTEN: f64 = 0.8;
/// Who is still waiting when a recording ends waits in each of its last seconds.
const LAST: usize = 3;
/// Of less than ten minutes a tenth is one trouble.
const LONG_S: f64 = 600.0;

/// How requests are usually answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usual {
    /// Answers per second.
    pub rate: f64,
    /// Half of the requests took no longer.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    pub(super) p99: f64,
    /// Who waits: on average.
    pub waiting: f64,
    /// Seconds that one waits for an answer on average.
    pub each_s: f64,
    pub(super) late_p50: f64,
    pub(super) late_p90: f64,
    pub(super) late_p99: f64,
    /// From where on a page that takes many answers is late.
    pub(super) page_p50: f64,
    /// From where on half of the answers take several times as long, however fast they are.
    pub(super) slower_p50: f64,
    pub(super) spread: f64,
}

impl Usual {
    /// What it did for a tenth of a longer time is no trouble either: who polls waits for long when there is nothing to do.
    #[must_use]
    pub fn or_as_often(mut self, earlier: &Traffic) -> Usual {
        if earlier.dt.iter().sum::<f64>() >= LONG_S {
            let often = |values: &[f64]| share(values, 0.9).unwrap_or(0.0);
            self.late_p50 = self.late_p50.max(often(&earlier.p50));
            self.page_p50 = self.page_p50.max(often(&earlier.p50));
            self.slower_p50 = self.slower_p50.max(often(&earlier.p50));
            self.late_p90 = self.late_p90.max(often(&earlier.p90));
            self.late_p99 = self.late_p99.max(often(&earlier.p99));
        }
        self
    }

    /// From where on so many clients more than usual wait.
    #[must_use]
    pub fn crowd(&self, more: f64) -> f64 {
        self.spread.max(self.waiting + more)
    }
}

impl Traffic {
    /// What is usual, by samples that are taken for it.
    #[must_use]
    pub fn usual(&self) -> Option<Usual> {
        let (answered, waited) = (self.total(&self.requests), self.total(&self.waiting));
        let seconds: f64 = self.dt.iter().sum();
        if answered < SERVED || seconds <= 0.0 {
            return None;
        }
        let (p50, late_p50) = late_from(&self.p50, LATE_S)?;
        let (_, page_p50) = late_from(&self.p50, PAGE_S)?;
        let (_, slower_p50) = late_from(&self.p50, 0.0)?;
        let (p90, late_p90) = late_from(&self.p90, TAIL_S).unwrap_or((p50, late_p50));
        let (p99, late_p99) = late_from(&self.p99, LATE_S).unwrap_or((p90, late_p90));
        // Of requests that pile up meanwhile nobody knows yet how long they take: of a recording that has just begun, whatever
        // always takes longer than that.
        let piling = self.piling_up() / (self.piling_up() + answered / seconds);
        // Nor of those that are open at its end and that its answers do not account for: long polls of clients who came together end
        // together.
        let unknown = piling.max(self.held());
        let unless = |share: f64, late: f64| if unknown >= share { f64::INFINITY } else { late };
        let [late_p90, late_p99] = [unless(0.1, late_p90), unless(0.01, late_p99)];
        // What took long for one in a hundred, often enough, does so for one in ten where more of that is asked.
        let often_p99 = share(&self.p99, OFTEN).unwrap_or(p99).max(p99);
        let late_p90 = late_p90.max(BUCKET * often_p99);
        let waiting = waited / seconds;
        let spread = stats::level(&self.waiting).map_or(waiting, |l| l.median + SIGMAS * l.sigma);
        Some(Usual {
            rate: answered / seconds,
            p50,
            p90,
            p99,
            waiting,
            each_s: waited / answered,
            late_p50,
            late_p90,
            late_p99,
            page_p50,
            slower_p50,
            spread,
        })
    }

    /// What part of all requests those are that are open at the end, beyond what those take that are answered then. The least of
    /// the last samples: one of them may be caught in a hiccup.
    fn held(&self) -> f64 {
        let held = |i: usize| {
            let (waiting, rate) = (self.waiting[i], self.requests[i]);
            let each_s = self.p90.get(i).copied().filter(|p90| p90.is_finite()).unwrap_or(0.0);
            let held = (waiting - rate * each_s).max(0.0);
            if held > 0.0 { held / (held + rate) } else { 0.0 }
        };
        let samples = self.waiting.len().min(self.requests.len());
        let last = samples.saturating_sub(LAST)..samples;
        last.map(held).min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// By how much more clients wait from one second to the next.
    fn piling_up(&self) -> f64 {
        let (Some((first, last)), Some((from, to))) =
            (self.t.first().zip(self.t.last()), self.waiting.first().zip(self.waiting.last()))
        else {
            return 0.0;
        };
        ((to - from) / words::between(*first, *last).max(1.0)).max(0.0)
    }

    /// What is usual where nothing else is known than the samples themselves, of which some may be trouble: their best tenth,
    /// without those in which it is as quick as whoever fails.
    #[must_use]
    pub fn at_best(&self) -> Option<Usual> {
        let quick = self.is_as_quick_as_failures();
        if quick.v.contains(&1.0) { self.only(|i| quick.v[i] < 1.0).best() } else { self.best() }
    }

    fn best(&self) -> Option<Usual> {
        let answered = self.total(&self.requests);
        let seconds: f64 = self.dt.iter().sum();
        if answered < SERVED || seconds <= 0.0 {
            return None;
        }
        let (p50, p90) = (best_tenth(&self.p50)?, best_tenth(&self.p90)?);
        let p99 = best_tenth(&self.p99).unwrap_or(p90);
        let waiting = best_tenth(&self.waiting)?;
        Some(Usual {
            // Of a short recording most may be trouble.
            rate: share(&self.requests, 0.75)?,
            p50,
            p90,
            p99,
            waiting,
            each_s: p50,
            late_p50: (GROWTH * p50).max(p50 + LATE_S),
            late_p90: (GROWTH * p90).max(p90 + TAIL_S),
            late_p99: (GROWTH * p99).max(p99 + LATE_S),
            page_p50: (GROWTH * p50).max(p50 + PAGE_S),
            slower_p50: GROWTH * p50,
            spread: waiting,
        })
    }
}

/// The usual of a quantile, and from where on it is late.
fn late_from(values: &[f64], least_s: f64) -> Option<(f64, f64)> {
    let mut known: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let spread = stats::level(&known).map_or(0.0, |level| level.median + SIGMAS * level.sigma);
    let usual = stats::median(&mut known)?;
    Some((usual, (GROWTH * usual).max(usual + least_s).max(spread)))
}
