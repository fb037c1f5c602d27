//! Series of runs, a round or pairs. A series can be resumed and prints the time left.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::draw::Draw;
use crate::incident::{Form, Incident, Stop};
use crate::journal::{self, Journal, Undo};
use crate::machine;
use crate::record::{Results, key, record};
use crate::recorder::Mitra;
use crate::run::{Piece, play};
use crate::{controls, incidents};

/// Assumed duration of an incident's run with its setup, until some are measured.
const RUN_GUESS_S: f64 = 22.0;
/// Pause between two runs.
const BREATH: Duration = Duration::from_millis(300);
/// Duration of a control beyond its own time.
const CONTROL_EXTRA_S: f64 = 12.0;

/// Every incident in both forms and twelve controls, in an order drawn by the seed. Leaves out
/// incidents that the binary under test, which knows the conditions `known`, cannot name.
pub fn round(seed: u64, control_seconds: u64, known: &[String]) -> Vec<Vec<Piece>> {
    let incidents = incidents::of_a_round().filter(|i| i.can_be_named(known));
    let forms = incidents.flat_map(|i| Form::ALL.map(|form| vec![Piece::Incident(i, form)]));
    let controls = controls::of_a_round().map(|c| vec![Piece::Control(c, control_seconds)]);
    let mut runs: Vec<Vec<Piece>> = forms.chain(controls).collect();
    Draw::new(seed, "round").shuffle(&mut runs);
    runs
}

/// Whether two incidents can be made at the same time and stay distinct: they belong to different
/// areas and do not need the same unique thing of the machine.
pub fn compatible(a: &Incident, b: &Incident) -> bool {
    a.collides(b).is_none()
}

/// `count` pairs of loud incidents, and half as many incidents in the noise of a control. Leaves
/// out the same incidents as [`round`].
pub fn pairs(seed: u64, count: usize, known: &[String]) -> Vec<Vec<Piece>> {
    let mut draw = Draw::new(seed, "pairs");
    let mut order: Vec<&'static Incident> =
        incidents::of_a_round().filter(|i| i.can_be_named(known)).collect();
    draw.shuffle(&mut order);
    let mut runs = Vec::new();
    // Each incident is used once before any is used twice.
    for (i, first) in order.iter().cycle().enumerate().take(count) {
        let others: Vec<&&Incident> =
            order.iter().cycle().skip(i + 1).take(order.len()).filter(|o| compatible(first, o)).collect();
        if others.is_empty() {
            continue;
        }
        let second = draw.pick(&others);
        let pair = vec![Piece::Incident(first, Form::Loud), Piece::Incident(second, Form::Loud)];
        if !runs.iter().any(|r: &Vec<Piece>| key(r, 0) == key(&pair, 0)) {
            runs.push(pair);
        }
    }
    let noises: Vec<_> = controls::all().filter(|c| c.name != "idle").collect();
    if !noises.is_empty() {
        draw.shuffle(&mut order);
        for incident in order.iter().take(count / 2) {
            runs.push(vec![Piece::Incident(incident, Form::Loud), Piece::Noise(draw.pick(&noises))]);
        }
    }
    runs
}

/// The pairs of `runs`, and each of their incidents alone.
pub fn with_each_alone(mut runs: Vec<Vec<Piece>>) -> Vec<Vec<Piece>> {
    let mut alone: Vec<Vec<Piece>> = Vec::new();
    for piece in runs.iter().flatten().filter(|piece| matches!(piece, Piece::Incident(..))) {
        if !alone.iter().any(|one| key(one, 0) == key(&[*piece], 0)) {
            alone.push(vec![*piece]);
        }
    }
    runs.extend(alone);
    runs
}

fn guess_s(pieces: &[Piece]) -> f64 {
    match pieces {
        [Piece::Control(_, seconds)] => *seconds as f64 + CONTROL_EXTRA_S,
        _ => RUN_GUESS_S,
    }
}

fn minutes(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// Options of `execute`.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Whether other tools record beside the recorder.
    pub witnesses: bool,
    /// Whether to repeat runs that failed or were not made.
    pub retry: bool,
    /// Time between a change and its harm, in the drift incidents.
    pub pause: Duration,
}

fn undo(journal: &mut Journal) {
    for failed in journal.undo_all() {
        println!("  could not be undone: {failed}");
    }
}

/// Runs everything that has no result yet. Returns whether all runs were played. Ctrl-C ends the
/// series in order.
pub fn execute(
    runs: &[Vec<Piece>],
    seed: u64,
    mitra: &Mitra,
    results: &mut Results,
    how: RunOptions,
    mut told: impl FnMut(&Results, &str),
) -> anyhow::Result<bool> {
    let version = mitra.version();
    let left: Vec<&Vec<Piece>> = runs.iter().filter(|r| !results.has(&key(r, seed), how.retry)).collect();
    if left.len() < runs.len() {
        println!("{} of {} runs are there already", runs.len() - left.len(), runs.len());
    }
    let (mut taken_s, mut guessed_s) = (0.0, 0.0);
    for (i, pieces) in left.iter().enumerate() {
        let rest_s: f64 = left.iter().skip(i).map(|r| guess_s(r)).sum();
        let pace = if guessed_s > 0.0 { taken_s / guessed_s } else { 1.0 };
        let key = key(pieces, seed);
        println!("[{}/{}, {} left] {key}", i + 1, left.len(), minutes(rest_s * pace));
        let start = Instant::now();
        let dir = machine::base_dir().join(format!("mitra-lab-run-{}", std::process::id()));
        let mut journal = Journal::create(Path::new(journal::DIR), &format!("{}-run", std::process::id()))?;
        journal.note(Undo::Remove(dir.clone()))?;
        let outcome = play(pieces, seed, mitra, &dir, how);
        if matches!(outcome, Err(Stop::Interrupted)) {
            undo(&mut journal);
            println!("interrupted; the same command goes on where this ended");
            return Ok(false);
        };
        let made = record(pieces, seed, &version, outcome.as_ref());
        let why = made.why.clone();
        let state = made.state;
        let added = results.add(made, outcome.as_ref().ok());
        undo(&mut journal);
        added?;
        if let Some(why) = why {
            println!("  {why}");
        }
        if state.is_judged() {
            told(results, &key);
        }
        taken_s += start.elapsed().as_secs_f64();
        guessed_s += guess_s(pieces);
        // Pages dirtied by one run must not trouble the next.
        rustix::fs::sync();
        machine::nap(BREATH).ok();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{compatible, pairs, round};
    use crate::incident::Incident;
    use crate::incidents;
    use crate::record::key;
    use crate::run::Piece;

    fn keys(runs: &[Vec<Piece>]) -> Vec<String> {
        runs.iter().map(|r| key(r, 1)).collect()
    }

    /// The conditions of all incidents.
    fn all() -> Vec<String> {
        incidents::all().map(|i| i.condition.to_owned()).collect()
    }

    #[test]
    fn what_cannot_be_named_is_not_played() {
        let known = ["cpu-hog".to_owned()];
        let named = |run: &Vec<Piece>| match run.as_slice() {
            [Piece::Incident(i, _), ..] => Some(*i),
            _ => None,
        };
        let round: Vec<&Incident> = round(1, 300, &known).iter().filter_map(named).collect();
        assert!(round.len() >= 2 && round.iter().all(|i| i.is_true("cpu-hog")));
        let load = incidents::all().find(|i| i.name == "service-load").unwrap();
        assert!(load.can_be_named(&["single-thread-bottleneck".to_owned()]) && !load.can_be_named(&known));
    }

    #[test]
    fn a_round_has_every_run_once_in_an_order_of_its_own() {
        let round = |seed| round(seed, 300, &all());
        let (a, b) = (keys(&round(1)), keys(&round(2)));
        assert_ne!(a, b);
        assert_eq!(a, keys(&round(1)));
        let sorted = |mut keys: Vec<String>| {
            keys.sort();
            keys.dedup();
            keys
        };
        assert_eq!(sorted(a.clone()).len(), a.len());
        assert_eq!(sorted(a), sorted(b));
    }

    #[test]
    fn two_that_set_the_same_thing_are_no_pair() {
        let named = |name: &str| incidents::all().find(|i| i.name == name).unwrap();
        assert!(!compatible(named("drift-dirty"), named("dirty-writeback-stall")));
        assert!(!compatible(named("growth"), named("flood-once")));
        assert!(!compatible(named("growth"), named("swap-thrash")));
        assert!(!compatible(named("disk-hog-reads"), named("slow-device-reads")));
        assert!(compatible(named("drift-dirty"), named("growth")));
    }

    #[test]
    fn pairs_are_of_two_kinds_and_drawn_by_the_seed() {
        let pairs = |seed| pairs(seed, 10, &all());
        let runs = pairs(3);
        assert_eq!(keys(&runs), keys(&pairs(3)));
        assert_ne!(keys(&runs), keys(&pairs(4)));
        for run in &runs {
            match run.as_slice() {
                [Piece::Incident(a, _), Piece::Incident(b, _)] => assert!(compatible(a, b)),
                [Piece::Incident(..), Piece::Noise(_)] => {}
                other => panic!("not a pair: {} pieces", other.len()),
            }
        }
    }
}
