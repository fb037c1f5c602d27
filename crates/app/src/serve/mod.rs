//! `mitra serve`: one archive, asked over HTTP. `openapi.json` says what may be asked.
//!
//! One thread waits for all connections; what reads the archive runs in a bounded pool beside it.

mod api;
mod archive;
mod cache;
mod counter;
mod guard;
mod incidents;
mod listen;
mod openmetrics;
mod page;
mod pool;
mod processes;
mod query;
mod response;
mod rows;
mod series;
mod stream;

use std::path::PathBuf;

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_model::Span;

use crate::cli::Listen;
use crate::confined;

pub use api::OPENAPI;
pub use guard::Token;

/// What was asked for on the command line.
pub struct Options {
    pub dir: PathBuf,
    pub listen: Listen,
    pub token: Option<Token>,
    /// The document of `mitra services --json`.
    pub services: Services,
}

/// Makes the document about services.
pub type Services = fn(&Reader, Span) -> Result<serde_json::Value>;

/// Serves until SIGTERM or SIGINT. `tell` gets the address as soon as connections are accepted.
///
/// A port is open to every user of the machine. Where they may not read the recording, they have to know a token, which is part
/// of the address that is told.
pub fn run(mut options: Options, tell: impl FnOnce(&str) -> Result<()>) -> Result<()> {
    let mut shown = String::new();
    if matches!(options.listen, Listen::Tcp(_)) && options.token.is_none() && !guard::is_public(&options.dir)
    {
        let token = Token::random()?;
        shown = format!("?token={}", token.text());
        options.token = Some(token);
    }
    let socket = listen::bind(&options.listen)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One more than works, for a fresh view of the archive.
        .max_blocking_threads(pool::AT_ONCE + 1)
        .thread_name("serve")
        .build()
        .context("cannot start the event loop")?;
    let done = runtime.block_on(async {
        let signals = listen::Signals::catch()?;
        let socket = socket.watched()?;
        confined::to_serve(&options.dir);
        let server = api::Server::open(options, socket.port())?;
        tell(&format!("{}{shown}", socket.told()))?;
        listen::serve(socket, server, signals).await
    });
    // An explanation that still runs changes nothing.
    runtime.shutdown_background();
    done
}
