//! Recordings that travel with the source: small archives of real incidents, each with what was true.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::record::{Kind, Record, Results, State, copy_tree};
use crate::score::Judged;

/// A recording that is larger is not shipped.
const BYTES_MAX: u64 = 400 << 10;

/// `truth.json` beside an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shipped {
    /// Why Mitra does not name root or culprit of this one; `null` if it does. A test asserts both.
    pub miss: Option<String>,
    /// What was made.
    pub run: Record,
}

/// Bytes of all files in a directory.
fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|e| match e.file_type() {
            Ok(t) if t.is_dir() => size(&e.path()),
            _ => e.metadata().map_or(0, |m| m.len()),
        })
        .sum()
}

/// What the tests assert of a recording: root and culprit, or silence.
pub fn miss(judged: &Judged) -> Option<String> {
    if !judged.found_on_control.is_empty() {
        return Some(judged.found_on_control.join("; "));
    }
    let wrong = |v: &&crate::score::Verdict| match judged.record.kind {
        Kind::Pair => !v.named,
        _ => !v.root || !v.culprit,
    };
    let first = judged.verdicts.iter().find(wrong)?;
    let said = format!("says {}", first.answer.as_deref().unwrap_or("nothing"));
    if first.root && judged.record.kind != Kind::Pair {
        return Some(first.culprit_wrong.join(", "));
    }
    Some(said)
}

/// Copies what was made to `to`, a directory for each run. Returns how many, and their bytes.
pub fn ship(results: &Results, judged: &[Judged], to: &Path) -> anyhow::Result<(usize, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for one in judged.iter().filter(|j| j.record.state == State::Made) {
        let from = results.archive(&one.record);
        let is = size(&from);
        if is == 0 || is > BYTES_MAX {
            println!("{}: not shipped: {} KB", one.record.key, is >> 10);
            continue;
        }
        let mut run = one.record.clone();
        // Live answers belong to the machine of the round, not to the recording.
        run.live.clear();
        let target = to.join(&run.key);
        _ = fs::remove_dir_all(&target);
        copy_tree(&from, &target.join("archive")).with_context(|| target.display().to_string())?;
        let shipped = Shipped { miss: miss(one), run };
        fs::write(target.join("truth.json"), serde_json::to_string_pretty(&shipped)? + "\n")?;
        count += 1;
        bytes += is;
    }
    Ok((count, bytes))
}
