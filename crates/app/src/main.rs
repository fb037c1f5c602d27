//! The one binary: `mitra`.

mod asked;
mod cli;
mod commands;
mod confined;
mod diagnosis;
mod errors;
mod escalation;
mod evidence;
mod heap;
mod import;
mod live;
mod log;
mod messages;
mod moment;

mod pager;
mod priority;
mod progress;
mod recorder;
mod recording;
mod redact;
mod remote;
mod render;
mod serve;
mod served;
mod service_manager;
mod services;
mod signals;
mod supervised;
mod tui;
mod values;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os());
    if !matches!(
        cli.command,
        Command::Record(_)
            | Command::Live(_)
            | Command::Replay(_)
            | Command::Serve(_)
            | Command::Page
            | Command::Experiment(_)
            | Command::Notify(_)
    ) {
        signals::die_on_closed_pipe();
    }
    if let Some(code) = supervised::instead(&cli.command) {
        return code;
    }
    mitra_inspect::files::use_helper(confined::reader);
    if cli.is_paged() {
        pager::start();
    }
    let is_paged = pager::child().is_some();
    let result = commands::run(cli);
    pager::finish();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_paged && pager::is_left(&error) => ExitCode::from(errors::DONE),
        Err(error) => {
            eprintln!("mitra: {}", render::style::clean_lines(&errors::in_words(&error)));
            ExitCode::from(errors::exit_code(&error))
        }
    }
}
