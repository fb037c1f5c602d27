//! The processes that serve at an address, and what they did.

use mitra_model::time::SECOND;
use mitra_model::{Series, SeriesSet, Span};

use super::{Address, is_in_a_queue, is_interpreter};
use crate::condition::Finding;
use crate::network;
use crate::process::Process;
use crate::view::View;

/// The processes that serve at an address.
pub struct Servers<'v, 'a> {
    /// Their name: that of their leader, or else of the thread that answered last.
    pub comm: Option<String>,
    /// The id of the one that all others are children of.
    pub pid: Option<u32>,
    /// All of that name and group.
    pub processes: Vec<&'v Process<'a>>,
}

impl<'v, 'a> Servers<'v, 'a> {
    /// Those of a service, or of a listening socket that nothing else is known of.
    #[must_use]
    pub fn of(view: &'v View<'a>, row: &str) -> Servers<'v, 'a> {
        let known = |pid: &str, comm: &str| {
            let id = view.set.get(pid, row).and_then(|s| s.last(Span::ALL)).filter(|p| *p >= 1.0);
            let name = view.set.text(comm, row).and_then(|t| t.last()).map(str::to_owned);
            (id.is_some() || name.is_some()).then_some((id.map(|p| p as u32), name))
        };
        let (pid, name) = known("service.pid", "service.comm")
            .or_else(|| known("listener.pid", "listener.comm"))
            .unwrap_or_default();
        let all = view.processes();
        let of_pid = pid.and_then(|pid| view.process(pid));
        let serving = view.serving();
        let here = serving.service_of(row);
        let serve_here = |p: &&Process<'a>| serving.of(view, p).is_some_and(|all| all.contains(here));
        // A worker that is gone had siblings.
        let one = of_pid
            .or_else(|| all.iter().find(serve_here))
            .or_else(|| all.iter().find(|p| Some(p.comm) == name.as_deref()));
        let is_own = |p: &Process<'a>| serving.may_be_of(view, p, here);
        match one {
            Some(one) => Servers::like(view, one, pid, is_own),
            None => Servers { comm: name, pid, processes: Vec::new() },
        }
    }

    /// A process and those of its name and group, but for those that serve elsewhere.
    #[must_use]
    pub fn of_process(view: &'v View<'a>, pid: u32) -> Option<Servers<'v, 'a>> {
        let one = view.process(pid)?;
        let serving = view.serving();
        let own = serving.of(view, one);
        let is_own = |p: &Process<'a>| match own {
            Some(own) => own.iter().any(|service| serving.may_be_of(view, p, service)),
            // Interpreters have one name for all programs.
            None => serving.of(view, p).is_none() && !is_interpreter(p.comm),
        };
        Some(Servers::like(view, one, Some(pid), is_own))
    }

    /// Says in a finding that it is the doing of these, who serve at the address of a row.
    pub fn blame(&self, finding: &mut Finding, row: &str) {
        finding.netns = Some(network::device(row).1.id());
        finding.culprit.address = Some(Address::of(row).text.to_owned());
        finding.culprit.process.clone_from(&self.comm);
        finding.culprit.pid = self.pid;
    }

    /// Those of the name and the group of one that belong to it.
    fn like(
        view: &'v View<'a>,
        one: &'v Process<'a>,
        pid: Option<u32>,
        is_own: impl Fn(&Process<'a>) -> bool,
    ) -> Servers<'v, 'a> {
        let is_sibling = |p: &&Process<'a>| {
            let is_alike = p.comm == one.comm && p.cgroup == one.cgroup && !p.kthread;
            is_alike && (p.pid == one.pid || is_own(p))
        };
        let processes: Vec<&Process<'a>> = view.processes().iter().filter(is_sibling).collect();
        let is_child = |p: &Process<'_>| processes.iter().any(|other| Some(other.pid) == p.ppid);
        let mut masters = processes.iter().filter(|p| !is_child(p)).map(|p| p.pid);
        let pid = match (masters.next(), masters.next()) {
            (None, _) => pid,
            (master, None) => master,
            _ => None,
        };
        Servers { comm: Some(one.comm.to_owned()), pid, processes }
    }

    /// What they did per second of a span, summed; `None` where nothing is known of them.
    #[must_use]
    pub fn rate(&self, set: &SeriesSet, metric: &str, span: Span) -> Option<f64> {
        Some(self.total(set, metric, span)? / span.seconds().max(1e-9))
    }

    /// What they did inside a span, summed; `None` where nothing is known of them.
    fn total(&self, set: &SeriesSet, metric: &str, span: Span) -> Option<f64> {
        let known = self.processes.iter().any(|p| p.series(set, metric).next().is_some());
        known.then(|| self.processes.iter().map(|p| p.total(set, metric, span)).fold(0.0, |a, b| a + b))
    }

    /// What each request took of them, in a span and in the baseline, or where the machine had no quiet time in what is known
    /// of before the span.
    #[must_use]
    pub fn per_request(
        &self,
        view: &View<'_>,
        rows: &[&str],
        metric: &str,
        span: Span,
    ) -> Option<(f64, f64)> {
        let of = |set: &SeriesSet, span: Span| {
            let requests = rows.iter().filter_map(|row| set.get("service.requests", row)?.total(span));
            let requests = requests.reduce(|a, b| a + b).filter(|total| *total > 0.0)?;
            Some(self.total(set, metric, span)? / requests)
        };
        let before = view.baseline.and_then(|baseline| of(view.base_set, baseline));
        let earlier = || of(view.around, Span { since: i64::MIN, until: span.since });
        Some((of(view.set, span)?, before.or_else(earlier)?))
    }

    /// Whether one of them came while it was recorded, so that what it called may stand under its name: clients have the
    /// name of an interpreter too.
    pub(super) fn may_be_young(&self, set: &SeriesSet) -> bool {
        let begins = set.span().map_or(i64::MIN, |span| span.since);
        let came = |p: &&&Process<'_>| p.first_seen(set).is_some_and(|t| t > begins + SECOND);
        self.processes.is_empty() || self.processes.iter().any(|p| came(&p))
    }

    /// Whether one of them is known to wait for a lock that another process holds, or is a session of a database that says
    /// what it does.
    pub(super) fn wait_for_a_lock(&self, view: &View<'_>, span: Span) -> bool {
        let is_own = |pid: u32| self.pid == Some(pid) || self.processes.iter().any(|p| p.pid == pid);
        is_in_a_queue(view, span, is_own)
            || view.each("session.pid").any(|(_, pid)| pid.last(span).is_some_and(|pid| is_own(pid as u32)))
    }

    /// CPU-seconds per second. Of tasks that never ran nothing is loaded: where others are known these slept.
    #[must_use]
    pub fn used(&self, view: &View<'_>, span: Span) -> Option<f64> {
        let known = view.has("task.cpu_time");
        self.rate(view.set, "task.cpu_time", span).or_else(|| known.then_some(0.0))
    }

    /// Whether all of them are stopped by a signal or a debugger, as far as is known.
    #[must_use]
    pub fn are_stopped(&self, set: &SeriesSet, span: Span) -> bool {
        let mut known = self.states(set).filter_map(|state| state.last(span)).peekable();
        known.peek().is_some() && known.all(is_stopped)
    }

    /// In which part of the samples they are.
    #[must_use]
    pub fn stopped_share(&self, set: &SeriesSet, span: Span) -> f64 {
        let all: Vec<f64> = self.states(set).flat_map(|state| state.values(span).to_vec()).collect();
        all.iter().filter(|state| is_stopped(**state)).count() as f64 / (all.len() as f64).max(1.0)
    }

    /// Whether they are for so much of the time that this is what their clients wait for.
    #[must_use]
    pub fn are_often_stopped(&self, set: &SeriesSet, span: Span) -> bool {
        self.stopped_share(set, span) >= OFTEN_STOPPED
    }

    /// The state of the first thread of each.
    fn states<'s>(&self, set: &'s SeriesSet) -> impl Iterator<Item = &'s Series> {
        self.processes.iter().filter_map(|p| set.get("task.state", p.rows.first()?))
    }

    /// Task-seconds per second in uninterruptible sleep.
    #[must_use]
    pub fn blocked(&self, set: &SeriesSet, span: Span) -> Option<f64> {
        let known = self.processes.iter().any(|p| p.series(set, "task.state").next().is_some());
        let total: f64 = self.processes.iter().map(|p| p.blocked_s(set, span)).fold(0.0, |a, b| a + b);
        known.then(|| total / span.seconds().max(1e-9))
    }

    /// Whether all of them came less than so many seconds before a moment, and others had served at the address before.
    #[must_use]
    pub fn are_restarted(&self, view: &View<'_>, row: &str, moment: i64, seconds: f64) -> bool {
        let first = self.processes.iter().filter_map(|p| p.first_seen(view.set));
        let Some(oldest) = first.min() else { return false };
        let begins = view.set.span().map_or(i64::MIN, |span| span.since);
        let before = Span { since: i64::MIN, until: oldest };
        let served = [view.set, view.base_set]
            .into_iter()
            .filter_map(|set| set.get("service.requests", row)?.total(before));
        oldest > begins
            && crate::words::between(oldest, moment) < seconds
            && served.fold(0.0, f64::max) >= 1.0
    }
}

/// A thread, by its name where it has one of its own: `thread refresh of api (812)`, or else `one thread of api (812)`.
#[must_use]
pub fn thread(view: &View<'_>, process: &Process<'_>, row: &str) -> String {
    let comm = view.set.text("task.comm", row).and_then(|comm| comm.last());
    let own = comm.filter(|comm| *comm != process.comm);
    let thread = own.map_or_else(|| "one thread".to_owned(), |comm| format!("thread {comm}"));
    format!("{thread} of {} ({})", process.comm, process.pid)
}

/// A tenth of the time is more than a debugger or a checkpoint takes in passing.
const OFTEN_STOPPED: f64 = 0.1;

fn is_stopped(state: f64) -> bool {
    state == f64::from(b'T') || state == f64::from(b't')
}

/// Samples in which a stopped process was seen otherwise: the first and the last may be of both.
const NEARLY_ALWAYS: f64 = 0.8;

/// A process that was stopped by a signal or a debugger when something began, stayed so, and was not before. `None` where several were:
/// somebody stops and continues many.
#[must_use]
pub fn stopped_meanwhile<'v, 'a>(view: &'v View<'a>, span: Span) -> Option<&'v Process<'a>> {
    let share = |process: &Process<'_>, set: &SeriesSet, span: Span| {
        let states = process.rows.first().and_then(|row| Some(set.get("task.state", row)?.values(span)));
        let states = states.filter(|states| !states.is_empty())?;
        Some(states.iter().filter(|state| is_stopped(**state)).count() as f64 / states.len() as f64)
    };
    let earlier = Span { since: i64::MIN, until: span.since.saturating_sub(SECOND) };
    let was_running =
        |process: &&Process<'a>| share(process, view.set, earlier).is_some_and(|share| share <= 0.0);
    let is_so =
        |process: &&Process<'a>| share(process, view.set, span).is_some_and(|share| share >= NEARLY_ALWAYS);
    let mut all = view.processes().iter().filter(is_so).filter(was_running);
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// That in words.
#[must_use]
pub fn says_stopped(process: &Process<'_>) -> String {
    format!("{} ({}) was stopped when it began, and still is (state T)", process.comm, process.pid)
}
