//! Runs that are stored somewhere: results of rounds, or recordings of the source tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::record::{Record, Results, State};
use crate::ship::Shipped;

/// A run that was made, and the path of its archive.
pub struct Stored {
    /// The run.
    pub record: Record,
    /// Its archive.
    pub archive: PathBuf,
    /// Of a shipped recording: why it is told wrongly, where that is known.
    pub miss: Option<String>,
}

/// The runs of a directory of results, or of one whose folders have a `truth.json` each, sorted by
/// key. Only those that were made.
pub fn open(dir: &Path) -> anyhow::Result<Vec<Stored>> {
    let results = Results::open(dir)?;
    let mut all: Vec<Stored> = results
        .records
        .iter()
        .map(|record| Stored { archive: results.archive(record), record: record.clone(), miss: None })
        .collect();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let folder = entry?.path();
        let path = folder.join("truth.json");
        if !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let shipped: Shipped = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        all.push(Stored { record: shipped.run, archive: folder.join("archive"), miss: shipped.miss });
    }
    all.retain(|s| s.record.state == State::Made && s.archive.is_dir());
    anyhow::ensure!(!all.is_empty(), "{}: no results, and no recordings", dir.display());
    all.sort_by(|a, b| a.record.key.cmp(&b.record.key));
    Ok(all)
}

/// The runs of several directories.
pub fn open_all(dirs: &[PathBuf]) -> anyhow::Result<Vec<Stored>> {
    Ok(dirs.iter().map(|dir| open(dir)).collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Calls `work` for each item, on all CPUs. The order of the results is that of the items.
pub fn with_each<'a, T: Sync, R: Send>(items: &'a [T], work: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let take = || next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let one = || {
        let mut done = Vec::new();
        loop {
            let i = take();
            let Some(item) = items.get(i) else { return done };
            done.push((i, work(item)));
        }
    };
    let mut done: Vec<(usize, R)> = std::thread::scope(|scope| {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(one)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, result)| result).collect()
}
