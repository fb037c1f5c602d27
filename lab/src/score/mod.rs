//! Was it right? Compares what Mitra said with what was done.

mod html;
mod judge;
mod page;
mod summary;

use serde_json::Value;

pub use html::html;
pub use judge::{judge_all, judge_one};
pub use page::{line, page};
pub use summary::{Goal, Summary};

use crate::baselines::Answers;
use crate::incident::{Form, Truth};
use crate::record::{ActRecord, Kind, Record, State};
use crate::report::{incidents, time_of};

/// An incident that starts this long before the trouble is not about the trouble.
const EARLY_S: f64 = 3.0;
/// The recorder must not be without a sample for longer.
pub const GAP_S: f64 = 2.0;

/// What was right and what was wrong about one incident.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Of the incident.
    pub name: String,
    /// How hard it was to see.
    pub form: Option<Form>,
    /// Area of the condition.
    pub area: String,
    /// The true root.
    pub condition: String,
    /// The root in first place, of the first incident that overlaps the trouble.
    pub answer: Option<String>,
    /// It is right.
    pub root: bool,
    /// It stands anywhere, as a root of any incident.
    pub named: bool,
    /// The one in first place did it.
    pub culprit: bool,
    /// What is wrong about the culprit.
    pub culprit_wrong: Vec<String>,
    /// Said minus true.
    pub onset_error_s: Option<f64>,
    /// Conditions that the chain should show and does not.
    pub chain_missing: Vec<String>,
    /// Incidents that begin before the trouble was started.
    pub false_incidents: Vec<String>,
    /// Seconds from the true onset until a live answer named the root.
    pub live_s: Option<f64>,
    /// What the victim's time was multiplied with.
    pub slower: Option<f64>,
    /// Gaps of the recorder.
    pub gaps_s: Vec<f64>,
    /// What the baselines said.
    pub baselines: Answers,
}

/// A run with its verdicts: none for runs that tell nothing, two for pairs.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The run.
    pub record: Record,
    /// One for each incident in it.
    pub verdicts: Vec<Verdict>,
    /// Incidents found on a healthy machine.
    pub found_on_control: Vec<String>,
    /// Gaps of the recorder.
    pub gaps_s: Vec<f64>,
}

/// Judges a run by its report. `gaps_s` come from the frames of its archive.
pub fn judge(record: &Record, report: &Value, gaps_s: Vec<f64>, baselines: Answers) -> Judged {
    let mut judged =
        Judged { record: record.clone(), verdicts: Vec::new(), found_on_control: Vec::new(), gaps_s };
    if record.state != State::Made {
        return judged;
    }
    if record.kind == Kind::Control {
        judged.found_on_control = incidents(report).iter().map(crate::report::describe).collect();
        return judged;
    }
    for act in record.acts.iter().filter(|a| !a.noise) {
        let mut verdict = judge_act(record, act, report);
        verdict.gaps_s.clone_from(&judged.gaps_s);
        verdict.baselines = baselines.clone();
        judged.verdicts.push(verdict);
    }
    judged
}

fn judge_act(record: &Record, act: &ActRecord, report: &Value) -> Verdict {
    let right = |root: &str| act.condition == root || act.also.iter().any(|a| a == root);
    let mut verdict = Verdict {
        name: act.name.clone(),
        form: act.form,
        area: act.area.clone(),
        condition: act.condition.clone(),
        named: crate::report::all_roots(report).iter().any(|r| right(r)),
        slower: act.victims.first().map(|h| h.during.mean_us / h.before.mean_us),
        ..Verdict::default()
    };
    // Of two at once, the first begins the trouble.
    let started_s =
        record.acts.iter().filter(|a| !a.noise).map(|a| a.started_s).fold(act.started_s, f64::min);
    let live = record.live.iter().find(|l| l.at_s >= act.onset_s && l.roots.iter().any(|r| right(r)));
    verdict.live_s = live.map(|l| l.at_s - act.onset_s);
    for incident in incidents(report) {
        if time_of(incident, "onset").is_some_and(|onset_s| onset_s < started_s - EARLY_S) {
            verdict.false_incidents.push(crate::report::describe(incident));
        }
    }
    let overlaps = |incident: &&Value| {
        let onset_s = time_of(incident, "onset").unwrap_or(f64::MAX);
        let end_s = time_of(incident, "end").unwrap_or(f64::MAX);
        // Times of a report are whole seconds, rounded down.
        onset_s <= record.until_s && end_s + 1.0 > started_s
    };
    let Some(top) = incidents(report).iter().find(overlaps) else {
        verdict.culprit_wrong.push("no incident".into());
        return verdict;
    };
    let root = &top["root_cause"];
    verdict.answer = root["condition"].as_str().map(str::to_owned);
    verdict.root = verdict.answer.as_deref().is_some_and(right);
    verdict.onset_error_s = time_of(top, "onset").map(|onset_s| onset_s - act.onset_s);
    verdict.culprit_wrong =
        act.truth.as_ref().map(|t| wrong_culprit(&root["culprit"], t)).unwrap_or_default();
    verdict.culprit = verdict.culprit_wrong.is_empty();
    let links: Vec<&str> =
        top["chain"].as_array().into_iter().flatten().filter_map(|l| l["condition"].as_str()).collect();
    verdict.chain_missing = act.chain.iter().filter(|c| !links.contains(&c.as_str())).cloned().collect();
    verdict
}

/// What a culprit lacks. Only what the truth has is asked for.
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
