//! The knee: the highest rate at which a server still answers as it does at rest.

use std::time::Duration;

use serde::Serialize;

use crate::{Error, Outcome, Plan, Rate, Schedule, Shape, Work, run};

/// The factor from one step to the next: the knee is known to a quarter.
const GROWTH: f64 = 1.25;
/// Requests that the first step needs, so that one of them lies beyond its 99.9th percentile.
pub const KNEE_REQUESTS_MIN: u64 = 1_000;

/// Which rates are tried.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// The first.
    pub from: Rate,
    /// None above this.
    pub to: Rate,
    /// How long each of them.
    pub step: Duration,
}

/// What was found.
///
/// The bound of a step's 99th percentile is the 99.9th percentile of the first step: up to the knee, fewer than ten times
/// as many requests are slow as at rest.
#[derive(Debug, Clone, Serialize)]
pub struct Knee {
    /// `mitra.load.knee/1`.
    pub schema: &'static str,
    /// The highest rate that was kept within the bound, in requests per second.
    pub rate: Option<f64>,
    /// The bound of the 99th percentile of latency, in seconds.
    pub bound: Option<f64>,
    /// Why the search ended.
    pub why: String,
    /// Whether it was stopped, or ended because the generator could do no more: the knee may lie higher.
    pub is_open: bool,
    /// The steps, each with its rate.
    pub steps: Vec<Step>,
}

/// One rate.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Requests per second that were wanted.
    pub rate: f64,
    /// What became of them.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Raises the rate of a plan step by step until the server does not follow. `begun` is called when a step begins.
///
/// # Errors
/// As [`run`], and if the first step has too few requests to tell what is usual.
pub fn find_knee(
    plan: &Plan,
    search: &Search,
    stop: impl AsyncFn(),
    mut begun: impl FnMut(),
) -> Result<Knee, Error> {
    let schedule = |rate| Schedule { shape: Shape::Constant(rate), length: search.step };
    let first = schedule(search.from).requests();
    if first < KNEE_REQUESTS_MIN {
        return Err(Error::wanted(format!(
            "the first step has {first} requests, and its 99.9th percentile needs {KNEE_REQUESTS_MIN}; want a longer --step or a \
             higher first rate"
        )));
    }
    let mut knee = Knee {
        schema: "mitra.load.knee/1",
        rate: None,
        bound: None,
        why: "all steps were kept".to_owned(),
        is_open: true,
        steps: Vec::new(),
    };
    let mut rate = search.from;
    let mut plan = plan.clone();
    loop {
        plan.work = Work::Timed(schedule(rate));
        plan.load = format!("{rate} for {:?}", search.step);
        let outcome = run(&plan, stop(), &mut begun)?;
        // A common start is that of the first step.
        plan.at = None;
        let step = Step { rate: rate.per_s(), outcome };
        let ended = ended(&step, knee.bound);
        knee.steps.push(step);
        if let Some((why, is_open)) = ended {
            (knee.why, knee.is_open) = (why, is_open);
            return Ok(knee);
        }
        if knee.bound.is_none() {
            knee.bound = knee.steps.first().and_then(|first| first.outcome.latency.quantile(0.999));
        }
        knee.rate = Some(rate.per_s());
        let next = Rate::new((rate.per_s() * GROWTH).min(search.to.per_s()));
        match next.filter(|next| *next > rate) {
            Some(next) => rate = next,
            None => return Ok(knee),
        }
    }
}

/// Why a step is the last one, and whether that leaves the knee open.
fn ended(step: &Step, bound: Option<f64>) -> Option<(String, bool)> {
    let outcome = &step.outcome;
    let p99 = outcome.latency.quantile(0.99);
    if outcome.is_interrupted {
        return Some(("stopped".to_owned(), true));
    }
    if !outcome.is_trusted() {
        return Some((format!("at {:.0}/s the generator itself was late", step.rate), true));
    }
    if !outcome.is_kept() {
        let (bad, late) = (outcome.bad(), outcome.achieved_rate());
        let why = match late {
            Some(late) if bad == 0 => format!("at {:.0}/s only {late:.0}/s were answered", step.rate),
            _ => format!("at {:.0}/s {bad} of {} requests failed", step.rate, outcome.requests),
        };
        return Some((why, false));
    }
    match (p99, bound) {
        (Some(p99), Some(bound)) if p99 > bound => Some((
            format!("at {:.0}/s p99 was {:.3} ms, above {:.3} ms", step.rate, p99 * 1e3, bound * 1e3),
            false,
        )),
        _ => None,
    }
}
