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
use std::time::Duration;

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
/// Of a recorder of its own, unless another one is given.
const INTERVAL: Duration = Duration::from_secs(1);

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
    let continued = args.resume.as_deref().map(|dir| resume(dir, args.interval)).transpose()?;
    let experiment =
        given.as_ref().map(|(.., experiment)| experiment).or(continued.as_ref().map(|f| &f.experiment));
    if let Some(experiment) = experiment {
        refuse_without_root(experiment, args.root.is_some())?;
    }
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let state = State::lock(root)?;
    if let Some(said) = state.recover()? {
        _ = writeln!(std::io::stderr(), "mitra: {said}");
    }
    let mut folder = match (given, continued) {
        (Some((file, text, experiment)), _) => begin(args, &file, &text, experiment)?,
        (_, Some(folder)) => folder,
        _ => return Err(usage("want the file of an experiment, --resume or --report")),
    };
    let own = folder.about.archive.clone().filter(|_| folder.about.own_recorder && !folder.left().is_empty());
    let interval = folder.about.interval;
    let recorder = own.map(|dir| recorder::start(&dir, interval)).transpose()?;
    let made = Runner { folder: &mut folder, state: &state, root }.run();
    let stopped = recorder.map_or(Ok(()), |recorder| {
        if made.is_ok() {
            // Asked to stop meanwhile, it stops with fewer samples.
            _ = process::pause(interval.saturating_mul(LAST_SAMPLES));
        }
        recorder.stop()
    });
    made.and(stopped)?;
    // Ctrl-C ends the comparison at once: the runs are kept.
    signals::let_go().context("cannot give signals back")?;
    Ok(folder)
}

/// The folder of an experiment to go on with. Its runs are of one machine, one kernel and one interval.
fn resume(dir: &Path, interval: Option<Duration>) -> Result<Folder> {
    let folder = Folder::resume(dir)?;
    let (about, shown) = (&folder.about, folder.path.display());
    let (host, kernel) = host_and_kernel();
    if about.host != host || about.kernel != kernel {
        return Err(usage(format!(
            "{shown}: its runs are of {} with Linux {}, and this is {host} with Linux {kernel}; begin a new one",
            about.host, about.kernel
        )));
    }
    if interval.is_some_and(|interval| interval != about.interval) {
        let kept = about.interval;
        return Err(usage(format!("{shown}: its interval is {kept:?}; go on without --interval")));
    }
    Ok(folder)
}

fn host_and_kernel() -> (String, String) {
    let uname = rustix::system::uname();
    (uname.nodename().to_string_lossy().into_owned(), uname.release().to_string_lossy().into_owned())
}

fn given(path: &Path) -> Result<(PathBuf, String, Experiment)> {
    // Of what is trusted nobody else can change the path from here on.
    let real = folder::trusted(path)?;
    let text = folder::read(&real)?;
    let experiment = Experiment::read(&path.display().to_string(), &text)?;
    Ok((real, text, experiment))
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
    let (host, kernel) = host_and_kernel();
    let here = file.parent().ok_or_else(|| anyhow!("{}: no file", file.display()))?;
    let running = if args.no_record { None } else { recorder::running(args.archive.as_deref())? };
    let about = About {
        seed,
        repetitions,
        warm_up: experiment.warm_up(),
        here: folder::trusted(here)?,
        own_recorder: !args.no_record && running.is_none(),
        archive: running,
        interval: args.interval.unwrap_or(INTERVAL),
        host,
        kernel,
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
