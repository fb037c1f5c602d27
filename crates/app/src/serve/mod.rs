//! `mitra serve` and `mitra mcp`: one archive, asked over HTTP or by an assistant. `openapi.json` and `tools.json` say what may be
//! asked.
//!
//! One thread waits for all connections; what reads the archive runs in a bounded pool beside it.

mod answers;
mod api;
mod archive;
mod asks;
mod cache;
mod cgroups;
mod counter;
mod dbus;
mod guard;
mod incidents;
mod listen;
mod mcp;
pub mod openmetrics;
mod page;
mod pool;
mod processes;
mod prometheus;
mod query;
mod response;
mod rows;
mod series;
mod state;
mod stdio;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_http::ServerConfig;
use mitra_model::Span;
use mitra_model::report::Report;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cli::Listen;
use crate::{confined, heap};

use self::asks::Asks;

pub use api::OPENAPI;
pub use dbus::run as run_on_dbus;
pub use guard::Token;
pub use mcp::TOOLS;
pub use stdio::run as run_on_stdio;

/// What was asked for on the command line.
pub struct Options {
    pub dir: PathBuf,
    pub token: Option<Token>,
    /// The certificate, where it is encrypted.
    pub tls: Option<Arc<ServerConfig>>,
    /// The probes that the recorder at standard input arms when it is asked.
    pub may_ask: Vec<String>,
    pub commands: Commands,
}

/// What other commands know.
#[derive(Clone, Copy)]
pub struct Commands {
    /// The document of `mitra services --json`.
    pub services: fn(&Reader, Span) -> Result<Value>,
    /// Leaves the incidents that concern a service, as `mitra explain --service`.
    pub restrict: fn(&Reader, Span, &str, &mut Report) -> Result<()>,
}

/// Serves until SIGTERM or SIGINT. `tell` gets the address as soon as connections are accepted.
///
/// A port is open to every user of the machine. Where they may not read the recording, they have to know a token, which is part
/// of the address that is told. Who may ask for probes always has to know one.
pub fn run(mut options: Options, listen: &Listen, tell: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let mut shown = String::new();
    let is_open = !matches!(listen, Listen::Tcp(_)) || guard::is_public(&options.dir);
    if options.token.is_none() && !(is_open && options.may_ask.is_empty()) {
        let token = Token::random()?;
        shown = format!("?token={}", token.text());
        options.token = Some(token);
    }
    let socket = listen::bind(listen)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let signals = listen::Signals::catch()?;
        let socket = socket.watched(options.tls.clone())?;
        let asks = Asks::open(&options.may_ask)?;
        confined::to_serve(&options.dir, false);
        let server = api::Server::open(options, socket.port(), asks)?;
        tell(&format!("{}{shown}", socket.told()))?;
        listen::serve(socket, server, signals).await
    });
    // An explanation that still runs changes nothing.
    runtime.shutdown_background();
    done
}

fn runtime() -> Result<Runtime> {
    heap::bound();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One more than works, for a fresh view of the archive.
        .max_blocking_threads(pool::AT_ONCE + 1)
        .thread_name("serve")
        .build()
        .context("cannot start the event loop")
}

#[cfg(test)]
mod tests;
