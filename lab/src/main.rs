//! The command line of the laboratory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use mitra_lab::machine::{self, Possession};
use mitra_lab::recorder::Mitra;
use mitra_lab::run::{Piece, play};
use mitra_lab::{Form, controls, incidents, report, roles};

/// One of each area, and the machine on which nothing happens.
const SMOKE: [&str; 5] = ["idle", "cpu-quota", "disk-hog-reads", "cache-thrash", "oom-in-cgroup"];
const SMOKE_CONTROL_S: u64 = 20;

/// Makes real incidents on this machine, has Mitra explain them, and scores what it said.
#[derive(Parser)]
#[command(name = "mitra-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The binary under test; without this, the one beside mitra-lab
    #[arg(long, global = true, value_name = "PATH")]
    mitra: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// All incidents and controls
    List,
    /// Makes incidents or controls by name
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
        /// How long controls work, in seconds
        #[arg(long, default_value_t = 30)]
        control_seconds: u64,
    },
    /// A handful of incidents and a control, in a few minutes; fails when one is not named
    Smoke {
        /// Draws the parameters
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Undoes what killed runs have left on the machine
    Clean,
    /// Waits for the end of a run and cleans up after it
    #[command(hide = true)]
    Keeper,
}

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(roles::ROLE) {
        if let Err(e) = roles::play(&role) {
            eprintln!("{role}: {e}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    match command(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("mitra-lab: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn command(cli: Cli) -> anyhow::Result<bool> {
    match cli.command {
        Command::List => list(),
        Command::Clean => {
            for failed in machine::clean()? {
                println!("could not be undone: {failed}");
            }
        }
        Command::Keeper => machine::keep()?,
        Command::Run { names, form, seed, control_seconds } => {
            let mitra = Mitra::find(cli.mitra)?;
            let pieces = select(&names, form, control_seconds)?;
            let _possession = Possession::take()?;
            return run(&pieces, seed, &mitra);
        }
        Command::Smoke { seed } => {
            let mitra = Mitra::find(cli.mitra)?;
            let pieces = select(&SMOKE.map(str::to_owned), Some(Form::Loud), SMOKE_CONTROL_S)?;
            let _possession = Possession::take()?;
            return run(&pieces, seed, &mitra);
        }
    }
    Ok(true)
}

fn list() {
    for i in incidents::all() {
        println!("{:<26} {:<28} {}", i.name, i.condition, i.what);
    }
    for c in controls::all() {
        println!("{:<26} {:<28} {}", c.name, "(healthy)", c.what);
    }
}

fn select(names: &[String], form: Option<Form>, control_seconds: u64) -> anyhow::Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    for name in names {
        let before = pieces.len();
        let exact = incidents::all().any(|i| i.name == name) || controls::all().any(|c| c.name == name);
        let takes = |n: &str| if exact { n == name } else { n.starts_with(name.as_str()) };
        for i in incidents::all().filter(|i| takes(i.name)) {
            let forms = Form::ALL.into_iter().filter(|f| form.is_none_or(|wanted| wanted == *f));
            pieces.extend(forms.map(|f| Piece::Incident(i, f)));
        }
        pieces.extend(controls::all().filter(|c| takes(c.name)).map(|c| Piece::Control(c, control_seconds)));
        anyhow::ensure!(
            pieces.len() > before,
            "no incident and no control is called {name}; see mitra-lab list"
        );
    }
    Ok(pieces)
}

fn run(pieces: &[Piece], seed: u64, mitra: &Mitra) -> anyhow::Result<bool> {
    for piece in pieces {
        let dir = machine::base_dir().join(format!("mitra-lab-run-{}", std::process::id()));
        println!("{}", piece.name());
        match play(&[*piece], seed, mitra, &dir) {
            Ok(played) => {
                for act in &played.acts {
                    println!("  {:?}", act.outcome);
                }
                println!("  {:?}", played.stop);
                println!("  {}", report::summary(&played.report));
            }
            Err(stop) => println!("  {stop}"),
        }
        std::fs::remove_dir_all(&dir).ok();
    }
    Ok(true)
}
