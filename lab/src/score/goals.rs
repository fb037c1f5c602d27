//! The scores and their goals.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Judged, Verdict, composed};
use crate::incident::Form;
use crate::record::{Kind, State};
use crate::{incidents, plan};

/// A score, its goal, and whether it is reached.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What is measured.
    pub what: &'static str,
    /// The score as text, with its counts.
    pub is: String,
    /// The goal.
    pub should: &'static str,
    /// `None` if nothing was measured, or there is no goal.
    pub reached: Option<bool>,
}

const ROOT_MIN: f64 = 0.92;
const CULPRIT_MIN: f64 = 0.90;
const ONSET_MEDIAN_MAX_S: f64 = 1.0;
const LIVE_MAX_S: f64 = 10.0;
const PAIRS_MIN: f64 = 0.70;
/// Of pairs whose incidents were run alone too, the one that takes more has to be told as the larger one in so many.
const LARGER_MIN: f64 = 0.85;
const ALL: f64 = 1.0;
/// Time limit of a round, controls included.
const ROUND_MAX_S: f64 = 6_000.0;
/// A longer pause between two runs does not count for the round: it was interrupted, or a run was
/// repeated.
const BREAK_S: f64 = 600.0;

impl Goal {
    fn row(what: &'static str, is: String) -> Self {
        Self { what, is, should: "", reached: None }
    }

    fn rate(what: &'static str, should: &'static str, least: f64, count: usize, all: usize) -> Self {
        let reached = (all > 0).then_some(count as f64 >= least * all as f64);
        Self { what, is: share(count, all), should, reached }
    }
}

pub(super) fn share(count: usize, all: usize) -> String {
    if all == 0 {
        "none".into()
    } else {
        format!("{:.0} % ({count} of {all})", 100.0 * count as f64 / all as f64)
    }
}

/// The median. The mean of the two middle values for an even count.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((upper + *values.get(middle - 1)?) / 2.0)
}

/// All scores, in the order of the page.
pub(super) fn goals(runs: &[Judged]) -> Vec<Goal> {
    let mut goals = incident_goals(runs);
    goals.extend(round_goals(runs));
    goals.extend(trouble_goals(runs));
    goals.extend(pair_goals(runs));
    goals.push(gaps(runs));
    goals
}

fn incident_goals(runs: &[Judged]) -> Vec<Goal> {
    let tried = runs.iter().filter(|r| r.record.kind == Kind::Incident).count();
    let single: Vec<&Verdict> =
        runs.iter().filter(|r| r.record.kind == Kind::Incident).flat_map(|r| &r.verdicts).collect();
    let all = single.len();
    let (root, culprit) =
        (single.iter().filter(|v| v.root).count(), single.iter().filter(|v| v.culprit).count());
    let mut errors: Vec<f64> =
        single.iter().filter(|v| v.root).filter_map(|v| v.onset_error_s).map(f64::abs).collect();
    let onset = median(&mut errors);
    let loud: Vec<&&Verdict> = single.iter().filter(|v| v.form == Some(Form::Loud)).collect();
    let in_time = loud.iter().filter(|v| v.live_s.is_some_and(|s| s <= LIVE_MAX_S)).count();
    let mut times: Vec<f64> = loud.iter().filter_map(|v| v.live_s).collect();
    let mut live =
        Goal::rate("loud ones explained live within 10 s of the onset", "all", ALL, in_time, loud.len());
    if let Some(middle) = median(&mut times) {
        _ = write!(live.is, ", median {middle:.1} s");
    }
    let chains: Vec<&&Verdict> = single.iter().filter(|v| v.declares_chain).collect();
    let complete = chains.iter().filter(|v| v.root && v.chain_wrong.is_empty()).count();
    vec![
        Goal::rate("root in first place", "92 %", ROOT_MIN, root, all),
        Goal::rate("culprit", "90 %", CULPRIT_MIN, culprit, all),
        Goal::row("root, those not made counted as wrong", share(root, tried)),
        Goal::row("culprit, those not made counted as wrong", share(culprit, tried)),
        Goal {
            what: "onset error, median, where the root is right",
            is: onset.map_or("none".into(), |s| format!("{s:.1} s")),
            should: "1 s",
            reached: onset.map(|s| s <= ONSET_MEDIAN_MAX_S),
        },
        live,
        Goal::row("right root with the chain in order, where one is declared", share(complete, chains.len())),
    ]
}

fn round_goals(runs: &[Judged]) -> Vec<Goal> {
    let of_round = |r: &&Judged| matches!(r.record.kind, Kind::Incident | Kind::Control);
    let (round, others): (Vec<&Judged>, Vec<&Judged>) = runs.iter().partition(of_round);
    let made = |runs: &[&Judged]| runs.iter().filter(|r| r.record.state.is_judged()).count();
    let mut all = Goal::rate("incidents and controls that were made", "all", ALL, made(&round), round.len());
    for (state, word) in
        [(State::Skipped, "skipped"), (State::NotMade, "not made"), (State::Failed, "failed")]
    {
        match round.iter().filter(|r| r.record.state == state).count() {
            0 => {}
            count => _ = write!(all.is, ", {count} {word}"),
        }
    }
    vec![
        all,
        Goal::row("pairs and runs in noise that were made", share(made(&others), others.len())),
        round_time(&round),
        live_failures(runs),
    ]
}

/// The duration of each seed's round. Only a complete round can reach the goal.
fn round_time(round: &[&Judged]) -> Goal {
    let mut seeds = BTreeMap::<u64, Vec<(f64, f64)>>::new();
    for r in round.iter().map(|r| &r.record) {
        seeds.entry(r.seed).or_default().push((r.since_s, r.until_s));
    }
    // A round that left out unknown conditions is not complete.
    let all: Vec<String> = incidents::all().map(|i| i.condition.to_owned()).collect();
    let whole = seeds.iter().all(|(seed, runs)| runs.len() >= plan::round(*seed, 0, &all).len());
    let taken: Vec<(u64, usize, f64)> =
        seeds.into_iter().map(|(seed, runs)| (seed, runs.len(), taken_s(runs))).collect();
    let is_short = taken.iter().all(|(.., s)| *s <= ROUND_MAX_S);
    let one = |(seed, runs, s): &(u64, usize, f64)| match taken.len() {
        1 => format!("{:.0} min for {runs} runs", s / 60.0),
        _ => format!("{seed}: {:.0} min for {runs}", s / 60.0),
    };
    Goal {
        what: "time of a round, breaks of 10 min and more left out",
        is: if taken.is_empty() {
            "none".into()
        } else {
            taken.iter().map(one).collect::<Vec<_>>().join(", ")
        },
        should: "100 min",
        reached: (!taken.is_empty() && (whole || !is_short)).then_some(is_short),
    }
}

/// The durations of all runs and the pauses between them, without interruptions: a round that was
/// resumed another day is not a slow one. Runs that could not be recorded have no time.
pub(super) fn taken_s(mut runs: Vec<(f64, f64)>) -> f64 {
    runs.retain(|(since_s, _)| *since_s > 0.0);
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let lengths: f64 = runs.iter().map(|(since_s, until_s)| until_s - since_s).sum();
    let between = runs.windows(2).filter_map(|two| Some(two.last()?.0 - two.first()?.1));
    lengths + between.filter(|s| (0.0..BREAK_S).contains(s)).sum::<f64>()
}

fn live_failures(runs: &[Judged]) -> Goal {
    let all = || runs.iter().flat_map(|r| &r.record.live);
    let failed = all().filter(|l| l.failed.is_some()).count();
    Goal::row("live explanations that failed", format!("{failed} of {}", all().count()))
}

fn trouble_goals(runs: &[Judged]) -> Vec<Goal> {
    let made = |kind: Kind| runs.iter().filter(move |r| r.record.kind == kind && r.record.state.is_judged());
    let troubled: Vec<&Judged> =
        runs.iter().filter(|r| r.record.kind != Kind::Control && r.record.state == State::Made).collect();
    let early = troubled.iter().filter(|r| !r.early.is_empty()).count();
    let first: Vec<&&Judged> = troubled.iter().filter(|r| r.record.kind != Kind::Pair).collect();
    let besides: usize = first.iter().map(|r| r.besides.len()).sum();
    let with = first.iter().filter(|r| !r.besides.is_empty()).count();
    let found: usize = made(Kind::Control).map(|r| r.found_on_control.len()).sum();
    let controls = made(Kind::Control).count();
    vec![
        Goal {
            what: "runs with an incident before the trouble",
            is: format!("{early} of {}", troubled.len()),
            should: "0",
            reached: (!troubled.is_empty()).then_some(early == 0),
        },
        Goal::row(
            "wrong roots beside the first one in the trouble",
            format!("{besides} in {with} of {} runs", first.len()),
        ),
        Goal {
            what: "incidents on healthy machines",
            is: format!("{found} on {controls} controls"),
            should: "0",
            reached: (controls > 0).then_some(found == 0),
        },
    ]
}

fn pair_goals(runs: &[Judged]) -> Vec<Goal> {
    let made = |kind: Kind| runs.iter().filter(move |r| r.record.kind == kind && r.record.state.is_judged());
    let pairs = made(Kind::Pair).count();
    let count = |is: fn(&Judged) -> bool| made(Kind::Pair).filter(|r| is(r)).count();
    let both = count(|r| r.verdicts.iter().all(|v| v.named));
    let one = count(|r| r.verdicts.iter().any(|v| v.named));
    let mut named = Goal::rate("pairs of which both roots are named", "70 %", PAIRS_MIN, both, pairs);
    _ = write!(named.is, ", at least one: {one}");
    let wrong: usize = made(Kind::Pair).map(|r| r.besides.len()).sum();
    let with = count(|r| !r.besides.is_empty());
    let noisy: Vec<&Verdict> = made(Kind::Noise).flat_map(|r| &r.verdicts).collect();
    let right = noisy.iter().filter(|v| v.root).count();
    let sizes: Vec<(&Judged, usize)> =
        made(Kind::Pair).filter_map(|r| Some((r, composed::larger(&r.record, runs)?))).collect();
    let is_first = |(r, larger): &&(&Judged, usize)| {
        let cost = |i: usize| r.verdicts.get(i).and_then(|v| v.told_cost_s);
        cost(*larger).is_some_and(|cost_s| cost(1 - *larger).is_none_or(|other| cost_s >= other))
    };
    let first = sizes.iter().filter(is_first).count();
    vec![
        named,
        Goal::rate(
            "pairs whose larger incident is told as the larger one",
            "85 %",
            LARGER_MIN,
            first,
            sizes.len(),
        ),
        Goal::row("wrong roots named in pairs", format!("{wrong} in {with} of {pairs} pairs")),
        Goal::row("root in first place in the noise of a control", share(right, noisy.len())),
    ]
}

fn gaps(runs: &[Judged]) -> Goal {
    let all = runs.iter().filter(|r| r.record.state == State::Made);
    let worst = all.clone().flat_map(|r| &r.gaps_s).copied().fold(0.0, f64::max);
    let with = all.filter(|r| !r.gaps_s.is_empty()).count();
    Goal {
        what: "runs with a gap of the recorder longer than 2 s",
        is: if with > 0 { format!("{with}, the longest {worst:.1} s") } else { "0".into() },
        should: "0",
        reached: Some(with == 0),
    }
}
