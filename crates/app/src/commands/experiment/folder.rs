//! The folder of an experiment: its file, the order of the runs, what each run said, and the recording.
//!
//! ```text
//! experiment.toml   the file as it was given
//! experiment.json   seed, order of the runs, archive
//! runs.jsonl        one line for each run that has ended
//! runs/             what each run printed: 0007.out and 0007.out.err, and the same of .setup, .service, .reset, .teardown
//! work/             the directory of the workload; it is emptied before each run
//! archive/          the recording, unless a recorder of the machine made one elsewhere
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::plan::Experiment;
use crate::errors::usage;

const FILE: &str = "experiment.toml";
const ABOUT: &str = "experiment.json";
const RUNS: &str = "runs.jsonl";
/// Services that give up root have to get to their files in `work`, and to nothing else.
const DIR_MODE: u32 = 0o751;
/// As the recorder makes them.
const RUNS_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
const WORK_MODE: u32 = 0o755;
/// Of the files that are read again.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// A line of a run has a few hundred bytes for each metric.
const LINE_MAX: u64 = 1 << 20;
/// Runs of an experiment.
pub const RUNS_MAX: usize = 20_000;

/// One run, as it is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// From 0; the first ones may be warm-ups.
    pub round: u32,
    pub variant: usize,
    pub step: usize,
}

/// What is decided when an experiment begins.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    pub seed: u64,
    pub repetitions: u32,
    pub warm_up: u32,
    /// The folder of the file that was given.
    pub here: PathBuf,
    /// Where the recording is; `None` without one.
    pub archive: Option<PathBuf>,
    /// Whether the recorder is the experiment's own.
    pub own_recorder: bool,
    /// Its interval.
    pub interval: Duration,
    pub host: String,
    pub kernel: String,
    pub order: Vec<Slot>,
}

/// A run that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ran {
    /// Its place in the order, from 0.
    pub number: usize,
    /// When the workload began and ended, in nanoseconds since 1970.
    pub since: i64,
    pub until: i64,
    /// Why it does not count.
    pub failed: Option<String>,
    /// By the name of the metric, in base units.
    pub values: BTreeMap<String, f64>,
    /// Metrics that could not be read, with the reason.
    pub missing: BTreeMap<String, String>,
    /// What Mitra reads of outputs that it knows.
    pub also: BTreeMap<String, f64>,
}

/// The folder.
pub struct Folder {
    pub path: PathBuf,
    pub about: About,
    pub experiment: Experiment,
    pub ran: Vec<Ran>,
}

/// The rounds, each with every variant at every step in an order of its own.
pub fn order(experiment: &Experiment, rounds: u32, seed: u64) -> Vec<Slot> {
    let mut rng = Rng::with_seed(seed);
    let mut order = Vec::new();
    for round in 0..rounds {
        let mut slots: Vec<Slot> = (0..experiment.plan.variant.len())
            .flat_map(|variant| (0..experiment.steps.len()).map(move |step| Slot { round, variant, step }))
            .collect();
        rng.shuffle(&mut slots);
        order.extend(slots);
    }
    order
}

impl About {
    /// Whoever moves the folder moves the recording in it.
    fn in_folder(self, path: &Path) -> About {
        let archive = if self.own_recorder { Some(path.join("archive")) } else { self.archive };
        About { archive, ..self }
    }
}

/// The path without links. Of root it must be one that nobody else can change, because its programs are started.
pub fn trusted(path: &Path) -> Result<PathBuf> {
    let real = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
    match mitra_inspect::untrusted(&real) {
        Some(why) if rustix::process::geteuid().is_root() => Err(usage(format!(
            "{why}, and root would start programs from there; use folders that belong to root and that no other user can write"
        ))),
        _ => Ok(real),
    }
}

impl Folder {
    /// Makes a new folder, or takes an empty one.
    pub fn create(path: &Path, text: &str, experiment: Experiment, about: About) -> Result<Folder> {
        let shown = path.display();
        let make = |path: &Path, mode| DirBuilder::new().recursive(true).mode(mode).create(path);
        make(path, DIR_MODE).with_context(|| format!("cannot create {shown}"))?;
        let path = trusted(path)?;
        if fs::read_dir(&path).with_context(|| format!("cannot list {shown}"))?.next().is_some() {
            return Err(usage(format!(
                "{shown} is not empty; go on with an interrupted experiment by: mitra experiment --resume {shown}"
            )));
        }
        make(&path.join("runs"), RUNS_MODE).with_context(|| format!("cannot create {shown}/runs"))?;
        write(&path.join(FILE), text)?;
        let about = about.in_folder(&path);
        let folder = Folder { path, about, experiment, ran: Vec::new() };
        folder.keep_about()?;
        Ok(folder)
    }

    fn keep_about(&self) -> Result<()> {
        write(&self.path.join(ABOUT), &serde_json::to_string_pretty(&self.about)?)
    }

    /// Opens a folder to make the runs that are left.
    pub fn resume(path: &Path) -> Result<Folder> {
        let path = trusted(path)?;
        for file in [FILE, ABOUT] {
            trusted(&path.join(file))?;
        }
        let folder = Folder::open(&path)?;
        trusted(&folder.about.here)?;
        Ok(folder)
    }

    /// Opens a folder that was begun. A torn last line of its runs is dropped, so that the run is made again.
    pub fn open(path: &Path) -> Result<Folder> {
        let toml = path.join(FILE);
        let text = read(&toml)?;
        let experiment = Experiment::read(&toml.display().to_string(), &text)?;
        let about = path.join(ABOUT);
        let about: About =
            serde_json::from_str(&read(&about)?).with_context(|| format!("{}: damaged", about.display()))?;
        let (variants, steps) = (experiment.plan.variant.len(), experiment.steps.len());
        if about.order.len() > RUNS_MAX
            || about.order.iter().any(|slot| slot.variant >= variants || slot.step >= steps)
        {
            bail!("{}: {ABOUT} does not fit {FILE}", path.display());
        }
        let ran = read_runs(&path.join(RUNS), about.order.len())?;
        Ok(Folder { path: path.to_owned(), about: about.in_folder(path), experiment, ran })
    }

    /// Adds a run that has ended.
    pub fn add(&mut self, ran: Ran) -> Result<()> {
        let path = self.path.join(RUNS);
        let mut line = serde_json::to_string(&ran)?;
        line.push('\n');
        let append = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(FILE_MODE)
                .open(&path)?;
            let end = whole_lines(&mut file)?;
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            file.write_all(line.as_bytes())?;
            file.sync_data()
        };
        append().with_context(|| format!("cannot write {}", path.display()))?;
        self.ran.push(ran);
        Ok(())
    }

    /// What is still to be made, by its place in the order.
    pub fn left(&self) -> Vec<(usize, Slot)> {
        let is_left = |number: &usize| !self.ran.iter().any(|ran| ran.number == *number);
        self.about.order.iter().copied().enumerate().filter(|(number, _)| is_left(number)).collect()
    }

    /// The runs that count, of a variant at a step.
    pub fn of(&self, variant: usize, step: usize) -> Vec<&Ran> {
        let is_meant = |ran: &&Ran| {
            self.about.order.get(ran.number).is_some_and(|slot| {
                slot.variant == variant && slot.step == step && slot.round >= self.about.warm_up
            })
        };
        self.ran.iter().filter(is_meant).collect()
    }

    /// A file of a run.
    pub fn output(&self, number: usize, what: &str) -> PathBuf {
        self.path.join("runs").join(format!("{number:04}.{what}"))
    }

    /// The directory of the workload, empty.
    pub fn fresh_work(&self) -> Result<PathBuf> {
        let work = self.remove_work()?;
        let made = DirBuilder::new().mode(WORK_MODE).create(&work);
        made.with_context(|| format!("cannot create {}", work.display()))?;
        Ok(work)
    }

    /// Removes the directory of the workload. Returns where it was.
    pub fn remove_work(&self) -> Result<PathBuf> {
        let work = self.path.join("work");
        let shown = work.display();
        if let Some(place) = mounted_below(&work)? {
            let place = place.display();
            bail!("{place}: something is still mounted there; unmount it, and go on with --resume");
        }
        match fs::remove_dir_all(&work) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {shown}"))
            }
            _ => Ok(work),
        }
    }
}

/// A mount point at or below a directory, which must not be emptied then.
fn mounted_below(dir: &Path) -> Result<Option<PathBuf>> {
    // The kernel lists paths without links.
    let real = match dir.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot find {}", dir.display())),
    };
    let mounts = fs::read("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    let lines = mounts.split(|byte| *byte == b'\n');
    let mut places = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(1)).map(unescaped);
    Ok(places.find(|place| place.starts_with(&real)))
}

/// The kernel writes a space as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    OsString::from_vec(path).into()
}

/// How far a file has whole lines.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    let (mut end, mut at, mut reader) = (0, 0, BufReader::new(&*file));
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)?;
        at += read as u64;
        match line.last() {
            Some(b'\n') => end = at,
            Some(_) => {}
            None => return Ok(end),
        }
    }
}

fn read_runs(path: &Path, order: usize) -> Result<Vec<Ran>> {
    let text = match File::open(path) {
        Ok(file) => {
            let mut text = String::new();
            let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
            read.with_context(|| format!("cannot read {}", path.display()))?;
            text
        }
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut ran: Vec<Ran> = Vec::new();
    for (n, line) in text.split_inclusive('\n').enumerate().filter(|(_, line)| line.ends_with('\n')) {
        let run: Ran =
            serde_json::from_str(line).with_context(|| format!("{}:{}: damaged", path.display(), n + 1))?;
        if run.number >= order || ran.iter().any(|other| other.number == run.number) {
            bail!("{}:{}: run {} does not fit the order", path.display(), n + 1, run.number);
        }
        ran.push(run);
    }
    Ok(ran)
}

pub fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if read.with_context(|| format!("cannot read {shown}"))? as u64 > FILE_BYTES_MAX {
        bail!("{shown}: more than 64 MiB");
    }
    Ok(text)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> Experiment {
        let text = "title = \"t\"\n[workload]\ncommand = [\"x\"]\nsteps = [1, 2, 3]\n[[metric]]\nname = \"m\"\njson = \"\"\n\
                    better = \"lower\"\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n";
        Experiment::read("t.toml", text).unwrap()
    }

    #[test]
    fn each_round_has_each_run_once_and_the_seed_decides_the_order() {
        let experiment = experiment();
        let slots = order(&experiment, 4, 9);
        assert_eq!(slots, order(&experiment, 4, 9));
        assert_ne!(slots, order(&experiment, 4, 10));
        let rounds: Vec<&[Slot]> = slots.chunks(6).collect();
        for (n, round) in rounds.iter().enumerate() {
            let mut pairs: Vec<(usize, usize)> = round.iter().map(|slot| (slot.variant, slot.step)).collect();
            pairs.sort_unstable();
            assert_eq!(pairs, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
            assert!(round.iter().all(|slot| slot.round == n as u32));
        }
        let orders: Vec<Vec<(usize, usize)>> =
            rounds.iter().map(|round| round.iter().map(|slot| (slot.variant, slot.step)).collect()).collect();
        assert!(orders.windows(2).any(|pair| pair[0] != pair[1]), "the rounds have different orders");
    }

    #[test]
    fn a_torn_line_costs_only_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e");
        let about = About {
            seed: 1,
            repetitions: 1,
            warm_up: 0,
            here: "/".into(),
            archive: None,
            own_recorder: false,
            interval: Duration::from_secs(1),
            host: String::new(),
            kernel: String::new(),
            order: order(&experiment(), 1, 1),
        };
        let text = "title = \"t\"\n[workload]\ncommand = [\"x\"]\nsteps = [1, 2, 3]\n[[metric]]\nname = \"m\"\njson = \"\"\n\
                    better = \"lower\"\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n";
        let mut folder = Folder::create(&path, text, experiment(), about).unwrap();
        let ran = |number| Ran {
            number,
            since: 0,
            until: 1,
            failed: None,
            values: BTreeMap::new(),
            missing: BTreeMap::new(),
            also: BTreeMap::new(),
        };
        folder.add(ran(0)).unwrap();
        folder.add(ran(1)).unwrap();
        let runs = path.join(RUNS);
        let whole = fs::read_to_string(&runs).unwrap();
        fs::write(&runs, &whole[..whole.len() - 5]).unwrap();
        let mut again = Folder::open(&path).unwrap();
        assert_eq!((again.ran.len(), again.left().len()), (1, 5));
        again.add(ran(1)).unwrap();
        assert_eq!(fs::read_to_string(&runs).unwrap(), whole);
        let error = Folder::create(&path, text, experiment(), again.about).err().unwrap();
        assert!(error.to_string().contains("--resume"), "{error:#}");
    }

    #[test]
    fn mount_points_are_found_through_links_and_escapes() {
        let is_mounted = |dir: &str| mounted_below(Path::new(dir)).unwrap().is_some();
        assert!(is_mounted("/") && is_mounted("/proc") && is_mounted("/proc/self/../../proc"));
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        assert!(is_mounted(link.to_str().unwrap()));
        assert!(!is_mounted(dir.path().to_str().unwrap()) && !is_mounted("/nonexistent"));
        assert_eq!(unescaped(br"/a\040b\134c\n"), Path::new(r"/a b\c\n"));
    }
}
