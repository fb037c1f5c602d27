//! What an indexer costs that finds nothing new: the real one, at the real frequency, in real time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mitra_search::Error;
use mitra_search::embedded::Writer;
use mitra_search::indexer::{Clock, Config, Indexer};
use serde_json::{Value, json};

use crate::cpu_s;

/// After the first look, which reads everything.
const SETTLE: Duration = Duration::from_secs(10);

/// Runs an indexer of all files of a folder, and of what this machine says of itself. Measured is a time that begins after
/// its first look: as long as the frequency, it has one look at everything and what lies between two.
pub fn watch(dir: &Path, files: &str, host: &str, seconds: u64) -> Result<Value, Error> {
    let text = format!("log:\n  level: error\nhost: {host}\nfiles:\n  - {files}/*\nfrequency: 300\n");
    let mut config = Config::parse(Path::new("idle.yaml"), &text)?;
    config.store = Some(dir.to_owned());
    let mut indexer = Indexer::new(config, Box::new(Writer::open(dir)?), Clock::Real)?;
    let looks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&looks);
    indexer.ask_too(Box::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(Vec::new())
    }));
    let stop = AtomicBool::new(false);
    let (cpu, passes) = std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            while looks.load(Ordering::Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(100));
            }
            std::thread::sleep(SETTLE);
            let (cpu, before) = (cpu_s(), looks.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_secs(seconds));
            let measured = (cpu_s() - cpu, looks.load(Ordering::Relaxed) - before);
            stop.store(true, Ordering::Relaxed);
            measured
        });
        indexer.run(&stop);
        measured.join().unwrap_or((f64::NAN, 0))
    });
    Ok(json!({"cpu_s": cpu, "seconds": seconds, "passes": passes}))
}
