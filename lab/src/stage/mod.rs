//! The stage of an incident: every change that an incident makes to the machine goes through it.
//!
//! A stage undoes all changes when it is dropped, however the incident ends.

mod cgroup;
mod disk;
mod network;
mod process;
mod setting;
mod slow_disk;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub use cgroup::{Cgroup, IoLimit};
pub use disk::{Fs, LoopFs, device_names};
pub use network::Netns;
pub use process::{Isolation, ProcessHandle, Victim};
pub use slow_disk::{SlowDisk, Speed};

use crate::conductor::{Conductor, Times};
use crate::counters::{self, Timeline};
use crate::draw::Draw;
use crate::incident::{Form, Stop, WithPath};
use crate::journal::{Journal, TOKEN, Undo};
use crate::machine;
use crate::roles::Latency;
use process::Children;

/// A victim is hurt if its latency grows by this factor. On a virtual machine it varies by less.
const HURT: f64 = 1.1;
/// Operations of a bystander that may fail, per second.
const FAILED_MAX: f64 = 0.1;
/// The run is aborted if `MemAvailable` falls below this, to protect the rest of the machine.
const MEM_AVAILABLE_MIN_BYTES: u64 = 300 << 20;
/// A tenth of all CPUs for five seconds, which victims notice. Hosts that are not full stay below a
/// hundredth.
const STEAL_MAX: f64 = 0.1;
const STEAL_SECONDS: usize = 5;
/// Period of ticks.
const TICK: Duration = Duration::from_millis(100);

/// Number of stages in this process so far.
static STAGES: AtomicU64 = AtomicU64::new(0);

/// The part of a stage in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// An incident: healthy time, then trouble.
    Incident(Form),
    /// A control: healthy time, then work for this long.
    Control(Duration),
    /// A control as the noise around an incident: works from before the healthy time until the end.
    Noise,
}

/// The state of a running incident.
pub struct Stage {
    part: Part,
    draw: Draw,
    /// Seed of the roles' random numbers. Each role mixes in its name.
    seed: u64,
    dir: PathBuf,
    token: String,
    journal: Journal,
    children: Children,
    conductor: Arc<Conductor>,
    timeline: Timeline,
    since: SystemTime,
    trouble_since: SystemTime,
    /// When the load of the healthy phase ended, if before the trouble.
    calm: Option<SystemTime>,
    onset: SystemTime,
    until: SystemTime,
    finished: bool,
    hurt: Vec<VictimLatency>,
    /// Processes that hold memory. They must run until the end.
    ballast: Vec<ProcessHandle>,
}

/// A victim's measurements, before and during the trouble.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct VictimLatency {
    /// Process name of the victim.
    pub victim: String,
    /// Mean, worst, rate and errors in the healthy time.
    pub before: Latency,
    /// The same in the trouble.
    pub during: Latency,
}

impl Stage {
    /// `journals` is the directory of the journals.
    pub fn new(part: Part, draw: Draw, conductor: Arc<Conductor>, journals: &Path) -> Result<Self, Stop> {
        // Paths and command lines must not tell what the stage is for: the recorder sees both.
        let token = format!("{}-{}", std::process::id(), STAGES.fetch_add(1, Ordering::Relaxed));
        let mut journal = Journal::create(journals, &token)?;
        let dir = machine::base_dir().join(format!("mitra-lab-{token}"));
        journal.note(Undo::Remove(dir.clone()))?;
        journal.note(Undo::Processes(token.clone()))?;
        std::fs::create_dir_all(&dir).at(&dir)?;
        let now = SystemTime::now();
        Ok(Self {
            part,
            // From a copy, so that it does not change what the incident draws.
            seed: draw.clone().number(),
            draw,
            dir,
            token,
            journal,
            children: Children::default(),
            conductor,
            timeline: Timeline::default(),
            since: now,
            trouble_since: now,
            calm: None,
            onset: now,
            until: now,
            finished: false,
            hurt: Vec::new(),
            ballast: Vec::new(),
        })
    }

    /// The form of the incident. Controls are loud.
    pub fn form(&self) -> Form {
        match self.part {
            Part::Incident(form) => form,
            Part::Control(_) | Part::Noise => Form::Loud,
        }
    }

    /// One of two values, by the form.
    pub fn loud<T>(&self, loud: T, faint: T) -> T {
        match self.form() {
            Form::Loud => loud,
            Form::Faint => faint,
        }
    }

    /// The parameters, drawn by the seed of the run.
    pub fn draw(&mut self) -> &mut Draw {
        &mut self.draw
    }

    /// A whole number, log-uniform, from the bounds of the form.
    pub fn between(&mut self, loud: (u64, u64), faint: (u64, u64)) -> u64 {
        let (least, most) = self.loud(loud, faint);
        self.draw.between(least, most)
    }

    /// A whole number, uniform, from the bounds of the form.
    pub fn uniform(&mut self, loud: (u64, u64), faint: (u64, u64)) -> u64 {
        let (least, most) = self.loud(loud, faint);
        self.draw.uniform(least, most)
    }

    /// A real number from the bounds of the form.
    pub fn real(&mut self, loud: (f64, f64), faint: (f64, f64)) -> f64 {
        let (least, most) = self.loud(loud, faint);
        self.draw.real(least, most)
    }

    /// A directory on a real disk, removed at the end.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in [`Self::dir`], as text for arguments.
    pub fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// How long a control works. For an incident, the length of its trouble.
    pub fn length(&self) -> Duration {
        match self.part {
            Part::Control(length) => length,
            Part::Incident(_) | Part::Noise => self.conductor.trouble(),
        }
    }

    /// Notes the undo of a change that the caller is about to make.
    pub fn on_cleanup(&mut self, undo: Undo) -> Result<(), Stop> {
        self.journal.note(undo)?;
        Ok(())
    }

    /// Runs a helper command and returns its output. Ctrl-C ends it.
    pub fn run(&mut self, command: &mut Command) -> Result<String, Stop> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.run_for(&program, 0, command)
    }

    /// The same for a slow command: a name for it, and how many bytes of files it writes.
    fn run_for(&mut self, what: &str, bytes: u64, command: &mut Command) -> Result<String, Stop> {
        self.conductor.begins(what, bytes);
        self.at_home(command);
        self.children.run(command, &self.dir)
    }

    /// Sets TMPDIR and, unless the command has one, the working directory to those of the stage.
    fn at_home(&self, command: &mut Command) {
        command.env(TOKEN, &self.token).env("TMPDIR", &self.dir);
        if command.get_current_dir().is_none() {
            command.current_dir(&self.dir);
        }
    }

    /// Sleeps. Returns an error as soon as the run is interrupted.
    pub fn wait(&self, time: Duration) -> Result<(), Stop> {
        machine::nap(time)
    }

    /// Polls `ready` ten times a second until it is true, for at most `seconds`.
    pub fn wait_for(
        &mut self,
        what: &str,
        seconds: u64,
        mut ready: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Stop> {
        self.conductor.begins(what, 0);
        let start = Instant::now();
        while !ready(self) {
            if start.elapsed().as_secs() >= seconds {
                return Err(Stop::Failed(format!("waited {seconds} s for {what}")));
            }
            machine::nap(TICK)?;
        }
        Ok(())
    }

    /// Adds a block device to the counters of [`Self::moved`]: `disk.vda.rd_ios`.
    pub fn watch_device(&mut self, device: &str) {
        self.timeline.devices.push(device.to_owned());
    }

    /// Starts the recorder once all stages are ready, then waits for the healthy time.
    pub fn healthy(&mut self) -> Result<(), Stop> {
        if self.part == Part::Noise {
            return Ok(());
        }
        self.since = self.conductor.ready()?;
        self.onset = self.since;
        self.trouble_since = self.since;
        self.timeline.start_phase();
        self.pass(self.conductor.healthy(), &mut |_| Ok(()))
    }

    /// Waits until clients of something that always takes long have their first answers, so that a recording has them from the
    /// beginning, as it would have after a day.
    pub fn warm_up(&self, takes: Duration) -> Result<(), Stop> {
        machine::nap(takes)
    }

    /// Ends the healthy phase: measurements from now until the trouble do not count.
    pub fn calm(&mut self) {
        self.calm = Some(SystemTime::now());
    }

    /// Waits for the time between a change and its harm.
    pub fn pause(&mut self) -> Result<(), Stop> {
        self.pass(self.conductor.pause(), &mut |_| Ok(()))
    }

    /// Must be called right before the trouble is started. The cause acts from now on; this is the
    /// true onset.
    pub fn trouble_starts(&mut self) {
        self.timeline.start_phase();
        self.onset_is_now();
        self.trouble_since = self.onset;
        if self.part != Part::Noise {
            self.conductor.trouble_starts(self.onset);
        }
    }

    /// Moves the true onset to now, because the cause has used up its reserve. Must be called when
    /// that is observed, not when it is expected.
    pub fn onset_is_now(&mut self) {
        self.onset = SystemTime::now();
    }

    /// Waits for the time of the trouble.
    pub fn trouble(&mut self) -> Result<(), Stop> {
        self.trouble_with(|_| Ok(()))
    }

    /// The same, calling `tick` every 100 ms with the seconds since.
    pub fn trouble_with(&mut self, mut tick: impl FnMut(f64) -> Result<(), Stop>) -> Result<(), Stop> {
        self.trouble_on(|_, seconds| tick(seconds))
    }

    /// The same, for a `tick` that needs the stage, for instance to restart or kill a process.
    pub fn trouble_on(
        &mut self,
        mut tick: impl FnMut(&mut Self, f64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if self.part == Part::Noise {
            self.conductor.noise_is_on();
            let start = Instant::now();
            while !self.conductor.is_done() {
                tick(self, start.elapsed().as_secs_f64())?;
                machine::nap(TICK)?;
            }
            return Ok(());
        }
        let length = self.length();
        self.pass_with(length, &mut tick)?;
        for holder in self.ballast.clone() {
            self.must_run(holder, "the process that holds memory")?;
        }
        self.finished = true;
        self.until = self.conductor.finished()?;
        Ok(())
    }

    fn pass(&mut self, length: Duration, tick: &mut dyn FnMut(f64) -> Result<(), Stop>) -> Result<(), Stop> {
        self.pass_with(length, &mut |_, s| tick(s))
    }

    fn pass_with(
        &mut self,
        length: Duration,
        tick: &mut dyn FnMut(&mut Self, f64) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let start = Instant::now();
        let mut next_sample = Duration::ZERO;
        loop {
            let elapsed = start.elapsed();
            if elapsed >= next_sample {
                self.timeline.sample();
                next_sample += Duration::from_secs(1);
                if counters::mem_available_bytes().is_some_and(|b| b < MEM_AVAILABLE_MIN_BYTES) {
                    return Err(Stop::Failed("memory ran so low that it was given up".into()));
                }
                self.conductor.check()?;
            }
            if elapsed >= length {
                return Ok(());
            }
            tick(self, elapsed.as_secs_f64())?;
            machine::nap(TICK.min(length.saturating_sub(elapsed)))?;
        }
    }

    /// A victim's measurements before and during the trouble.
    pub fn hurt(&self, victim: &Victim) -> Result<VictimLatency, Stop> {
        let before = victim.latency(self.since, self.calm.unwrap_or(self.onset))?;
        if before.per_s == 0.0 {
            return Err(Stop::Failed(format!("{} did nothing while nothing was wrong", victim.name())));
        }
        Ok(VictimLatency {
            victim: victim.name().to_owned(),
            before,
            during: victim.latency(self.onset, self.until)?,
        })
    }

    /// Checks that the victim was hurt, and prints a note if its mean latency grew by less than the
    /// intended `factor`. Such a run counts all the same, so that hard cases are not left out.
    /// Without the check, a run would be judged over a trouble that was never made.
    pub fn suffered(&mut self, victim: &Victim, factor: f64) -> Result<(), Stop> {
        let hurt = self.hurt(victim)?;
        println!("  victim {}: {} -> {}", hurt.victim, hurt.before, hurt.during);
        let slower = hurt.during.mean_us / hurt.before.mean_us;
        self.hurt.push(hurt.clone());
        if slower >= factor.min(HURT) {
            if slower < factor {
                println!("  note: fainter than meant, {slower:.2} times slower and not {factor}");
            }
            return Ok(());
        }
        Err(Stop::NotMade(format!(
            "{}: {:.0} us before, {:.0} us during, not {HURT} times slower",
            hurt.victim, hurt.before.mean_us, hurt.during.mean_us
        )))
    }

    /// Checks that at least `per_s` more of the victim's operations fail each second than before.
    pub fn failed(&mut self, victim: &Victim, per_s: f64) -> Result<(), Stop> {
        let hurt = self.hurt(victim)?;
        println!("  victim {}: {} -> {}", hurt.victim, hurt.before, hurt.during);
        let (before, during) = (hurt.before.errors_per_s, hurt.during.errors_per_s);
        self.hurt.push(hurt);
        if during - before >= per_s {
            return Ok(());
        }
        Err(Stop::NotMade(format!("{}: {before:.1} errors/s before, {during:.1} during", victim.name())))
    }

    /// Checks that the victim was hurt in either way: it takes ten times as long, or `per_s` of its
    /// operations fail.
    pub fn hurt_or_failed(&mut self, victim: &Victim, per_s: f64) -> Result<(), Stop> {
        let hurt = self.hurt(victim)?;
        if hurt.during.mean_us >= 10.0 * hurt.before.mean_us {
            return self.suffered(victim, 10.0);
        }
        self.failed(victim, per_s)
    }

    /// Checks that the victim of a control was not hurt: at most `factor` times slower, and next to
    /// no failures.
    pub fn unharmed(&mut self, victim: &Victim, factor: f64) -> Result<(), Stop> {
        if self.part == Part::Noise {
            return Ok(());
        }
        let hurt = self.hurt(victim)?;
        println!("  bystander {}: {} -> {}", hurt.victim, hurt.before, hurt.during);
        let (before, during) = (hurt.before.mean_us, hurt.during.mean_us);
        let failed_per_s = hurt.during.errors_per_s;
        self.hurt.push(hurt);
        if failed_per_s > FAILED_MAX {
            return Err(Stop::NotMade(format!("{}: {failed_per_s:.1} errors/s", victim.name())));
        }
        if during <= before * factor {
            return Ok(());
        }
        Err(Stop::NotMade(format!(
            "{} was hurt: {before:.0} us before, {during:.0} us during",
            victim.name()
        )))
    }

    /// Increase per second (or mean, of a gauge) of a raw counter, before and during the trouble.
    /// Read without Mitra.
    pub fn moved(&self, counter: &str) -> (f64, f64) {
        self.timeline.rates(counter)
    }

    /// Checks that a raw counter grew by `least` per second. That proves that the mechanism
    /// happened; the victim shows whether it hurt. `least` is at most a tenth of any threshold in
    /// the diagnosis, so no run is left out because Mitra would not have seen it.
    pub fn must_move(&self, counter: &str, least: f64) -> Result<(), Stop> {
        let (before, during) = self.moved(counter);
        if during - before >= least {
            return Ok(());
        }
        Err(Stop::NotMade(format!("{counter}: {before:.1} before, {during:.1} during, {least} more wanted")))
    }

    /// An error if the hypervisor stole CPU time for a while. Then there is a problem that the
    /// laboratory did not make, and neither a healthy machine nor the incident alone is visible.
    pub fn undisturbed(&self) -> Result<(), Stop> {
        let stolen = self.timeline.stolen(STEAL_SECONDS);
        if stolen < STEAL_MAX {
            return Ok(());
        }
        Err(Stop::NotMade(format!("the host of this machine took {:.0} % of its CPUs", stolen * 100.0)))
    }

    /// All counters that moved, as text.
    pub fn table(&self) -> String {
        self.timeline.table()
    }

    /// The moments of the run.
    pub fn times(&self) -> Times {
        Times { since: self.since, started: self.trouble_since, onset: self.onset, until: self.until }
    }

    /// Latencies of the victims.
    pub fn hurts(&self) -> &[VictimLatency] {
        &self.hurt
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.finished {
            self.conductor.left(self.part == Part::Noise);
        }
        // A throttled process cannot die before the journal lifts the throttle.
        self.children.kill();
        for failed in self.journal.undo_all() {
            println!("  could not be undone: {failed}");
        }
        self.children.reap();
    }
}
