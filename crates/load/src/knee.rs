//! The knee: the highest rate at which a server still answers as it does at rest.

use std::time::Duration;

use crate::{Error, KEPT, Outcome, Plan, Rate, Schedule, Shape, Work, run};

/// The factor from one step to the next: the knee is known to a quarter.
const GROWTH: f64 = 1.25;
/// Requests that the first step needs, so that one of them lies beyond its 99.9th percentile.
const KNEE_REQUESTS_MIN: u64 = 1_000;

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
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
pub struct Step {
    /// Requests per second that were wanted.
    pub rate: f64,
    /// What became of them.
    pub outcome: Outcome,
}

/// Raises the rate of a plan step by step until the server does not follow. `begun` is called when a step begins.
///
/// # Errors
/// As [`run`], if rates fall, and if the first step has too few requests to tell what is usual.
pub fn find_knee(
    plan: &Plan,
    search: &Search,
    stop: impl AsyncFn(),
    mut begun: impl FnMut(),
) -> Result<Knee, Error> {
    let schedule = |rate| Schedule { shape: Shape::Constant(rate), length: search.step };
    if search.to < search.from {
        return Err(Error::wanted("the rates of the steps rise; want the lower one first: 100..2000/s"));
    }
    let first = schedule(search.from).requests();
    if first < KNEE_REQUESTS_MIN {
        return Err(Error::wanted(format!(
            "the first step has {first} requests, and its 99.9th percentile needs {KNEE_REQUESTS_MIN}; want a longer --step or a \
             higher first rate"
        )));
    }
    let mut plan = plan.clone();
    climb(search, |rate| {
        plan.work = Work::Timed(schedule(rate));
        plan.load = format!("{rate} for {:?}", search.step);
        let outcome = run(&plan, stop(), &mut begun);
        // A common start is that of the first step.
        plan.at = None;
        outcome
    })
}

/// The search itself; `run_step` makes the load of a step.
fn climb(search: &Search, mut run_step: impl FnMut(Rate) -> Result<Outcome, Error>) -> Result<Knee, Error> {
    let mut knee = Knee {
        schema: "mitra.load.knee/1",
        rate: None,
        bound: None,
        why: "all steps were kept".to_owned(),
        is_open: true,
        steps: Vec::new(),
    };
    let mut rate = search.from;
    loop {
        let step = Step { rate: rate.per_s(), outcome: run_step(rate)? };
        let mut ended = ended(&step, knee.bound);
        if ended.is_none() && knee.bound.is_none() {
            knee.bound = step.outcome.latency.quantile(0.999);
            let few = "the first step has too few answers for a 99.9th percentile";
            ended = knee.bound.is_none().then(|| (few.to_owned(), true));
        }
        knee.steps.push(step);
        if let Some((why, is_open)) = ended {
            (knee.why, knee.is_open) = (why, is_open);
            return Ok(knee);
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
    let (rate, outcome) = (step.rate, &step.outcome);
    if outcome.is_interrupted {
        return Some(("stopped".to_owned(), true));
    }
    if outcome.is_late() {
        return Some((format!("at {rate:.0}/s the generator itself was late"), true));
    }
    if outcome.is_saturated() {
        return Some((format!("at {rate:.0}/s the generator itself took all of a CPU"), true));
    }
    let too_slow = outcome.latency.quantile(0.99).zip(bound).filter(|(p99, bound)| p99 > bound);
    if outcome.is_kept() && too_slow.is_none() {
        return None;
    }
    if is_without_connections(outcome, bound) {
        let was = if bound.is_some() { " while the server was as fast as before" } else { "" };
        return Some((
            format!("at {rate:.0}/s all connections were taken{was}: want more --connections"),
            true,
        ));
    }
    let why = match too_slow {
        Some((p99, bound)) if outcome.is_kept() => {
            format!("at {rate:.0}/s p99 was {:.3} ms, above {:.3} ms", p99 * 1e3, bound * 1e3)
        }
        _ if outcome.bad() as f64 > (1.0 - KEPT) * outcome.requests as f64 => {
            format!("at {rate:.0}/s {} of {} requests failed", outcome.bad(), outcome.requests)
        }
        _ => format!(
            "at {rate:.0}/s {} of {} requests were answered when the last one was due",
            outcome.answered_at_end, outcome.requests
        ),
    };
    Some((why, false))
}

/// Whether requests waited for a connection, and what was sent was answered as well and as fast as at rest.
fn is_without_connections(outcome: &Outcome, bound: Option<f64>) -> bool {
    let unsent = outcome.errors.get("unsent").map_or(0, |failed| failed.count);
    let bad = outcome.bad().saturating_sub(unsent);
    let is_slow = outcome.service.quantile(0.99).zip(bound).is_some_and(|(p99, bound)| p99 > bound);
    outcome.queued > 0 && !is_slow && bad as f64 <= (1.0 - KEPT) * outcome.requests as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const STEP_S: f64 = 10.0;

    /// A step at a server that is full at 1000/s. An answer takes a millisecond, and one in 500 takes 20 ms.
    fn at_full_server(rate: Rate) -> Outcome {
        let n = (rate.per_s() * STEP_S) as u64;
        let share = (1_000.0 / rate.per_s()).min(1.0);
        let answered_at_end = (n as f64 * share) as u64;
        let mut outcome = Outcome {
            requests: n,
            answered: n,
            answered_at_end,
            usual_at_end: (n - answered_at_end) / 2,
            statuses: BTreeMap::from([(200, n)]),
            ..Outcome::default()
        };
        for i in 0..n {
            let waited_s = STEP_S * (1.0 - share) * i as f64 / n as f64;
            let service = Duration::from_millis(if i % 500 == 0 { 20 } else { 1 });
            outcome.service.record(service);
            outcome.latency.record(service + Duration::from_secs_f64(waited_s));
        }
        outcome
    }

    fn search(from: f64, to: f64) -> Search {
        let rate = |per_s| Rate::new(per_s).unwrap();
        Search { from: rate(from), to: rate(to), step: Duration::from_secs_f64(STEP_S) }
    }

    #[test]
    fn the_knee_is_the_last_step_that_a_full_server_keeps() {
        let knee = climb(&search(500.0, 4000.0), |rate| Ok(at_full_server(rate))).unwrap();
        let rates: Vec<f64> = knee.steps.iter().map(|step| step.rate).collect();
        assert_eq!(rates, [500.0, 625.0, 781.25, 976.5625, 1220.703125]);
        assert_eq!((knee.rate, knee.is_open), (Some(976.5625), false), "{}", knee.why);
        assert!(knee.why.starts_with("at 1221/s 9999 of 12207 requests were answered"), "{}", knee.why);
        assert!(knee.bound.is_some_and(|bound| (0.0199..0.0201).contains(&bound)), "{:?}", knee.bound);
        let knee = climb(&search(500.0, 900.0), |rate| Ok(at_full_server(rate))).unwrap();
        assert_eq!((knee.rate, knee.is_open, knee.steps.len()), (Some(900.0), true, 4), "{}", knee.why);
    }

    #[test]
    fn a_first_step_without_percentiles_is_the_last() {
        let few = |rate| {
            let mut outcome = at_full_server(rate);
            outcome.latency = crate::Distribution::default();
            Ok(outcome)
        };
        let knee = climb(&search(500.0, 4000.0), few).unwrap();
        assert_eq!((knee.rate, knee.bound, knee.is_open, knee.steps.len()), (None, None, true, 1));
        assert!(knee.why.contains("too few answers"), "{}", knee.why);
    }

    #[test]
    fn a_step_ends_the_search_for_one_reason() {
        let good = || at_full_server(Rate::new(500.0).unwrap());
        let full = || at_full_server(Rate::new(2000.0).unwrap());
        let why = |outcome: Outcome| ended(&Step { rate: 500.0, outcome }, Some(0.02));
        assert_eq!(why(good()), None);
        assert_eq!(why(Outcome { queued: 9, ..good() }), None);
        let mut late = good();
        (0..5_000).for_each(|_| late.lateness.record(Duration::from_millis(1)));
        let mut slow = good();
        (0..5_000).for_each(|_| slow.latency.record(Duration::from_millis(30)));
        let failed = Outcome { statuses: BTreeMap::from([(200, 4_900), (503, 100)]), ..good() };
        let mut stuck = full();
        (0..20_000).for_each(|_| stuck.service.record(Duration::from_millis(30)));
        for (outcome, is_open, said) in [
            (Outcome { is_interrupted: true, ..good() }, true, "stopped"),
            (late, true, "itself was late"),
            (Outcome { queued: 9, cpu_share: 0.98, ..good() }, true, "all of a CPU"),
            (slow.clone(), false, "p99 was 30.0"),
            (Outcome { queued: 9, ..slow }, true, "as fast as before: want more --connections"),
            (failed.clone(), false, "100 of 5000 requests failed"),
            (Outcome { queued: 9, ..failed }, false, "100 of 5000 requests failed"),
            (full(), false, "10000 of 20000 requests were answered"),
            (Outcome { queued: 9, ..full() }, true, "want more --connections"),
            (Outcome { queued: 9, ..stuck }, false, "10000 of 20000 requests were answered"),
        ] {
            let (why, was_open) = why(outcome).unwrap();
            assert!(why.contains(said) && was_open == is_open, "{said}: {why}");
        }
    }
}
