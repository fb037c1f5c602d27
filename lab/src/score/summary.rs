//! Many verdicts in a few numbers, beside the goals.

use std::collections::{BTreeMap, BTreeSet};

use super::{Judged, Verdict};
use crate::baselines::{self, NAMES};
use crate::incident::Form;
use crate::record::{Kind, State};

/// A number, what it should be, and whether it is.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What is measured.
    pub what: &'static str,
    /// The number as text, with the counts it is made of.
    pub is: String,
    /// What it should be.
    pub should: &'static str,
    /// `None` where nothing was measured.
    pub reached: Option<bool>,
}

const ROOT_MIN: f64 = 0.92;
const CULPRIT_MIN: f64 = 0.90;
const ONSET_MEDIAN_MAX_S: f64 = 1.0;
const LIVE_MAX_S: f64 = 10.0;
/// So many of the loud incidents have to be explained live in time.
const LIVE_SHARE_MIN: f64 = 0.9;
const PAIRS_MIN: f64 = 0.70;

/// The numbers of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Against the goals.
    pub goals: Vec<Goal>,
    /// How often each truth got each answer.
    pub confusion: BTreeMap<(String, String), usize>,
    /// Right roots of each baseline among the incidents.
    pub baselines: Vec<(&'static str, usize, usize)>,
    /// True roots that no metric stands for in the table of the baselines.
    pub unnamed: BTreeSet<String>,
    /// Incidents that were made.
    pub made: usize,
    /// Runs that tell nothing, by reason.
    pub untold: Vec<(String, State, String)>,
}

fn share(count: usize, all: usize) -> String {
    if all == 0 {
        "none".into()
    } else {
        format!("{:.0} % ({count} of {all})", 100.0 * count as f64 / all as f64)
    }
}

fn at_least(count: usize, all: usize, least: f64) -> Option<bool> {
    (all > 0).then_some(count as f64 >= least * all as f64)
}

/// The middle one; of an even number the mean of the two in the middle.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((upper + *values.get(middle - 1)?) / 2.0)
}

impl Summary {
    /// Adds everything up.
    pub fn of(runs: &[Judged]) -> Self {
        let single: Vec<&Verdict> =
            runs.iter().filter(|r| r.record.kind == Kind::Incident).flat_map(|r| &r.verdicts).collect();
        let mut summary = Self { made: single.len(), ..Self::default() };
        summary.goals.extend(incident_goals(&single));
        summary.goals.extend(run_goals(runs));
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

    /// What the baselines cannot say, since nobody names it at the sight of one metric.
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

fn incident_goals(single: &[&Verdict]) -> Vec<Goal> {
    let all = single.len();
    let count = |f: &dyn Fn(&Verdict) -> bool| single.iter().filter(|v| f(v)).count();
    let mut goals = Vec::new();
    let mut rate = |what, should, least, right: usize| {
        goals.push(Goal { what, is: share(right, all), should, reached: at_least(right, all, least) });
    };
    rate("root in first place", "92 %", ROOT_MIN, count(&|v| v.root));
    rate("culprit", "90 %", CULPRIT_MIN, count(&|v| v.culprit));
    let mut errors: Vec<f64> =
        single.iter().filter(|v| v.root).filter_map(|v| v.onset_error_s).map(f64::abs).collect();
    let onset = median(&mut errors);
    goals.push(Goal {
        what: "onset error, median, where the root is right",
        is: onset.map_or("none".into(), |s| format!("{s:.1} s")),
        should: "1 s",
        reached: onset.map(|s| s <= ONSET_MEDIAN_MAX_S),
    });
    let loud: Vec<&&Verdict> = single.iter().filter(|v| v.form == Some(Form::Loud)).collect();
    let in_time = loud.iter().filter(|v| v.live_s.is_some_and(|s| s <= LIVE_MAX_S)).count();
    let mut times: Vec<f64> = loud.iter().filter_map(|v| v.live_s).collect();
    let middle = median(&mut times).map_or(String::new(), |s| format!(", median {s:.1} s"));
    goals.push(Goal {
        what: "loud ones explained live within 10 s of the onset",
        is: format!("{}{middle}", share(in_time, loud.len())),
        should: "90 %",
        reached: at_least(in_time, loud.len(), LIVE_SHARE_MIN),
    });
    let complete = count(&|v| v.root && v.chain_missing.is_empty());
    goals.push(Goal {
        what: "right root with the whole chain",
        is: share(complete, all),
        should: "",
        reached: None,
    });
    goals
}

fn run_goals(runs: &[Judged]) -> Vec<Goal> {
    let made = |kind: Kind| runs.iter().filter(move |r| r.record.kind == kind && r.record.state.is_judged());
    let troubled = || runs.iter().filter(|r| r.record.kind != Kind::Control && r.record.state == State::Made);
    let mut goals = Vec::new();
    let early = troubled().filter(|r| !r.early.is_empty()).count();
    goals.push(Goal {
        what: "runs with an incident before the trouble",
        is: format!("{early} of {}", troubled().count()),
        should: "0",
        reached: (troubled().count() > 0).then_some(early == 0),
    });
    let besides: usize = troubled().map(|r| r.besides.len()).sum();
    let with = troubled().filter(|r| !r.besides.is_empty()).count();
    goals.push(Goal {
        what: "wrong roots beside the first one in the trouble",
        is: format!("{besides} in {with} of {} runs", troubled().count()),
        should: "",
        reached: None,
    });
    let found: usize = made(Kind::Control).map(|r| r.found_on_control.len()).sum();
    let controls = made(Kind::Control).count();
    goals.push(Goal {
        what: "incidents on healthy machines",
        is: format!("{found} on {controls} controls"),
        should: "0",
        reached: (controls > 0).then_some(found == 0),
    });
    let pairs = made(Kind::Pair).count();
    let both = made(Kind::Pair).filter(|r| r.verdicts.iter().all(|v| v.named)).count();
    let one = made(Kind::Pair).filter(|r| r.verdicts.iter().any(|v| v.named)).count();
    goals.push(Goal {
        what: "pairs of which both roots are named",
        is: format!("{}, at least one: {one}", share(both, pairs)),
        should: "70 %",
        reached: at_least(both, pairs, PAIRS_MIN),
    });
    let noisy: Vec<&Verdict> = made(Kind::Noise).flat_map(|r| &r.verdicts).collect();
    let right = noisy.iter().filter(|v| v.root).count();
    goals.push(Goal {
        what: "root in first place in the noise of a control",
        is: share(right, noisy.len()),
        should: "",
        reached: None,
    });
    let all = runs.iter().filter(|r| r.record.state == State::Made);
    let worst = all.clone().flat_map(|r| &r.gaps_s).copied().fold(0.0, f64::max);
    let with = all.filter(|r| !r.gaps_s.is_empty()).count();
    goals.push(Goal {
        what: "runs with a gap of the recorder longer than 2 s",
        is: if with > 0 { format!("{with}, the longest {worst:.1} s") } else { "0".into() },
        should: "0",
        reached: Some(with == 0),
    });
    goals
}
