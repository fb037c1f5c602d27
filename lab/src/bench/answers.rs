//! Answer files, and the answers of simple methods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::process::{Process, Processes};
use crate::baselines;
use crate::draw::Draw;
use crate::record::Kind;
use crate::report::{incidents, time_of};
use crate::stored::Stored;

/// An answer file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    /// The name of the method, as it stands in the table.
    pub method: String,
    /// By the id of the recording.
    pub answers: BTreeMap<String, Answer>,
}

/// What is said of a recording.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// Says nothing about it, neither that it is healthy nor that it is not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub abstain: bool,
    /// The most important one first. None: the machine is healthy.
    pub incidents: Vec<Claim>,
}

/// An incident that is said to have been there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Claim {
    /// The condition, one of `roots` in the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Who or what did it: `process`, `pid`, `cgroup`, `device`, …
    pub culprit: Map<String, Value>,
    /// Since when, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub onset_s: Option<f64>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_s: Option<f64>,
    /// How sure, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
}

impl Answer {
    fn of(claim: Option<Claim>) -> Self {
        Self { abstain: false, incidents: claim.into_iter().collect() }
    }
}

fn blames(process: &Process, onset_s: Option<f64>) -> Claim {
    let culprit = json!({ "process": process.name, "pid": process.pid });
    Claim { culprit: culprit.as_object().cloned().unwrap_or_default(), onset_s, ..Claim::default() }
}

/// What a report of Mitra says, as an answer.
pub fn of_report(report: &Value) -> Answer {
    let claim = |incident: &Value| {
        let cause = &incident["root_cause"];
        Claim {
            root: cause["condition"].as_str().map(str::to_owned),
            culprit: cause["culprit"].as_object().cloned().unwrap_or_default(),
            onset_s: time_of(incident, "onset"),
            end_s: time_of(incident, "end"),
            confidence: cause["confidence"].as_f64(),
        }
    };
    Answer { abstain: false, incidents: incidents(report).iter().map(claim).collect() }
}

/// What the simple methods say of the recordings, each under its id. Those about processes are told
/// nothing, the last four when the trouble was started and which recordings are healthy.
pub fn baselines(stored: &[(&str, &Stored, &Processes)], seed: u64) -> Vec<Answers> {
    let mut all: Vec<Answers> = [
        "a process by chance",
        "process with the most CPU time",
        "process whose CPU time changed most",
        "process whose I/O changed most",
    ]
    .into_iter()
    .chain(baselines::NAMES)
    .map(|name| Answers { method: name.to_owned(), ..Answers::default() })
    .collect();
    let records: Vec<_> = stored.iter().map(|(_, s, _)| s.record.clone()).collect();
    for (id, stored, processes) in stored {
        let any = Draw::new(seed, id).number() as usize % processes.all.len().max(1);
        let changed = |found: Option<(&Process, f64)>| found.map(|(p, at_s)| blames(p, Some(at_s)));
        let said = [
            processes.all.get(any).map(|p| blames(p, None)),
            processes.largest(|p| p.cpu.iter().sum()).map(|p| blames(p, None)),
            changed(processes.changed(|p| &p.cpu)),
            changed(processes.changed(|p| &p.io)),
        ];
        let by_metrics = baselines::answers(&stored.record, &stored.archive, &records);
        let named = (0..baselines::NAMES.len()).map(|i| {
            let root = by_metrics.said.get(i).filter(|root| !root.is_empty()).cloned();
            let claim = root.map(|root| Claim { root: Some(root), ..Claim::default() });
            Answer { abstain: stored.record.kind != Kind::Incident, ..Answer::of(claim) }
        });
        let answers = said.into_iter().map(Answer::of).chain(named);
        for (method, answer) in all.iter_mut().zip(answers) {
            _ = method.answers.insert((*id).to_owned(), answer);
        }
    }
    all
}
