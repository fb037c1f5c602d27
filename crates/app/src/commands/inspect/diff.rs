//! `mitra inspect diff`: what grew between saved looks.

use anyhow::Result;
use mitra_inspect::{Diff, Snapshot, verdict};
use serde_json::json;

use crate::cli::InspectDiffArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::render::inspect::diff as render;
use crate::render::style::Style;

/// Reads and compares.
pub fn run(args: &InspectDiffArgs, style: &Style) -> Result<()> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for path in &args.looks {
        snapshots.push(super::read(path)?);
    }
    let (Some(first), Some(_)) = (snapshots.first(), snapshots.get(1)) else {
        return Err(usage("two looks at least are compared"));
    };
    // Looks at one process are put in the order of their times; sides are compared as they stand.
    if snapshots.iter().all(|snapshot| snapshot.is_same_process(first)) {
        let first = first.clone();
        snapshots.sort_by(|a, b| first.seconds_until(a).total_cmp(&first.seconds_until(b)));
    }
    show(&snapshots, &[], args.rows, args.json, style)
}

/// Prints what grew from the first look to the last, and what all of them say together.
pub fn show(
    snapshots: &[Snapshot],
    recorded_sizes: &[verdict::RecordedSize],
    rows: usize,
    as_json: bool,
    style: &Style,
) -> Result<()> {
    let (Some(first), Some(last)) = (snapshots.first(), snapshots.last()) else { return Ok(()) };
    let diff = Diff::between(first, last);
    let verdict = verdict::of(snapshots, recorded_sizes);
    if as_json {
        return print_json(&json!({ "schema": "mitra.growth/1", "verdict": verdict, "diff": diff }));
    }
    print(&render::text(&diff, &verdict, rows, style))
}
