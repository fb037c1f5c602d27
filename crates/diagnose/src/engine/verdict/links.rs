//! Which of the active conditions can be the cause of which, by what they are about and when they began.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::Culprit;
use mitra_model::time::SECOND;
use mitra_model::{Era, SeriesSet};

use super::Active;
use crate::condition::{Finding, Role};
use crate::engine::graph;
use crate::view::View;
use crate::{device, services};

/// Whether the onsets of two conditions can be put in order. Two dates can; times without a date only where the samples
/// that they were read from lie mostly beside each other; positions in sequences of two files never.
pub(super) fn is_ordered(a: &Finding, b: &Finding) -> bool {
    let era = Era::of(a.onset);
    if era != Era::of(b.onset) || !era.is_shared() {
        return false;
    }
    let (Some(a), Some(b)) = (a.seen, b.seen) else { return era == Era::Dated };
    let shorter = a.seconds().min(b.seconds());
    era == Era::Dated || a.intersect(b).is_some_and(|both| 2.0 * both.seconds() >= shorter)
}

/// Whether both are known to be the doing of one process, by its name where an id is missing, or about one service: whose
/// doing it is may be known of one of them only. Where the cause makes another process work, that one counts.
fn is_same_process(view: &View<'_>, cause: &Finding, effect: &Finding) -> bool {
    let is_one_net = cause.netns == effect.netns;
    let is_same = |one: &Culprit| is_one_program(view, one, &effect.culprit, is_one_net);
    is_same(&cause.culprit) || cause.workers.iter().any(is_same)
}

fn is_one_program(view: &View<'_>, a: &Culprit, b: &Culprit, is_one_net: bool) -> bool {
    if a.address.is_some() && a.address == b.address && is_one_net {
        return true;
    }
    match (a.pid, b.pid) {
        // A master and its workers are one program.
        (Some(pid), Some(other)) => {
            pid == other
                || is_master(view, pid, other)
                || is_master(view, other, pid)
                || is_one_name(a, b) && are_lives(view, pid, other)
        }
        _ => is_one_name(a, b),
    }
}

fn is_one_name(a: &Culprit, b: &Culprit) -> bool {
    a.process.is_some() && a.process == b.process
}

/// Whether two processes of one name were started by the same one: what is started again and again has a new id each time. A life
/// that is shorter than a sample has no row that names who started it.
fn are_lives(view: &View<'_>, pid: u32, other: u32) -> bool {
    const INIT: u32 = 1;
    let parent = |pid| view.process(pid).map(|process| process.ppid.filter(|parent| *parent > INIT));
    match (parent(pid), parent(other)) {
        (Some(one), Some(two)) => one.is_some() && one == two,
        _ => true,
    }
}

fn is_master(view: &View<'_>, master: u32, worker: u32) -> bool {
    let both = view.process(master).zip(view.process(worker));
    both.is_some_and(|(of, one)| one.ppid == Some(of.pid) && one.comm == of.comm)
}

/// Whether the cause may reach where the effect is, for all that is known: it is on the same device, about the same address,
/// or in the same network namespace. What other namespaces send goes through the recorder's own.
fn is_one_place(set: &SeriesSet, cause: &Finding, effect: &Finding) -> bool {
    let disks = cause.culprit.device.as_ref().zip(effect.culprit.device.as_ref());
    let nets = cause.netns.as_ref().zip(effect.netns.as_ref());
    let addresses = cause.culprit.address.as_ref().zip(effect.culprit.address.as_ref());
    addresses.is_none_or(|(a, b)| a == b)
        && disks.is_none_or(|(a, b)| device::is_one_place(set, a, b))
        && nets.is_none_or(|(cause, effect)| cause == effect || cause.is_empty())
}

/// The edges between active conditions that the timing allows.
pub(super) struct Links {
    next: BTreeMap<&'static str, Vec<&'static str>>,
    /// Those of them whose effect cannot be seen before its cause.
    later: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Links {
    pub(super) fn new(active: &BTreeMap<&'static str, Active>, view: &View<'_>) -> Links {
        let mut next: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
        let mut later: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
        for edge in graph::edges() {
            let (Some(cause), Some(effect)) = (active.get(edge.cause), active.get(edge.effect)) else {
                continue;
            };
            // A service that nobody knows the process of may be that of the cause: it is no second incident.
            let culprit = &effect.finding.culprit;
            let is_anybodys =
                effect.condition.stands_alone && culprit.pid.is_none() && culprit.process.is_none();
            let is_joined = || {
                is_same_process(view, &cause.finding, &effect.finding)
                    || edge.or_who_asks && services::asks(view, &effect.finding, &cause.finding)
            };
            if edge.same_process && !is_anybodys && !is_joined() {
                continue;
            }
            if edge.same_place && !is_one_place(view.set, &cause.finding, &effect.finding) {
                continue;
            }
            let is_out_of_reach = cause.finding.governs.is_some_and(|list| !list.contains(&edge.effect));
            if is_out_of_reach || effect.finding.despite.contains(&edge.cause) {
                continue;
            }
            let step_s = cause.finding.step_s.max(effect.finding.step_s).max(1.0);
            // Three samples: counters of a node are folded once a second, and an onset is known to a sample.
            let tolerance = (3.0 * step_s * SECOND as f64) as i64;
            let ordered = is_ordered(&cause.finding, &effect.finding);
            let overlap = cause.finding.end.is_none_or(|end| effect.finding.onset <= end + 10 * SECOND);
            let follows = edge.any_order || effect.finding.onset >= cause.finding.onset - tolerance;
            if !ordered || (overlap && follows) {
                next.entry(edge.cause).or_default().push(edge.effect);
                if !edge.any_order {
                    later.entry(edge.cause).or_default().push(edge.effect);
                }
            }
        }
        for (effect, a) in active {
            let is_meanwhile = |cause: &&&'static str| {
                let cause = active.get(**cause);
                cause.is_some_and(|c| c.finding.end.is_none_or(|end| a.finding.onset <= end + 10 * SECOND))
            };
            for cause in a.finding.owed_to.iter().filter(is_meanwhile) {
                // In a circle nothing is a root.
                if !reached(&next, effect).contains(cause) {
                    next.entry(*cause).or_default().push(*effect);
                }
            }
        }
        Links { next, later }
    }

    /// Everything that follows from a condition.
    pub(super) fn effects(&self, id: &str) -> BTreeSet<&'static str> {
        reached(&self.next, id)
    }

    /// Those of them that cannot be seen before it.
    pub(super) fn later_effects(&self, id: &str) -> BTreeSet<&'static str> {
        reached(&self.later, id)
    }

    /// Those of some conditions that brought one of them about, without detours: of A → B → C only B is one of C.
    pub(super) fn causes(&self, id: &str, among: &[&'static str]) -> Vec<String> {
        let upstream: Vec<(&'static str, BTreeSet<&'static str>)> = among
            .iter()
            .map(|other| (*other, self.effects(other)))
            .filter(|(_, effects)| effects.contains(id))
            .collect();
        let is_direct =
            |effects: &BTreeSet<&'static str>| !upstream.iter().any(|(between, _)| effects.contains(between));
        upstream
            .iter()
            .filter(|(_, effects)| is_direct(effects))
            .map(|(other, _)| (*other).to_owned())
            .collect()
    }

    pub(super) fn caused_by_a_root(&self, id: &str, active: &BTreeMap<&'static str, Active>) -> bool {
        active
            .values()
            .filter(|a| a.condition.role == Role::Root && a.condition.id != id)
            .any(|a| self.effects(a.condition.id).contains(id))
    }
}

fn reached(next: &BTreeMap<&'static str, Vec<&'static str>>, id: &str) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let mut stack: Vec<&'static str> = next.get(id).into_iter().flatten().copied().collect();
    while let Some(id) = stack.pop() {
        if seen.insert(id) {
            stack.extend(next.get(id).into_iter().flatten().copied());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_without_detours() {
        let next = BTreeMap::from([("a", vec!["b", "c"]), ("b", vec!["c"]), ("d", vec!["c"])]);
        let links = Links { next, later: BTreeMap::new() };
        let all = ["a", "b", "c", "d"];
        assert_eq!(links.causes("c", &all), ["b", "d"]);
        assert_eq!(links.causes("b", &all), ["a"]);
        assert!(links.causes("a", &all).is_empty());
        assert_eq!(links.causes("c", &["a", "c"]), ["a"], "what lies between is not told");
    }
}
