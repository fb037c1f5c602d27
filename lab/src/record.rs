//! Stored results: one line of JSON per run, and a directory with its archive and report.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::incident::{Form, Stop, Truth};
use crate::report::epoch_s;
use crate::run::{Act, Piece, RunOutcome};
use crate::stage::VictimLatency;

const RESULTS: &str = "results.jsonl";

/// The kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One incident.
    Incident,
    /// One control: a healthy machine.
    Control,
    /// Two incidents at once.
    Pair,
    /// An incident in the noise of a control.
    Noise,
}

/// Whether a run can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The incident was made, and is judged.
    Made,
    /// Mitra broke over it. Judged as a wrong answer.
    Broke,
    /// No victim was hurt. For a control: one was.
    NotMade,
    /// This machine cannot make it.
    Skipped,
    /// The laboratory broke.
    Failed,
}

impl State {
    /// Whether it counts in the score.
    pub fn is_judged(self) -> bool {
        matches!(self, Self::Made | Self::Broke)
    }
}

/// What one stage played.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActRecord {
    /// Name of the incident or control.
    pub name: String,
    /// `None` for controls.
    pub form: Option<Form>,
    /// True for a control that was only noise.
    #[serde(default)]
    pub noise: bool,
    /// The true root. Empty for controls.
    pub condition: String,
    /// Conditions that are equally true.
    #[serde(default)]
    pub also: Vec<String>,
    /// Conditions that the chain must show.
    #[serde(default)]
    pub chain: Vec<String>,
    /// Area of the condition.
    #[serde(default)]
    pub area: String,
    /// The culprit.
    pub truth: Option<Truth>,
    /// When the trouble was started, seconds since the epoch. No reported incident may begin before
    /// it.
    pub started_s: f64,
    /// The true onset.
    pub onset_s: f64,
    /// What the victims measured.
    #[serde(default)]
    pub victims: Vec<VictimLatency>,
}

/// A live answer, given during the trouble.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LiveRecord {
    /// When the answer arrived, seconds since the epoch.
    pub at_s: f64,
    /// The named roots, those in first place before the others.
    pub roots: Vec<String>,
    /// The root in first place, of the first incident that overlaps the trouble.
    #[serde(default)]
    pub first: Option<String>,
    /// Why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl LiveRecord {
    /// The root in first place. Older results store it as the first of `roots`.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref().or_else(|| self.roots.first().map(String::as_str))
    }
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Names, form and seed. Unique in a directory of results, and the name of the run's directory.
    pub key: String,
    /// The kind of the run.
    pub kind: Kind,
    /// The seed of the parameters.
    pub seed: u64,
    /// Whether the run can be judged.
    pub state: State,
    /// Why not.
    pub why: Option<String>,
    /// One act per stage.
    pub acts: Vec<ActRecord>,
    /// Begin of the window, seconds since the epoch.
    pub since_s: f64,
    /// End of the window.
    pub until_s: f64,
    /// `mitra --version` and the build.
    pub mitra: String,
    /// Kernel release and CPUs.
    pub machine: String,
    /// Live answers.
    #[serde(default)]
    pub live: Vec<LiveRecord>,
}

impl Record {
    /// The run's directory in a directory of results.
    pub fn folder(&self, results: &Path) -> PathBuf {
        results.join("runs").join(&self.key)
    }

    /// Begin and end of the window.
    pub fn window(&self) -> (SystemTime, SystemTime) {
        let at = |s: f64| UNIX_EPOCH + Duration::from_secs_f64(s.max(0.0));
        (at(self.since_s), at(self.until_s))
    }
}

/// The unique key of a run.
pub fn key(pieces: &[Piece], seed: u64) -> String {
    let names: Vec<String> = pieces
        .iter()
        .map(|p| match p {
            Piece::Incident(i, form) => format!("{}.{form}", i.name),
            Piece::Control(c, seconds) => format!("{}.{seconds}s", c.name),
            Piece::Noise(c) => format!("noise-{}", c.name),
        })
        .collect();
    format!("{}.{seed}", names.join("+"))
}

/// The kind of a run with these pieces.
pub fn kind(pieces: &[Piece]) -> Kind {
    match pieces {
        [Piece::Control(..)] => Kind::Control,
        [_] | [] => Kind::Incident,
        _ if pieces.iter().any(|p| matches!(p, Piece::Noise(_))) => Kind::Noise,
        _ => Kind::Pair,
    }
}

fn machine() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}, {} CPUs", release.trim(), crate::machine::cpus())
}

fn state_of(stop: &Stop) -> State {
    match stop {
        Stop::Skipped(_) => State::Skipped,
        Stop::NotMade(_) => State::NotMade,
        Stop::Mitra(_) => State::Broke,
        Stop::Failed(_) | Stop::Interrupted => State::Failed,
    }
}

fn act_record(act: &Act) -> ActRecord {
    let (form, condition, also, chain, area) = match act.piece {
        Piece::Incident(i, form) => (Some(form), i.condition, i.also, i.chain, i.area),
        Piece::Control(..) | Piece::Noise(_) => (None, "", &[] as &[&str], &[] as &[&str], "healthy"),
    };
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    ActRecord {
        name: act.piece.name().to_owned(),
        form,
        noise: matches!(act.piece, Piece::Noise(_)),
        condition: condition.to_owned(),
        also: owned(also),
        chain: owned(chain),
        area: area.to_owned(),
        truth: act.outcome.as_ref().ok().cloned(),
        started_s: epoch_s(act.times.started),
        onset_s: epoch_s(act.times.onset),
        victims: act.hurts.clone(),
    }
}

/// Why a run cannot be judged, or counts as broken.
fn why_not(played: &RunOutcome) -> Option<Stop> {
    let stops: Vec<&Stop> = played.acts.iter().filter_map(|a| a.outcome.as_ref().err()).collect();
    // If the recorder dies, all stages end.
    let broke = stops.iter().copied().find(|s| matches!(s, Stop::Mitra(_)));
    // A stage that cannot be set up makes the others fail. Its reason takes precedence.
    let weak = || stops.iter().copied().find(|s| !matches!(s, Stop::Failed(_) | Stop::Interrupted));
    let stop = broke.or_else(weak).or(played.stop.as_ref()).or_else(|| stops.first().copied());
    stop.cloned().or_else(|| {
        let says_nothing = |a: &&Act| {
            matches!(a.piece, Piece::Incident(..)) && a.outcome.as_ref().is_ok_and(|t| *t == Truth::default())
        };
        let act = played.acts.iter().find(says_nothing)?;
        Some(Stop::Failed(format!("{} does not say who did it", act.piece.name())))
    })
}

/// The record of a run, or of the reason why there was none.
pub fn record(pieces: &[Piece], seed: u64, mitra: &str, played: Result<&RunOutcome, &Stop>) -> Record {
    let mut record = Record {
        key: key(pieces, seed),
        kind: kind(pieces),
        seed,
        state: State::Made,
        why: None,
        acts: Vec::new(),
        since_s: 0.0,
        until_s: 0.0,
        mitra: mitra.to_owned(),
        machine: machine(),
        live: Vec::new(),
    };
    let stop = match played {
        Err(stop) => Some(stop.clone()),
        Ok(played) => {
            record.acts = played.acts.iter().map(act_record).collect();
            let real = || played.acts.iter().filter(|a| !matches!(a.piece, Piece::Noise(_)));
            if let Some(act) = real().next() {
                (record.since_s, record.until_s) = (epoch_s(act.times.since), epoch_s(act.times.until));
            }
            record.live = played
                .live
                .iter()
                .map(|l| LiveRecord {
                    at_s: epoch_s(l.at),
                    roots: l.said.roots.clone(),
                    first: l.said.first.clone(),
                    failed: l.said.failed.clone(),
                })
                .collect();
            why_not(played)
        }
    };
    if let Some(stop) = stop {
        record.state = state_of(&stop);
        record.why = Some(stop.to_string());
    }
    record
}

/// A directory of results.
pub struct Results {
    dir: PathBuf,
    /// All records, in the order of the runs.
    pub records: Vec<Record>,
}

impl Results {
    /// Reads the directory. A missing or empty one has no results.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(RESULTS);
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| path.display().to_string())?,
        };
        let mut results = Self { dir: dir.to_owned(), records: Vec::new() };
        for (i, line) in whole_lines(&text).lines().enumerate() {
            let record =
                serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), i + 1))?;
            results.put(record);
        }
        Ok(results)
    }

    /// The path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A repeated run replaces the earlier one.
    fn put(&mut self, record: Record) {
        self.records.retain(|r| r.key != record.key);
        self.records.push(record);
    }

    /// True if the run has a result. With `retry`, only judged and skipped ones count; a run that
    /// broke Mitra is not repeated.
    pub fn has(&self, key: &str, retry: bool) -> bool {
        let told = |state: State| !retry || state.is_judged() || state == State::Skipped;
        self.records.iter().any(|r| r.key == key && told(r.state))
    }

    /// The stored report of a run.
    pub fn report(&self, record: &Record) -> Option<Value> {
        let text = fs::read_to_string(record.folder(&self.dir).join("report.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The path of a run's archive.
    pub fn archive(&self, record: &Record) -> PathBuf {
        record.folder(&self.dir).join("archive")
    }

    /// Moves archive and reports into the directory, then appends the record.
    pub fn add(&mut self, record: Record, played: Option<&RunOutcome>) -> anyhow::Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        if let Some(played) = played {
            let folder = record.folder(&self.dir);
            _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)?;
            copy_tree(&played.archive, &folder.join("archive"))?;
            if let Some(witnesses) = &played.witnesses {
                copy_tree(witnesses, &folder.join("witnesses"))?;
            }
            if !played.report.is_null() {
                fs::write(folder.join("report.json"), serde_json::to_string_pretty(&played.report)?)?;
                fs::write(folder.join("report.txt"), &played.text)?;
            }
        }
        let mut line = serde_json::to_string(&record)?;
        line.push('\n');
        let path = self.dir.join(RESULTS);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        let there = whole_lines(&fs::read_to_string(&path)?).len();
        file.set_len(u64::try_from(there)?)?;
        file.write_all(line.as_bytes())?;
        self.put(record);
        Ok(())
    }
}

/// Drops a torn last line: its run was killed while writing and is repeated.
fn whole_lines(text: &str) -> &str {
    text.rfind('\n').and_then(|end| text.get(..=end)).unwrap_or_default()
}

/// Copies a directory recursively. Does nothing if it does not exist.
pub fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Results, State, key, record};
    use crate::conductor::Times;
    use crate::incident::{Form, Stop, Truth};
    use crate::incidents;
    use crate::run::{Act, Piece, RunOutcome};

    #[test]
    fn a_run_is_known_again_and_half_a_line_is_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let incident = incidents::all().next().unwrap();
        let pieces = [Piece::Incident(incident, Form::Faint)];
        let stop = Stop::Skipped("no such tool".into());
        let mut results = Results::open(dir.path()).unwrap();
        results.add(record(&pieces, 7, "mitra 1", Err(&stop)), None).unwrap();
        let path = dir.path().join("results.jsonl");
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"key\":\"torn");
        std::fs::write(&path, text).unwrap();
        let again = Results::open(dir.path()).unwrap();
        assert_eq!(again.records.len(), 1);
        assert!(again.has(&key(&pieces, 7), true) && !again.has(&key(&pieces, 8), false));
        assert_eq!(again.records[0].state, State::Skipped);
        // A record after a torn line goes on its own line.
        let mut again = again;
        again.add(record(&pieces, 8, "mitra 1", Err(&stop)), None).unwrap();
        assert_eq!(Results::open(dir.path()).unwrap().records.len(), 2);
    }

    #[test]
    fn a_line_in_the_middle_that_cannot_be_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("results.jsonl"), "{\"key\":\"torn\n{}\n").unwrap();
        let error = Results::open(dir.path()).err().map(|e| format!("{e:#}")).unwrap_or_default();
        assert!(error.contains("line 1"), "{error}");
    }

    fn played(outcome: Result<Truth, Stop>, stop: Option<Stop>) -> RunOutcome {
        let now = std::time::SystemTime::now();
        let piece = Piece::Incident(incidents::all().next().unwrap(), Form::Loud);
        let times = Times { since: now, started: now, onset: now, until: now };
        RunOutcome {
            acts: vec![Act { piece, outcome, times, hurts: Vec::new() }],
            stop,
            ..RunOutcome::default()
        }
    }

    #[test]
    fn what_mitra_breaks_over_is_judged_and_not_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let died = Stop::Mitra("mitra record ended by itself".into());
        let truth = Truth { process: Some("dd".into()), ..Truth::default() };
        let cases = [
            (Err(died.clone()), None, State::Broke),
            (Ok(truth.clone()), Some(died.clone()), State::Broke),
            (Err(Stop::NotMade("nobody was hurt".into())), Some(died), State::NotMade),
            (Ok(truth), None, State::Made),
            (Ok(Truth::default()), None, State::Failed),
        ];
        for (seed, (outcome, stop, state)) in (0..).zip(cases) {
            let played = played(outcome, stop);
            let pieces = [played.acts[0].piece];
            let record = record(&pieces, seed, "", Ok(&played));
            assert_eq!(record.state, state);
            let mut results = Results::open(dir.path()).unwrap();
            results.add(record, None).unwrap();
            assert_eq!(results.has(&key(&pieces, seed), true), state.is_judged());
        }
    }

    #[test]
    fn what_was_not_made_can_be_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let pieces = [Piece::Incident(incidents::all().next().unwrap(), Form::Loud)];
        let key = key(&pieces, 1);
        let mut results = Results::open(dir.path()).unwrap();
        results.add(record(&pieces, 1, "", Err(&Stop::NotMade("nobody was hurt".into()))), None).unwrap();
        assert!(results.has(&key, false) && !results.has(&key, true));
        results.add(record(&pieces, 1, "", Err(&Stop::Skipped("no tool".into()))), None).unwrap();
        let again = Results::open(dir.path()).unwrap();
        assert_eq!(again.records.len(), 1);
        assert!(again.has(&key, true));
    }
}
