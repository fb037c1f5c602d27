//! The commands, one file each.

mod armed;
mod capture;
mod compare;
mod completions;
mod conditions;
mod demo;
mod docs;
mod doctor;
mod dump;
mod experiment;
mod explain;
mod export;
mod fleet;
mod import;
mod inspect;
mod learner;
mod live;
mod load;
mod man;
mod metrics;
mod notify;
mod recognised;
mod record;
mod replay;
mod rules;
mod select;
mod send;
mod serve;
pub mod services;
mod show;
mod similar;
mod state;
mod status;
mod symbolize;
mod upload;
mod xfs_geometry;

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cli::{Cli, Command};
use crate::errors;
use crate::pager;
use crate::render::style::{Style, clean_json};

/// Runs the command that was asked for, and returns the exit code.
pub fn run(cli: Cli) -> Result<u8> {
    let style = Style::stdout(cli.color);
    match cli.command {
        Command::Demo(args) => demo::run(&args, cli.color, &style),
        Command::Record(args) => record::run(&args),
        Command::Explain(args) => return explain::run(&args, cli.color, &style),
        Command::Capture(args) => capture::run(&args, &style),
        Command::Load(args) => return load::run(&args, &style),
        Command::Inspect(args) => inspect::run(&args, &style),
        Command::Compare(args) => compare::run(&args, cli.color, &style),
        Command::Experiment(args) => experiment::run(&args, cli.color, &style),
        Command::Import(args) => import::run(&args),
        Command::Replay(args) => replay::run(&args, cli.color),
        Command::Live(args) => live::run(&args, cli.color),
        Command::Notify(args) => notify::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Index(args) => state::index::run(&args, &style),
        Command::Search(args) => state::search::run(&args, &style),
        Command::Show(args) => state::show::run(&args, &style),
        Command::Diff(args) => state::diff::run(&args, &style),
        Command::Outliers(args) => state::outliers::run(&args, &style),
        Command::Fleet(args) => fleet::run(&args, &style),
        Command::Services(args) => services::run(&args, &style),
        Command::Serve(args) => serve::run(&args),
        Command::Dbus(args) => serve::run_dbus(&args),
        Command::Mcp(args) => serve::run_mcp(&args),
        Command::Dump(args) => dump::run(&args, &style),
        Command::Status(args) => status::run(&args, &style),
        Command::Export(args) => export::run(&args),
        Command::Upload(args) => upload::run(&args),
        Command::Doctor(args) => doctor::run(&args, &style),
        Command::Conditions(args) => conditions::run(&args, &style),
        Command::Rules(args) => rules::run(&args, &style),
        Command::Armed(args) => armed::run(&args),
        Command::Names => crate::confined::read_files(),
        Command::Page => pager::page().context("cannot show what was printed"),
        Command::XfsGeometry(args) => xfs_geometry::run(&args, &style),
        Command::Metrics(args) => metrics::run(&args, &style),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Docs(args) => docs::run(&args),
    }?;
    Ok(errors::DONE)
}

/// Writes to standard output.
fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = pager::Output;
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes JSON to standard output, indented, because people read it too.
fn print_json(value: &impl Serialize) -> Result<()> {
    print(&json_text(value)?)
}

fn json_text(value: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(clean_json(&text).into_owned())
}
