//! `mitra serve` and `mitra mcp`: one archive, asked over HTTP or by an assistant.

use std::time::Duration;

use anyhow::Result;
use mitra_archive::Reader;

use crate::cli::{ArchiveArgs, DbusArgs, McpArgs, ServeArgs, StartedBy};
use crate::commands::{print, services};
use crate::errors::usage;
use crate::recording;
use crate::serve::{self, Commands, Options, Token};

pub fn run(args: &ServeArgs) -> Result<()> {
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let made = mitra_http::server(certificate, key, args.tls_client_ca.as_deref());
            Some(made.map_err(|error| usage(error.to_string()))?)
        }
        _ => None,
    };
    if args.listen.is_open() && (tls.is_none() || args.token_file.is_none()) {
        return Err(usage(format!(
            "others could ask {listen}, and read along: want --tls-cert, --tls-key and --token-file; or listen on \
             127.0.0.1:{port}, and come from other machines with: ssh -L {port}:127.0.0.1:{port} HOST",
            listen = args.listen,
            port = args.listen.port_or_usual(),
        )));
    }
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    let archive = args.archive.chosen();
    let options = Options { tls, ..options(&archive, token, Some(&args.started_by))? };
    serve::run(options, &args.listen, |address| print(&format!("{address}\n")))
}

/// Whoever started this waits for the address, and ends this with itself.
fn wait_for_a_sample(archive: &ArchiveArgs) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    while Reader::open(&recording::archive_dir(archive)?).ok().and_then(|reader| reader.span()).is_none() {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

pub fn run_mcp(args: &McpArgs) -> Result<()> {
    serve::run_on_stdio(options(&args.archive.chosen(), None, None)?)
}

pub fn run_dbus(args: &DbusArgs) -> Result<()> {
    let options = options(&args.archive.chosen(), None, Some(&args.started_by))?;
    serve::run_on_dbus(options, |name| print(&format!("{name}\n")))
}

fn options(archive: &ArchiveArgs, token: Option<Token>, started_by: Option<&StartedBy>) -> Result<Options> {
    if started_by.is_some_and(|by| by.wait) {
        wait_for_a_sample(archive)?;
    }
    let may_ask = started_by.map(|by| by.may_ask.clone()).unwrap_or_default();
    let commands = Commands { services: services::document, restrict: services::one::restrict };
    Ok(Options { dir: recording::readable_dir(archive)?, token, tls: None, may_ask, commands })
}
