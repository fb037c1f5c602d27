//! Ordeals: what the recorder itself has to live through, without losing a sample.
//!
//! Nothing is diagnosed here. An ordeal passes when the recorder is alive at its end, ends orderly, and no two samples
//! in its archive are further apart than [`GAP_S`].

mod crowds;
mod disks;
mod memory;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mitra_archive::{Query, Reader};
use mitra_model::lookup;

use crate::conductor::Conductor;
use crate::draw::Draw;
use crate::incident::{Need, Stop, missing};
use crate::journal::{self, Journal, Undo};
use crate::machine;
use crate::recorder::Mitra;
use crate::score::GAP_S;
use crate::stage::{Fs, Part, Stage};

/// Where the archive is during an ordeal.
#[derive(Clone, Copy)]
pub enum Home {
    /// Where runs have their files.
    Disk,
    /// On a disk of its own, of so many bytes, which the ordeal may fill, freeze or choke.
    SmallDisk(u64),
}

/// One ordeal.
#[derive(Clone, Copy)]
pub struct Ordeal {
    /// Unique.
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
    /// What the machine has to have. Root is always needed.
    pub needs: &'static [Need],
    /// Where the archive is.
    pub home: Home,
    /// Makes it, and checks that it was made. Gets the file system that the archive is on.
    pub make: fn(&mut Stage, &Path) -> Result<(), Stop>,
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Ordeal> {
    [crowds::ORDEALS, disks::ORDEALS, memory::ORDEALS].into_iter().flatten()
}

/// How the recorder came through.
#[derive(Clone, Debug)]
pub struct Endured {
    /// Samples in the archive.
    pub samples: usize,
    /// The longest time between two of them.
    pub longest_gap_s: f64,
}

impl Endured {
    /// Whether no sample is missing.
    pub fn is_whole(&self) -> bool {
        self.samples > 1 && self.longest_gap_s <= GAP_S
    }
}

/// Puts a recorder through those whose names begin with one of `names` (all where there is none), and prints how it
/// came through. Returns whether it came through all.
pub fn endure_all(names: &[String], length: Duration, mitra: &Mitra) -> bool {
    let takes = |name: &str| names.is_empty() || names.iter().any(|n| name.starts_with(n.as_str()));
    let mut all_well = true;
    for ordeal in all().filter(|o| takes(o.name)) {
        let dir = machine::base_dir().join(format!("mitra-lab-run-{}", std::process::id()));
        let outcome = with_dir(&dir, || endure(ordeal, length, mitra, &dir));
        let (is_well, said) = match &outcome {
            Ok(endured) => {
                let word = if endured.is_whole() { "ok" } else { "GAP" };
                let said = format!(
                    "{word}: {} samples, longest gap {:.2} s",
                    endured.samples, endured.longest_gap_s
                );
                (endured.is_whole(), said)
            }
            Err(stop) => (matches!(stop, Stop::Skipped(_)), stop.to_string()),
        };
        println!("{:<16} {said}", ordeal.name);
        all_well &= is_well;
        if outcome.is_err_and(|stop| stop == Stop::Interrupted) {
            break;
        }
    }
    all_well
}

/// Does something that has its files in a directory, which is removed, be it by who cleans up.
fn with_dir<T>(dir: &Path, work: impl FnOnce() -> Result<T, Stop>) -> Result<T, Stop> {
    let name = format!("{}-run", std::process::id());
    let mut journal = Journal::create(Path::new(journal::DIR), &name)?;
    journal.note(Undo::Remove(dir.to_owned()))?;
    let outcome = work();
    for failed in journal.undo_all() {
        println!("could not be undone: {failed}");
    }
    outcome
}

/// Puts a recorder through an ordeal of that length, with files in `dir`.
pub fn endure(ordeal: &Ordeal, length: Duration, mitra: &Mitra, dir: &Path) -> Result<Endured, Stop> {
    if let Some(why) = missing(ordeal.needs, &machine::base_dir()) {
        return Err(Stop::Skipped(why));
    }
    std::fs::create_dir_all(dir)?;
    let journals = Path::new(journal::DIR);
    // The disk outlives the ordeal's stage: the archive is read when that has been undone.
    let mut draw = Draw::new(1, ordeal.name);
    let nobody = Arc::new(Conductor::new(0, 0, &mut draw));
    let mut holder = Stage::new(Part::Noise, Draw::new(1, "home"), nobody, journals)?;
    let home = match ordeal.home {
        Home::Disk => dir.to_path_buf(),
        Home::SmallDisk(bytes) => holder.loop_fs(bytes, Fs::Ext4)?.mount().to_path_buf(),
    };
    let archive = home.join("archive");
    let conductor = Arc::new(Conductor::new(1, 0, &mut draw));
    let (made, conducted) = std::thread::scope(|scope| {
        let act = scope.spawn(|| {
            let conductor = Arc::clone(&conductor);
            let mut stage = Stage::new(Part::Control(length), draw, conductor, journals)?;
            (ordeal.make)(&mut stage, &home)
        });
        let conducted = conductor.conduct(mitra, &archive, dir, None);
        (act.join().unwrap_or_else(|_| Err(Stop::Failed("panicked".into()))), conducted)
    });
    conducted?;
    made?;
    samples(&archive)
}

/// The samples of an archive.
fn samples(archive: &Path) -> Result<Endured, Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::Failed(format!("{}: {error}", archive.display()));
    let reader = Reader::open(archive).map_err(|error| failed(&error))?;
    let span = reader.span().ok_or_else(|| failed(&"nothing was recorded"))?;
    let metrics = lookup("sys.load1").into_iter().collect();
    let set = reader.read(&Query::new(span, metrics)).map_err(|error| failed(&error))?;
    let times = set.system("sys.load1").map_or(Vec::new(), |series| series.axis.t.clone());
    let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9);
    Ok(Endured { samples: times.len(), longest_gap_s: gaps.fold(0.0, f64::max) })
}
