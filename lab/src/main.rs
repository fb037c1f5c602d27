//! The command line of the laboratory.

mod smoke;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};

use mitra_lab::conductor::PAUSE;
use mitra_lab::disguise::Renames;
use mitra_lab::machine::{self, MachineLock};
use mitra_lab::plan::RunOptions;
use mitra_lab::record::{Kind, Record, Results, State, key};
use mitra_lab::recorder::Mitra;
use mitra_lab::run::Piece;
use mitra_lab::score::{self, Judged, Summary};
use mitra_lab::{Form, bench, calibrate, controls, incidents, long, ordeals, plan, roles, ship, stored};

/// Makes real incidents on this machine, has Mitra explain them, and scores what it said.
#[derive(Parser)]
#[command(name = "mitra-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The binary under test; without this, the one beside mitra-lab
    #[arg(long, global = true, value_name = "PATH")]
    mitra: Option<PathBuf>,
    /// Does not wait for a quiet machine before each run
    #[arg(long, global = true)]
    hurry: bool,
}

#[derive(Subcommand)]
enum Command {
    /// All incidents and controls
    List,
    /// Makes incidents or controls by name; fails when one is not named rightly, or none was made
    Run {
        /// Names, or beginnings of names
        #[arg(required = true)]
        names: Vec<String>,
        /// Only this form
        #[arg(long)]
        form: Option<Form>,
        /// Draws the parameters
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Keeps archives and reports here; without this, only what went wrong is kept
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// All at once: incidents in one form, and controls as the noise around them
        #[arg(long)]
        together: bool,
        /// Other tools write beside the recorder, and Mitra is asked about their files too
        #[arg(long)]
        witnesses: bool,
        /// How long controls work, in seconds
        #[arg(long, default_value_t = 30)]
        control_seconds: u64,
        /// From a change to the harm that it does, of incidents that are about that, in seconds
        #[arg(long, default_value_t = PAUSE.as_secs())]
        pause_seconds: u64,
    },
    /// A handful of incidents and a control, in a few minutes; fails when one is told wrongly twice, or none was made
    Smoke {
        /// Draws the parameters
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Every incident in both forms and the twelve controls of a round; goes on where it was interrupted
    Round {
        /// Draws the order and all parameters
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where results are kept; without this, mitra-lab-results in $TMPDIR or /var/tmp
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Makes again what was not made or failed
        #[arg(long)]
        retry: bool,
        /// How long controls work, in seconds
        #[arg(long, default_value_t = 300)]
        control_seconds: u64,
    },
    /// Two incidents at once, and incidents in the noise of a control
    Pairs {
        /// Draws the pairs and all parameters
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many pairs; half as many incidents in noise come on top
        #[arg(long, default_value_t = 16)]
        count: usize,
        /// Each of their incidents alone too, which tells the larger one of a pair
        #[arg(long)]
        alone: bool,
        /// Where results are kept; without this, mitra-lab-results in $TMPDIR or /var/tmp
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Makes again what was not made or failed
        #[arg(long)]
        retry: bool,
    },
    /// Scores stored results, and writes score.html beside them
    Score {
        /// Folders of results
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
        /// Explains the stored archives anew, with the binary under test
        #[arg(long)]
        explain: bool,
        /// Where the page is written; without this, score.html in the first folder
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Copies the archives of stored results, with the truth, into the source tree
    Ship {
        /// A folder of results
        dir: PathBuf,
        /// Where to
        #[arg(long, value_name = "DIR", default_value = "lab/recordings")]
        to: PathBuf,
        /// Explains the stored archives anew, to tell what is right and what is a miss
        #[arg(long)]
        explain: bool,
        /// Replaces OLD by NEW in all texts: paths and cgroups that are nobody's business
        #[arg(long, value_name = "OLD=NEW")]
        rename: Vec<String>,
    },
    /// A benchmark for any tool: recordings as Parquet with the truth beside them, and scores of answers
    #[command(subcommand)]
    Bench(Bench),
    /// How often verdicts of a given strength are right, on stored runs whose evidence is taken out in parts
    Calibrate {
        /// Folders of results, or of recordings
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
        /// Tests what was fitted on these other ones, in place of ten folds; may be given more than once
        #[arg(long, value_name = "DIR")]
        test: Vec<PathBuf>,
        /// Writes each verdict here, as a line of JSON
        #[arg(long, value_name = "FILE")]
        verdicts: Option<PathBuf>,
    },
    /// Hours and months, put together from recordings of a healthy machine and of incidents, and what is told of them
    Long {
        /// Folders of results, or of recordings
        #[arg(required = true)]
        dirs: Vec<PathBuf>,
        /// Draws what happens, and when
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many, of the four forms in turn
        #[arg(long, default_value_t = 8)]
        count: usize,
        /// How long each is, in hours
        #[arg(long, default_value_t = 6.0)]
        hours: f64,
        /// Keeps the archives and reports here
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
    /// What the recorder itself has to live through: no sample may be missing
    Endure {
        /// Beginnings of names; without one, all
        names: Vec<String>,
        /// How long each lasts, in seconds
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// Undoes what killed runs have left on the machine
    Clean,
    /// Waits for the end of a run and cleans up after it
    #[command(hide = true)]
    Keeper,
}

#[derive(Subcommand)]
enum Bench {
    /// Writes recordings as Parquet, for everybody, and apart from them what the keeper of the truth keeps
    Export {
        /// Folders of results, or of recordings
        #[arg(default_value = "lab/recordings")]
        from: Vec<PathBuf>,
        /// Where everybody's part is written
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Where all truths are written, and the answers of Mitra and of simple methods
        #[arg(long, value_name = "DIR")]
        keep: PathBuf,
        /// Draws which recordings are sealed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many of a hundred are sealed
        #[arg(long, value_name = "N", default_value_t = 30)]
        sealed_percent: u64,
    },
    /// Scores answers
    Score {
        /// Files of answers
        #[arg(required = true)]
        answers: Vec<PathBuf>,
        /// What was exported
        #[arg(long, value_name = "DIR")]
        bench: PathBuf,
        /// What the keeper has; without this, only the public part is scored
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
        /// Writes JSON
        #[arg(long)]
        json: bool,
        /// Writes the data sheet with the table of scores
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(roles::ROLE) {
        if let Err(e) = roles::play(&role) {
            eprintln!("{role}: {e}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let cli = Cli::parse();
    // The others start programs, and clean up behind them.
    if matches!(cli.command, Command::List) {
        machine::die_on_closed_pipe();
    }
    match command(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("mitra-lab: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn command(cli: Cli) -> anyhow::Result<bool> {
    let mitra = || Mitra::find(cli.mitra.clone());
    if cli.hurry {
        machine::hurry();
    }
    match cli.command {
        Command::List => list(),
        Command::Clean => {
            let failed = machine::clean()?;
            failed.iter().for_each(|f| println!("could not be undone: {f}"));
            return Ok(failed.is_empty());
        }
        Command::Keeper => machine::keep()?,
        Command::Run { names, form, seed, keep, together, witnesses, control_seconds, pause_seconds } => {
            let mut pieces = select(&names, form, control_seconds)?;
            if together {
                pieces = vec![at_once(&pieces, form.unwrap_or(Form::Loud))?];
            }
            let how = RunOptions { witnesses, retry: true, pause: Duration::from_secs(pause_seconds) };
            return run(&pieces, seed, &mitra()?, keep, how);
        }
        Command::Endure { names, seconds } => {
            let _possession = MachineLock::take()?;
            return Ok(ordeals::endure_all(&names, Duration::from_secs(seconds), &mitra()?));
        }
        Command::Smoke { seed } => return smoke::smoke(seed, &mitra()?),
        Command::Round { seed, out, retry, control_seconds } => {
            let mitra = mitra()?;
            let runs = plan::round(seed, control_seconds, &known_to(&mitra)?);
            return many(&runs, seed, &mitra, out, retry, "round");
        }
        Command::Pairs { seed, count, alone, out, retry } => {
            let mitra = mitra()?;
            let pairs = plan::pairs(seed, count, &known_to(&mitra)?);
            let runs = if alone { plan::with_each_alone(pairs) } else { pairs };
            return many(&runs, seed, &mitra, out, retry, "pairs");
        }
        Command::Score { dirs, explain, html } => {
            let mitra = if explain { Some(mitra()?) } else { None };
            let mut judged = Vec::new();
            for dir in &dirs {
                judged.extend(score::judge_all(&Results::open(dir)?, mitra.as_ref())?);
            }
            let page = html.or_else(|| dirs.first().map(|d| d.join("score.html")));
            show(&judged, page.as_deref())?;
        }
        Command::Bench(what) => bench(what, mitra)?,
        Command::Calibrate { dirs, test, verdicts } => {
            let samples = calibrate::samples(&stored::open_all(&dirs)?, &mitra()?)?;
            let tested = match test.is_empty() {
                true => None,
                false => Some(calibrate::samples(&stored::open_all(&test)?, &mitra()?)?),
            };
            print!("{}", calibrate::check(&samples, tested.as_deref()));
            if let Some(path) = verdicts {
                let all = samples.iter().chain(tested.iter().flatten());
                let lines: Result<Vec<String>, _> = all.map(serde_json::to_string).collect();
                std::fs::write(&path, lines?.join("\n") + "\n")
                    .with_context(|| path.display().to_string())?;
            }
        }
        Command::Long { dirs, seed, count, hours, keep } => {
            return long::score(&stored::open_all(&dirs)?, (seed, count, hours), keep.as_deref(), &mitra()?);
        }
        Command::Ship { dir, to, explain, rename } => {
            let mitra = if explain { Some(mitra()?) } else { None };
            let renames = Renames::parse(&rename)?;
            let results = Results::open(&dir)?;
            let judged = score::judge_all(&results, mitra.as_ref())?;
            let (count, bytes) = ship::ship(&results, &judged, &to, &renames)?;
            println!("{count} recordings, {} KB, in {}", bytes >> 10, to.display());
        }
    }
    Ok(true)
}

fn bench(what: Bench, mitra: impl Fn() -> anyhow::Result<Mitra>) -> anyhow::Result<()> {
    match what {
        Bench::Export { from, out, keep, seed, sealed_percent } => {
            let (stored, mitra) = (stored::open_all(&from)?, mitra()?);
            let exporter = bench::Exporter { mitra: &mitra, out: &out, keep: &keep, seed, sealed_percent };
            let index = exporter.export(&stored)?;
            let sealed = index.recordings.iter().filter(|e| e.part == bench::Part::Sealed).count();
            println!("{} recordings in {}, {sealed} of them sealed", index.recordings.len(), out.display());
            println!("truths and answers in {}", keep.display());
        }
        Bench::Score { answers, bench: dir, keep, json, page } => {
            let (index, keep) = (bench::Index::open(&dir)?, keep.as_deref());
            let mut scores = Vec::new();
            for path in &answers {
                let answers: bench::Answers = bench::read_json(path)?;
                let parts = [Some(bench::Part::Public), Some(bench::Part::Sealed), None];
                for part in parts.into_iter().take(if keep.is_some() { 3 } else { 1 }) {
                    scores.push(bench::score(&answers, &index, &dir, keep, part)?);
                }
            }
            match json {
                true => println!("{}", serde_json::to_string_pretty(&scores)?),
                false => print!("{}", bench::table(&scores)),
            }
            if let Some(path) = page {
                std::fs::write(&path, bench::page(&index, &dir, keep, &scores)?)
                    .with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

/// The conditions that the binary knows. Prints the incidents that are left out because it cannot
/// name them.
fn known_to(mitra: &Mitra) -> anyhow::Result<Vec<String>> {
    let known = mitra.conditions()?;
    for incident in incidents::of_a_round().filter(|i| !i.can_be_named(&known)) {
        println!("{} is not played: this mitra does not know {}", incident.name, incident.condition);
    }
    Ok(known)
}

fn list() {
    for i in incidents::all() {
        println!("{:<26} {:<28} {}", i.name, i.condition, i.what);
    }
    for c in controls::all() {
        println!("{:<26} {:<28} {}", c.name, "(healthy)", c.what);
    }
    println!("\nconditions that are not made");
    for (condition, why) in incidents::NOT_MADE {
        println!("{:<26} {:<28} {why}", "", condition);
    }
}

fn select(names: &[String], form: Option<Form>, control_seconds: u64) -> anyhow::Result<Vec<Vec<Piece>>> {
    let mut pieces = Vec::new();
    for name in names {
        let before = pieces.len();
        let exact = incidents::all().any(|i| i.name == name) || controls::all().any(|c| c.name == name);
        let takes = |n: &str| if exact { n == name } else { n.starts_with(name.as_str()) };
        for i in incidents::all().filter(|i| takes(i.name)) {
            let forms = Form::ALL.into_iter().filter(|f| form.is_none_or(|wanted| wanted == *f));
            pieces.extend(forms.map(|f| vec![Piece::Incident(i, f)]));
        }
        pieces.extend(
            controls::all().filter(|c| takes(c.name)).map(|c| vec![Piece::Control(c, control_seconds)]),
        );
        anyhow::ensure!(
            pieces.len() > before,
            "no incident and no control is called {name}; see mitra-lab list"
        );
    }
    Ok(pieces)
}

/// All pieces as one run.
fn at_once(pieces: &[Vec<Piece>], form: Form) -> anyhow::Result<Vec<Piece>> {
    let mut all: Vec<Piece> = pieces.concat();
    all.retain(|p| !matches!(p, Piece::Incident(_, other) if *other != form));
    let has_incident = all.iter().any(|p| matches!(p, Piece::Incident(..)));
    anyhow::ensure!(
        has_incident || all.len() == 1,
        "two controls at once cannot be judged; name an incident for them to be the noise of"
    );
    if has_incident {
        for piece in &mut all {
            if let Piece::Control(control, _) = *piece {
                *piece = Piece::Noise(control);
            }
        }
    }
    Ok(all)
}

/// Whether the run has no miss.
fn is_right(judged: &Judged) -> bool {
    match judged.record.state {
        State::Made => ship::miss(judged).is_none(),
        State::Skipped => true,
        State::NotMade | State::Failed | State::Broke => false,
    }
}

/// Whether anything was made: an incident, if one was requested. Prints why not.
fn anything_made<'a>(records: impl Iterator<Item = &'a Record>) -> bool {
    let records: Vec<&Record> = records.collect();
    let has_incident = records.iter().any(|r| r.kind != Kind::Control);
    let asked = || records.iter().filter(move |r| !has_incident || r.kind != Kind::Control);
    if asked().any(|r| r.state == State::Made) {
        return true;
    }
    println!("nothing was made");
    for record in asked() {
        println!("  {}: {}", record.key, record.why.as_deref().unwrap_or_default());
    }
    false
}

/// Prints a run's result as soon as the run has ended.
fn tell(results: &Results, key: &str) {
    let Some(record) = results.records.iter().find(|r| r.key == key) else { return };
    match score::judge_one(results, record, None, false) {
        Ok(judged) => {
            judged.verdicts.iter().for_each(|v| println!("  {}", score::line(v)));
            if record.kind == Kind::Control {
                let found = judged.found_on_control.join("; ");
                println!("  {}", if found.is_empty() { "silent" } else { &found });
            }
        }
        Err(e) => println!("  {e:#}"),
    }
}

fn run(
    pieces: &[Vec<Piece>],
    seed: u64,
    mitra: &Mitra,
    keep: Option<PathBuf>,
    how: RunOptions,
) -> anyhow::Result<bool> {
    let _possession = MachineLock::take()?;
    let kept = keep.is_some();
    let dir =
        keep.unwrap_or_else(|| machine::base_dir().join(format!("mitra-lab-kept-{}", std::process::id())));
    let mut results = Results::open(&dir)?;
    let complete = plan::execute(pieces, seed, mitra, &mut results, how, tell)?;
    let asked = || results.records.iter().filter(move |r| pieces.iter().any(|p| key(p, seed) == r.key));
    let mut right = complete && anything_made(asked());
    for record in asked() {
        let judged = score::judge_one(&results, record, None, false)?;
        if !is_right(&judged) {
            right = false;
        } else if !kept {
            _ = std::fs::remove_dir_all(record.folder(&dir));
        }
    }
    if right && !kept {
        _ = std::fs::remove_dir_all(&dir);
    } else {
        println!("archives and reports are in {}", dir.display());
    }
    Ok(right)
}

fn many(
    runs: &[Vec<Piece>],
    seed: u64,
    mitra: &Mitra,
    out: Option<PathBuf>,
    retry: bool,
    what: &str,
) -> anyhow::Result<bool> {
    let _possession = MachineLock::take()?;
    let out =
        out.unwrap_or_else(|| machine::base_dir().join("mitra-lab-results").join(format!("{what}-{seed}")));
    println!("results go to {}", out.display());
    let mut results = Results::open(&out)?;
    let complete = plan::execute(
        runs,
        seed,
        mitra,
        &mut results,
        RunOptions { witnesses: false, retry, pause: PAUSE },
        tell,
    )?;
    let judged = score::judge_all(&results, None)?;
    show(&judged, Some(&out.join("score.html")))?;
    Ok(complete && anything_made(results.records.iter()))
}

fn show(judged: &[Judged], html: Option<&Path>) -> anyhow::Result<()> {
    let summary = Summary::of(judged);
    print!("{}", score::page(judged, &summary));
    if let Some(path) = html {
        std::fs::write(path, score::html(judged, &summary)).with_context(|| path.display().to_string())?;
        println!("\n{}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mitra_lab::record::{Kind, Record, State};

    use super::anything_made;

    #[test]
    fn a_control_alone_is_nothing_where_an_incident_was_asked_for() {
        let record = |kind: Kind, state: State| Record {
            key: "a.loud.1".into(),
            kind,
            seed: 1,
            state,
            why: None,
            acts: Vec::new(),
            since_s: 0.0,
            until_s: 0.0,
            mitra: String::new(),
            machine: String::new(),
            live: Vec::new(),
        };
        let made = |runs: &[(Kind, State)]| {
            let records: Vec<Record> = runs.iter().map(|(kind, state)| record(*kind, *state)).collect();
            anything_made(records.iter())
        };
        let (control, incident) = ((Kind::Control, State::Made), (Kind::Incident, State::Made));
        let skipped = (Kind::Incident, State::Skipped);
        assert!(made(&[control]) && made(&[incident, skipped]) && made(&[(Kind::Pair, State::Made)]));
        assert!(!made(&[control, skipped]) && !made(&[(Kind::Control, State::Skipped)]) && !made(&[]));
    }
}
