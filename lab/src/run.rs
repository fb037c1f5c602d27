//! One run: an incident or a control, recorded, explained and judged.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::Value;

use crate::conductor::{Conductor, LiveAnswer, Named, Times};
use crate::draw::Draw;
use crate::incident::{Control, Form, Incident, Stop, Truth, WithPath, missing};
use crate::journal;
use crate::machine;
use crate::plan::RunOptions;
use crate::record::key;
use crate::recorder::{LiveRoots, Mitra};
use crate::stage::{Part, Stage, VictimLatency};
use crate::witness::Witnesses;

/// An incident or a control to run.
#[derive(Clone, Copy)]
pub enum Piece {
    /// An incident in one of its forms.
    Incident(&'static Incident, Form),
    /// Healthy work for this many seconds.
    Control(&'static Control, u64),
    /// Healthy work around an incident.
    Noise(&'static Control),
}

impl Piece {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Incident(i, _) => i.name,
            Self::Control(c, _) | Self::Noise(c) => c.name,
        }
    }

    fn incident(&self) -> Option<&'static Incident> {
        match self {
            Self::Incident(i, _) => Some(*i),
            Self::Control(..) | Self::Noise(_) => None,
        }
    }

    fn missing(&self) -> Option<String> {
        let needs = match self {
            Self::Incident(i, _) => i.needs,
            Self::Control(c, _) | Self::Noise(c) => c.needs,
        };
        missing(needs, &machine::base_dir())
    }

    fn part(&self) -> Part {
        match self {
            Self::Incident(_, form) => Part::Incident(*form),
            Self::Control(_, seconds) => Part::Control(std::time::Duration::from_secs(*seconds)),
            Self::Noise(_) => Part::Noise,
        }
    }

    fn make(&self, stage: &mut Stage) -> Result<Truth, Stop> {
        match self {
            Self::Incident(i, _) => (i.make)(stage),
            Self::Control(c, _) | Self::Noise(c) => (c.make)(stage).map(|()| Truth::default()),
        }
    }
}

/// What one stage played.
pub struct Act {
    /// The incident or control.
    pub piece: Piece,
    /// The truth, or why there is none.
    pub outcome: Result<Truth, Stop>,
    /// The moments of the run.
    pub times: Times,
    /// What the victims measured.
    pub hurts: Vec<VictimLatency>,
}

impl Act {
    /// The values until the stage has ended.
    fn panicked(piece: Piece) -> Self {
        let now = SystemTime::now();
        let times = Times { since: now, started: now, onset: now, until: now };
        Self { piece, outcome: Err(Stop::Failed("panicked".into())), times, hurts: Vec::new() }
    }
}

/// The results of a run.
#[derive(Default)]
pub struct RunOutcome {
    /// One act per stage.
    pub acts: Vec<Act>,
    /// Why the run could not be recorded or explained.
    pub stop: Option<Stop>,
    /// `mitra explain --json` over the window.
    pub report: Value,
    /// The same as text.
    pub text: String,
    /// Live answers during the trouble.
    pub live: Vec<LiveAnswer>,
    /// The path of the archive. The caller removes the directory.
    pub archive: PathBuf,
    /// The path of the other tools' files, if there are any.
    pub witnesses: Option<PathBuf>,
}

/// Why these incidents cannot be made at the same time.
fn collision(wanted: &[&Incident]) -> Option<String> {
    let mut pairs =
        wanted.iter().enumerate().flat_map(|(i, a)| wanted.iter().skip(i + 1).map(move |b| (a, b)));
    pairs.find_map(|(a, b)| {
        let why = a.collides(b)?;
        Some(format!("{} and {} cannot be made at once: {why}", a.name, b.name))
    })
}

/// Draws the times of a run. Each form has its own.
fn times(pieces: &[Piece], seed: u64) -> Draw {
    Draw::new(seed, &key(pieces, seed))
}

/// Faint if no incident in the run is loud.
fn form(pieces: &[Piece]) -> Form {
    let is_faint = |p: &Piece| matches!(p, Piece::Incident(_, Form::Faint));
    let is_loud = |p: &Piece| matches!(p, Piece::Incident(_, Form::Loud));
    if pieces.iter().any(is_faint) && !pieces.iter().any(is_loud) { Form::Faint } else { Form::Loud }
}

/// Plays the pieces at once, under one recorder, with files in `dir`.
///
/// With witnesses, other tools record beside the recorder, and the run prints what their files
/// show.
pub fn play(
    pieces: &[Piece],
    seed: u64,
    mitra: &Mitra,
    dir: &Path,
    how: RunOptions,
) -> Result<RunOutcome, Stop> {
    let wanted: Vec<&Incident> = pieces.iter().filter_map(Piece::incident).collect();
    if let Some(why) = collision(&wanted) {
        return Err(Stop::Failed(why));
    }
    if let Some(why) = pieces.iter().find_map(Piece::missing) {
        return Err(Stop::Skipped(why));
    }
    machine::wait_until_quiet()?;
    fs::create_dir_all(dir).at(dir)?;
    let noises = pieces.iter().filter(|p| matches!(p, Piece::Noise(_))).count();
    let conductor = Conductor::new(pieces.len() - noises, noises, form(pieces), &mut times(pieces, seed));
    let conductor = Arc::new(conductor.pausing(how.pause));
    let archive = dir.join("archive");
    // A single incident must be in first place. Of several, each must be named.
    let named = |said: &LiveRoots| match wanted.as_slice() {
        [one] => said.first.as_ref().is_some_and(|root| one.is_true(root)),
        many => many.iter().all(|i| said.roots.iter().any(|root| i.is_true(root))),
    };
    let named: Option<&Named<'_>> = if wanted.is_empty() { None } else { Some(&named) };
    let witnesses = if how.witnesses { Some(Witnesses::start(dir)?) } else { None };
    let (acts, live) = std::thread::scope(|scope| {
        let threads: Vec<_> = pieces
            .iter()
            .map(|piece| {
                let conductor = Arc::clone(&conductor);
                scope.spawn(move || act(*piece, seed, conductor))
            })
            .collect();
        let live = conductor.conduct(mitra, &archive, dir, named);
        let joined = pieces.iter().zip(threads);
        let acts =
            joined.map(|(piece, t)| t.join().unwrap_or_else(|_| Act::panicked(*piece))).collect::<Vec<_>>();
        (acts, live)
    });
    let mut played = RunOutcome { acts, archive, ..RunOutcome::default() };
    match live {
        Ok(live) => played.live = live,
        Err(stop) => played.stop = Some(stop),
    }
    if machine::interrupted() {
        return Err(Stop::Interrupted);
    }
    if let Some(folder) = witnesses.map(Witnesses::stop) {
        match mitra.explain_files(&folder, dir) {
            Ok(said) => println!("  from files: {said}"),
            Err(stop) => println!("  from files: {stop}"),
        }
        played.witnesses = Some(folder);
    }
    explain(&mut played, mitra, dir);
    Ok(played)
}

fn explain(played: &mut RunOutcome, mitra: &Mitra, dir: &Path) {
    let spans = played.acts.iter().filter(|a| !matches!(a.piece, Piece::Noise(_)) && a.outcome.is_ok());
    let Some(times) = spans.map(|a| a.times).next() else { return };
    match mitra.explain(&played.archive, dir, times.since, times.until) {
        Ok(answer) => {
            played.report = answer.report;
            played.text = answer.text;
        }
        Err(stop) => played.stop = Some(stop),
    }
}

/// Plays one piece in this thread and cleans up after it.
fn act(piece: Piece, seed: u64, conductor: Arc<Conductor>) -> Act {
    let mut act = Act::panicked(piece);
    let form = match piece {
        Piece::Incident(_, form) => form.to_string(),
        _ => String::new(),
    };
    let draw = Draw::new(seed, &format!("{}/{form}", piece.name()));
    let journals = Path::new(journal::DIR);
    // The length of a control includes its healthy time.
    let part = match piece.part() {
        Part::Control(whole) => Part::Control(whole.saturating_sub(conductor.healthy())),
        part => part,
    };
    let mut stage = match Stage::new(part, draw, Arc::clone(&conductor), journals) {
        Ok(stage) => stage,
        Err(stop) => {
            conductor.left(matches!(piece, Piece::Noise(_)));
            act.outcome = Err(stop);
            return act;
        }
    };
    if let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| piece.make(&mut stage))) {
        act.outcome = outcome.and_then(|truth| stage.undisturbed().map(|()| truth));
    }
    act.times = stage.times();
    act.hurts = stage.hurts().to_vec();
    print!("{}", stage.table());
    act
}

#[cfg(test)]
mod tests {
    use super::{Piece, collision, times};
    use crate::incident::{Form, Incident};
    use crate::incidents;

    fn named(name: &str) -> &'static Incident {
        incidents::all().find(|i| i.name == name).unwrap()
    }

    #[test]
    fn the_forms_of_a_seed_have_times_of_their_own() {
        let drawn = |form, seed| times(&[Piece::Incident(named("affinity"), form)], seed).number();
        assert_ne!(drawn(Form::Loud, 7), drawn(Form::Faint, 7));
        assert_ne!(drawn(Form::Loud, 7), drawn(Form::Loud, 8));
        assert_eq!(drawn(Form::Loud, 7), drawn(Form::Loud, 7));
    }

    #[test]
    fn what_cannot_be_made_at_once_is_refused_with_the_reason() {
        let ask = |names: &[&str]| {
            let wanted: Vec<&Incident> = names.iter().map(|n| named(n)).collect();
            collision(&wanted)
        };
        let why = ask(&["cpu-quota", "drift-dirty", "dirty-writeback-stall"]).unwrap();
        assert!(why.contains("drift-dirty and dirty-writeback-stall") && why.contains("bounds"), "{why}");
        assert!(ask(&["crash", "crash"]).is_some());
        assert_eq!(ask(&["cpu-quota", "swap-thrash"]), None);
        assert_eq!(ask(&["cpu-quota"]), None);
    }
}
