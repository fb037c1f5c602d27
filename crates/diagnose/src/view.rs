//! One stretch of time that may be an incident, beside the baseline that it is compared with.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use mitra_model::report::{Culprit, Evidence, Quote};
use mitra_model::time::SECOND;
use mitra_model::{Event, Series, SeriesSet, Span, cgroup_name, lookup};

use crate::changes::History;
use crate::condition::{Finding, Observation};
use crate::process::{self, Process};
use crate::quote;
use crate::services::{Service, Serving};
use crate::signal::{Run, Signal};
use crate::stats;

/// What a condition looks at.
pub struct View<'a> {
    /// What is known of the stretch.
    pub set: &'a SeriesSet,
    /// The stretch.
    pub window: Span,
    /// What is known of the baseline; often the same set.
    pub base_set: &'a SeriesSet,
    /// The baseline.
    pub baseline: Option<Span>,
    /// What is known of the machine over a longer time, before the stretch and after it: levels, but no tasks. The same
    /// set where nothing else was loaded.
    pub around: &'a SeriesSet,
    /// Whether the set is the evidence of one case, gathered from files whose times may not compare: then what a series
    /// was before is asked of the series itself where there is no baseline.
    pub is_case: bool,
    /// What was changed on the machine, as far as it is known.
    pub history: History<'a>,
    processes: OnceCell<Vec<Process<'a>>>,
    services: OnceCell<Vec<Service<'a>>>,
    serving: OnceCell<Serving<'a>>,
}

/// A signal that is high, with what it was before.
#[derive(Debug, Clone)]
pub struct High {
    /// When.
    pub run: Run,
    /// The mean of the baseline.
    pub before: Option<f64>,
    /// The mean of the run.
    pub during: f64,
    /// The largest value of the run.
    pub peak: f64,
}

/// How far the rate of a steady flow strays from one second to the next at least: the kernel adds up its counters of each
/// CPU once a second by a timer of its own, so that some ten milliseconds' worth is seen in the wrong second.
const STRAY: f64 = 0.01;

impl<'a> View<'a> {
    /// A view of `window`, to be compared with `baseline`.
    #[must_use]
    pub fn new(set: &'a SeriesSet, window: Span, base_set: &'a SeriesSet, baseline: Option<Span>) -> Self {
        View {
            set,
            window,
            base_set,
            baseline,
            around: set,
            is_case: false,
            history: History::default(),
            processes: OnceCell::new(),
            services: OnceCell::new(),
            serving: OnceCell::new(),
        }
    }

    /// A view of everything that is known of one case, to be compared with everything of the baseline.
    #[must_use]
    pub fn of_case(set: &'a SeriesSet, good: Option<&'a SeriesSet>) -> Self {
        View {
            set,
            window: Span::ALL,
            base_set: good.unwrap_or(set),
            baseline: good.map(|_| Span::ALL),
            around: set,
            is_case: true,
            history: History::default(),
            processes: OnceCell::new(),
            services: OnceCell::new(),
            serving: OnceCell::new(),
        }
    }

    /// Bytes of memory; `None` where that is not known.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<f64> {
        let total = || self.set.get("mem.total", "").and_then(|s| s.last(Span::ALL));
        if self.set.host.memory_bytes > 0 { Some(self.set.host.memory_bytes as f64) } else { total() }
    }

    /// The mean that a metric had before a span: of the baseline, or in a case without one the series' own samples
    /// before the span, or else those after it.
    #[must_use]
    pub fn before_span(&self, metric: &str, row: &str, span: Span) -> Option<f64> {
        self.before(metric, row)
            .or_else(|| quote::own_before(self, metric, row, span).map(|s| quote::mean(&s)))
    }

    /// CPUs of the machine; 1 where that is not known.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        f64::from(self.set.host.cpus.max(1))
    }

    /// Bytes in a page.
    #[must_use]
    pub fn page_bytes(&self) -> f64 {
        if self.set.host.page_bytes == 0 { 4096.0 } else { self.set.host.page_bytes as f64 }
    }

    /// A metric of the whole machine inside the window.
    #[must_use]
    pub fn system(&self, metric: &str) -> Option<Signal> {
        self.of(metric, "")
    }

    /// A metric of one thing inside the window.
    #[must_use]
    pub fn of(&self, metric: &str, row: &str) -> Option<Signal> {
        let signal = Signal::of(self.set.get(metric, row)?, self.window);
        (!signal.t.is_empty()).then_some(signal)
    }

    /// The sum of metrics of the whole machine; those that are not there add nothing. `None` when none is there.
    #[must_use]
    pub fn system_sum(&self, metrics: &[&str]) -> Option<Signal> {
        Signal::sum(metrics.iter().filter_map(|m| self.set.system(m)), self.window)
    }

    /// Whether anything has the metric.
    #[must_use]
    pub fn has(&self, metric: &str) -> bool {
        self.set.each(metric).next().is_some()
    }

    /// Everything that has the metric.
    pub fn each(&self, metric: &str) -> impl Iterator<Item = (&'a str, &'a Series)> {
        self.set.each(metric)
    }

    /// The values of a metric in the baseline.
    #[must_use]
    pub fn base_values(&self, metric: &str, row: &str) -> Vec<f64> {
        let Some(baseline) = self.baseline else { return Vec::new() };
        self.base_set.get(metric, row).map(|s| s.values(baseline)).unwrap_or_default()
    }

    /// The mean of a metric in the baseline.
    #[must_use]
    pub fn before(&self, metric: &str, row: &str) -> Option<f64> {
        self.base_set.get(metric, row)?.mean(self.baseline?)
    }

    /// What a limit was at a moment: it may have been changed since, and before what it limits was read. Of one that was read
    /// later only, what it was then.
    #[must_use]
    pub fn limit_at(&self, metric: &str, row: &str, t: i64) -> Option<f64> {
        let series = self.set.get(metric, row)?;
        series.last(Span { since: i64::MIN, until: t.saturating_add(1) }).or_else(|| series.first(Span::ALL))
    }

    /// The moment at which most of a limit was used in the window: how much, and what the limit was then.
    #[must_use]
    pub fn fullest(&self, used: &str, limit: &str, row: &str) -> Option<(f64, f64)> {
        let used = self.set.get(used, row)?.samples(self.window);
        let of_limit = used.filter_map(|(t, _, used)| Some((used, self.limit_at(limit, row, t)?)));
        of_limit.filter(|(_, limit)| *limit > 0.0).max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))
    }

    /// The mean of a sum of metrics of the whole machine in the baseline.
    #[must_use]
    pub fn before_sum(&self, metrics: &[&str]) -> Option<f64> {
        let series = metrics.iter().filter_map(|m| self.base_set.system(m));
        Signal::sum(series, self.baseline?)?.mean()
    }

    /// The level that a value has to reach to count as high: the physical floor, and six deviations above what
    /// the baseline had. Six: a normal value gets there once in five hundred million samples.
    ///
    /// A short baseline of a steady flow may have no spread to speak of. What is always above the floor is not high
    /// because it is a hair above itself: [`STRAY`] is the least spread that is believed.
    #[must_use]
    pub fn threshold(&self, floor: f64, base_values: &[f64]) -> f64 {
        match stats::level(base_values) {
            Some(level) => floor.max(level.median + 6.0 * level.sigma.max(STRAY * level.median.abs())),
            None => floor,
        }
    }

    /// The stretch in which a metric was high against a physical floor and against its baseline.
    #[must_use]
    pub fn high(&self, metric: &str, row: &str, floor: f64, need_s: f64) -> Option<High> {
        let signal = self.of(metric, row)?;
        let threshold = self.threshold(floor, &self.base_values(metric, row));
        let mut high = self.high_signal(&signal, threshold, need_s, self.before(metric, row))?;
        high.before = self.before_span(metric, row, high.run.span());
        Some(high)
    }

    /// The same for a sum of metrics of the whole machine.
    #[must_use]
    pub fn high_sum(&self, metrics: &[&str], floor: f64, need_s: f64) -> Option<High> {
        let signal = self.system_sum(metrics)?;
        let base = self
            .baseline
            .and_then(|b| Signal::sum(metrics.iter().filter_map(|m| self.base_set.system(m)), b))
            .unwrap_or_default();
        let threshold = self.threshold(floor, &base.v);
        let mut high = self.high_signal(&signal, threshold, need_s, base.mean())?;
        if high.before.is_none() && self.is_case {
            let span = high.run.span();
            let own = |m: &&str| quote::own_before(self, m, "", span).map(|s| quote::mean(&s));
            high.before = metrics.iter().filter_map(own).reduce(|a, b| a + b);
        }
        Some(high)
    }

    /// The same for a signal that the condition made itself.
    #[must_use]
    pub fn high_signal(
        &self,
        signal: &Signal,
        threshold: f64,
        need_s: f64,
        before: Option<f64>,
    ) -> Option<High> {
        let run = signal.run(threshold, need_s)?;
        let inside = signal.within(run.span());
        Some(High { run, before, during: inside.mean()?, peak: inside.max()? })
    }

    /// What a cgroup is called: its unit, slice, container or pod.
    #[must_use]
    pub fn cgroup_name(&self, path: &str) -> Option<String> {
        cgroup_name::recorded(self.set, path)
    }

    /// A cgroup in a sentence: what it is called, or its path.
    #[must_use]
    pub fn group(&self, path: &str) -> String {
        self.cgroup_name(path).unwrap_or_else(|| path.to_owned())
    }

    /// A culprit with the name of its cgroup.
    #[must_use]
    pub fn named(&self, mut culprit: Culprit) -> Culprit {
        culprit.cgroup_name = culprit.cgroup.as_deref().and_then(|path| self.cgroup_name(path));
        culprit
    }

    /// The processes of the window.
    #[must_use]
    pub fn processes(&self) -> &[Process<'a>] {
        self.processes.get_or_init(|| process::collect(self.set))
    }

    /// The process that had an id last.
    #[must_use]
    pub fn process(&self, pid: u32) -> Option<&Process<'a>> {
        let all = self.processes();
        all.get(all.partition_point(|p| p.pid <= pid).checked_sub(1)?).filter(|p| p.pid == pid)
    }

    /// The process ids that the recorder has had.
    #[must_use]
    pub fn recorders(&self) -> BTreeSet<u32> {
        let pids = self.set.get("mitra.pid", "");
        pids.into_iter().flat_map(|pid| pid.samples(Span::ALL)).map(|(_, _, pid)| pid as u32).collect()
    }

    /// Which processes serve what.
    #[must_use]
    pub fn serving(&self) -> &Serving<'a> {
        self.serving.get_or_init(|| Serving::all(self))
    }

    /// The services of the window.
    #[must_use]
    pub fn services(&self) -> &[Service<'a>] {
        self.services.get_or_init(|| Service::all(self))
    }

    /// The one that has an address.
    #[must_use]
    pub fn service(&self, row: &str) -> Option<&Service<'a>> {
        self.services().iter().find(|service| service.rows.contains(&row))
    }

    /// A number that proves something: the mean of a metric in the baseline and in a span, with the lines that say so.
    #[must_use]
    pub fn evidence(&self, metric: &str, row: &str, span: Span) -> Option<Evidence> {
        self.evidence_against(metric, row, self.before_span(metric, row, span), span)
    }

    /// The same, beside a value that the condition worked out.
    #[must_use]
    pub fn evidence_against(
        &self,
        metric: &str,
        row: &str,
        before: Option<f64>,
        span: Span,
    ) -> Option<Evidence> {
        let series = self.set.get(metric, row)?;
        let mut evidence = self.evidence_of(metric, row, before, series.mean(span)?);
        quote::fill(self, &mut evidence, series, span);
        Some(evidence)
    }

    /// A number that proves something, with values that the condition worked out.
    #[must_use]
    pub fn evidence_of(&self, metric: &str, entity: &str, before: Option<f64>, during: f64) -> Evidence {
        Evidence {
            metric: metric.to_owned(),
            entity: entity.to_owned(),
            before,
            during,
            unit: lookup(metric).map(mitra_model::Metric::unit_label).unwrap_or_default(),
            ..Evidence::default()
        }
    }

    /// What a process did, worked out by the condition, with the lines of that process that say so: its first one in the
    /// span and the one with most.
    #[must_use]
    pub fn task_evidence(
        &self,
        metric: &str,
        process: &Process<'_>,
        before: Option<f64>,
        during: f64,
        span: Span,
    ) -> Evidence {
        let mut evidence = self.evidence_of(metric, process.comm, before, during);
        quote::fill_of_task(self.set, &mut evidence, process.series(self.set, metric), span);
        evidence
    }

    /// The last reading of a metric, whatever it is: a level, a rate, or what a counter had come to.
    #[must_use]
    pub fn reading(&self, metric: &str, row: &str) -> Option<f64> {
        quote::reading(self.set, metric, row).map(|(_, _, value)| value)
    }

    /// The last reading of a metric in the baseline, where there is one of its own.
    #[must_use]
    pub fn good_reading(&self, metric: &str, row: &str) -> Option<f64> {
        self.baseline?;
        quote::reading(self.base_set, metric, row).map(|(_, _, value)| value)
    }

    /// The last readings of a metric, of both sides, as evidence with the lines that say so.
    #[must_use]
    pub fn reading_evidence(&self, metric: &str, row: &str) -> Option<Evidence> {
        let (series, i, value) = quote::reading(self.set, metric, row)?;
        let mut evidence = self.evidence_of(metric, row, self.good_reading(metric, row), value);
        if self.set.get(metric, row).is_none() {
            // A reading is no rate.
            evidence.unit = lookup(metric).map(|m| m.unit.label().to_owned()).unwrap_or_default();
        }
        if self.baseline.is_some()
            && let Some((good, i, _)) = quote::reading(self.base_set, metric, row)
        {
            evidence.quotes.extend(quote::at(self.base_set, good, i));
        }
        evidence.quotes.extend(quote::at(self.set, series, i));
        Some(evidence)
    }

    /// The line of the last text of a metric.
    #[must_use]
    pub fn text_quote(&self, metric: &str, row: &str) -> Option<Quote> {
        let text = self.set.text(metric, row)?;
        quote::of_place(self.set, text.place?, text.changes.last()?.0, None)
    }

    /// The line that tells of an event.
    #[must_use]
    pub fn event_quote(&self, event: &Event) -> Option<Quote> {
        quote::of_place(self.set, event.place?, event.real, None)
    }

    /// An event as evidence: `metric` is `event.` and what kind it is, `during` what it measured or how many there were.
    #[must_use]
    pub fn event_evidence(
        &self,
        metric: &str,
        entity: &str,
        during: f64,
        unit: &str,
        event: &Event,
    ) -> Evidence {
        Evidence {
            metric: metric.to_owned(),
            entity: entity.to_owned(),
            during,
            unit: unit.to_owned(),
            quotes: self.event_quote(event).into_iter().collect(),
            ..Evidence::default()
        }
    }

    /// An active condition that a single observation shows.
    #[must_use]
    pub fn finding_at(&self, t: i64) -> Finding {
        Finding { onset: t, confidence: 1.0, step_s: 1.0, ..Finding::default() }
    }

    /// An active condition with the times of a run.
    #[must_use]
    pub fn finding(&self, run: &Run) -> Finding {
        Finding {
            onset: run.onset,
            end: (!run.lasts).then_some(run.end),
            step_s: run.step_s,
            seen: Some(run.seen),
            confidence: 1.0,
            ..Finding::default()
        }
    }
}

/// A condition that is just one metric of the whole machine above a floor.
#[must_use]
pub fn observe_level(
    view: &View<'_>,
    metrics: &'static [&'static str],
    floor: f64,
    need_s: f64,
    what: &str,
) -> Observation {
    let Some(signal) = view.system_sum(metrics) else {
        return Observation::needs(metrics);
    };
    match view.high_sum(metrics, floor, need_s) {
        Some(high) => {
            let mut finding = view.finding(&high.run);
            finding.onset = rise(&signal, &high, need_s);
            finding.statement = format!("{what} {}", number(metrics, high.during));
            finding.evidence = metrics.iter().filter_map(|m| view.evidence(m, "", high.run.span())).collect();
            finding.evidence.retain(|e| e.during != 0.0);
            finding.active()
        }
        None => {
            let peak = signal.max().unwrap_or(0.0);
            Observation::Inactive(format!("{what} at most {}", number(metrics, peak)))
        }
    }
}

/// When a level rose. What was a little above a floor and then jumps to several times as much begins with the jump: where it
/// gets over half of its mean, from less than half of that sample to it. What creeps up begins where it got over the floor.
fn rise(signal: &Signal, high: &High, need_s: f64) -> i64 {
    let inside = signal.within(high.run.span());
    let first = inside.runs(0.5 * high.during).into_iter().find(|run| run.lasted(need_s));
    let jump = first.filter(|run| {
        let middle = run.onset + (0.5 * run.step_s * SECOND as f64) as i64;
        let at = inside.t.partition_point(|t| *t <= middle);
        at > 0 && inside.v.get(at).is_some_and(|v| inside.v[at - 1] <= 0.5 * v)
    });
    jump.map_or(high.run.onset, |run| run.onset)
}

/// A value with the unit of the first of some metrics.
#[must_use]
pub fn number(metrics: &[&str], value: f64) -> String {
    let unit =
        metrics.first().and_then(|m| lookup(m)).map(mitra_model::Metric::unit_label).unwrap_or_default();
    match unit.as_str() {
        "bytes" => crate::words::bytes(value),
        "bytes/s" => format!("{}/s", crate::words::bytes(value)),
        "s/s" if metrics.first().is_some_and(|m| m.starts_with("tasks.")) => {
            format!("{} at a time", crate::words::at_a_time(value))
        }
        "s/s" => format!("{} of the time", crate::words::percent(value)),
        "s" => crate::words::seconds(value),
        "1/s" => format!("{}/s", crate::words::count(value)),
        "" => crate::words::count(value),
        unit => format!("{} {unit}", crate::words::count(value)),
    }
}

impl View<'_> {
    /// Bytes, events or seconds above what the baseline would have had in a span, of a sum of system metrics.
    #[must_use]
    pub fn excess(&self, metrics: &[&str], span: Span) -> Option<f64> {
        let signal = Signal::sum(metrics.iter().filter_map(|m| self.set.system(m)), span)?;
        let before = self.before_sum(metrics).unwrap_or(0.0);
        let seconds: f64 = signal.dt.iter().sum();
        Some((signal.total() - before * seconds).max(0.0))
    }

    /// Pages that reclaim took, whoever made it run. Kernels before 4.10 or so count only per reclaimer.
    #[must_use]
    pub fn steal(&self) -> Option<Signal> {
        self.system_sum(STEAL_ALL)
            .or_else(|| self.system_sum(STEAL_BY_RECLAIMER))
            .or_else(|| self.system("vm.pgsteal"))
    }

    /// File pages that came back soon after they had been evicted.
    #[must_use]
    pub fn refault_file(&self) -> Option<Signal> {
        self.system("vm.workingset_refault_file").or_else(|| self.system("vm.workingset_refault"))
    }
}

/// Pages reclaimed, of a cgroup's own reclaim too.
pub const STEAL_ALL: &[&str] = &["vm.pgsteal_file", "vm.pgsteal_anon"];
/// The same where only these exist: reclaim inside cgroups is missing.
pub const STEAL_BY_RECLAIMER: &[&str] = &["vm.pgsteal_kswapd", "vm.pgsteal_direct"];

impl View<'_> {
    /// CPU-seconds per second that nothing ran, iowait included.
    #[must_use]
    pub fn idle(&self) -> Option<Signal> {
        let idle = self.system("sys.cpu_idle")?;
        Some(match self.system("sys.cpu_iowait") {
            Some(iowait) => idle.zip(&iowait, |a, b| a + b),
            None => idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_always_above_the_floor_is_not_high_for_a_hair() {
        let set = SeriesSet::default();
        let view = View::new(&set, Span::ALL, &set, None);
        let steady = [18_459.0, 18_460.0, 18_461.0, 18_459.0, 18_460.0];
        assert!(view.threshold(10_000.0, &steady) > 19_000.0);
        assert_eq!(view.threshold(50_000.0, &steady), 50_000.0);
        assert_eq!(view.threshold(10.0, &[0.0, 0.0, 0.0]), 10.0);
    }

    #[test]
    fn a_level_rises_where_it_jumps_and_not_where_it_creeps() {
        let rises = |values: &[f64]| {
            let set = SeriesSet::default();
            let view = View::new(&set, Span::ALL, &set, None);
            let t = (1..=values.len() as i64).map(|i| i * SECOND).collect();
            let signal = Signal { t, dt: vec![1.0; values.len()], v: values.to_vec() };
            let high = view.high_signal(&signal, 1.0, 3.0, None).unwrap();
            rise(&signal, &high, 3.0) / SECOND
        };
        // A little over the floor, then a jump; the first of two.
        assert_eq!(rises(&[&[0.0; 2][..], &[1.5; 5], &[10.0; 20]].concat()), 7);
        assert_eq!(rises(&[&[0.0; 2][..], &[1.5; 5], &[10.0; 20], &[1.5; 6], &[10.0; 21]].concat()), 7);
        let ramp: Vec<f64> = (0..30).map(f64::from).collect();
        assert_eq!(rises(&ramp), 1);
        // A jump that does not last.
        assert_eq!(rises(&[0.0, 0.0, 2.0, 2.0, 2.0, 9.0, 2.0, 2.0, 2.0]), 2);
    }
}
