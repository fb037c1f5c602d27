//! The laboratory's bench: runs one trouble at a time, marks its phases, and cleans up.
//!
//! Every way out of a case (done, failed, Ctrl-C, panic) unwinds through the `Drop` guards in
//! [`crate::guard`]; what a `SIGKILL` leaves behind is swept away at the start of the next run.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::cgroup::Cgroup;
use crate::counters::{self, Timeline};
use crate::guard::{self, RunDir};
use crate::recorder::Recorder;
use crate::report::{self, Truth};
use crate::victim::Victim;
use crate::witness::{self, Times, Witnesses};

/// Length of the phase in which nothing is wrong.
pub const HEALTHY_S: u64 = 11;
/// Length of the phase in which the trouble is on.
pub const INCIDENT_S: u64 = 12;
/// The trouble-maker must leave this much to the rest of the machine, or the case is given up.
const MEM_AVAILABLE_MIN_BYTES: u64 = 300 << 20;
/// Waiting longer for other work on the machine to end helps nobody.
const QUIET_WAIT_S: u64 = 60;
/// Above this share of busy CPU time the machine is not quiet enough to start.
const QUIET_BUSY_MAX: f64 = 0.15;

/// Set by the signal handler; looked at by everything that waits.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Why a case did not end well.
#[derive(Debug)]
pub enum Stop {
    /// This machine cannot make the trouble: no root, no tool, no such kernel feature.
    Skipped(String),
    /// Mitra, or the trouble itself, is not as it should be.
    Failed(String),
    /// The user had enough.
    Interrupted,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Self {
        Self::Failed(format!("the laboratory could not do its part: {e}"))
    }
}

/// One live test: a name to filter by and the function that makes the trouble.
#[derive(Clone, Copy)]
pub struct Case {
    /// What `-- FILTER` is matched against.
    pub name: &'static str,
    /// Programs that have to be installed.
    pub tools: &'static [&'static str],
    /// Makes the trouble and asserts what Mitra says about it.
    pub run: fn(&mut Lab) -> Result<(), Stop>,
}

impl Case {
    /// The same case with other tools beside the recorder.
    pub fn with_witnesses(&self) -> Case {
        let name: &'static str = Box::leak(format!("{}{}", witness::PREFIX, self.name).into_boxed_str());
        Case { name, ..*self }
    }
}

/// What a running case works with.
pub struct Lab {
    /// Files, archive and logs of this case; removed at the end.
    pub dir: RunDir,
    recorder: Option<Recorder>,
    archive: PathBuf,
    timeline: Timeline,
    since: SystemTime,
    incident_since: SystemTime,
    until: SystemTime,
    name: &'static str,
    witnesses: Option<Witnesses>,
    files: Option<PathBuf>,
    /// What the archive said, for the comparison with the files.
    archive_said: RefCell<serde_json::Value>,
}

impl Lab {
    fn new(name: &'static str) -> Result<Self, Stop> {
        let dir = RunDir::create(name)?;
        let archive = dir.path().join("archive");
        let now = SystemTime::now();
        Ok(Self {
            dir,
            recorder: None,
            archive,
            timeline: Timeline::default(),
            since: now,
            incident_since: now,
            until: now,
            name,
            witnesses: None,
            files: None,
            archive_said: RefCell::default(),
        })
    }

    /// Adds the block device that the run directory lives on to the counters that are watched.
    pub fn watch_device(&mut self, device: &str) {
        self.timeline.devices.push(device.to_owned());
    }

    /// Adds the counters of one cgroup to those that are watched.
    pub fn watch_cgroup(&mut self, cgroup: &Cgroup) {
        self.timeline.cgroups.extend(cgroup.counter_files());
    }

    /// Starts the recorder, then lets `HEALTHY_S` pass.
    pub fn healthy_phase(&mut self) -> Result<(), Stop> {
        if !dry() {
            if self.name.starts_with(witness::PREFIX) {
                self.witnesses = Some(Witnesses::start(self.dir.path())?);
            }
            self.recorder = Some(Recorder::start(&self.archive, self.dir.path())?);
        }
        self.since = SystemTime::now();
        self.timeline.start_phase();
        self.pass(HEALTHY_S, |_| Ok(()))
    }

    /// Lets the incident phase pass; the trouble has just been started.
    ///
    /// `tick` runs every 100 ms with the seconds since the start of the phase.
    pub fn incident_phase(&mut self, tick: impl FnMut(f64) -> Result<(), Stop>) -> Result<(), Stop> {
        self.pass(INCIDENT_S, tick)?;
        self.until = SystemTime::now();
        print!("{}", self.timeline.table());
        if let Some(witnesses) = self.witnesses.take() {
            let folder = witnesses.stop();
            witness::keep(&folder, self.name)?;
            self.files = Some(folder);
        }
        if let Some(recorder) = self.recorder.take() {
            recorder.stop()?;
        }
        Ok(())
    }

    /// Marks the moment at which the trouble starts. Called right before it is started.
    pub fn trouble_starts(&mut self) {
        self.incident_since = SystemTime::now();
        self.timeline.start_phase();
    }

    fn pass(&mut self, seconds: u64, mut tick: impl FnMut(f64) -> Result<(), Stop>) -> Result<(), Stop> {
        let start = Instant::now();
        let mut next_sample_s = 0.0;
        loop {
            let elapsed_s = start.elapsed().as_secs_f64();
            if elapsed_s >= next_sample_s {
                self.timeline.sample();
                next_sample_s += 1.0;
                if counters::mem_available_bytes().is_some_and(|b| b < MEM_AVAILABLE_MIN_BYTES) {
                    return Err(Stop::Failed("memory ran so low that the case was given up".into()));
                }
                if let Some(recorder) = &mut self.recorder {
                    recorder.check_alive()?;
                }
            }
            if elapsed_s >= seconds as f64 {
                return Ok(());
            }
            tick(elapsed_s)?;
            nap(Duration::from_millis(100))?;
        }
    }

    /// Checks that the victim suffered: its mean latency grew by `factor` at least.
    ///
    /// Without this a case could pass or fail over a trouble that was never made.
    pub fn victim_suffered(&self, victim: &Victim, factor: f64) -> Result<(), Stop> {
        let before = victim.latency(self.since, self.incident_since)?;
        let during = victim.latency(self.incident_since, self.until)?;
        println!("  victim {}: {before} -> {during}", victim.name());
        if during.mean_us >= before.mean_us * factor {
            return Ok(());
        }
        Err(Stop::Failed(format!(
            "the trouble was not made: {} did not get {factor} times slower",
            victim.name()
        )))
    }

    /// The increase of a watched counter per second, in the healthy and in the incident phase.
    pub fn rates(&self, counter: &str) -> (f64, f64) {
        self.timeline.rates(counter)
    }

    /// Asks Mitra why, and checks the answer against what was really done.
    pub fn expect(&mut self, truth: &Truth) -> Result<(), Stop> {
        let archive = self
            .ask(|value| report::check_incident(value, truth, self.since, self.incident_since, self.until));
        self.ask_witnesses(Some(truth), archive)
    }

    /// Asks Mitra why, and checks that it sees nothing wrong.
    pub fn expect_nothing(&mut self) -> Result<(), Stop> {
        let archive = self.ask(report::check_quiet);
        self.ask_witnesses(None, archive)
    }

    /// Asks the files of other tools the same, whatever the archive said; both have to be right.
    fn ask_witnesses(&self, truth: Option<&Truth>, archive: Result<(), Stop>) -> Result<(), Stop> {
        let Some(folder) = &self.files else { return archive };
        let times = Times { since: self.since, trouble: self.incident_since, until: self.until };
        let answer = crate::recorder::explain_files(folder, self.dir.path())?;
        let verdict = report::parse(&answer.json).and_then(|value| {
            println!("  first cause: {}", report::compared(&self.archive_said.borrow(), &value));
            witness::check(&value, truth, times)
        });
        match (verdict, archive) {
            (Ok(said), archive) => {
                println!("  files: {said}");
                archive
            }
            (Err(why), archive) => {
                println!("----- explain {} -----\n{}\n-----", folder.display(), answer.text.trim_end());
                let also = archive.err().map(|stop| format!("{stop}; ")).unwrap_or_default();
                Err(Stop::Failed(format!("{also}from files: {why}")))
            }
        }
    }

    fn ask(&self, check: impl Fn(&serde_json::Value) -> Result<String, String>) -> Result<(), Stop> {
        if dry() {
            println!("  dry run: nothing was recorded, nothing is checked");
            return Ok(());
        }
        let answer = crate::recorder::explain(&self.archive, self.dir.path(), self.since, self.until)?;
        let verdict = report::parse(&answer.json).and_then(|value| {
            report::check_contract(&value)?;
            let checked = check(&value);
            *self.archive_said.borrow_mut() = value;
            checked
        });
        match verdict {
            Ok(said) => {
                println!("  mitra: {said}");
                Ok(())
            }
            Err(why) => {
                let kept = self.dir.keep(&self.archive, &answer.json)?;
                println!("----- explain -----\n{}\n-----", answer.text.trim_end());
                println!(
                    "  healthy from {}, trouble from {} to {}",
                    report::rfc3339(self.since),
                    report::rfc3339(self.incident_since),
                    report::rfc3339(self.until)
                );
                Err(Stop::Failed(format!("{why}\n  archive and report are kept in {}", kept.display())))
            }
        }
    }
}

/// Makes the trouble without Mitra: for people who want to look at it with other tools.
pub fn dry() -> bool {
    std::env::var_os("MITRA_LIVE_DRY").is_some_and(|v| v == "1")
}

/// Sleeps, unless the run was interrupted.
pub fn nap(time: Duration) -> Result<(), Stop> {
    std::thread::sleep(time);
    if INTERRUPTED.load(Ordering::Relaxed) { Err(Stop::Interrupted) } else { Ok(()) }
}

/// True if `tool` is an executable on the path.
pub fn have(tool: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(tool).is_file()))
}

/// Runs a short helper command and returns its standard output.
pub fn run(command: &mut Command) -> Result<String, Stop> {
    let output = command.output().map_err(|e| Stop::Failed(format!("{:?}: {e}", command.get_program())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Stop::Failed(format!(
        "{command:?}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Other people's work on the machine would be recorded too: wait for a quiet moment.
fn wait_until_quiet() -> Result<(), Stop> {
    let start = Instant::now();
    loop {
        let before = counters::cpu_seconds();
        nap(Duration::from_secs(1))?;
        let after = counters::cpu_seconds();
        let busy = (after.busy_s - before.busy_s) / (after.total_s - before.total_s).max(0.01);
        if busy <= QUIET_BUSY_MAX {
            return Ok(());
        }
        if start.elapsed().as_secs() > QUIET_WAIT_S {
            println!("  note: the machine is {:.0} % busy with something else", busy * 100.0);
            return Ok(());
        }
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// What the command line of the test binary asked for.
struct Selection {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    list: bool,
}

impl Selection {
    /// Understands the flags of the usual test runner that matter here, and ignores the others.
    fn from_args() -> Self {
        let mut selection = Self { filters: Vec::new(), skips: Vec::new(), exact: false, list: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--list" => selection.list = true,
                "--exact" => selection.exact = true,
                "--skip" => selection.skips.extend(args.next()),
                "--test-threads" | "--format" | "--color" | "-Z" => _ = args.next(),
                flag if flag.starts_with('-') => {}
                filter => selection.filters.push(filter.to_owned()),
            }
        }
        selection
    }

    fn takes(&self, name: &str) -> bool {
        let hit = |f: &String| if self.exact { name == f } else { name.contains(f.as_str()) };
        // Cases with witnesses repeat the others: they run when they are asked for.
        let asked = !name.starts_with(witness::PREFIX)
            || self.filters.iter().any(|f| f.starts_with(witness::PREFIX.trim_end_matches('-')));
        asked && (self.filters.is_empty() || self.filters.iter().any(hit)) && !self.skips.iter().any(hit)
    }
}

/// Runs the selected cases one after the other and returns the exit code.
pub fn main(cases: &[Case]) -> i32 {
    let selection = Selection::from_args();
    let chosen: Vec<&Case> = cases.iter().filter(|c| selection.takes(c.name)).collect();
    if selection.list {
        for case in &chosen {
            println!("{}: test", case.name);
        }
        return 0;
    }
    if !rustix::process::geteuid().is_root() {
        for case in &chosen {
            println!("{}: skipped: needs root to make cgroups and to limit memory", case.name);
        }
        return 0;
    }
    // SAFETY: the handler only stores to an atomic, which is safe in a signal handler.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, on_signal as *const () as libc::sighandler_t);
        }
    }
    let _lock = match lock_machine() {
        Ok(lock) => lock,
        Err(e) => {
            println!("cannot take the machine-wide lock: {e}");
            return 101;
        }
    };
    guard::sweep();
    run_all(&chosen)
}

/// Only one laboratory at a time, whoever started it.
fn lock_machine() -> io::Result<File> {
    let path = Path::new("/run/mitra-live.lock");
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

fn run_all(chosen: &[&Case]) -> i32 {
    let repeat: u32 = std::env::var("MITRA_LIVE_REPEAT").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let mut outcomes = Vec::new();
    'all: for case in chosen {
        for turn in 1..=repeat {
            println!("live: {} ({turn}/{repeat})", case.name);
            let start = Instant::now();
            let outcome = run_one(case);
            let text = match &outcome {
                Ok(()) => "ok".to_owned(),
                Err(stop) => stop.to_string(),
            };
            println!("  {text} ({:.0} s)", start.elapsed().as_secs_f64());
            let stop_all = matches!(outcome, Err(Stop::Interrupted));
            outcomes.push((case.name, turn, outcome));
            if stop_all {
                break 'all;
            }
        }
    }
    println!("\nlive: summary");
    let mut failed = 0;
    for (name, turn, outcome) in &outcomes {
        let text = match outcome {
            Ok(()) => "ok".to_owned(),
            Err(stop) => stop.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        println!("  {name:<28} {turn}/{repeat}  {text}");
        failed += i32::from(matches!(outcome, Err(Stop::Failed(_) | Stop::Interrupted)));
    }
    let skipped = outcomes.iter().filter(|(.., o)| matches!(o, Err(Stop::Skipped(_)))).count() as i32;
    println!("{} passed, {failed} failed, {skipped} skipped", outcomes.len() as i32 - failed - skipped);
    if failed > 0 { 101 } else { 0 }
}

fn run_one(case: &Case) -> Result<(), Stop> {
    if let Some(tool) = case.tools.iter().find(|tool| !have(tool)) {
        return Err(Stop::Skipped(format!("{tool} is not installed")));
    }
    wait_until_quiet()?;
    catch_unwind(AssertUnwindSafe(|| {
        let mut lab = Lab::new(case.name)?;
        (case.run)(&mut lab)
    }))
    .unwrap_or_else(|_| Err(Stop::Failed("the case panicked".into())))
}
