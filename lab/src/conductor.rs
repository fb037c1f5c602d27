//! Coordinates a run: one recorder, and one or more stages that begin and end together.
//!
//! Stages work in threads of their own and wait here for each other. [`Conductor::conduct`] runs in
//! the main thread, because the recorder dies with the thread that started it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant, SystemTime};

use crate::draw::Draw;
use crate::incident::{Form, Stop};
use crate::machine;
use crate::recorder::{LiveRoots, Mitra, Recorder};

/// Time limit for the setup of a stage, in addition to writing its files.
const SETUP_PATIENCE: Duration = Duration::from_secs(120);
/// A lower bound of the write rate of a healthy disk, one file after the other.
const SLOWEST_WRITE_BYTES_S: u64 = 50_000_000;
const STEP: Duration = Duration::from_millis(100);
/// Healthy time, seconds. With this and the trouble's length, a hundred runs and an hour of
/// controls fit into a hundred minutes.
const HEALTHY_S: (f64, f64) = (5.5, 8.0);
/// Length of the trouble, seconds. A loud one leaves time for an answer within ten seconds.
const LOUD_S: (f64, f64) = (10.0, 11.0);
const FAINT_S: (f64, f64) = (8.5, 11.5);
/// One trouble in this many lasts longer, by [`LONGER_S`] seconds.
const LONG_ONE_IN: u64 = 12;
const LONGER_S: (f64, f64) = (2.0, 10.0);
/// Interval between live explanations.
const LIVE_EVERY: Duration = Duration::from_secs(1);
/// Time between a change and its harm, in the drift incidents.
pub const PAUSE: Duration = Duration::from_secs(300);

/// The moments of a run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The healthy time begins.
    pub since: SystemTime,
    /// The trouble is started. No reported incident may begin before it.
    pub started: SystemTime,
    /// The true onset: the cause begins to act. If it first uses up a limited reserve (descriptors,
    /// ports, blocks, inodes, tracked connections, …), this is the measured moment at which the
    /// reserve is used up.
    pub onset: SystemTime,
    /// The recorder gets its signal to end.
    pub until: SystemTime,
}

#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    Setup,
    Recording(SystemTime),
    Done(SystemTime),
    GivenUp(Stop),
}

#[derive(Default)]
struct State {
    phase: Phase,
    ready: usize,
    finished: usize,
    left: usize,
    noise: usize,
    noise_left: usize,
    /// Bytes that the stages write before they are ready.
    bytes: u64,
    /// The latest step of each stage that is not ready, by its thread.
    steps: HashMap<ThreadId, String>,
    /// When the first trouble was started.
    started: Option<SystemTime>,
}

impl State {
    /// Time limit for the setup of all stages.
    fn patience(&self) -> Duration {
        SETUP_PATIENCE + Duration::from_secs(self.bytes / SLOWEST_WRITE_BYTES_S)
    }

    /// The error message: which steps were not finished in time.
    fn not_ready(&self, patience: Duration) -> String {
        let mut steps: Vec<&str> = self.steps.values().map(String::as_str).collect();
        steps.sort_unstable();
        let last = if steps.is_empty() { "the stage".to_owned() } else { steps.join(" and ") };
        format!("waited {} s for {last}", patience.as_secs())
    }
}

/// Whether an answer names the true roots.
pub type Named<'a> = dyn Fn(&LiveRoots) -> bool + Sync + 'a;

/// The coordinator of one run.
pub struct Conductor {
    state: Mutex<State>,
    changed: Condvar,
    /// Number of stages to wait for, without the noise.
    parties: usize,
    noises: usize,
    healthy: Duration,
    pause: Duration,
    trouble: Duration,
}

/// One answer of `mitra explain` while the trouble was on.
#[derive(Clone, Debug)]
pub struct LiveAnswer {
    /// When `mitra explain` answered.
    pub at: SystemTime,
    /// What it named.
    pub said: LiveRoots,
}

impl Conductor {
    /// For `parties` stages and `noises` controls as noise. The times are drawn.
    pub fn new(parties: usize, noises: usize, form: Form, draw: &mut Draw) -> Self {
        let healthy = draw.real(HEALTHY_S.0, HEALTHY_S.1);
        let (least, most) = match form {
            Form::Loud => LOUD_S,
            Form::Faint => FAINT_S,
        };
        let mut trouble = draw.real(least, most);
        if draw.uniform(1, LONG_ONE_IN) == 1 {
            trouble += draw.real(LONGER_S.0, LONGER_S.1);
        }
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            parties,
            noises,
            healthy: Duration::from_secs_f64(healthy),
            pause: PAUSE,
            trouble: Duration::from_secs_f64(trouble),
        }
    }

    /// Replaces the time between a change and its harm.
    pub fn pausing(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Time between a change and its harm, in drift incidents.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Length of the healthy time.
    pub fn healthy(&self) -> Duration {
        self.healthy
    }

    /// Length of the trouble.
    pub fn trouble(&self) -> Duration {
        self.trouble
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A stage that panics leaves the numbers consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `done` returns a value, in small steps so that Ctrl-C is noticed.
    fn wait<T>(&self, mut done: impl FnMut(&State) -> Option<T>) -> Result<T, Stop> {
        let mut state = self.lock();
        loop {
            if let Some(answer) = done(&state) {
                return Ok(answer);
            }
            if machine::interrupted() {
                return Err(Stop::Interrupted);
            }
            state = self.changed.wait_timeout(state, STEP).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A stage begins a slow setup step: a name for it, and how many bytes of files it writes.
    pub fn begins(&self, what: &str, bytes: u64) {
        self.update(|s| {
            s.bytes += bytes;
            s.steps.insert(std::thread::current().id(), what.to_owned());
        });
    }

    /// A stage is set up. Returns the begin of the healthy time once the recorder runs.
    pub fn ready(&self) -> Result<SystemTime, Stop> {
        self.update(|s| {
            s.ready += 1;
            s.steps.remove(&std::thread::current().id());
        });
        self.wait(|s| match &s.phase {
            Phase::Setup => None,
            Phase::Recording(since) | Phase::Done(since) => Some(Ok(*since)),
            Phase::GivenUp(stop) => Some(Err(stop.clone())),
        })?
    }

    /// A control that is only noise has started its work.
    pub fn noise_is_on(&self) {
        self.update(|s| {
            s.noise += 1;
            s.steps.remove(&std::thread::current().id());
        });
    }

    /// A stage starts its trouble. Live explanations begin with the first trouble of the run.
    pub fn trouble_starts(&self, at: SystemTime) {
        self.update(|s| s.started = Some(s.started.map_or(at, |first| first.min(at))));
    }

    /// A stage has finished. Returns the end of the window once the recorder has stopped.
    pub fn finished(&self) -> Result<SystemTime, Stop> {
        self.update(|s| s.finished += 1);
        self.wait(|s| match &s.phase {
            Phase::Setup | Phase::Recording(_) => None,
            Phase::Done(until) => Some(Ok(*until)),
            Phase::GivenUp(stop) => Some(Err(stop.clone())),
        })?
    }

    /// A stage ends early.
    pub fn left(&self, is_noise: bool) {
        self.update(|s| {
            let count = if is_noise { &mut s.noise_left } else { &mut s.left };
            *count += 1;
            s.steps.remove(&std::thread::current().id());
        });
    }

    /// True when the recorder has stopped, or will never start.
    pub fn is_done(&self) -> bool {
        matches!(self.lock().phase, Phase::Done(_) | Phase::GivenUp(_))
    }

    /// An error if the run was given up.
    pub fn check(&self) -> Result<(), Stop> {
        match &self.lock().phase {
            Phase::GivenUp(stop) => Err(stop.clone()),
            _ => Ok(()),
        }
    }

    /// Runs the recorder around the stages. Asks for live explanations until `named` accepts one;
    /// asks for none if `named` is `None`, as on a healthy machine. Returns the live answers.
    pub fn conduct(
        &self,
        mitra: &Mitra,
        archive: &Path,
        dir: &Path,
        named: Option<&Named<'_>>,
    ) -> Result<Vec<LiveAnswer>, Stop> {
        let outcome = self.conduct_inner(mitra, archive, dir, named);
        if let Err(stop) = &outcome {
            self.update(|s| s.phase = Phase::GivenUp(stop.clone()));
        }
        outcome
    }

    fn conduct_inner(
        &self,
        mitra: &Mitra,
        archive: &Path,
        dir: &Path,
        named: Option<&Named<'_>>,
    ) -> Result<Vec<LiveAnswer>, Stop> {
        let start = Instant::now();
        let ready = self.wait(|s| {
            let all = s.ready + s.left >= self.parties && s.noise + s.noise_left >= self.noises;
            if all {
                return Some(Ok(s.ready));
            }
            let patience = s.patience();
            (start.elapsed() > patience).then(|| Err(s.not_ready(patience)))
        })?;
        match ready {
            Err(why) => return Err(Stop::Failed(why)),
            // All stages have left and have their own reasons. Noise must not wait for an end that
            // never comes.
            Ok(0) => {
                self.update(|s| s.phase = Phase::GivenUp(Stop::Failed("there was nothing to record".into())));
                return Ok(Vec::new());
            }
            Ok(_) => {}
        }
        let mut recorder = Recorder::start(mitra, archive, dir)?;
        let since = SystemTime::now();
        self.update(|s| s.phase = Phase::Recording(since));
        let over = AtomicBool::new(false);
        let (answers, outcome) = std::thread::scope(|scope| {
            let live = scope.spawn(|| self.ask_live(mitra, archive, dir, since, &over, named));
            let outcome = self.wait(|s| {
                if let Err(stop) = recorder.check_alive() {
                    return Some(Err(stop));
                }
                (s.finished + s.left >= self.parties).then_some(Ok(()))
            });
            over.store(true, Ordering::Relaxed);
            (live.join().unwrap_or_default(), outcome)
        });
        outcome??;
        // Taken before the stop: without CPU time, sealing the archive takes seconds, which is no
        // gap.
        let until = SystemTime::now();
        recorder.stop()?;
        self.update(|s| s.phase = Phase::Done(until));
        Ok(answers)
    }

    /// Asks `mitra explain` about the growing archive once a second, from the start of the trouble.
    fn ask_live(
        &self,
        mitra: &Mitra,
        archive: &Path,
        dir: &Path,
        since: SystemTime,
        over: &AtomicBool,
        named: Option<&Named<'_>>,
    ) -> Vec<LiveAnswer> {
        let mut answers = Vec::new();
        let Some(named) = named else { return answers };
        while !over.load(Ordering::Relaxed) && !machine::interrupted() {
            let started = Instant::now();
            let trouble = self.lock().started;
            if let Some(said) = trouble.and_then(|at| mitra.roots_now(archive, dir, since, at, over)) {
                let is_right = named(&said);
                answers.push(LiveAnswer { at: SystemTime::now(), said });
                if is_right {
                    break;
                }
            }
            while started.elapsed() < LIVE_EVERY && !over.load(Ordering::Relaxed) {
                std::thread::sleep(STEP);
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::{Conductor, SETUP_PATIENCE};
    use crate::draw::Draw;
    use crate::incident::Form;

    #[test]
    fn who_writes_much_may_take_longer_and_is_named() {
        let conductor = Conductor::new(2, 0, Form::Loud, &mut Draw::new(1, "t"));
        assert_eq!(conductor.lock().patience(), SETUP_PATIENCE);
        conductor.begins("a file of 12288 MB", 12 << 30);
        let state = conductor.lock();
        assert_eq!(state.patience().as_secs(), SETUP_PATIENCE.as_secs() + 257);
        let why = state.not_ready(state.patience());
        assert_eq!(why, "waited 377 s for a file of 12288 MB");
        drop(state);
        // The conductor does not wait for a stage that has left.
        conductor.left(false);
        assert!(conductor.lock().steps.is_empty());
    }
}
