//! The one binary: `mitra`.

mod cli;
mod commands;
mod confined;
mod diagnosis;
mod errors;
mod escalation;
mod evidence;
mod import;
mod live;
mod log;
mod notify;
mod priority;
mod progress;
mod recorder;
mod recording;
mod redact;
mod render;
mod serve;
mod services;
mod signals;
mod supervised;
mod tui;
mod values;

use std::process::ExitCode;

use cli::Command;

fn main() -> ExitCode {
    let cli = cli::parse(std::env::args_os());
    if !matches!(cli.command, Command::Record(_) | Command::Live(_) | Command::Serve(_)) {
        signals::die_on_closed_pipe();
    }
    if let Some(code) = supervised::instead(&cli.command) {
        return code;
    }
    mitra_inspect::files::use_helper(confined::reader);
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mitra: {}", render::style::clean_lines(&format!("{error:#}")));
            ExitCode::from(errors::exit_code(&error))
        }
    }
}
