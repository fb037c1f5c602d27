//! The second look: each part of an episode with its tasks, as many at once as there are CPUs for it.

use std::collections::VecDeque;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mitra_model::report::{Finding, Incident};
use mitra_model::{SeriesSet, Span};

use crate::engine::episodes::{self, Episodes};
use crate::engine::explain::{LEAD_NS, Request};
use crate::engine::ledger::Waited;
use crate::engine::parts::{self, BASELINE_NS, Cost, Part};
use crate::engine::verdict;
use crate::view::View;

/// Parts that are looked at at the same time: each of them is in memory.
const AT_ONCE: usize = 4;

/// Loads [`crate::detail_metrics`] of any span.
pub type Detail<'a> = dyn Fn(Span) -> Result<SeriesSet, String> + Sync + 'a;

/// Loads what the second look needs, and holds no more than that of one part.
pub(crate) struct Loader<'d> {
    detail: &'d Detail<'d>,
    /// The quiet time that was loaded last by itself: the parts of an episode are compared with the same.
    quiet: Option<(Span, Arc<SeriesSet>)>,
    /// Sources that could not be read, and why.
    pub(crate) troubles: Vec<(String, String)>,
}

impl<'d> Loader<'d> {
    pub(crate) fn new(detail: &'d Detail<'d>) -> Self {
        Loader { detail, quiet: None, troubles: Vec::new() }
    }

    pub(crate) fn load(&mut self, span: Span) -> Option<Arc<SeriesSet>> {
        (self.detail)(span).map(Arc::new).map_err(|why| self.troubles.push(("archive".to_owned(), why))).ok()
    }

    fn load_quiet(&mut self, span: Span) -> Option<Arc<SeriesSet>> {
        if self.quiet.as_ref().is_none_or(|(known, _)| *known != span) {
            self.quiet = self.load(span).map(|set| (span, set));
        }
        self.quiet.as_ref().map(|(_, set)| Arc::clone(set))
    }

    /// What is looked at and what it is compared with: one set where they are near each other.
    fn both(&mut self, window: Span, quiet: Option<Span>) -> Option<Loaded> {
        match quiet {
            Some(quiet) if is_far(quiet, window) => {
                let set = self.load(window)?;
                // What cannot be loaded is nothing to compare with.
                let base = self.load_quiet(quiet);
                Some(Loaded { set, baseline: base.is_some().then_some(quiet), base })
            }
            Some(quiet) => {
                let since = window.since.min(quiet.since);
                let set = self.load(Span { since, until: window.until.max(quiet.until) })?;
                Some(Loaded { set, baseline: Some(quiet), base: None })
            }
            None => Some(Loaded { set: self.load(window)?, baseline: None, base: None }),
        }
    }
}

/// Whether quiet time lies so far from a stretch that it is loaded by itself.
fn is_far(quiet: Span, window: Span) -> bool {
    (window.since - quiet.until).max(quiet.since - window.until) > BASELINE_NS
}

struct Loaded {
    set: Arc<SeriesSet>,
    baseline: Option<Span>,
    /// The set of the baseline, where that is another one.
    base: Option<Arc<SeriesSet>>,
}

/// What was seen in a part.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) incidents: Vec<Incident>,
    pub(crate) findings: Vec<Finding>,
    /// What the first incident was compared with.
    pub(crate) baseline: Option<Span>,
    /// Who waited, where the tasks of this part were read for it alone.
    pub(crate) waited: Waited,
}

/// What all looks of a window have in common.
pub(crate) struct Looks<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) scan: &'a SeriesSet,
    /// The whole window with its tasks, where it is short.
    pub(crate) whole: Option<&'a Arc<SeriesSet>>,
    /// What is known of the whole window, and what it cost.
    pub(crate) everything: &'a SeriesSet,
    pub(crate) cost: &'a Cost,
    pub(crate) window: Span,
    /// The window, and what is known before it.
    pub(crate) before: Span,
    pub(crate) found: &'a Episodes,
    /// All episodes.
    pub(crate) all: Vec<Span>,
    pub(crate) chosen: &'a [Part],
}

impl Looks<'_> {
    /// Looks at the chosen parts, and tells of each in their order.
    pub(crate) fn at_each(&self, loader: &mut Loader<'_>) -> Vec<(Part, Seen)> {
        let next = AtomicUsize::new(0);
        let look = |loader: &mut Loader<'_>| {
            let mut seen = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = self.chosen.get(number) else { return seen };
                seen.push((number, self.at(part, loader)));
            }
        };
        let detail = loader.detail;
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let helpers = cpus.min(AT_ONCE).min(self.chosen.len()).saturating_sub(1);
        let mut all = thread::scope(|scope| {
            let help = || {
                let mut loader = Loader::new(detail);
                (look(&mut loader), loader.troubles)
            };
            // Where no more threads may be started, this one does it all.
            let start = |_| thread::Builder::new().spawn_scoped(scope, help).ok();
            let helpers: Vec<_> = (0..helpers).map_while(start).collect();
            let mut all = look(loader);
            for helper in helpers {
                let (seen, troubles) = helper.join().unwrap_or_else(|panic| resume_unwind(panic));
                all.extend(seen);
                loader.troubles.extend(troubles);
            }
            all
        });
        loader.quiet = None;
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(number, seen)| (self.chosen[number], seen)).collect()
    }

    fn with_lead(&self, span: Span) -> Span {
        Span {
            since: (span.since - LEAD_NS).max(self.before.since),
            until: (span.until + LEAD_NS).min(self.window.until.saturating_add(1)),
        }
    }

    fn load(&self, part: &Part, loader: &mut Loader<'_>) -> Option<Loaded> {
        let focus = self.with_lead(part.span);
        if let Some(baseline) = self.request.baseline {
            let set = self.whole.cloned().or_else(|| loader.load(focus))?;
            return Some(Loaded { set, baseline: Some(baseline), base: loader.load_quiet(baseline) });
        }
        let step_s = episodes::step_s(self.scan, focus);
        let loud = if part.is_steady { &self.all } else { &self.found.new };
        // All parts of an episode are compared with what was before the whole of it.
        let quiet = |loud: &[Span]| parts::quiet(loud, self.with_lead(part.episode), self.before, step_s);
        // A machine that works all the time has no quiet time; when nothing else was wrong it was as it is.
        let baseline = quiet(loud).or_else(|| quiet(&self.found.unusual));
        match self.whole {
            Some(set) => Some(Loaded { set: Arc::clone(set), baseline, base: None }),
            None => loader.both(focus, baseline),
        }
    }

    /// Looks at a part, and then at what is left of it beside what was found.
    fn at(&self, part: &Part, loader: &mut Loader<'_>) -> Seen {
        let mut seen = Seen::default();
        let Some(loaded) = self.load(part, loader) else { return seen };
        if self.whole.is_none() {
            seen.waited.add(&loaded.set, self.with_lead(part.span));
        }
        let mut left = VecDeque::from([(*part, false)]);
        while let Some((part, is_rest)) = left.pop_front() {
            let besides = self.look(&part, is_rest, &loaded, &mut seen);
            besides.into_iter().rev().for_each(|rest| left.push_front((rest, true)));
        }
        seen
    }

    /// Returns the stretches beside what was found that are worth a look of their own.
    fn look(&self, part: &Part, is_rest: bool, loaded: &Loaded, seen: &mut Seen) -> Vec<Part> {
        let (set, focus) = (&*loaded.set, self.with_lead(part.span));
        let mut view = View::new(set, focus, loaded.base.as_deref().unwrap_or(set), loaded.baseline);
        view.around = self.everything;
        view.history = self.request.history;
        let mut observed = verdict::observe(&view);
        // What lasts to the end of a part of which the next one is not looked at ends with the episode.
        if focus.until < self.window.until && !self.chosen.iter().any(|next| part.goes_on_in(next)) {
            observed.end_at(if is_rest { part.span.until } else { part.episode.until });
        }
        if self.scan.span().is_some_and(|s| s.until > focus.until + LEAD_NS) {
            observed.end_at(focus.until);
        }
        seen.findings.extend(observed.findings(&view));
        let found = observed.incidents(&view, self.window.since);
        if found.is_empty() {
            return Vec::new();
        }
        seen.incidents.extend(found);
        seen.baseline = seen.baseline.or(loaded.baseline);
        // A condition is told once of each part: what happened besides, before or after it, is looked at by itself.
        let usual = loaded.baseline.map(|baseline| Cost::of(view.base_set, baseline));
        let is_worth =
            |span| episodes::has_trouble(self.everything, span) || self.cost.is_felt(span, usual.as_ref());
        parts::besides(part, &observed.taken(), is_worth)
    }
}
