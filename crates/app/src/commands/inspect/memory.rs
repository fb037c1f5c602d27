//! `mitra inspect memory`: the composition of resident memory, and its recorded growth.

use anyhow::Result;
use mitra_inspect::composition::{self, Options};
use serde_json::json;

use super::{open, recorded};
use crate::cli::InspectMemoryArgs;
use crate::commands::{print, print_json};
use crate::progress::Progress;
use crate::render::inspect::memory as render;
use crate::render::style::Style;

/// Measures and prints.
pub fn run(args: &InspectMemoryArgs, style: &Style) -> Result<()> {
    let mut target = open(args.pid)?;
    let options = Options { biggest: args.limit.clamp(1, 1000), ..Options::default() };
    let cheap = {
        let _progress = Progress::new("counting pages");
        composition::measure(&target, &options)?
    };
    let composition = if args.smaps {
        eprintln!("mitra: {}", render::smaps_takes(&cheap.smaps));
        let _progress = Progress::new("reading smaps");
        // Includes what was mapped since.
        target.refresh()?;
        let mut read = composition::measure_with_smaps(&target, &options)?;
        read.smaps.estimated_s = cheap.smaps.estimated_s;
        read.smaps.longest_s = cheap.smaps.longest_s;
        read
    } else {
        cheap
    };
    let grown = {
        let _progress = Progress::new("reading the recording");
        recorded::of(&args.archive, target.pid(), target.start_ticks())
    };
    if args.json {
        return print_json(&json!({
            "schema": "mitra.memory/1",
            "pid": target.pid(),
            "comm": target.comm(),
            "composition": composition,
            "recorded": grown.as_ref().ok(),
        }));
    }
    print(&render::text(target.comm(), target.pid(), &composition, &grown, args.limit, style))
}
