//! Summarizes many verdicts in a few numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::calibration::{Bin, bins};
use super::goals::{Goal, goals, share};
use super::{Judged, Verdict};
use crate::baselines::{self, NAMES};
use crate::record::{Kind, State};

/// The summary of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The scores with their goals.
    pub goals: Vec<Goal>,
    /// Rates of root and culprit by seed. Empty for a single seed.
    pub seeds: Vec<(u64, String, String)>,
    /// Number of runs recorded by each build.
    pub builds: BTreeMap<String, usize>,
    /// How often each truth got each answer.
    pub confusion: BTreeMap<(String, String), usize>,
    /// Right roots of each baseline among the incidents.
    pub baselines: Vec<(&'static str, usize, usize)>,
    /// True roots that the baselines cannot name: no metric in their table stands for them.
    pub unnamed: BTreeSet<String>,
    /// How sure verdicts are, and how often they are right.
    pub calibration: Vec<Bin>,
    /// Number of incidents that were made.
    pub made: usize,
    /// Runs that cannot be judged, with the reason.
    pub untold: Vec<(String, State, String)>,
}

impl Summary {
    /// Adds up all runs.
    pub fn of(runs: &[Judged]) -> Self {
        let single: Vec<&Verdict> =
            runs.iter().filter(|r| r.record.kind == Kind::Incident).flat_map(|r| &r.verdicts).collect();
        let mut summary = Self {
            made: single.len(),
            goals: goals(runs),
            seeds: by_seed(runs),
            calibration: bins(runs),
            ..Self::default()
        };
        for run in runs.iter().filter(|r| r.record.state.is_judged()) {
            *summary.builds.entry(run.record.mitra.clone()).or_default() += 1;
        }
        for v in &single {
            let nothing = if v.broke.is_some() { "(broke)" } else { "(nothing)" };
            let answer = v.answer.clone().unwrap_or_else(|| nothing.into());
            if !baselines::can_name(&v.condition) {
                summary.unnamed.insert(v.condition.clone());
            }
            *summary.confusion.entry((v.condition.clone(), answer)).or_default() += 1;
        }
        for (i, name) in NAMES.iter().enumerate() {
            let right = |v: &&&Verdict| v.baselines.right.get(i).copied().unwrap_or(false);
            let answered = single.iter().filter(|v| !v.baselines.said.is_empty());
            summary.baselines.push((name, single.iter().filter(right).count(), answered.count()));
        }
        for run in runs.iter().filter(|r| !r.record.state.is_judged()) {
            let why = run.record.why.clone().unwrap_or_default();
            summary.untold.push((run.record.key.clone(), run.record.state, why));
        }
        summary
    }

    /// The builds that recorded the runs, if there are several.
    pub fn mixed_builds(&self) -> Option<String> {
        let list: Vec<String> =
            self.builds.iter().map(|(build, runs)| format!("{runs} by {build}")).collect();
        (list.len() > 1).then(|| format!("not recorded by one build: {}", list.join(", ")))
    }

    /// The truths that the baselines cannot name.
    pub fn unnameable(&self) -> Option<String> {
        let truths: BTreeSet<&str> = self.confusion.keys().map(|(truth, _)| truth.as_str()).collect();
        let list: Vec<&str> = self.unnamed.iter().map(String::as_str).collect();
        (!list.is_empty()).then(|| {
            format!(
                "{} of {} true roots are behind no metric of their table: {}",
                list.len(),
                truths.len(),
                list.join(", ")
            )
        })
    }
}

fn by_seed(runs: &[Judged]) -> Vec<(u64, String, String)> {
    let mut seeds = BTreeMap::<u64, Vec<&Verdict>>::new();
    for run in runs.iter().filter(|r| r.record.kind == Kind::Incident) {
        seeds.entry(run.record.seed).or_default().extend(&run.verdicts);
    }
    if seeds.len() < 2 {
        return Vec::new();
    }
    let rate = |verdicts: &[&Verdict], is_right: fn(&Verdict) -> bool| {
        share(verdicts.iter().filter(|v| is_right(v)).count(), verdicts.len())
    };
    seeds.into_iter().map(|(seed, all)| (seed, rate(&all, |v| v.root), rate(&all, |v| v.culprit))).collect()
}
