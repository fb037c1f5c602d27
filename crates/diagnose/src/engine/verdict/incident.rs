//! One incident of a group of roots: its cost, its chain, what is ruled out and what is left to do.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::{Incident, Link, Moment, Root, RuledOut};
use mitra_model::time::SECOND;
use mitra_model::{Change, Span};

use super::links::{Links, is_ordered};
use super::{Active, Observed, sure};
use crate::condition::{Condition, Finding, Role};
use crate::engine::{graph, ledger};
use crate::view::View;
use crate::{changes, conditions, services};

/// How often a symptom is the cause where none was found: of 119 such verdicts about the shipped recordings, most of them with evidence taken
/// out, 36 were right (`mitra-lab calibrate`), and one more of each kind is added (Laplace). The right ones are services that were
/// silent or slow without a cause that could be seen.
const UNEXPLAINED: f64 = 0.31;

/// The links of a chain, each with those of them that brought it about.
pub(super) fn chain(of: &[&Active], root: Option<&Finding>, links: &Links) -> Vec<Link> {
    let ids: Vec<&'static str> = of.iter().map(|a| a.condition.id).collect();
    of.iter().map(|a| Link { causes: links.causes(a.condition.id, &ids), ..link(a, root) }).collect()
}

fn link(a: &Active, root: Option<&Finding>) -> Link {
    let lag = root
        .filter(|root| is_ordered(root, &a.finding))
        .map(|root| ((a.finding.onset - root.onset) as f64 / SECOND as f64 * 1000.0).round() / 1000.0);
    Link {
        condition: a.condition.id.to_owned(),
        onset: Moment(a.finding.onset),
        // Written as null: where the order is not known there is no lag.
        lag_s: lag.unwrap_or(f64::NAN),
        causes: Vec::new(),
        statement: a.finding.statement.clone(),
        remarks: a.finding.remarks.clone(),
        evidence: a.finding.evidence.clone(),
    }
}

/// The incident of a group of roots. `before` is what brought them about and has no cause that is known.
pub(super) fn incident(
    view: &View<'_>,
    group: &[&Active],
    own_loss_s: Option<f64>,
    before: &[&Active],
    observed: &Observed,
    links: &Links,
) -> Incident {
    let Observed { active, inactive, .. } = observed;
    let onset = group.iter().map(|a| a.finding.onset).min().unwrap_or(view.window.since);
    let end = group.iter().map(|a| a.finding.end).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten();
    // What happens at one moment cost what was lost in its sample.
    let step_s = group.iter().map(|a| a.finding.step_s).fold(1.0, f64::max);
    let sample = onset.saturating_add((step_s * SECOND as f64) as i64);
    let until = end.unwrap_or(view.window.until).max(sample).saturating_add(1);
    let span = Span { since: onset + 1, until };
    let all_lost = lost_above_baseline(view, span);
    let lost = match (all_lost, own_loss_s) {
        (Some(all), Some(own)) => Some(own.min(all)),
        (all, _) => all,
    };
    let services = Services::of(group, before, active, links);
    // Who waits for a lock asleep loses what no counter of the kernel adds up, and so do the clients of a service.
    let asleep = group.iter().filter_map(|a| a.finding.client_wait_s);
    let waited = services.waited_s().into_iter().chain(asleep).reduce(f64::max);
    let round = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
    // A client and the task that works for it wait for the same thing: of the two the larger one is the cost.
    let cost = match (lost, waited) {
        (Some(lost), Some(waited)) => Some(lost.max(waited)),
        (lost, waited) => lost.or(waited),
    };
    let share = |a: &Active| -> Option<f64> {
        let loss = a.finding.loss_s?;
        // What makes no service slow explains nothing of what its clients waited.
        let all = if services.follows(a, links) { lost? } else { cost? };
        (all > 0.0).then(|| (loss / all).clamp(0.0, 1.0))
    };
    let mut ranked: Vec<&Active> = group.to_vec();
    // A root that explains half of the lost time outranks one about whose loss nothing is known.
    let weight = |a: &Active| {
        let of_clients = if services.follows(a, links) { OF_CLIENTS } else { 0.0 };
        let known = share(a).map(|share| share.max(of_clients));
        a.finding.confidence * (0.2 + known.unwrap_or(of_clients.max(0.3)))
    };
    ranked.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let root_remarks = |a: &Active| {
        let known = changes::remark(view.history, a.condition, &a.finding.culprit, a.finding.onset);
        // Of a change that is the cause everything is said already.
        let known = known.filter(|_| a.condition.id != graph::CHANGE);
        a.finding
            .remarks
            .iter()
            .cloned()
            .chain(services::newcomers_of(view, &a.finding))
            .chain(known)
            .collect()
    };
    let percent = |share: f64| (share * 100.0).round() / 100.0;
    let as_root = |a: &Active| Root {
        condition: a.condition.id.to_owned(),
        confidence: percent(sure::how_often_right(a.finding.confidence)),
        strength: percent(a.finding.confidence.clamp(0.0, 1.0)),
        share: share(a).map(percent),
        unexplained: false,
        culprit: a.finding.culprit.clone(),
        statement: a.finding.statement.clone(),
        remarks: root_remarks(a),
    };
    let first = ranked[0];
    let effects = links.effects(first.condition.id);
    let is_unexplained = first.condition.role != Role::Root;
    let is_linked = |a: &Active| {
        let leads_on = |one: &Active| links.effects(a.condition.id).contains(one.condition.id);
        before.iter().any(|one| one.condition.id == a.condition.id) || is_unexplained && leads_on(first)
    };
    let mut chain_ids: Vec<&Active> = active
        .values()
        .filter(|a| a.condition.id == first.condition.id || effects.contains(a.condition.id) || is_linked(a))
        .collect();
    let position = |id: &str| conditions().iter().position(|c| c.id == id).unwrap_or(usize::MAX);
    chain_ids.sort_by_key(|a| {
        (
            a.condition.id != first.condition.id,
            a.condition.role as u8,
            a.finding.onset,
            position(a.condition.id),
        )
    });
    // Nothing is there before its cause: where an effect was seen first, the cause was seen late, by a sample at most.
    let later = links.later_effects(first.condition.id);
    let seen_first = |a: &&&Active| later.contains(a.condition.id) && is_ordered(&first.finding, &a.finding);
    let began =
        chain_ids.iter().filter(seen_first).map(|a| a.finding.onset).fold(first.finding.onset, i64::min);
    let began = began.max(first.finding.onset - (first.finding.step_s.max(1.0) * SECOND as f64) as i64);
    let root = Finding { onset: began, ..first.finding.clone() };
    let mut chain = chain(&chain_ids, Some(&root), links);
    // An effect that was seen earlier still begins with it.
    let is_early = |link: &Link| link.lag_s < 0.0 && effects.contains(link.condition.as_str());
    for (i, link) in chain.iter_mut().enumerate() {
        if i == 0 || is_early(link) {
            (link.onset, link.lag_s) = (Moment(began), 0.0);
        }
    }
    let symptoms = active
        .values()
        .filter(|a| a.condition.role == Role::Symptom)
        .filter(|a| {
            let beside = a.finding.onset < span.until && a.finding.end.is_none_or(|end| end > onset);
            beside || !is_ordered(&first.finding, &a.finding)
        })
        .map(|a| a.condition.id.to_owned())
        .collect();
    // Only what could have caused what is seen is worth ruling out.
    let mut seen: BTreeSet<&str> = effects.iter().copied().collect();
    if is_unexplained {
        seen.insert(first.condition.id);
    }
    let could: BTreeSet<&str> =
        graph::edges().iter().filter(|e| seen.contains(e.effect)).map(|e| e.cause).collect();
    let relevant = |c: &Condition| c.role == Role::Root && (could.contains(c.id) || seen.is_empty());
    let ruled_out: Vec<RuledOut> = inactive
        .iter()
        .filter(|(c, _)| relevant(c))
        .map(|(c, because)| RuledOut { condition: c.id.to_owned(), because: because.clone() })
        .collect();
    let earliest = before.iter().map(|a| a.finding.onset).fold(began, i64::min);
    let unknown = observed.untold(&effects.iter().copied().chain([first.condition.id]).collect());
    let mut root_cause = as_root(first);
    root_cause.statement = services.headline(first);
    if is_unexplained && first.finding.waits_for.is_none() {
        (root_cause.unexplained, root_cause.confidence) = (true, UNEXPLAINED);
        root_cause.remarks.push(format!(
            "the cause was not found: {} causes were ruled out, and {} could not be checked",
            ruled_out.len(),
            unknown.len()
        ));
    }
    let is_of_these = |change: &Change| {
        active.values().any(|a| {
            changes::is_fed_by(a.condition, change)
                || changes::is_reached(change, a.condition, a.finding.culprit.cgroup.as_deref())
        })
    };
    let (onset, step_s) = (first.finding.onset, first.finding.step_s);
    let mut changes = changes::before(view.history.changes, onset, step_s, is_of_these);
    for change in &mut changes {
        change.cgroup_name = change.cgroup.as_deref().and_then(|path| view.cgroup_name(path));
    }
    Incident {
        // That of the root that is named: another one beside it may have begun earlier.
        onset: Moment(earliest),
        end: end.map(Moment),
        lost_task_seconds: lost.map(round),
        client_wait_seconds: waited.map(round),
        symptoms,
        root_cause,
        other_roots: ranked[1..].iter().map(|a| as_root(a)).collect(),
        chain,
        ruled_out,
        changes,
        unknown,
        remedies: ranked.iter().flat_map(|a| a.condition.remedies(&a.finding)).collect(),
        next: ranked.iter().flat_map(|a| a.condition.next(&a.finding)).collect(),
    }
}

/// What makes a service slow explains most of what its clients waited, however little it cost the machine.
const OF_CLIENTS: f64 = 0.8;

/// Of the conditions of services those that say most, first.
const SAYS_MOST: [&str; 2] = ["service-slow", "service-silent"];

/// What clients of services noticed of an incident.
struct Services<'a> {
    /// Those that follow from one of its roots, that brought one about, or that are the incident.
    list: Vec<&'a Active>,
}

impl<'a> Services<'a> {
    fn of(
        group: &[&'a Active],
        before: &[&'a Active],
        active: &'a BTreeMap<&'static str, Active>,
        links: &Links,
    ) -> Services<'a> {
        let effects: BTreeSet<&str> = group.iter().flat_map(|a| links.effects(a.condition.id)).collect();
        let is_of = |a: &&Active| {
            effects.contains(a.condition.id)
                || group.iter().chain(before).any(|one| one.condition.id == a.condition.id)
        };
        Services { list: active.values().filter(|a| a.condition.stands_alone).filter(is_of).collect() }
    }

    /// Whether one of them follows from a condition, or is it.
    fn follows(&self, a: &Active, links: &Links) -> bool {
        let effects = links.effects(a.condition.id);
        self.list.iter().any(|one| one.condition.id == a.condition.id || effects.contains(one.condition.id))
    }

    /// Seconds that clients waited. Who asks a service that asks another one waits for both: they are not added up.
    fn waited_s(&self) -> Option<f64> {
        self.list.iter().filter_map(|a| a.finding.client_wait_s).reduce(f64::max)
    }

    /// What its users noticed, and the cause.
    fn headline(&self, first: &Active) -> String {
        let cause = &first.finding.statement;
        if first.condition.role != Role::Root {
            return match &first.finding.waits_for {
                Some(waits) => format!("{cause}: {waits}"),
                None => format!("{cause}; the cause was not found"),
            };
        }
        // How late answers came says more than that none did, and that more than how many there were.
        let position =
            |a: &Active| SAYS_MOST.iter().position(|id| *id == a.condition.id).unwrap_or(SAYS_MOST.len());
        match self.list.iter().min_by_key(|a| position(a)) {
            Some(service) => format!("{}: {cause}", service.finding.statement),
            None => cause.clone(),
        }
    }
}

/// What the incident cost beyond what the baseline loses in the same time.
fn lost_above_baseline(view: &View<'_>, span: Span) -> Option<f64> {
    let lost = ledger::lost(view.set, span).or_else(|| {
        // A sample that came late: what happened at one moment cost what was lost in the one that ends next, or in the last one.
        let all = ledger::lost(view.set, Span::ALL)?;
        let next = all.t.partition_point(|t| *t < span.since).min(all.t.len().checked_sub(1)?);
        ledger::lost(view.set, Span { since: all.t[next], until: all.t[next] + 1 })
    })?;
    let before =
        view.baseline.and_then(|b| ledger::lost(view.base_set, b)).and_then(|b| b.mean()).unwrap_or(0.0);
    let seconds: f64 = lost.dt.iter().sum();
    // Who reclaims memory for itself does so on a CPU, and neither waits for one nor is in D state: while the pressure lasts at least one
    // task loses its time.
    let stalled = view.excess(&["psi.memory_some"], span).unwrap_or(0.0);
    Some((lost.total() - before * seconds).max(stalled).max(0.0))
}
