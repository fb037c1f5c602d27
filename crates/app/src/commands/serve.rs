//! `mitra serve`: one archive, asked over HTTP.

use anyhow::Result;

use crate::cli::ServeArgs;
use crate::commands::{print, services};
use crate::recording;
use crate::serve::{self, Options, Token};

pub fn run(args: &ServeArgs) -> Result<()> {
    let options = Options {
        dir: recording::readable_dir(&args.archive)?,
        listen: args.listen.clone(),
        token: args.token_file.as_deref().map(Token::read).transpose()?,
        services: services::document,
    };
    serve::run(options, |address| print(&format!("{address}\n")))
}
