//! `mitra inspect diff`: what grew between saved looks.

use anyhow::Result;
use mitra_inspect::{Diff, Look, verdict};
use serde_json::json;

use crate::cli::InspectDiffArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::render::inspect::diff as render;
use crate::render::style::Style;

/// Reads and compares.
pub fn run(args: &InspectDiffArgs, style: &Style) -> Result<()> {
    let mut looks: Vec<Look> = Vec::new();
    for path in &args.looks {
        looks.push(super::read(path)?);
    }
    let (Some(first), Some(_)) = (looks.first(), looks.get(1)) else {
        return Err(usage("two looks at least are compared"));
    };
    // Looks at one process are put in the order of their times; sides are compared as they stand.
    if looks.iter().all(|look| look.is_same_process(first)) {
        let first = first.clone();
        looks.sort_by(|a, b| first.seconds_until(a).total_cmp(&first.seconds_until(b)));
    }
    show(&looks, &[], args.rows, args.json, style)
}

/// Prints what grew from the first look to the last, and what all of them say together.
pub fn show(
    looks: &[Look],
    levels: &[verdict::Level],
    rows: usize,
    as_json: bool,
    style: &Style,
) -> Result<()> {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return Ok(()) };
    let diff = Diff::between(first, last);
    let verdict = verdict::of(looks, levels);
    if as_json {
        return print_json(&json!({ "schema": "mitra.growth/1", "verdict": verdict, "diff": diff }));
    }
    print(&render::text(&diff, &verdict, rows, style))
}
