//! `mitra serve` and `mitra mcp`: one archive, asked over HTTP or by an assistant.

use anyhow::Result;

use crate::cli::{ArchiveArgs, McpArgs, ServeArgs};
use crate::commands::{print, services};
use crate::recording;
use crate::serve::{self, Commands, Options, Token};

pub fn run(args: &ServeArgs) -> Result<()> {
    let token = args.token_file.as_deref().map(Token::read).transpose()?;
    serve::run(options(&args.archive.chosen(), token)?, &args.listen, |address| {
        print(&format!("{address}\n"))
    })
}

pub fn run_mcp(args: &McpArgs) -> Result<()> {
    serve::run_on_stdio(options(&args.archive.chosen(), None)?)
}

fn options(archive: &ArchiveArgs, token: Option<Token>) -> Result<Options> {
    let commands = Commands { services: services::document, restrict: services::one::restrict };
    Ok(Options { dir: recording::readable_dir(archive)?, token, commands })
}
