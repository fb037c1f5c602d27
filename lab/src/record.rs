//! Results as they are stored: one line of JSON for each run, and a folder with its archive and report.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::incident::{Form, Stop, Truth};
use crate::report::epoch_s;
use crate::run::{Act, Piece, Played};
use crate::stage::Hurt;

const RESULTS: &str = "results.jsonl";

/// What a run was for.
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

/// Whether a run tells anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It was made, and is judged.
    Made,
    /// It was tried, but nobody was hurt; of a control: somebody was.
    NotMade,
    /// This machine cannot make it.
    Skipped,
    /// The laboratory or Mitra broke.
    Failed,
}

/// What was played on one stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActRecord {
    /// Of the incident or control.
    pub name: String,
    /// Controls have none.
    pub form: Option<Form>,
    /// True of a control that was only noise.
    #[serde(default)]
    pub noise: bool,
    /// The true root; empty for controls.
    pub condition: String,
    /// Equally true ones.
    #[serde(default)]
    pub also: Vec<String>,
    /// Conditions that the chain has to show.
    #[serde(default)]
    pub chain: Vec<String>,
    /// Area of the condition.
    #[serde(default)]
    pub area: String,
    /// Who did it.
    pub truth: Option<Truth>,
    /// When the trouble was started, seconds since the epoch: nothing may be said to begin before.
    pub started_s: f64,
    /// When it began to hurt: the true onset.
    pub onset_s: f64,
    /// What victims measured.
    #[serde(default)]
    pub victims: Vec<Hurt>,
}

/// What was said while the trouble was on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LiveRecord {
    /// When the answer was there.
    pub at_s: f64,
    /// The roots it named.
    pub roots: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Names, form and seed; unique in a folder of results. Also the name of the run's folder.
    pub key: String,
    /// What it was for.
    pub kind: Kind,
    /// Drew the parameters.
    pub seed: u64,
    /// Whether it tells anything.
    pub state: State,
    /// Why not.
    pub why: Option<String>,
    /// One for each stage.
    pub acts: Vec<ActRecord>,
    /// The window, seconds since the epoch.
    pub since_s: f64,
    /// Its end.
    pub until_s: f64,
    /// `mitra --version`
    pub mitra: String,
    /// Kernel release and CPUs.
    pub machine: String,
    /// Live answers.
    #[serde(default)]
    pub live: Vec<LiveRecord>,
}

impl Record {
    /// The folder of the run in a folder of results.
    pub fn folder(&self, results: &Path) -> PathBuf {
        results.join("runs").join(&self.key)
    }

    /// Both ends of the window.
    pub fn window(&self) -> (SystemTime, SystemTime) {
        let at = |s: f64| UNIX_EPOCH + Duration::from_secs_f64(s.max(0.0));
        (at(self.since_s), at(self.until_s))
    }
}

/// What identifies a run.
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

/// What a run with these pieces is for.
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

/// Makes a record of what was played, or of why it was not.
pub fn record(pieces: &[Piece], seed: u64, mitra: &str, played: Result<&Played, &Stop>) -> Record {
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
                .map(|l| LiveRecord { at_s: epoch_s(l.at), roots: l.roots.clone() })
                .collect();
            // A stage that could not be set up makes the others fail: its reason comes first.
            let stops: Vec<&Stop> = played.acts.iter().filter_map(|a| a.outcome.as_ref().err()).collect();
            let weak = stops.iter().copied().find(|s| !matches!(s, Stop::Failed(_) | Stop::Interrupted));
            weak.or(played.stop.as_ref()).or_else(|| stops.first().copied()).cloned()
        }
    };
    if let Some(stop) = stop {
        record.state = state_of(&stop);
        record.why = Some(stop.to_string());
    }
    record
}

/// A folder of results.
pub struct Results {
    dir: PathBuf,
    /// What is in it, in the order of the runs.
    pub records: Vec<Record>,
}

impl Results {
    /// Reads what is there; an empty or missing folder has no results.
    pub fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(RESULTS);
        let text = fs::read_to_string(&path).unwrap_or_default();
        // A run that was killed while it wrote leaves half a line: that run is made again.
        let mut results = Self { dir: dir.to_owned(), records: Vec::new() };
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).for_each(|r| results.put(r));
        Ok(results)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A run that was made again counts in place of the one before.
    fn put(&mut self, record: Record) {
        self.records.retain(|r| r.key != record.key);
        self.records.push(record);
    }

    /// True if the run is there already. With `retry`, only what was made or skipped is.
    pub fn has(&self, key: &str, retry: bool) -> bool {
        let told = |state: State| !retry || matches!(state, State::Made | State::Skipped);
        self.records.iter().any(|r| r.key == key && told(r.state))
    }

    /// The report of a run as it was stored.
    pub fn report(&self, record: &Record) -> Option<Value> {
        let text = fs::read_to_string(record.folder(&self.dir).join("report.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The archive of a run.
    pub fn archive(&self, record: &Record) -> PathBuf {
        record.folder(&self.dir).join("archive")
    }

    /// Moves archive and reports into the folder, then appends the line.
    pub fn add(&mut self, record: Record, played: Option<&Played>) -> anyhow::Result<()> {
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
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.dir.join(RESULTS))?;
        file.write_all(line.as_bytes())?;
        self.put(record);
        Ok(())
    }
}

/// Copies a directory with what is in it; nothing if it is not there.
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
    use crate::incident::{Form, Stop};
    use crate::incidents;
    use crate::run::Piece;

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
