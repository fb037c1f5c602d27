//! Recordings in the source tree: small archives of real incidents, each with its truth.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use mitra_model::Span;
use mitra_model::time::SECOND;

use crate::disguise::{Renames, disguise, plain_release};
use crate::record::{Kind, Record, Results, State};
use crate::score::Judged;

/// Larger recordings are not shipped.
const BYTES_MAX: u64 = 400 << 10;

/// `truth.json` beside an archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shipped {
    /// What Mitra gets wrong about this recording; `null` if nothing. A test asserts it.
    pub miss: Option<String>,
    /// The record of the run.
    pub run: Record,
}

/// `6.18.44, ` of `6.18.44-cloud-amd64, `. Other words stay the same.
fn release_only(word: &str) -> String {
    if !word.starts_with(|c: char| c.is_ascii_digit()) || !word.contains('.') {
        return word.to_owned();
    }
    plain_release(word) + ", "
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

/// The first error that the tests would assert: root, culprit and silence before the trouble; for a
/// control, silence.
pub fn miss(judged: &Judged) -> Option<String> {
    if !judged.found_on_control.is_empty() {
        return Some(judged.found_on_control.join("; "));
    }
    if let Some(early) = judged.early.first() {
        return Some(format!("before the trouble: {early}"));
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

/// Writes the runs to `to` under other names, one directory per run. Returns their number and
/// bytes.
///
/// Captures are not copied: their findings are in the events of the frames.
pub fn ship(
    results: &Results,
    judged: &[Judged],
    to: &Path,
    renames: &Renames,
) -> anyhow::Result<(usize, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for one in judged.iter().filter(|j| j.record.state == State::Made) {
        let target = to.join(&one.record.key);
        _ = fs::remove_dir_all(&target);
        let archive = target.join("archive");
        fs::create_dir_all(&archive).with_context(|| target.display().to_string())?;
        let at = |s: f64| (s * SECOND as f64) as i64;
        // One second more on both sides: rates need the sample before.
        let span = Span { since: at(one.record.since_s - 2.0), until: at(one.record.until_s + 1.0) };
        disguise(&results.archive(&one.record), span, &archive, renames)
            .with_context(|| one.record.key.clone())?;
        let is = size(&archive);
        if is > BYTES_MAX {
            println!("{}: not shipped: {} KB", one.record.key, is >> 10);
            fs::remove_dir_all(&target)?;
            continue;
        }
        let mut run = one.record.clone();
        // Live answers belong to the machine of the round, not to the recording.
        run.live.clear();
        run.machine = run.machine.split_inclusive(' ').map(release_only).collect();
        let shipped = Shipped { miss: miss(one), run };
        let text = renames.apply(&serde_json::to_string_pretty(&shipped)?);
        fs::write(target.join("truth.json"), text + "\n")?;
        count += 1;
        bytes += is;
    }
    Ok((count, bytes))
}
