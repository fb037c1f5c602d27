//! Which roots that act at the same time belong to one incident.

use mitra_model::report::Culprit;

use super::Active;
use super::links::Links;
use crate::condition::Role;
use crate::conditions;
use crate::view::View;

/// The roots of one incident.
pub(super) struct Group<'a> {
    pub(super) roots: Vec<&'a Active>,
    /// What they cost, where others act at the same time that have nothing to do with them.
    pub(super) own_loss_s: Option<f64>,
}

/// A root that costs less of what was lost than this stands below another one.
const APART: f64 = 0.1;

/// The incidents of roots that act at the same time: those that have nothing to do with each other, and cost as much that
/// each is worth a look, are apart.
pub(super) fn apart<'a>(view: &View<'_>, group: Vec<&'a Active>, links: &Links) -> Vec<Group<'a>> {
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
