//! `mitra diff`: what changed in a file of a host between two times, or differs between two hosts.

use anyhow::{Result, bail};
use mitra_search::answers;
use mitra_search::{Backend, Document, Scope};
use serde_json::json;

use super::{location, print};
use crate::cli::DiffArgs;
use crate::commands::{print as out, print_json};
use crate::render::style::{Ink, Style, clean_lines};
use crate::values::time::LocalClock;

/// Without --since: a day.
const USUAL_NS: i64 = 86_400_000_000_000;

pub fn run(args: &DiffArgs, style: &Style) -> Result<()> {
    let here = LocalClock::system();
    let backend = location::open(&args.location)?;
    let until = args.until.as_ref().map_or(here.now, |when| when.resolve(&here));
    let (a, b) = match &args.file {
        Some(file) => {
            let at = Scope::At { ns: until };
            (side(&backend, &args.host, file, at)?, side(&backend, &args.other, file, at)?)
        }
        None => {
            let since =
                args.since.as_ref().map_or(until.saturating_sub(USUAL_NS), |when| when.resolve(&here));
            let at = |ns| side(&backend, &args.host, &args.other, Scope::At { ns });
            (at(since)?, at(until)?)
        }
    };
    if a.document.is_none() && b.document.is_none() {
        bail!("nothing is known of {} or {}", a.name, b.name);
    }
    let lines = answers::diff(a.content(), b.content(), &a.name, &b.name);
    if args.json {
        return print_json(&json!({ "from": a.name, "to": b.name, "diff": lines }));
    }
    for (side, document) in [(&a, &a.document), (&b, &b.document)] {
        if document.is_none() {
            eprintln!("mitra: {} was not there", side.name);
        }
    }
    if lines.is_empty() {
        eprintln!("mitra: no difference");
    }
    out(&colored(&clean_lines(&lines), style))
}

struct Side {
    name: String,
    document: Option<Document>,
}

impl Side {
    fn content(&self) -> &str {
        self.document.as_ref().and_then(|d| d.content.as_deref()).unwrap_or_default()
    }
}

fn side(backend: &Backend, host: &str, file: &str, scope: Scope) -> Result<Side> {
    let document = backend.get(host, file, scope)?;
    let Scope::At { ns } = scope else { bail!("a side of a difference is a moment") };
    Ok(Side { name: format!("{host}:{file} {}", print::time(ns)), document })
}

fn colored(lines: &str, style: &Style) -> String {
    let paint = |line: &str| match line.as_bytes().first() {
        Some(b'+') => style.paint(Ink::Good, line),
        Some(b'-') => style.paint(Ink::Bad, line),
        Some(b'@') => style.paint(Ink::Faint, line),
        _ => line.to_owned(),
    };
    lines.lines().map(|line| paint(line) + "\n").collect()
}
