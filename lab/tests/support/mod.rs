//! Access to `lab/recordings`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mitra_archive::{ActiveTasks, Query, Reader};
use mitra_diagnose::Request;
use mitra_lab::ship::Shipped;
use mitra_model::{SeriesSet, Span};

/// The truth of a recording.
pub fn shipped(folder: &Path) -> Shipped {
    let text = fs::read_to_string(folder.join("truth.json")).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
}

/// The directories of all recordings.
pub fn folders() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let mut all: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
    all.sort();
    all
}

/// Calls `work` for each folder, on all CPUs.
pub fn with_each<T: Send>(folders: &[PathBuf], work: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = work(folder);
                    done.lock().unwrap().push(one);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// The two reads of `mitra explain`; see `crates/app/src/commands/explain.rs`.
pub fn explain(archive: &Path, window: Span) -> serde_json::Value {
    let reader = Reader::open(archive).unwrap();
    let scan = reader.read(&Query::new(window, mitra_diagnose::scan_metrics())).unwrap();
    let report = mitra_diagnose::explain(
        &Request { window, baseline: None, history: mitra_diagnose::History::default() },
        &scan,
        &|span| detail(&reader, span),
    );
    serde_json::to_value(report).unwrap()
}

fn detail(reader: &Reader, span: Span) -> Result<SeriesSet, String> {
    let awake = ActiveTasks { signs: mitra_diagnose::AWAKE, leader: mitra_diagnose::LEADER };
    reader.read_active_tasks(span, mitra_diagnose::detail_metrics(), awake).map_err(|e| e.to_string())
}
