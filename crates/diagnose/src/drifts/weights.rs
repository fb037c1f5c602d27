//! The share of the CPUs that a cgroup gets was changed, and whoever got less by that waits for a CPU.

use mitra_model::{Change, ChangeKind};

use super::{READ_EVERY_MAX_NS, SOON_S, change_in_words};
use crate::changes::WEIGHTS;
use crate::prelude::*;
use crate::weights::{IDLE, rate};

/// What follows where tasks get less of the CPUs than before.
const EFFECTS: &[&str] = &["cpu-hog", "runqueue-saturation", "runqueue-wait", "service-slow"];
/// The same where no service that is slow is known to be theirs.
const WITHOUT_SERVICE: &[&str] = &["cpu-hog", "runqueue-saturation", "runqueue-wait"];

/// They lose three tenths of a task's time more than before, and three times as much, as with `scheduled-burst`.
const HARM: f64 = 0.3;
const HARM_RATIO: f64 = 3.0;
/// Who computes more than before has more to do, give or take.
const NO_MORE: f64 = 1.1;
/// More than all others together.
const MOST: f64 = 0.5;
/// What is usual takes as many seconds.
const USUAL_S: f64 = 5.0;

/// The metric of a change of a weight.
fn metric_of(change: &Change) -> Option<&'static str> {
    WEIGHTS.iter().find(|(_, file)| *file == change.name).map(|(metric, _)| *metric)
}

/// The seconds from the change to the waiting, and what is to be said of it.
pub fn drifted(view: &View<'_>, others: &Others<'_>, change: &Change) -> Option<(f64, Finding)> {
    let metric = metric_of(change).filter(|_| change.kind == ChangeKind::Cgroup && !view.is_case)?;
    let group = change.cgroup.as_deref()?;
    let (from, to) = (change.from.as_deref()?, change.to.as_deref()?);
    let (was, is) = (from.parse::<f64>().ok()?, to.parse::<f64>().ok()?);
    let gets_more = (is > was) != (metric == IDLE);
    let at = change.at.0;
    let earliest = change.not_before.map_or(at, |t| t.0).max(at.saturating_sub(READ_EVERY_MAX_NS));
    let parent = group.rsplit_once('/').map(|(parent, _)| parent).filter(|p| !p.is_empty()).unwrap_or("/");
    // Its own tasks get less, or those of all that stands beside it.
    let is_own = |p: &&Process<'_>| !p.kthread && process::is_inside(p.cgroup, group);
    let is_victim = |p: &&Process<'_>| {
        !p.kthread && process::is_inside(p.cgroup, parent) && process::is_inside(p.cgroup, group) != gets_more
    };
    let base = view.baseline.filter(|b| b.until <= earliest.saturating_add(SECOND));
    let before = Span { since: view.set.span()?.since, until: earliest.saturating_add(1) };
    let known = base.unwrap_or(before);
    if known.seconds() < USUAL_S {
        return None;
    }
    let set = if base.is_some() { view.base_set } else { view.set };
    let then = process::collect(set);
    let usual = rate(set, "task.run_delay", known, then.iter().filter(is_victim));
    let after = Span { since: earliest.saturating_add(1), until: view.window.until };
    let victims = || view.processes().iter().filter(is_victim);
    let waiting = Signal::sum(victims().flat_map(|p| p.series(view.set, "task.run_delay")), after)?;
    let run = waiting.run((usual + HARM).max(HARM_RATIO * usual), 3.0)?;
    let span = run.span();
    let lag = words::between(at, run.onset).max(0.0);
    let during = waiting.within(span).mean()?;
    let throttled: f64 = view.each("cgroup.throttled_time").filter_map(|(_, s)| s.mean(span)).sum();
    if lag > SOON_S || throttled >= MOST * during {
        return None;
    }
    let used = |set: &SeriesSet, span: Span, processes: &[Process<'_>]| {
        rate(set, "task.cpu_time", span, processes.iter().filter(is_own))
    };
    let (used_before, used) = (used(set, known, &then), used(view.set, span, view.processes()));
    let is_by_weight =
        if gets_more { used >= MOST * view.cpus() } else { used <= NO_MORE * used_before.max(0.01) };
    if !is_by_weight {
        return None;
    }
    let mut finding = view.finding(&run);
    let slow = others.active.get("service-slow");
    let is_theirs = |found: &&&Finding| {
        let pid = found.culprit.pid;
        pid.is_some_and(|pid| victims().any(|p| p.pid == pid))
    };
    finding.governs = Some(if slow.filter(is_theirs).is_some() { EFFECTS } else { WITHOUT_SERVICE });
    finding.culprit.cgroup = Some(group.to_owned());
    finding.infer_culprit();
    let name = format!("{} of {}", change.name, view.group(group));
    let whose = if gets_more { "tasks beside it wait" } else { "its tasks wait" };
    finding.statement = format!(
        "{} at {}; {whose} {} of a task's time for a CPU ({} before)",
        change_in_words(&name, from, to),
        change.at,
        words::percent(during),
        words::percent(usual)
    );
    finding.evidence.push(view.evidence_of(metric, group, Some(was), is));
    finding.evidence.push(view.evidence_of("task.run_delay", group, Some(usual), during));
    finding.evidence.push(view.evidence_of("task.cpu_time", group, Some(used_before), used));
    finding.loss_s = Some((during - usual) * run.high_s);
    finding.confidence = if lag <= 10.0 { 0.85 } else { 0.6 };
    Some((lag, finding))
}

/// What to do about it, if a finding is of this kind.
pub fn remedy(finding: &Finding) -> Option<Remedy> {
    let metric = &finding.evidence.first()?.metric;
    let (_, file) = WEIGHTS.iter().find(|(known, _)| *known == metric.as_str())?;
    let path = finding.culprit.cgroup.as_deref()?;
    let name = finding.culprit.cgroup_name.as_deref().unwrap_or(path);
    let of = format!("{file} of {name}");
    let old = super::old_value(&of, &finding.statement).unwrap_or("OLD");
    // Only version 1 has shares.
    let hierarchy = if file == &"cpu.shares" { "/sys/fs/cgroup/cpu" } else { "/sys/fs/cgroup" };
    Some(Remedy {
        action: format!("restore the old value of {of}, and find what sets it"),
        command: format!("echo {old} > {}", words::shell(&format!("{hierarchy}{path}/{file}"))),
        verify: "pidstat -u 1: the %wait of its tasks falls".to_owned(),
        risk: "the change may have been deliberate; others get less of the CPUs".to_owned(),
    })
}
