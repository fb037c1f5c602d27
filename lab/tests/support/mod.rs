//! Access to `lab/recordings`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mitra_lab::ship::Shipped;

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
