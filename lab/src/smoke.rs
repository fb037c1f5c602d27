//! A few incidents on a shared machine. A run that cannot be judged is no verdict on Mitra.

use std::path::Path;

use mitra_lab::conductor::PAUSE;
use mitra_lab::machine::{self, MachineLock};
use mitra_lab::plan::{self, RunOptions};
use mitra_lab::record::{Record, Results, State, key};
use mitra_lab::recorder::Mitra;
use mitra_lab::run::Piece;
use mitra_lab::{Form, score, ship};

use crate::{select, tell};

/// One of each area, and an idle machine.
const NAMES: [&str; 5] = ["idle", "cpu-quota", "disk-hog-reads", "cache-thrash", "oom-in-cgroup"];
const CONTROL_S: u64 = 20;
/// Even a machine with bursts of CPU steal has had a quiet minute after this many tries.
const TRIES: u64 = 3;
/// One wrong answer can be due to other work on the machine.
const WRONG_MAX: u64 = 2;

/// The state of a piece after its last try.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Right,
    /// This machine could not make it.
    Unmade(String),
    /// How often it was wrong, and the last error.
    Wrong(u64, String),
}

impl Standing {
    /// The state after one more try.
    fn after(self, state: State, why: Option<String>, miss: Option<String>) -> Self {
        let wrong = |what: String| match &self {
            Self::Wrong(times, _) => Self::Wrong(times + 1, what),
            Self::Right | Self::Unmade(_) => Self::Wrong(1, what),
        };
        match (state, miss) {
            (State::Made, None) => Self::Right,
            (State::Made, Some(what)) => wrong(what),
            (State::Broke | State::Failed, _) => wrong(why.unwrap_or_default()),
            (State::NotMade | State::Skipped, _) => match self {
                wrong @ Self::Wrong(..) => wrong,
                Self::Right | Self::Unmade(_) => Self::Unmade(why.unwrap_or_default()),
            },
        }
    }

    fn is_settled(&self) -> bool {
        match self {
            Self::Right => true,
            Self::Unmade(_) => false,
            Self::Wrong(times, _) => *times >= WRONG_MAX,
        }
    }
}

/// Runs all pieces. Repeats those that were not made, or wrong once, with other parameters. Returns
/// whether nothing stayed wrong and at least one was right.
pub fn smoke(seed: u64, mitra: &Mitra) -> anyhow::Result<bool> {
    let _possession = MachineLock::take()?;
    let dir = machine::base_dir().join(format!("mitra-lab-kept-{}", std::process::id()));
    let mut results = Results::open(&dir)?;
    let how = RunOptions { witnesses: false, retry: true, pause: PAUSE };
    let pieces = select(&NAMES.map(str::to_owned), Some(Form::Loud), CONTROL_S)?;
    let mut all: Vec<(Vec<Piece>, Standing)> =
        pieces.into_iter().map(|piece| (piece, Standing::Unmade(String::new()))).collect();
    for seed in (seed..).take(usize::try_from(TRIES)?) {
        let left: Vec<Vec<Piece>> =
            all.iter().filter(|(_, standing)| !standing.is_settled()).map(|(p, _)| p.clone()).collect();
        if left.is_empty() {
            break;
        }
        if !plan::execute(&left, seed, mitra, &mut results, how, tell)? {
            return Ok(false);
        }
        for (piece, standing) in all.iter_mut().filter(|(_, standing)| !standing.is_settled()) {
            let Some(record) = results.records.iter().find(|r| r.key == key(piece, seed)) else { continue };
            *standing = standing.clone().after(record.state, record.why.clone(), miss(&results, record)?);
            if *standing == Standing::Right {
                _ = std::fs::remove_dir_all(record.folder(&dir));
            }
        }
    }
    Ok(conclude(&all, &dir))
}

/// The error of a run that was made.
fn miss(results: &Results, record: &Record) -> anyhow::Result<Option<String>> {
    if record.state != State::Made {
        return Ok(None);
    }
    Ok(ship::miss(&score::judge_one(results, record, None, false)?))
}

/// Prints what was not right, and a last line with the counts. False if something stayed wrong, or
/// nothing was right.
fn conclude(all: &[(Vec<Piece>, Standing)], dir: &Path) -> bool {
    let (mut right, mut wrong) = (0, 0);
    for (piece, standing) in all {
        let name = piece.first().map_or("", Piece::name);
        match standing {
            Standing::Right => right += 1,
            Standing::Unmade(why) => println!("{name} could not be made here: {why}"),
            Standing::Wrong(times, what) => {
                wrong += usize::from(*times >= WRONG_MAX);
                println!("{name} was told wrongly {times} times: {what}");
            }
        }
    }
    if all.iter().any(|(_, standing)| matches!(standing, Standing::Wrong(..))) {
        println!("archives and reports are in {}", dir.display());
    } else {
        _ = std::fs::remove_dir_all(dir);
    }
    println!("{right} right, {wrong} wrong, {} not made", all.len() - right - wrong);
    right > 0 && wrong == 0
}

#[cfg(test)]
mod tests {
    use mitra_lab::record::State;

    use super::Standing;

    #[test]
    fn wrong_twice_is_wrong_and_what_is_not_made_says_nothing() {
        let start = Standing::Unmade(String::new());
        let made = |s: Standing, miss: Option<&str>| s.after(State::Made, None, miss.map(str::to_owned));
        let unmade = |s: Standing| s.after(State::NotMade, Some("the host took the CPUs".into()), None);
        let once = made(start.clone(), Some("says nothing"));
        assert!(!once.is_settled() && !unmade(once.clone()).is_settled());
        let twice = made(unmade(once.clone()), Some("says oom-kill"));
        assert_eq!(twice, Standing::Wrong(2, "says oom-kill".into()));
        assert!(twice.is_settled());
        assert_eq!(made(once, None), Standing::Right);
        assert!(!unmade(start.clone()).is_settled());
        assert!(matches!(start.after(State::Broke, Some("died".into()), None), Standing::Wrong(1, _)));
    }
}
