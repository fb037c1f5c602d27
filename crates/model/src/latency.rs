//! Response times of a stretch of time, from what each sample of it is known by: how many answers, and how long half of
//! them, nine of ten, ninety-nine of a hundred and the longest took.
//!
//! Quantiles can be neither averaged nor added. [`Latency`] is the mixture of the samples, weighted by their answers. Each
//! is interpolated between its known quantiles, on the logarithm of time and as if it were normal there: response times
//! nearly are, and an even spread would put p90 of a mixture a tenth too high.

use std::sync::Arc;

use crate::series::{Axis, Series, SeriesSet};
use crate::time::Span;

/// The resolution of [`Latency`]: a step is 1.1 %, a tenth of a step of the recorder's histogram.
const STEPS_PER_OCTAVE: f64 = 64.0;
/// Shorter and longer times are taken for these, which bounds the memory: a nanosecond, and twelve days.
const SHORTEST_S: f64 = 1e-9;
const LONGEST_S: f64 = 1e6;

/// Shares of the answers with their normal deviates. The parts between them are spread evenly, the last one up to the longest.
const SHARES: [(f64, f64); 16] = [
    (0.01, -P99),
    (0.1, -P90),
    (0.2, -0.8416),
    (0.3, -0.5244),
    (0.4, -0.2533),
    (0.5, 0.0),
    (0.6, 0.2533),
    (0.7, 0.5244),
    (0.8, 0.8416),
    (0.9, P90),
    (0.95, 1.6449),
    (0.975, 1.96),
    (0.99, P99),
    (0.995, 2.5758),
    (0.999, 3.0902),
    (1.0, f64::INFINITY),
];
const P90: f64 = 1.2816;
const P99: f64 = 2.3263;

/// The metrics that a sample's response times are in.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    /// Answers per second.
    pub requests: &'static str,
    /// The quantiles.
    pub p50: &'static str,
    /// See `p50`.
    pub p90: &'static str,
    /// See `p50`.
    pub p99: &'static str,
    /// The longest.
    pub max: &'static str,
}

/// Of a service.
pub const SERVICE: Columns = Columns {
    requests: "service.requests",
    p50: "service.latency_p50",
    p90: "service.latency_p90",
    p99: "service.latency_p99",
    max: "service.latency_max",
};

/// Of what a process asks of an address.
pub const DEPENDENCY: Columns = Columns {
    requests: "dependency.requests",
    p50: "dependency.latency_p50",
    p90: "dependency.latency_p90",
    p99: "dependency.latency_p99",
    max: "dependency.latency_max",
};

/// The answers of one sample. Times in seconds; `NaN` is unknown.
#[derive(Debug, Clone, Copy)]
pub struct Answers {
    /// How many.
    pub count: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    /// Ninety-nine of a hundred took no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// The distribution of response times of any number of samples, in bounded memory.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    count: f64,
    max: f64,
    /// The step that `answers[0]` belongs to.
    first: i64,
    /// Answers by step.
    answers: Vec<f64>,
}

impl Latency {
    /// The response times of one row in a span.
    #[must_use]
    pub fn of(set: &SeriesSet, columns: &Columns, row: &str, span: Span) -> Latency {
        let mut latency = Latency::default();
        latency.add_row(set, columns, row, span);
        latency
    }

    /// Adds the response times of one row in a span.
    pub fn add_row(&mut self, set: &SeriesSet, columns: &Columns, row: &str, span: Span) {
        let Some(requests) = set.get(columns.requests, row) else { return };
        let axis = &requests.axis;
        let quantiles = [columns.p50, columns.p90, columns.p99, columns.max].map(|m| set.get(m, row));
        for i in axis.range(span) {
            let [p50, p90, p99, max] = quantiles.map(|series| value_at(series, axis, i));
            self.add(&Answers { count: requests.at(i) * axis.dt[i], p50, p90, p99, max });
        }
    }

    /// Adds a sample. One whose number of answers or median is unknown adds nothing.
    pub fn add(&mut self, sample: &Answers) {
        let is_known = sample.count.is_finite() && sample.count > 0.0 && sample.p50.is_finite();
        if !is_known {
            return;
        }
        self.count += sample.count;
        // The known quantiles: the normal deviate of the share, and the step.
        let mut known = [(0.0, step(sample.p50)); 4];
        let mut len = 1;
        for (time, deviate) in [(sample.p90, P90), (sample.p99, P99), (sample.max, longest(sample.count))] {
            if time.is_finite() {
                known[len] = (deviate, step(time).max(known[len - 1].1));
                len += 1;
            }
        }
        let known = &known[..len];
        let (mut before, mut from) = (0.0, between(known, SHARES[0].1));
        for (share, deviate) in SHARES {
            let to = between(known, deviate);
            self.spread(from, to, sample.count * (share - before));
            (before, from) = (share, to);
        }
        self.max = self.max.max(time(from));
    }

    /// How many answers were added.
    #[must_use]
    pub fn count(&self) -> f64 {
        self.count
    }

    /// The longest time, if there was an answer.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        (self.count > 0.0).then_some(self.max)
    }

    /// The time that this share of the answers, 0 to 1, took no longer than.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let mut left = share.clamp(0.0, 1.0) * self.count;
        for (at, answers) in self.answers.iter().enumerate() {
            if *answers > 0.0 && left <= *answers {
                let found = self.first as f64 + at as f64 + left / answers;
                return Some(time(found).min(self.max));
            }
            left -= answers;
        }
        self.max()
    }

    /// Adds all answers of another one.
    pub fn merge(&mut self, other: &Latency) {
        if other.answers.is_empty() {
            return;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
        self.make_room(other.first, other.first + other.answers.len() as i64 - 1);
        let shift = (other.first - self.first) as usize;
        for (own, more) in self.answers[shift..].iter_mut().zip(&other.answers) {
            *own += more;
        }
    }

    /// Spreads answers evenly between two places on the axis of steps.
    fn spread(&mut self, from: f64, to: f64, answers: f64) {
        let least = step(SHORTEST_S);
        let (from, to) = (from.max(least), to.max(least));
        let (first, last) = (from.floor() as i64, to.floor() as i64);
        self.make_room(first, last);
        let at = |step: i64| (step - self.first) as usize;
        if first == last {
            let at = at(first);
            self.answers[at] += answers;
            return;
        }
        let per_step = answers / (to - from);
        let (from_at, to_at) = (at(first), at(last));
        self.answers[from_at] += per_step * (first as f64 + 1.0 - from);
        self.answers[from_at + 1..to_at].iter_mut().for_each(|own| *own += per_step);
        self.answers[to_at] += per_step * (to - last as f64);
    }

    fn make_room(&mut self, first: i64, last: i64) {
        if self.answers.is_empty() {
            self.first = first;
        }
        if first < self.first {
            let more = (self.first - first) as usize;
            self.answers.splice(0..0, std::iter::repeat_n(0.0, more));
            self.first = first;
        }
        let len = (last - self.first + 1) as usize;
        if self.answers.len() < len {
            self.answers.resize(len, 0.0);
        }
    }
}

/// The normal deviate that the longest of so many answers has by extreme value theory: the place of the Gumbel distribution that the
/// maximum of normal values tends to. Of a hundred and fewer it lies just beyond the 99th percentile.
fn longest(answers: f64) -> f64 {
    let logarithm = answers.max(100.0).ln();
    let root = (2.0 * logarithm).sqrt();
    root - (logarithm.ln() + (4.0 * std::f64::consts::PI).ln()) / (2.0 * root)
}

/// The step at a normal deviate. Below the median, where nothing is known, the part above it is mirrored.
fn between(known: &[(f64, f64)], deviate: f64) -> f64 {
    let next = known.partition_point(|(at, _)| *at < deviate).max(1);
    match known.get(next) {
        Some(after) => {
            let (before, share) =
                (known[next - 1], (deviate - known[next - 1].0) / (after.0 - known[next - 1].0));
            before.1 + share * (after.1 - before.1)
        }
        None => known[known.len() - 1].1,
    }
}

/// The place of a time on the axis of steps.
fn step(seconds: f64) -> f64 {
    seconds.clamp(SHORTEST_S, LONGEST_S).log2() * STEPS_PER_OCTAVE
}

fn time(step: f64) -> f64 {
    (step / STEPS_PER_OCTAVE).exp2()
}

/// The value at an index of an axis, which the series of a recording share.
fn value_at(series: Option<&Series>, axis: &Arc<Axis>, i: usize) -> f64 {
    let Some(series) = series else { return f64::NAN };
    if Arc::ptr_eq(&series.axis, axis) {
        return series.at(i);
    }
    series.axis.t.binary_search(&axis.t[i]).map_or(f64::NAN, |i| series.at(i))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::lookup;
    use crate::time::SECOND;

    fn sample(count: f64, p50: f64, p90: f64, p99: f64, max: f64) -> Answers {
        Answers { count, p50, p90, p99, max }
    }

    fn mixture(samples: &[Answers]) -> Latency {
        let mut latency = Latency::default();
        samples.iter().for_each(|sample| latency.add(sample));
        latency
    }

    /// Whether two times differ by no more than this share.
    fn close(found: Option<f64>, wanted: f64, tolerance: f64) {
        let found = found.expect("there are answers");
        assert!((found / wanted - 1.0).abs() <= tolerance, "{found} is not {wanted}");
    }

    #[test]
    fn seconds_that_are_alike_keep_their_quantiles() {
        let latency = mixture(&[sample(100.0, 0.002, 0.004, 0.02, 0.05); 30]);
        for (share, wanted) in [(0.5, 0.002), (0.9, 0.004), (0.99, 0.02), (1.0, 0.05)] {
            close(latency.quantile(share), wanted, 0.012);
        }
        assert_eq!(latency.count(), 3000.0);
        close(latency.max(), 0.05, 1e-9);
    }

    #[test]
    fn answers_count_and_not_seconds() {
        // One busy second at 1 ms, and nine with a hundredth of its answers at 1 s.
        let mut samples = vec![sample(1000.0, 0.001, 0.001, 0.001, 0.001)];
        samples.extend([sample(10.0, 1.0, 1.0, 1.0, 1.0); 9]);
        let latency = mixture(&samples);
        close(latency.quantile(0.5), 0.001, 0.012);
        close(latency.quantile(0.9), 0.001, 0.012);
        close(latency.quantile(0.99), 1.0, 0.012);
    }

    #[test]
    fn single_answers_make_their_own_distribution() {
        let samples: Vec<Answers> =
            (1..=100).map(f64::from).map(|ms| sample(1.0, ms / 1e3, ms / 1e3, ms / 1e3, ms / 1e3)).collect();
        let latency = mixture(&samples);
        close(latency.quantile(0.5), 0.050, 0.012);
        close(latency.quantile(0.99), 0.099, 0.012);
        close(latency.quantile(0.01), 0.001, 0.012);
    }

    /// Seconds of a heavy-tailed service whose pace changes, known by their quantiles only, against all their times.
    #[test]
    fn a_mixture_is_near_the_truth() {
        is_near_the_truth(200, &[(0.5, 0.05), (0.9, 0.05), (0.99, 0.1)]);
        is_near_the_truth(8000, &[(0.5, 0.01), (0.9, 0.01), (0.99, 0.03), (0.999, 0.1)]);
    }

    fn is_near_the_truth(answers: usize, tolerances: &[(f64, f64)]) {
        let mut noise = 7_u64;
        let mut uniform = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((noise >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        };
        let (mut all, mut latency) = (Vec::new(), Latency::default());
        for second in 0..60 {
            let pace = if second < 40 { 0.002 } else { 0.02 };
            let mut times: Vec<f64> = (0..answers + second * 5)
                .map(|_| {
                    let gauss = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
                    pace * (0.6 * gauss).exp()
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).max(1) - 1];
            latency.add(&sample(times.len() as f64, at(0.5), at(0.9), at(0.99), at(1.0)));
            all.extend(times);
        }
        all.sort_by(f64::total_cmp);
        let truth = |share: f64| all[(all.len() as f64 * share) as usize];
        for &(share, tolerance) in tolerances {
            close(latency.quantile(share), truth(share), tolerance);
        }
    }

    #[test]
    fn what_is_unknown_adds_nothing() {
        let nan = f64::NAN;
        let unknown = [
            sample(nan, 1.0, 1.0, 1.0, 1.0),
            sample(0.0, 1.0, 1.0, 1.0, 1.0),
            sample(-1.0, 1.0, 1.0, 1.0, 1.0),
            sample(f64::INFINITY, 1.0, 1.0, 1.0, 1.0),
            sample(5.0, nan, 1.0, 1.0, 1.0),
        ];
        let latency = mixture(&unknown);
        assert_eq!((latency.count(), latency.quantile(0.5), latency.max()), (0.0, None, None));
        // Where only the median is known, it stands for all.
        close(mixture(&[sample(5.0, 0.1, nan, nan, nan)]).quantile(0.99), 0.1, 0.012);
        let no_tail = mixture(&[sample(100.0, 0.1, nan, 0.4, nan)]);
        close(no_tail.quantile(0.99), 0.4, 0.012);
    }

    #[test]
    fn absurd_times_take_bounded_memory_and_stay_in_order() {
        let latency = mixture(&[
            sample(1.0, 0.0, 1e300, f64::MAX, f64::MAX),
            sample(1.0, 1e300, 0.0, -5.0, 1.0),
            sample(1.0, f64::MIN_POSITIVE, 1e-300, 1e-12, 1e-10),
        ]);
        let steps = (step(LONGEST_S) - step(SHORTEST_S)) as usize + 2;
        assert!(latency.answers.len() <= steps, "{}", latency.answers.len());
        let quantiles: Vec<f64> = (0..=100).filter_map(|q| latency.quantile(f64::from(q) / 100.0)).collect();
        assert!(quantiles.len() == 101 && quantiles.is_sorted(), "{quantiles:?}");
    }

    #[test]
    fn merged_is_as_if_added() {
        let (a, b) = (sample(70.0, 0.001, 0.002, 0.004, 0.009), sample(30.0, 0.1, 0.2, 0.9, 2.0));
        let together = mixture(&[a, b]);
        for (mut one, other) in [(mixture(&[a]), mixture(&[b])), (mixture(&[b]), mixture(&[a]))] {
            one.merge(&other);
            one.merge(&Latency::default());
            for share in [0.0, 0.3, 0.5, 0.69, 0.9, 0.99, 1.0] {
                close(one.quantile(share), together.quantile(share).unwrap(), 1e-9);
            }
        }
    }

    #[test]
    fn a_row_of_a_recording() {
        let axis = Arc::new(Axis {
            t: (0..4).map(|i| i * SECOND).collect(),
            dt: vec![f64::NAN, 1.0, 1.0, 1.0],
            places: Vec::new(),
        });
        let mut set = SeriesSet::default();
        let mut insert = |metric: &str, values: &[f64]| {
            let series = Series { axis: Arc::clone(&axis), start: 0, values: values.into() };
            set.insert(lookup(metric).unwrap(), "0.0.0.0:80".into(), series);
        };
        insert(SERVICE.requests, &[f64::NAN, 10.0, 0.0, 30.0]);
        for metric in [SERVICE.p50, SERVICE.p90, SERVICE.p99, SERVICE.max] {
            insert(metric, &[9.0, 1.0, f64::NAN, 2.0]);
        }
        let all = Latency::of(&set, &SERVICE, "0.0.0.0:80", Span::ALL);
        assert_eq!(all.count(), 40.0);
        close(all.quantile(0.5), 2.0, 0.012);
        close(all.quantile(0.2), 1.0, 0.012);
        let first = Span { since: 0, until: 3 * SECOND };
        close(Latency::of(&set, &SERVICE, "0.0.0.0:80", first).max(), 1.0, 1e-9);
        assert_eq!(Latency::of(&set, &DEPENDENCY, "0.0.0.0:80", Span::ALL).count(), 0.0);
    }
}
