//! `mitra show`: the content of a file of a host.

use anyhow::{Result, bail};
use mitra_search::{Backend, Scope};

use super::{location, print};
use crate::cli::ShowArgs;
use crate::commands::{print as out, print_json};
use crate::render::style::{Style, clean_lines};
use crate::values::time::LocalClock;

pub fn run(args: &ShowArgs, style: &Style) -> Result<()> {
    let here = LocalClock::system();
    let backend = location::open(&args.location)?;
    let scope = location::scope(&args.scope, false, &backend, &here)?;
    document(&backend, &args.host, &args.file, scope, args.facts, args.json, style)
}

/// Prints the content of a document, and its metadata if asked for.
pub fn document(
    backend: &Backend,
    host: &str,
    file: &str,
    scope: Scope,
    facts: bool,
    json: bool,
    style: &Style,
) -> Result<()> {
    let Some(document) = backend.get(host, file, scope)? else {
        let (first, last) = scope.days();
        let when = if first == last { format!("on {first}") } else { format!("from {first} to {last}") };
        bail!("{host}: nothing is known of {file} {when}");
    };
    if json {
        return print_json(&document.to_json());
    }
    let mut text = String::new();
    if facts {
        text.push_str(&print::facts(&document, style));
        text.push('\n');
    }
    match &document.content {
        Some(content) => text.push_str(&clean_lines(content)),
        None => eprintln!("mitra: {host}:{file} has no content to show{}", reason(&document)),
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    out(&text)
}

fn reason(document: &mitra_search::Document) -> String {
    let reasons = document.withheld.reasons.join(", ");
    if !reasons.is_empty() {
        return format!(": withheld ({reasons})");
    }
    let flags: Vec<&str> = document.flags.iter().map(|f| f.name()).collect();
    if flags.is_empty() { String::new() } else { format!(": {}", flags.join(", ")) }
}
