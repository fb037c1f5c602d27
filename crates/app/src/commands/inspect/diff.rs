//! `mitra inspect diff`: growth between saved snapshots.

use anyhow::Result;
use mitra_inspect::{Diff, Snapshot, verdict};
use serde_json::json;

use crate::cli::InspectDiffArgs;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::render::inspect::diff as render;
use crate::render::style::Style;

/// Reads snapshots and compares them.
pub fn run(args: &InspectDiffArgs, style: &Style) -> Result<()> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for path in &args.looks {
        snapshots.push(super::read(path)?);
    }
    let (Some(first), Some(_)) = (snapshots.first(), snapshots.get(1)) else {
        return Err(usage("two snapshots at least are compared"));
    };
    // Snapshots of one process are sorted by time; different processes are compared in the given
    // order.
    if snapshots.iter().all(|snapshot| snapshot.is_same_process(first)) {
        let first = first.clone();
        snapshots.sort_by(|a, b| first.seconds_until(a).total_cmp(&first.seconds_until(b)));
    }
    show(&snapshots, &[], args.limit, args.json, style)
}

/// Prints the growth from the first snapshot to the last, and the verdict on all of them.
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
