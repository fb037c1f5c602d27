//! `mitra experiment`: variants of a system, compared by interleaved repetitions, with the recorder on.

mod changes;
mod folder;
mod judge;
mod machine;
mod outputs;
mod plan;
mod process;
mod recorder;
mod runner;
mod words;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use clap::ColorChoice;
use mitra_model::experiment::Outcome;

use super::{json_text, show};
use crate::cli::ExperimentArgs;
use crate::errors::usage;
use crate::progress::Progress;
use crate::render::style::Style;
use crate::render::{self, html};
use crate::signals::{self, Hangup};
use changes::State;
use folder::{About, Folder};
use plan::Experiment;
use runner::Runner;

/// The last sample of a run may come as late as this many intervals.
const LAST_SAMPLES: u32 = 2;

pub fn run(args: &ExperimentArgs, color: ColorChoice, style: &Style) -> Result<()> {
    let style = &show::style(&args.report, color, style);
    let output = show::Output::open(&args.report)?;
    let folder = match &args.again {
        Some(dir) => {
            signals::die_on_closed_pipe();
            Folder::open(dir)?
        }
        None => make(args)?,
    };
    let progress = Progress::new("comparing the runs");
    let outcome = judge::outcome(&folder)?;
    drop(progress);
    write(&output, &outcome, style)
}

fn write(output: &show::Output, outcome: &Outcome, style: &Style) -> Result<()> {
    output.write(
        || html::experiment::page(outcome, style),
        || json_text(outcome),
        || render::experiment::text(outcome, style),
    )
}

/// Begins or continues an experiment, and makes its runs.
fn make(args: &ExperimentArgs) -> Result<Folder> {
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    // Before a folder is made, because what is wrong in the file is told first.
    let given = args.file.as_deref().map(given).transpose()?;
    let continued = args.resume.as_deref().map(absolute).transpose()?;
    let continued = continued.map(|dir| Folder::open(&dir)).transpose()?;
    let experiment =
        given.as_ref().map(|(_, experiment)| experiment).or(continued.as_ref().map(|f| &f.experiment));
    if let Some(experiment) = experiment {
        refuse_without_root(experiment, args.root.is_some())?;
    }
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let state = State::lock(root)?;
    if let Some(said) = state.recover()? {
        _ = writeln!(std::io::stderr(), "mitra: {said}");
    }
    let mut folder = match (given, continued, &args.file) {
        (Some((text, experiment)), _, Some(file)) => begin(args, file, &text, experiment)?,
        (_, Some(folder), _) => folder,
        _ => return Err(usage("want the file of an experiment, --resume or --report")),
    };
    let own = folder.about.archive.clone().filter(|_| folder.about.own_recorder && !folder.left().is_empty());
    let recorder = own.map(|dir| recorder::start(&dir, args.interval)).transpose()?;
    let made = Runner { folder: &mut folder, state: &state, root }.run();
    if let Some(recorder) = recorder {
        if made.is_ok() {
            // Asked to stop meanwhile, it stops with fewer samples.
            _ = process::pause(args.interval.saturating_mul(LAST_SAMPLES));
        }
        recorder.stop()?;
    }
    made?;
    Ok(folder)
}

fn given(path: &Path) -> Result<(String, Experiment)> {
    let text = folder::read(path)?;
    let experiment = Experiment::read(&path.display().to_string(), &text)?;
    Ok((text, experiment))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("cannot tell where {} is", path.display()))
}

fn refuse_without_root(experiment: &Experiment, has_own_root: bool) -> Result<()> {
    let needs = experiment.needs_root();
    if needs.is_empty() || has_own_root || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(usage(format!("this needs root: {}", needs.join(", "))))
}

/// Decides what is open, and makes the folder.
fn begin(args: &ExperimentArgs, file: &Path, text: &str, experiment: Experiment) -> Result<Folder> {
    let dir = absolute(&args.dir.clone().unwrap_or_else(usual_folder))?;
    let file = absolute(file)?;
    let seed = args.seed.or(experiment.plan.seed).unwrap_or_else(new_seed);
    let repetitions = args.repetitions.unwrap_or(experiment.repetitions());
    let rounds = repetitions.saturating_add(experiment.warm_up());
    let runs = rounds as usize * experiment.plan.variant.len() * experiment.steps.len();
    if runs > folder::RUNS_MAX {
        return Err(usage(format!("these are {runs} runs; {} are the most", folder::RUNS_MAX)));
    }
    let running = if args.no_record { None } else { recorder::running(args.archive.as_deref())? };
    let own_recorder = !args.no_record && running.is_none();
    let uname = rustix::system::uname();
    let about = About {
        seed,
        repetitions,
        warm_up: experiment.warm_up(),
        here: file.parent().map(Path::to_path_buf).ok_or_else(|| anyhow!("{}: no file", file.display()))?,
        archive: if own_recorder { Some(dir.join("archive")) } else { running },
        own_recorder,
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        order: folder::order(&experiment, rounds, seed),
    };
    let folder = Folder::create(&dir, text, experiment, about)?;
    _ = writeln!(std::io::stderr(), "{runs} runs into {}, order by seed {seed}", folder.path.display());
    Ok(folder)
}

fn usual_folder() -> PathBuf {
    jiff::Zoned::now().strftime("experiment-%Y%m%d-%H%M%S").to_string().into()
}

/// Another one each time. It is recorded.
fn new_seed() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos())
}
