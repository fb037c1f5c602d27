//! From what every condition says to incidents: which active condition is the cause of which, what is ruled out, what
//! is left to do.

mod apart;
mod free;
mod incident;
mod links;
mod sure;

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::Span;
use mitra_model::report::{self, Culprit, Incident, Link, Unknown};

use crate::condition::{Condition, Finding, Missing, Observation, Others, Role};
use crate::engine::graph;
use crate::view::View;
use crate::{captured, conditions, words};

use apart::{Group, apart};
pub(crate) use free::take_free;
use incident::{chain, incident};
use links::Links;

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
    let mut said: Vec<Observation> =
        all.iter().map(|condition| (condition.observe)(view).named(view)).collect();
    for (i, condition) in all.iter().enumerate() {
        let Some(observe_after) = condition.observe_after else { continue };
        let active = all.iter().zip(&said).filter_map(|(other, said)| match said {
            Observation::Active(finding) => Some((other.id, &**finding)),
            _ => None,
        });
        let active: BTreeMap<&'static str, &Finding> = active.collect();
        let is_one = |c: &&Condition| c.role == Role::Root || c.stands_alone;
        let incidents = all.iter().filter(is_one).filter_map(|c| active.get(c.id).copied());
        let incidents: Vec<&Finding> = incidents.filter(|finding| !finding.is_harmless).collect();
        let others = Others { feeds: graph::feeds(), active: &active, incidents: &incidents };
        said[i] = observe_after(view, &others).named(view);
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

    /// When something acted that is a cause, or an incident where no cause is known.
    pub(crate) fn taken(&self) -> Vec<Span> {
        let own = self.active.values().filter(|a| a.condition.role == Role::Root || a.condition.stands_alone);
        own.map(|a| Span { since: a.finding.onset, until: a.finding.end.unwrap_or(i64::MAX) }).collect()
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
            .filter(|a| !is_free(a, &links, &self.active))
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
    pub(crate) fn findings(&self, view: &View<'_>) -> Vec<report::Finding> {
        let links = Links::new(&self.active, view);
        let is_one = |a: &&Active| a.condition.role == Role::Finding || is_free(a, &links, &self.active);
        let list = self.active.values().filter(is_one);
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
        let links = chain(&seen, None, &Links::new(&self.active, view));
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

/// Whether it harms nobody and nothing follows from it that somebody notices: a mechanism is none by itself.
fn is_free(active: &Active, links: &Links, all: &BTreeMap<&'static str, Active>) -> bool {
    let is_noticed = |id: &str| all.get(id).is_some_and(|a| a.condition.role != Role::Mechanism);
    active.finding.is_harmless && !links.effects(active.condition.id).into_iter().any(is_noticed)
}

/// Whether an incident tells of a condition as the doing of the same.
pub(crate) fn is_told(condition: &str, culprit: &Culprit, incidents: &[Incident]) -> bool {
    let mut roots = incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
    // A container may get its name between two looks.
    let unnamed = |culprit: &Culprit| Culprit { cgroup_name: None, ..culprit.clone() };
    roots.any(|root| root.condition == condition && unnamed(&root.culprit) == unnamed(culprit))
}

/// What nobody suffers from, but for what the incidents tell.
pub(crate) fn findings(view: &View<'_>, incidents: &[Incident]) -> Vec<report::Finding> {
    let of = |condition: &Condition| match (condition.observe)(view).named(view) {
        Observation::Active(finding)
            if (condition.role == Role::Finding || finding.is_harmless)
                && !is_told(condition.id, &finding.culprit, incidents) =>
        {
            Some(as_finding(condition, &finding))
        }
        _ => None,
    };
    let list =
        conditions().iter().filter(|condition| condition.role == Role::Finding || condition.may_be_harmless);
    list.filter_map(of).collect()
}

/// What a condition found, as a report has it.
fn as_finding(condition: &Condition, finding: &Finding) -> report::Finding {
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
