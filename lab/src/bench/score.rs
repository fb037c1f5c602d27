//! Scores an answer file.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Answer, Answers, Index, Part, Truth};
use crate::baselines;
use crate::record::Kind;
use crate::report::{rfc3339, top};
use crate::score::{judge, median, started_s, wrong_culprit};

/// An onset that is said within so many seconds of the true one is right: two samples.
const ONSET_S: f64 = 2.0;

/// How many were right, and how many would be by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Count {
    /// How many were right.
    pub right: usize,
    /// Of how many.
    pub of: usize,
    /// How many a draw would have right in the mean.
    pub chance: f64,
}

impl Count {
    fn add(&mut self, is_right: bool, chance: f64) {
        self.of += 1;
        self.right += usize::from(is_right);
        self.chance += chance;
    }

    /// How many times better than chance.
    pub fn lift(&self) -> Option<f64> {
        (self.chance > 0.0).then(|| self.right as f64 / self.chance)
    }
}

/// What a method scores on a part.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Score {
    /// The method.
    pub method: String,
    /// `None` for both parts.
    pub part: Option<Part>,
    /// Incidents whose first answer names a true root.
    pub root: Count,
    /// Incidents with a process at fault, whose first answer names it.
    pub process: Count,
    /// Incidents whose first answer has all that the truth says of who or what did it.
    pub culprit: Count,
    /// Of the incidents about which an incident is told: root right, or the process where no root is
    /// said.
    pub of_answered: Count,
    /// Onsets within two seconds.
    pub onset: Count,
    /// The median of the absolute errors of all onsets that are said.
    pub onset_median_s: Option<f64>,
    /// Healthy machines of which an incident is told.
    pub false_alarms: Count,
    /// Recordings of incidents of which one is told that begins before the trouble.
    pub early: usize,
    /// Recordings about which the answer abstains.
    pub abstained: usize,
    /// Recordings without an answer.
    pub missing: usize,
}

/// Scores the answers on one part, or on all. Without what was kept, the sealed part is left out.
pub fn score(
    answers: &Answers,
    index: &Index,
    dir: &Path,
    keep: Option<&Path>,
    part: Option<Part>,
) -> anyhow::Result<Score> {
    let strangers: Vec<&String> =
        answers.answers.keys().filter(|id| index.recordings.iter().all(|e| e.id != **id)).collect();
    anyhow::ensure!(strangers.is_empty(), "{}: no such recording: {strangers:?}", answers.method);
    let mut score = Score { method: answers.method.clone(), part, ..Score::default() };
    let mut errors = Vec::new();
    let missing = Answer { abstain: true, incidents: Vec::new() };
    for entry in index.recordings.iter().filter(|e| part.is_none_or(|part| e.part == part)) {
        let Some(truth) = index.truth(entry, dir, keep)? else { continue };
        let answer = answers.answers.get(&entry.id);
        score.missing += usize::from(answer.is_none());
        score.abstained += usize::from(answer.is_some_and(|a| a.abstain));
        let answer = answer.unwrap_or(&missing);
        errors.extend(add(&mut score, answer, &truth, index).with_context(|| entry.id.clone())?);
    }
    score.onset_median_s = median(&mut errors);
    // What a method never says is not asked of it.
    let claims = || answers.answers.values().flat_map(|a| &a.incidents);
    if claims().all(|c| c.root.is_none()) {
        score.root = Count::default();
    }
    if claims().all(|c| c.culprit.is_empty()) {
        (score.process, score.culprit) = (Count::default(), Count::default());
    }
    if claims().all(|c| c.onset_s.is_none()) {
        score.onset = Count::default();
    }
    Ok(score)
}

/// Counts one answer. Returns the error of its onset.
fn add(score: &mut Score, answer: &Answer, truth: &Truth, index: &Index) -> anyhow::Result<Option<f64>> {
    anyhow::ensure!(!answer.abstain || answer.incidents.is_empty(), "it abstains, and tells incidents");
    let record = &truth.run;
    if record.kind == Kind::Control {
        score.false_alarms.add(!answer.incidents.is_empty(), 0.0);
        return Ok(None);
    }
    let since_s = started_s(record);
    let report = report(answer, since_s);
    let judged = judge(record, &report, Vec::new(), baselines::Answers::default());
    score.early += usize::from(!judged.early.is_empty());
    let told = top(&report, since_s, record.until_s);
    let mut error = None;
    for (act, verdict) in record.acts.iter().filter(|a| !a.noise).zip(&judged.verdicts) {
        let is_true = |root: &&String| crate::score::is_true(act, root);
        let chance = index.roots.iter().filter(is_true).count() as f64 / index.roots.len().max(1) as f64;
        score.root.add(verdict.root, chance);
        let nobody = Value::Null;
        let (culprit, wanted) = (told.map_or(&nobody, |t| &t["root_cause"]["culprit"]), act.truth.as_ref());
        let is_right = wanted.is_some_and(|truth| told.is_some() && wrong_culprit(culprit, truth).is_empty());
        score.culprit.add(is_right, 0.0);
        let mut is_process = false;
        if let (Some(chance), Some(wanted)) = (truth.chance, wanted) {
            is_process = names_process(culprit, wanted);
            score.process.add(is_process, chance);
        }
        let claim = told.and_then(|t| Some((t["root_cause"]["condition"].as_str()?, t)));
        if let Some(told) = told {
            let says_root = claim.is_some_and(|(root, _)| !root.is_empty());
            if says_root || truth.chance.is_some() {
                score.of_answered.add(if says_root { verdict.root } else { is_process }, 0.0);
            }
            error = (told["says_onset"] == true).then_some(verdict.onset_error_s).flatten();
        }
        score.onset.add(error.is_some_and(|s| s.abs() <= ONSET_S), 0.0);
    }
    Ok(error.map(f64::abs))
}

/// By its id, or by its name where no id is said or the truth has none.
fn names_process(culprit: &Value, truth: &crate::Truth) -> bool {
    match culprit["pid"].as_u64() {
        Some(pid) if !truth.pids.is_empty() => truth.pids.iter().any(|p| u64::from(*p) == pid),
        _ => truth.process.as_ref().is_some_and(|name| {
            let name = name.get(..15).unwrap_or(name);
            culprit["process"].as_str().is_some_and(|said| said.starts_with(name))
        }),
    }
}

/// The answer in the shape of a report. What has no onset is about the trouble.
fn report(answer: &Answer, started_s: f64) -> Value {
    let time = |s: f64| {
        let whole = rfc3339(UNIX_EPOCH + Duration::from_secs_f64(s.clamp(0.0, 1e11)));
        format!("{}.{:03}Z", whole.trim_end_matches('Z'), ((s.fract() * 1000.0) as u32).min(999))
    };
    let incident = |claim: &super::Claim| {
        json!({
            "onset": time(claim.onset_s.unwrap_or(started_s)),
            "says_onset": claim.onset_s.is_some(),
            "end": claim.end_s.map(time),
            "root_cause": {
                "condition": claim.root,
                "culprit": claim.culprit,
                "confidence": claim.confidence,
            },
        })
    };
    json!({ "incidents": answer.incidents.iter().map(incident).collect::<Vec<_>>() })
}
