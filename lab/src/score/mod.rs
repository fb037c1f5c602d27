//! Compares Mitra's answers with the truth.

mod calibration;
mod composed;
mod goals;
mod html;
mod judge;
mod page;
mod summary;

use serde_json::Value;

pub use calibration::{Bin, Told, binned, told};
pub use goals::{Goal, median};
pub use html::html;
pub use judge::{distances_s, judge_all, judge_one};
pub use page::{line, page};
pub use summary::Summary;

use crate::baselines::Answers;
use crate::incident::{Form, Incident, Truth};
use crate::record::{ActRecord, Kind, LiveRecord, Record, State};
use crate::report::{incidents, time_of};

/// An incident that starts this long before the trouble does not belong to it.
const EARLY_S: f64 = 3.0;
/// The longest permitted gap of the recorder: one sample may be missing, two may not.
pub const GAP_S: f64 = 2.0;

/// The verdict about one incident.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Name of the incident.
    pub name: String,
    /// Its form.
    pub form: Option<Form>,
    /// The true root.
    pub condition: String,
    /// The root in first place, of the first incident that overlaps the trouble.
    pub answer: Option<String>,
    /// How sure it is.
    pub confidence: Option<f64>,
    /// Whether the root in first place is right.
    pub root: bool,
    /// Whether any incident that overlaps the trouble has a true root.
    pub named: bool,
    /// What the incident cost whose root in first place is true.
    pub told_cost_s: Option<f64>,
    /// Whether the root is right and has the right culprit.
    pub culprit: bool,
    /// The errors in the culprit.
    pub culprit_wrong: Vec<String>,
    /// Reported minus true onset.
    pub onset_error_s: Option<f64>,
    /// Why there was no answer at all.
    pub broke: Option<String>,
    /// Whether the incident declares links that its chain must show.
    pub declares_chain: bool,
    /// Declared links that the chain lacks or shows in the wrong order.
    pub chain_wrong: Vec<String>,
    /// Seconds from the true onset until a live answer named the root. `None` if none did.
    pub live_s: Option<f64>,
    /// The factor by which the victim slowed down.
    pub slower: Option<f64>,
    /// Gaps of the recorder.
    pub gaps_s: Vec<f64>,
    /// The answers of the baselines.
    pub baselines: Answers,
}

/// A run with its verdicts: none for runs that cannot be judged, two for pairs.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The run.
    pub record: Record,
    /// One verdict per incident.
    pub verdicts: Vec<Verdict>,
    /// Incidents reported on a healthy machine, or that Mitra broke.
    pub found_on_control: Vec<String>,
    /// Reported incidents that begin before the trouble.
    pub early: Vec<String>,
    /// Wrong roots named during the trouble. Except in a pair, the one in first place does not
    /// count.
    pub besides: Vec<String>,
    /// Every incident that is reported, and whether it is right.
    pub told: Vec<Told>,
    /// Gaps of the recorder.
    pub gaps_s: Vec<f64>,
}

/// Judges a run by its report. `gaps_s` come from the frames of its archive.
pub fn judge(record: &Record, report: &Value, gaps_s: Vec<f64>, baselines: Answers) -> Judged {
    let mut record = record.clone();
    if record.state == State::Made && report.is_null() {
        // Without this, a control without a report would count as silent.
        (record.state, record.why) = (State::Broke, Some("Mitra broke: there is no report".into()));
    }
    let mut judged = Judged {
        record: record.clone(),
        verdicts: Vec::new(),
        found_on_control: Vec::new(),
        early: Vec::new(),
        besides: Vec::new(),
        told: if record.state == State::Made { told(&record, report) } else { Vec::new() },
        gaps_s,
    };
    let acts = || record.acts.iter().filter(|a| !a.noise);
    match (record.state, record.kind) {
        (State::Made, Kind::Control) => {
            judged.found_on_control = incidents(report).iter().map(crate::report::describe).collect();
        }
        (State::Made, _) => {
            for act in acts() {
                let mut verdict = judge_act(&record, act, report);
                verdict.gaps_s.clone_from(&judged.gaps_s);
                verdict.baselines = baselines.clone();
                judged.verdicts.push(verdict);
            }
            look_around(&mut judged, report);
        }
        (State::Broke, Kind::Control) => judged.found_on_control.extend(record.why.clone()),
        (State::Broke, _) => judged.verdicts.extend(acts().map(|act| broken(&record, act))),
        (State::NotMade | State::Skipped | State::Failed, _) => {}
    }
    judged
}

/// The incident of an act, as declared in this build.
fn declared(act: &ActRecord) -> Option<&'static Incident> {
    crate::incidents::all().find(|i| i.name == act.name)
}

/// Whether a root is true for an act. The equally true conditions are those of this build.
pub fn is_true(act: &ActRecord, root: &str) -> bool {
    match declared(act) {
        Some(incident) => act.condition == root || incident.also.contains(&root),
        None => act.condition == root || act.also.iter().any(|a| a == root),
    }
}

/// The links that the chain must show, beginning with the cause, as declared in this build.
pub fn declared_chain(act: &ActRecord) -> Vec<&str> {
    match declared(act) {
        Some(incident) => incident.chain.to_vec(),
        None => act.chain.iter().map(String::as_str).collect(),
    }
}

/// The precision of an onset is one sample, of which there is one a second.
const SAMPLE_S: f64 = 1.0;

/// Declared links that the chain lacks, and those that begin before their predecessor.
fn wrong_chain(incident: &Value, declared: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before_s = f64::MIN;
    for condition in declared {
        let links = incident["chain"].as_array().into_iter().flatten();
        let onsets: Vec<f64> =
            links.filter(|l| l["condition"] == *condition).filter_map(|l| time_of(l, "onset")).collect();
        match onsets.iter().copied().filter(|s| *s >= before_s - SAMPLE_S).min_by(f64::total_cmp) {
            Some(onset_s) => before_s = before_s.max(onset_s),
            None if onsets.is_empty() => wrong.push(format!("chain lacks {condition}")),
            None => wrong.push(format!("{condition} comes too early in the chain")),
        }
    }
    wrong
}

/// When the trouble was started. For a pair, the earlier start.
pub fn started_s(record: &Record) -> f64 {
    record.acts.iter().filter(|a| !a.noise).map(|a| a.started_s).fold(f64::MAX, f64::min)
}

fn verdict_of(act: &ActRecord) -> Verdict {
    Verdict {
        name: act.name.clone(),
        form: act.form,
        condition: act.condition.clone(),
        declares_chain: !declared_chain(act).is_empty(),
        slower: act.victims.first().map(|h| h.during.mean_us / h.before.mean_us),
        ..Verdict::default()
    }
}

/// An answer that never came counts as wrong.
fn broken(record: &Record, act: &ActRecord) -> Verdict {
    Verdict { broke: record.why.clone().or_else(|| Some("Mitra broke".into())), ..verdict_of(act) }
}

/// Other statements about a run: incidents before the trouble, and roots beside the first.
fn look_around(judged: &mut Judged, report: &Value) {
    let (record, started_s) = (&judged.record, started_s(&judged.record));
    let is_early = |i: &&Value| time_of(i, "onset").is_some_and(|onset_s| onset_s < started_s - EARLY_S);
    judged.early = incidents(report).iter().filter(is_early).map(crate::report::describe).collect();
    let top = crate::report::top(report, started_s, record.until_s);
    let mut besides = Vec::new();
    for incident in incidents(report).iter().filter(|i| !is_early(i)) {
        // In a pair, neither root has to be in first place.
        if record.kind == Kind::Pair || top.is_none_or(|top| !std::ptr::eq(top, incident)) {
            besides.extend(crate::report::root(incident));
        }
        let others = incident["other_roots"].as_array().into_iter().flatten();
        besides.extend(others.filter_map(|o| o["condition"].as_str().map(str::to_owned)));
    }
    let is_true = |root: &String| record.acts.iter().filter(|a| !a.noise).any(|a| is_true(a, root));
    besides.retain(|root| !is_true(root));
    judged.besides = besides;
}

fn judge_act(record: &Record, act: &ActRecord, report: &Value) -> Verdict {
    let right = |root: &str| is_true(act, root);
    let since_s = started_s(record);
    let mut verdict = Verdict {
        named: crate::report::roots_during(report, since_s, record.until_s).iter().any(|r| right(r)),
        told_cost_s: told_cost_s(record, act, report),
        live_s: live_s(record, act),
        ..verdict_of(act)
    };
    let Some(top) = crate::report::top(report, since_s, record.until_s) else {
        verdict.culprit_wrong.push("no incident".into());
        return verdict;
    };
    let root = &top["root_cause"];
    verdict.answer = crate::report::root(top);
    verdict.confidence = top["root_cause"]["confidence"].as_f64();
    verdict.root = verdict.answer.as_deref().is_some_and(right);
    verdict.onset_error_s = time_of(top, "onset").map(|onset_s| onset_s - act.onset_s);
    verdict.culprit_wrong =
        act.truth.as_ref().map(|t| wrong_culprit(&root["culprit"], t)).unwrap_or_default();
    verdict.culprit_wrong.extend(act.truth.as_ref().and_then(|t| wrong_change(top, t)));
    verdict.culprit = verdict.root && verdict.culprit_wrong.is_empty();
    verdict.chain_wrong = wrong_chain(top, &declared_chain(act));
    verdict
}

/// What tasks and clients lost by the incident whose root in first place is true for an act. It may not be known: then nothing.
fn told_cost_s(record: &Record, act: &ActRecord, report: &Value) -> Option<f64> {
    let inside = crate::report::during(report, started_s(record), record.until_s);
    let its = inside.filter(|i| crate::report::root(i).is_some_and(|root| is_true(act, &root)));
    let cost = |i: &Value| {
        let costs = ["lost_task_seconds", "client_wait_seconds"].map(|key| i[key].as_f64().unwrap_or(0.0));
        costs[0].max(costs[1])
    };
    its.map(cost).reduce(f64::max)
}

/// Seconds from the onset until a live answer was right: in first place, for a pair anywhere. An
/// answer before the onset, while a reserve was still being used up, counts as 0.
fn live_s(record: &Record, act: &ActRecord) -> Option<f64> {
    let is_right = |live: &LiveRecord| match record.kind {
        Kind::Pair => live.roots.iter().any(|r| is_true(act, r)),
        Kind::Incident | Kind::Control | Kind::Noise => live.first().is_some_and(|r| is_true(act, r)),
    };
    let live = record.live.iter().find(|l| l.at_s >= act.started_s && is_right(l))?;
    Some((live.at_s - act.onset_s).max(0.0))
}

/// What is wrong about the earlier change: the incident must list it, and the root must name it.
fn wrong_change(incident: &Value, truth: &Truth) -> Option<String> {
    let name = truth.change.as_deref()?;
    let of_group = |change: &Value| {
        let cgroup = change["cgroup"].as_str().and_then(|path| path.rsplit('/').next());
        truth.cgroup.as_deref().is_none_or(|wanted| cgroup == Some(wanted))
    };
    let mut changes = incident["changes"].as_array().into_iter().flatten();
    if !changes.any(|change| change["name"] == name && of_group(change)) {
        return Some(format!("{name} is not among the changes"));
    }
    let root = &incident["root_cause"];
    let said = root["remarks"].as_array().into_iter().flatten().chain([&root["statement"]]);
    let is_named = said.filter_map(Value::as_str).any(|text| text.contains(name));
    (!is_named).then(|| format!("the root does not name the change of {name}"))
}

/// The errors in a culprit. Only fields of the truth that are set are checked.
pub fn wrong_culprit(culprit: &Value, truth: &Truth) -> Vec<String> {
    let mut wrong = Vec::new();
    let said = |key: &str| culprit[key].as_str().unwrap_or_default();
    let mut need = |ok: bool, key: &str, wanted: String| {
        if !ok {
            let said = if culprit[key].is_null() { "nothing".to_owned() } else { culprit[key].to_string() };
            wrong.push(format!("{key} is {wanted}, not {said}"));
        }
    };
    if let Some(process) = &truth.process {
        let process = process.get(..15).unwrap_or(process);
        need(said("process").starts_with(process), "process", process.to_owned());
    }
    if !truth.pids.is_empty() {
        let pid = culprit["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        need(pid.is_some_and(|pid| truth.pids.contains(&pid)), "pid", format!("{:?}", truth.pids));
    }
    if let Some(cgroup) = &truth.cgroup {
        need(said("cgroup").rsplit('/').next() == Some(cgroup), "cgroup", cgroup.clone());
    }
    if !truth.devices.is_empty() {
        need(truth.devices.iter().any(|d| d == said("device")), "device", truth.devices.join(" or "));
    }
    if let Some(nic) = &truth.nic {
        need(said("nic").split('@').next() == Some(nic), "nic", nic.clone());
    }
    if let Some(slab) = &truth.slab {
        need(said("slab") == slab, "slab", slab.clone());
    }
    if let Some(sysctl) = &truth.sysctl {
        let dots = |s: &str| s.replace('/', ".");
        need(dots(said("sysctl")) == dots(sysctl), "sysctl", sysctl.clone());
    }
    for (key, begin) in [("path", &truth.path), ("address", &truth.address)] {
        if let Some(begin) = begin {
            need(said(key).starts_with(begin.as_str()), key, begin.clone());
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
