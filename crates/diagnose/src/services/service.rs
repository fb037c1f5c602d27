//! A service: all the addresses that its processes listen at, and how its requests went in a view.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::process::Process;
use crate::services::traffic::{BUCKET, Kept};
use crate::services::{Address, DEPENDENCY, SERVICE, Slow, Traffic, Usual, local_service, usual_of};
use crate::signal::Signal;
use crate::view::View;

/// A service of this machine.
#[derive(Debug)]
pub struct Service<'a> {
    /// The address that is asked most: it stands for all.
    pub row: &'a str,
    /// All of them.
    pub rows: Vec<&'a str>,
    /// Its requests inside the window.
    pub traffic: Traffic,
    /// How they usually go, where that is known.
    pub usual: Option<Usual>,
}

impl<'a> Service<'a> {
    /// All services, in the order of their addresses. Use [`View::services`], which keeps them.
    #[must_use]
    pub fn all(view: &View<'a>) -> Vec<Service<'a>> {
        by_server(view).into_iter().filter_map(|rows| Service::of(view, rows)).collect()
    }

    fn of(view: &View<'a>, rows: Vec<&'a str>) -> Option<Service<'a>> {
        let mut traffic = Traffic::of(view.set, &SERVICE, &rows, view.window)?;
        let asked = |row: &&&str| view.set.get("service.requests", row).and_then(|s| s.total(view.window));
        let row = *rows.iter().max_by(|a, b| asked(a).unwrap_or(0.0).total_cmp(&asked(b).unwrap_or(0.0)))?;
        let own = rows.clone();
        let usual = usual_of(view, &SERVICE, |_| own.clone());
        if usual.is_some_and(|usual| traffic.may_keep_others(&usual)) {
            traffic.kept = kept(view, &rows, &traffic, usual.as_ref());
        }
        Some(Service { row, rows, traffic, usual })
    }

    /// The stretch in which its requests were late; an error is the reason why they were not. `None` where nobody can say.
    #[must_use]
    pub fn slow(&self) -> Option<Result<Slow, String>> {
        Some(self.traffic.slow(self.usual.as_ref()?))
    }

    /// Seconds that its clients waited in a span longer than usual.
    #[must_use]
    pub fn beyond_s(&self, span: Span) -> Option<f64> {
        let Traffic { t, dt, .. } = &self.traffic;
        let beyond = self.traffic.beyond_all(self.usual.as_ref()?);
        let of = |i: usize| if span.contains(t[i]) { beyond[i] * dt[i] } else { 0.0 };
        Some((0..t.len()).map(of).sum())
    }

    /// Whether half of its answers take no longer than one in a hundred did in many samples before: it is asked more for what
    /// always took long.
    #[must_use]
    pub fn answers_as_some_did(&self, view: &View<'_>, span: Span) -> bool {
        let baseline = view.baseline.and_then(|b| Traffic::of(view.base_set, &SERVICE, &self.rows, b));
        // The sample that ends there, to a rounding, may be of both: that is when it began.
        let last = self.traffic.t.iter().rev().find(|t| **t <= span.since + SECOND / 10).copied();
        let before = Span { since: i64::MIN, until: last.unwrap_or(span.since) };
        let of_baseline = baseline.and_then(|baseline| baseline.often_p99_s(Span::ALL));
        let slowest = of_baseline.into_iter().chain(self.traffic.often_p99_s(before)).reduce(f64::max);
        slowest.zip(self.traffic.median_s(span)).is_some_and(|(slowest, now)| now <= BUCKET * slowest)
    }

    /// How often it was asked in each sample of the baseline.
    #[must_use]
    pub fn base_rates(&self, view: &View<'_>) -> Vec<f64> {
        let rows = || self.rows.iter().filter_map(|row| view.base_set.get("service.requests", row));
        view.baseline.and_then(|span| Signal::sum(rows(), span)).map_or_else(Vec::new, |sum| sum.v)
    }

    /// A metric of all its addresses together, per second, on average of a span.
    #[must_use]
    pub fn mean(&self, set: &SeriesSet, metric: &str, span: Span) -> Option<f64> {
        self.rows.iter().filter_map(|row| set.get(metric, row)?.mean(span)).reduce(|a, b| a + b)
    }
}

/// The addresses of each service.
pub(super) fn by_server<'a>(view: &View<'a>) -> Vec<Vec<&'a str>> {
    let mut by_server: BTreeMap<(u32, &str), Vec<&'a str>> = BTreeMap::new();
    let masters = masters(view);
    for (row, _) in view.each("service.requests") {
        let key = server(view, row, &masters).map_or((0, row), |pid| (pid, ""));
        by_server.entry(key).or_default().push(row);
    }
    by_server.into_values().collect()
}

/// Processes whose children answer at one address in turns, with the name of those. Of a master that sleeps nothing else is
/// known; a service that was started again has another process from then on, and its parent may be that of other services.
pub(super) fn masters<'v>(view: &'v View<'_>) -> BTreeSet<(u32, &'v str)> {
    let mut masters = BTreeSet::new();
    for (_, answered) in view.each("service.pid") {
        let mut pids: Vec<u32> = answered.values(Span::ALL).iter().map(|pid| *pid as u32).collect();
        pids.dedup();
        let distinct: BTreeSet<u32> = pids.iter().copied().collect();
        let families: BTreeSet<_> = distinct.iter().filter_map(|pid| family(view.process(*pid)?)).collect();
        // Without a return there are as many stretches as processes.
        masters.extend(families.first().filter(|_| pids.len() > distinct.len() && families.len() == 1));
    }
    masters
}

fn family<'v>(process: &'v Process<'_>) -> Option<(u32, &'v str)> {
    Some((process.ppid.filter(|ppid| *ppid > 1)?, process.comm))
}

/// The process that stands for all that serve at an address.
fn server(view: &View<'_>, row: &str, masters: &BTreeSet<(u32, &str)>) -> Option<u32> {
    let process = view.process(view.set.get("service.pid", row)?.last(Span::ALL)? as u32)?;
    let parent =
        process.ppid.and_then(|ppid| view.process(ppid)).filter(|parent| parent.comm == process.comm);
    let family = family(process)
        .filter(|family| masters.contains(family) || parent.is_some_and(|_| !is_interpreter(process.comm)));
    Some(family.map_or(process.pid, |(master, _)| master))
}

/// Of a parent that has the name of an interpreter, as its children, nobody knows whether it runs the same program: it may be what
/// has started them, each for something else.
const INTERPRETERS: &[&str] =
    &["python", "node", "java", "ruby", "perl", "php", "beam.smp", "dotnet", "bash", "sh", "lua"];

/// Whether a name is that of an interpreter, with or without its version: `python3.11`.
pub fn is_interpreter(comm: &str) -> bool {
    let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    INTERPRETERS.iter().any(|interpreter| comm.strip_prefix(interpreter).is_some_and(is_version))
}

/// Which programs are kept waiting in each sample: those whose own answers come late, each compared with itself. Who asks
/// for something that takes long makes nobody wait but itself.
fn kept(view: &View<'_>, rows: &[&str], traffic: &Traffic, of_all: Option<&Usual>) -> Vec<Kept> {
    let called =
        |row: &str| local_service(view.set, &Address::called(row)).is_some_and(|s| rows.contains(&s));
    // A process that is young stands under its name first.
    let name = |set: &'_ SeriesSet, row: &str| {
        let comm = set.text("dependency.comm", row).and_then(|t| t.last()).map(str::to_owned);
        comm.or_else(|| row.split_once('>').map(|(who, _)| who.to_owned()))
    };
    let mut callers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (row, _) in view.each("dependency.requests").filter(|(row, _)| called(row)) {
        callers.entry(name(view.set, row).unwrap_or_default()).or_default().push(row);
    }
    let crowded = of_all.and_then(|usual| traffic.first_crowded(usual));
    let mut kept = vec![Kept::default(); traffic.t.len()];
    let mut new = vec![0.0; traffic.t.len()];
    for (caller, own) in callers {
        let Some(of_caller) = Traffic::of(view.set, &DEPENDENCY, &own, view.window) else { continue };
        let address: Vec<Address<'_>> = own.iter().map(|row| Address::called(row)).collect();
        let own_usual = usual_of(view, &DEPENDENCY, |set| {
            let same = |row: &&str| {
                address.contains(&Address::called(row)) && name(set, row).as_deref() == Some(caller.as_str())
            };
            set.each("dependency.requests").map(|(row, _)| row).filter(same).collect()
        });
        // Who came only now has nothing to compare with but what the others are used to.
        let Some(usual) = own_usual.as_ref().or(of_all) else { continue };
        // Without a quiet time it is compared with itself before so much was asked.
        let of_page = own_usual.or_else(|| of_caller.until(crowded?).usual());
        for (i, t) in of_caller.t.iter().enumerate() {
            let Ok(at) = traffic.t.binary_search(t) else { continue };
            let is_late = of_caller.is_tail_late(i, usual);
            match own_usual {
                Some(_) if is_late => kept[at].tail += 1.0,
                None if is_late => new[at] += 1.0,
                _ => {}
            }
            kept[at].has_late_page |= of_page.is_some_and(|usual| of_caller.is_page_kept(i, &usual));
            kept[at].has_later_page |= of_page.is_some_and(|usual| of_caller.is_page_later(i, &usual));
        }
    }
    // It keeps somebody waiting who was there before.
    for (kept, new) in kept.iter_mut().zip(&new).filter(|(kept, _)| kept.tail > 0.0) {
        kept.tail += new;
    }
    kept
}
