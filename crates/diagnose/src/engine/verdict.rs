//! From what every condition says to incidents: which active condition is the cause of which, what is ruled out, what
//! is left to do.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::{self, Culprit, Incident, Link, Moment, Root, RuledOut, Unknown};
use mitra_model::time::SECOND;
use mitra_model::{Era, SeriesSet, Span};

use crate::condition::{Condition, Finding, Missing, Observation, Others, Role};
use crate::engine::{graph, ledger};
use crate::view::View;
use crate::{captured, changes, conditions, device, services, words};

/// An active condition with its number in the list.
struct Active {
    condition: &'static Condition,
    finding: Finding,
}

/// The state of every condition in a view.
pub(crate) struct Observed {
    active: BTreeMap<&'static str, Active>,
    inactive: Vec<(&'static Condition, String)>,
    unknown: Vec<(&'static Condition, Missing)>,
    suspected: Vec<&'static str>,
}

/// Looks at every condition; at those that follow from others after these.
pub(crate) fn observe(view: &View<'_>) -> Observed {
    let all = conditions();
    let mut said: Vec<Observation> = all.iter().map(|condition| (condition.observe)(view)).collect();
    for (i, condition) in all.iter().enumerate() {
        let Some(observe_after) = condition.observe_after else { continue };
        let active = all.iter().zip(&said).filter_map(|(other, said)| match said {
            Observation::Active(finding) => Some((other.id, &**finding)),
            _ => None,
        });
        let others = Others { feeds: graph::feeds(), active: &active.collect() };
        said[i] = observe_after(view, &others);
    }
    let mut observed = Observed {
        active: BTreeMap::new(),
        inactive: Vec::new(),
        unknown: Vec::new(),
        suspected: Vec::new(),
    };
    for (condition, said) in all.iter().zip(said) {
        match said {
            Observation::Active(mut finding) => {
                captured::add_suspected(view, condition.id, &mut finding);
                observed.active.insert(condition.id, Active { condition, finding: *finding });
            }
            Observation::Inactive(because) => observed.inactive.push((condition, because)),
            Observation::CannotTell(missing) => observed.unknown.push((condition, missing)),
            Observation::Suspected(missing) => {
                observed.suspected.push(condition.id);
                observed.unknown.push((condition, missing));
            }
        }
    }
    observed
}

impl Observed {
    /// Ends what seems to last although the view, not the state, ended.
    pub(crate) fn end_at(&mut self, end: i64) {
        for one in self.active.values_mut() {
            // What began in the seconds after an episode cannot have ended with it.
            one.finding.end.get_or_insert(end.max(one.finding.onset));
        }
    }

    /// The incidents that go on after `since`, each with the roots that overlap in time.
    pub(crate) fn incidents(&self, view: &View<'_>, since: i64) -> Vec<Incident> {
        let links = Links::new(&self.active, view);
        // What was over before the window began is another window's incident.
        let goes_on = |a: &&Active| a.finding.end.is_none_or(|end| end > since);
        let mut roots: Vec<&Active> = self
            .active
            .values()
            .filter(|a| a.condition.role == Role::Root)
            .filter(|a| !links.caused_by_a_root(a.condition.id, &self.active))
            .filter(goes_on)
            .collect();
        roots.sort_by_key(|a| a.finding.onset);
        let mut groups: Vec<Vec<&Active>> = Vec::new();
        for root in roots {
            let joins = groups.last().is_some_and(|group| {
                view.is_case
                    || group.iter().any(|other| other.finding.end.is_none_or(|end| end > root.finding.onset))
            });
            match groups.last_mut() {
                Some(group) if joins => group.push(root),
                _ => groups.push(vec![root]),
            }
        }
        let groups: Vec<Group<'_>> =
            groups.into_iter().flat_map(|group| apart(view, group, &links)).collect();
        let mut unexplained = self.unexplained(&links);
        let mut incidents = Vec::new();
        for Group { roots: group, own_loss_s } in &groups {
            // What brought a root about and has no cause of its own that is known belongs to the incident of that root.
            let follow: BTreeSet<&str> =
                group.iter().flat_map(|root| links.effects(root.condition.id)).collect();
            let is_theirs =
                |id: &str| follow.contains(id) || group.iter().any(|root| root.condition.id == id);
            let is_root = |id: &str| self.active.get(id).is_some_and(|a| a.condition.role == Role::Root);
            let reaches = |a: &&Active| {
                links.effects(a.condition.id).iter().any(|effect| is_root(effect) && is_theirs(effect))
            };
            let (before, others): (Vec<&Active>, Vec<&Active>) = unexplained.into_iter().partition(reaches);
            unexplained = others;
            incidents.push(incident(view, group, *own_loss_s, &before, self, &links));
        }
        let alone = unexplained.into_iter().filter(goes_on);
        incidents.extend(alone.map(|symptom| incident(view, &[symptom], None, &[], self, &links)));
        // What somebody suffers from is never nothing: the symptom that costs most, where no incident covers its time.
        let severe = self.active.values().filter(|a| a.finding.is_severe).filter(goes_on);
        let is_covered =
            |a: &&Active| incidents.iter().any(|incident| covers(incident, &a.finding, view.window.until));
        let most = |a: &&Active, b: &&Active| {
            let loss = |a: &Active| a.finding.loss_s.unwrap_or(0.0);
            loss(a).total_cmp(&loss(b))
        };
        if let Some(symptom) = severe.filter(|a| !is_covered(a)).max_by(most) {
            incidents.push(incident(view, &[symptom], None, &[], self, &links));
        }
        incidents
    }

    /// What is an incident also without a cause that is known, and has none: no root brings it about, nor another one of them.
    fn unexplained(&self, links: &Links) -> Vec<&Active> {
        let is_upstream = |a: &Active| a.condition.role == Role::Root || a.condition.stands_alone;
        let is_explained = |id: &str| {
            let mut others = self.active.values().filter(|a| is_upstream(a) && a.condition.id != id);
            others.any(|a| links.effects(a.condition.id).contains(id))
        };
        let list = self.active.values().filter(|a| a.condition.stands_alone && !is_explained(a.condition.id));
        list.collect()
    }

    /// What is no incident and could still be better.
    pub(crate) fn findings(&self) -> Vec<report::Finding> {
        let list = self.active.values().filter(|a| a.condition.role == Role::Finding);
        list.map(|a| as_finding(a.condition, &a.finding)).collect()
    }

    /// Whether anything but a cause was seen, and what it would take to name the cause: links of the chain whose root
    /// is missing, and the roots that cannot be told.
    pub(crate) fn without_root(&self, view: &View<'_>) -> (Vec<Link>, Vec<Unknown>) {
        let seen: Vec<&Active> = self
            .active
            .values()
            .filter(|a| matches!(a.condition.role, Role::Mechanism | Role::Symptom))
            .collect();
        let ids: BTreeSet<&str> = seen.iter().map(|a| a.condition.id).collect();
        let links = seen.iter().map(|a| link(a, None)).collect();
        if seen.is_empty() && view.is_case {
            return (links, self.begun(view));
        }
        (links, self.untold(&ids))
    }

    /// The roots that cannot be told although what they are told by first was gathered: somebody had them in mind.
    fn begun(&self, view: &View<'_>) -> Vec<Unknown> {
        let is_there = |metric: &str| view.each(metric).next().is_some();
        let list = self.unknown.iter().filter(|(c, _)| matches!(c.role, Role::Root | Role::Finding));
        list.filter(|(c, _)| c.needs.first().is_some_and(|m| is_there(m)) || self.suspected.contains(&c.id))
            .take(UNTOLD_MAX)
            .map(|(c, missing)| as_unknown(c, missing))
            .collect()
    }

    /// The roots that cannot be told and that could bring about one of some conditions, the closest first.
    fn untold(&self, ids: &BTreeSet<&str>) -> Vec<Unknown> {
        let causes = causes_of(ids);
        let mut list: Vec<(usize, Unknown)> = self
            .unknown
            .iter()
            .filter(|(c, _)| c.role == Role::Root)
            .filter_map(|(c, missing)| {
                let steps = *causes.get(c.id)?;
                Some((steps, as_unknown(c, missing)))
            })
            .collect();
        list.sort_by_key(|(steps, _)| *steps);
        list.truncate(UNTOLD_MAX);
        list.into_iter().map(|(_, unknown)| unknown).collect()
    }
}

/// What nobody suffers from, whatever the incidents are.
pub(crate) fn findings(view: &View<'_>) -> Vec<report::Finding> {
    let list = conditions().iter().filter(|condition| condition.role == Role::Finding);
    let of = |condition: &Condition| match (condition.observe)(view) {
        Observation::Active(finding) => Some(as_finding(condition, &finding)),
        _ => None,
    };
    list.filter_map(of).collect()
}

/// What a condition whose role that is found.
pub(crate) fn as_finding(condition: &Condition, finding: &Finding) -> report::Finding {
    report::Finding {
        condition: condition.id.to_owned(),
        culprit: finding.culprit.clone(),
        statement: finding.statement.clone(),
        remarks: finding.remarks.clone(),
        evidence: finding.evidence.clone(),
        remedies: condition.remedies(finding),
        limit_in_seconds: None,
    }
}

fn as_unknown(condition: &Condition, missing: &Missing) -> Unknown {
    let command = words::command_for(missing.metrics).map(str::to_owned);
    Unknown { condition: condition.id.to_owned(), needs: missing.words.clone().into_owned(), command }
}

/// Roots that cannot be told are named up to this number: more is not read.
const UNTOLD_MAX: usize = 8;

/// Everything that can bring about one of some conditions, with the number of steps between.
fn causes_of(ids: &BTreeSet<&str>) -> BTreeMap<&'static str, usize> {
    let mut causes: BTreeMap<&'static str, usize> = BTreeMap::new();
    for steps in 1.. {
        let more: Vec<&'static str> = graph::edges()
            .iter()
            .filter(|e| ids.contains(e.effect) || causes.contains_key(e.effect))
            .map(|e| e.cause)
            .filter(|c| !causes.contains_key(c))
            .collect();
        if more.is_empty() {
            break;
        }
        causes.extend(more.into_iter().map(|c| (c, steps)));
    }
    causes
}

/// Whether an incident goes on for half of the time of a finding.
fn covers(incident: &Incident, finding: &Finding, until: i64) -> bool {
    let end = |end: Option<i64>| end.unwrap_or(until);
    let span = Span { since: finding.onset, until: end(finding.end) };
    let both = span.intersect(Span { since: incident.onset.0, until: end(incident.end.map(|end| end.0)) });
    both.is_some_and(|both| 2.0 * both.seconds() >= span.seconds())
}

/// Whether the onsets of two conditions can be put in order. Two dates can; times without a date only where the samples
/// that they were read from lie mostly beside each other; positions in sequences of two files never.
fn is_ordered(a: &Finding, b: &Finding) -> bool {
    let era = Era::of(a.onset);
    if era != Era::of(b.onset) || !era.is_shared() {
        return false;
    }
    let (Some(a), Some(b)) = (a.seen, b.seen) else { return era == Era::Dated };
    let shorter = a.seconds().min(b.seconds());
    era == Era::Dated || a.intersect(b).is_some_and(|both| 2.0 * both.seconds() >= shorter)
}

/// Whether both are known to be the doing of one process, by its name where an id is missing, or about one service: whose
/// doing it is may be known of one of them only.
fn is_same_process(view: &View<'_>, a: &Finding, b: &Finding) -> bool {
    if a.culprit.address.is_some() && a.culprit.address == b.culprit.address && a.netns == b.netns {
        return true;
    }
    match (a.culprit.pid, b.culprit.pid) {
        // A master and its workers are one program.
        (Some(pid), Some(other)) => {
            pid == other || is_master(view, pid, other) || is_master(view, other, pid)
        }
        _ => a.culprit.process.is_some() && a.culprit.process == b.culprit.process,
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

fn link(a: &Active, root: Option<&Finding>) -> Link {
    let lag = root
        .filter(|root| is_ordered(root, &a.finding))
        .map(|root| ((a.finding.onset - root.onset) as f64 / SECOND as f64 * 1000.0).round() / 1000.0);
    Link {
        condition: a.condition.id.to_owned(),
        onset: Moment(a.finding.onset),
        // Written as null: where the order is not known there is no lag.
        lag_s: lag.unwrap_or(f64::NAN),
        statement: a.finding.statement.clone(),
        remarks: a.finding.remarks.clone(),
        evidence: a.finding.evidence.clone(),
    }
}

/// The edges between active conditions that the timing allows.
struct Links {
    next: BTreeMap<&'static str, Vec<&'static str>>,
    /// Those of them whose effect cannot be seen before its cause.
    later: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Links {
    fn new(active: &BTreeMap<&'static str, Active>, view: &View<'_>) -> Links {
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
        Links { next, later }
    }

    /// Everything that follows from a condition.
    fn effects(&self, id: &str) -> BTreeSet<&'static str> {
        reached(&self.next, id)
    }

    /// Those of them that cannot be seen before it.
    fn later_effects(&self, id: &str) -> BTreeSet<&'static str> {
        reached(&self.later, id)
    }

    fn caused_by_a_root(&self, id: &str, active: &BTreeMap<&'static str, Active>) -> bool {
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

/// The roots of one incident.
struct Group<'a> {
    roots: Vec<&'a Active>,
    /// What they cost, where others act at the same time that have nothing to do with them.
    own_loss_s: Option<f64>,
}

/// A root that costs less of what was lost than this stands below another one.
const APART: f64 = 0.1;

/// The incidents of roots that act at the same time: those that have nothing to do with each other, and cost as much that
/// each is worth a look, are apart.
fn apart<'a>(view: &View<'_>, group: Vec<&'a Active>, links: &Links) -> Vec<Group<'a>> {
    let loss = |roots: &[&Active]| roots.iter().map(|a| a.finding.loss_s).sum::<Option<f64>>();
    let known: f64 = group.iter().filter_map(|a| a.finding.loss_s).sum();
    let mut parts: Vec<Vec<&Active>> = Vec::new();
    for root in &group {
        let is_near = |part: &Vec<&Active>| part.iter().any(|other| is_related(other, root, links));
        let (near, far): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_near);
        parts = far;
        parts.push(near.into_iter().flatten().chain([*root]).collect());
    }
    // What came of files has no time line that could tell two apart.
    let is_apart = |part: &Vec<&Active>| {
        !view.is_case && loss(part).is_some_and(|loss| loss > 0.0 && loss >= APART * known)
    };
    let (own, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_apart);
    if own.len() < 2 {
        return vec![Group { roots: group, own_loss_s: None }];
    }
    let mut own: Vec<Group<'_>> =
        own.into_iter().map(|roots| Group { own_loss_s: loss(&roots), roots }).collect();
    own.sort_by(|a, b| b.own_loss_s.unwrap_or(0.0).total_cmp(&a.own_loss_s.unwrap_or(0.0)));
    own[0].roots.extend(rest.into_iter().flatten());
    own
}

/// Whether two roots have to do with each other: they are about the same thing, or take effect in the same way. That many wait
/// for the disk, or that the load is high, says nothing of that.
fn is_related(a: &Active, b: &Active, links: &Links) -> bool {
    let (one, other) = (&a.finding.culprit, &b.finding.culprit);
    let same = |of: fn(&Culprit) -> &Option<String>| of(one).is_some() && of(one) == of(other);
    // Programs of one interpreter have one name, and those of one session one cgroup.
    let are_processes = one.pid.is_some() && other.pid.is_some();
    if (are_processes && one.pid == other.pid)
        || !are_processes && (same(|c| &c.process) || same(|c| &c.cgroup))
        || same(|c| &c.device)
        || same(|c| &c.nic)
        || same(|c| &c.address)
    {
        return true;
    }
    let is_way = |id: &&&str| {
        let condition = conditions().iter().find(|c| c.id == **id);
        condition.is_some_and(|c| c.role != Role::Symptom || c.stands_alone)
    };
    let (a, b) = (links.effects(a.condition.id), links.effects(b.condition.id));
    a.intersection(&b).any(|id| is_way(&id))
}

/// The incident of a group of roots. `before` is what brought them about and has no cause that is known.
fn incident(
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
        a.finding.remarks.iter().cloned().chain(known).collect()
    };
    let as_root = |a: &Active| Root {
        condition: a.condition.id.to_owned(),
        confidence: (a.finding.confidence.clamp(0.0, 1.0) * 100.0).round() / 100.0,
        share: share(a).map(|s| (s * 100.0).round() / 100.0),
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
    let mut chain: Vec<Link> = chain_ids.iter().map(|a| link(a, Some(&root))).collect();
    // What was seen earlier still begins with it.
    let is_side = |link: &Link| link.lag_s < 0.0 && effects.contains(link.condition.as_str());
    for (i, link) in chain.iter_mut().enumerate() {
        if i == 0 || is_side(link) {
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
        root_cause.remarks.push(format!(
            "the cause was not found: {} causes were looked for and are not it, and {} could not be told",
            ruled_out.len(),
            unknown.len()
        ));
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
        changes: changes::before(view.history.changes, first.finding.onset, first.finding.step_s, |change| {
            active.values().any(|a| {
                changes::is_fed_by(a.condition, change)
                    || changes::is_reached(change, a.condition, a.finding.culprit.cgroup.as_deref())
            })
        }),
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
    Some((lost.total() - before * seconds).max(0.0))
}
