//! Ordeals: what the recorder itself must survive without losing a sample.
//!
//! Nothing is diagnosed here. An ordeal passes if the recorder is alive at its end, ends in order,
//! and has no gap longer than [`GAP_S`] from the begin of the healthy time until it is stopped.

mod crowds;
mod disks;
mod memory;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mitra_archive::{Query, Reader};
use mitra_model::series::Gap;
use mitra_model::time::SECOND;
use mitra_model::{Span, lookup};

use crate::conductor::{Conductor, Times};
use crate::draw::Draw;
use crate::incident::{Form, Need, Stop, missing};
use crate::journal::{self, Journal, Undo};
use crate::machine;
use crate::recorder::Mitra;
use crate::report::epoch_s;
use crate::score::{GAP_S, distances_s};
use crate::stage::{Fs, Part, Stage};

/// Where the archive is during an ordeal.
#[derive(Clone, Copy)]
pub enum ArchiveDisk {
    /// In the directory of the run.
    Disk,
    /// On a separate disk of this many bytes, which the ordeal may fill, freeze or choke.
    SmallDisk(u64),
}

/// One ordeal.
#[derive(Clone, Copy)]
pub struct Ordeal {
    /// Unique among the ordeals.
    pub name: &'static str,
    /// One line of description.
    pub what: &'static str,
    /// What the machine must have. Root is always needed.
    pub needs: &'static [Need],
    /// Where the archive is.
    pub home: ArchiveDisk,
    /// Makes the ordeal, and checks that it was made. Gets the file system of the archive.
    pub make: fn(&mut Stage, &Path) -> Result<(), Stop>,
}

/// All ordeals.
pub fn all() -> impl Iterator<Item = &'static Ordeal> {
    [crowds::ORDEALS, disks::ORDEALS, memory::ORDEALS].into_iter().flatten()
}

/// How the recorder got through an ordeal.
#[derive(Clone, Debug)]
pub struct OrdealResult {
    /// Samples in the archive.
    pub samples: usize,
    /// The longest gap between samples.
    pub longest_gap_s: f64,
    /// Whether Mitra itself reports each gap.
    pub tells_gaps: bool,
}

impl OrdealResult {
    fn of(span: Span, times: &[i64], told: &[Gap]) -> Self {
        let distances_s = distances_s(span, times);
        let gap_ns = (GAP_S * SECOND as f64) as i64;
        let mut gaps = times.windows(2).filter(|w| w[1] - w[0] > gap_ns);
        let is_told = |gap: &[i64]| told.iter().any(|t| t.span.since < gap[1] && gap[0] < t.span.until);
        Self {
            samples: distances_s.len().saturating_sub(1),
            longest_gap_s: distances_s.into_iter().fold(0.0, f64::max),
            tells_gaps: gaps.all(is_told),
        }
    }

    /// Whether no sample is missing.
    pub fn is_whole(&self) -> bool {
        self.samples > 1 && self.longest_gap_s <= GAP_S
    }

    fn words(&self) -> String {
        let word = match (self.is_whole(), self.tells_gaps) {
            (true, _) => "ok",
            (false, true) => "GAP, which Mitra tells",
            (false, false) => "GAP, of which Mitra does not tell",
        };
        format!("{word}: {} samples, longest gap {:.2} s", self.samples, self.longest_gap_s)
    }
}

/// Puts a recorder through the ordeals whose names begin with one of `names` (all if there is
/// none), and prints the results. Returns whether all of them passed or were skipped, and at least
/// one was made.
pub fn endure_all(names: &[String], length: Duration, mitra: &Mitra) -> bool {
    let takes = |name: &str| names.is_empty() || names.iter().any(|n| name.starts_with(n.as_str()));
    let (mut all_well, mut endured_one) = (true, false);
    for ordeal in all().filter(|o| takes(o.name)) {
        let dir = machine::base_dir().join(format!("mitra-lab-run-{}", std::process::id()));
        let outcome = with_dir(&dir, || endure(ordeal, length, mitra, &dir));
        let (is_well, said) = match &outcome {
            Ok(endured) => (endured.is_whole(), endured.words()),
            Err(stop) => (matches!(stop, Stop::Skipped(_)), stop.to_string()),
        };
        println!("{:<16} {said}", ordeal.name);
        all_well &= is_well;
        endured_one |= outcome.is_ok();
        if outcome.is_err_and(|stop| stop == Stop::Interrupted) {
            break;
        }
    }
    if !endured_one {
        println!("no ordeal was made");
    }
    all_well && endured_one
}

/// Runs `work` with a directory that is removed afterwards, if necessary by the keeper.
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

/// Puts a recorder through an ordeal of this length, with files in `dir`.
pub fn endure(ordeal: &Ordeal, length: Duration, mitra: &Mitra, dir: &Path) -> Result<OrdealResult, Stop> {
    if let Some(why) = missing(ordeal.needs, &machine::base_dir()) {
        return Err(Stop::Skipped(why));
    }
    std::fs::create_dir_all(dir)?;
    let journals = Path::new(journal::DIR);
    // The disk outlives the ordeal's stage: the archive is read after that stage is undone.
    let mut draw = Draw::new(1, ordeal.name);
    let nobody = Arc::new(Conductor::new(0, 0, Form::Loud, &mut draw));
    let mut holder = Stage::new(Part::Noise, Draw::new(1, "home"), nobody, journals)?;
    let home = match ordeal.home {
        ArchiveDisk::Disk => dir.to_path_buf(),
        ArchiveDisk::SmallDisk(bytes) => holder.loop_fs(bytes, Fs::Ext4)?.mount().to_path_buf(),
    };
    let archive = home.join("archive");
    let conductor = Arc::new(Conductor::new(1, 0, Form::Loud, &mut draw));
    let (made, conducted) = std::thread::scope(|scope| {
        let act = scope.spawn(|| {
            let conductor = Arc::clone(&conductor);
            let mut stage = Stage::new(Part::Control(length), draw, conductor, journals)?;
            (ordeal.make)(&mut stage, &home).map(|()| stage.times())
        });
        let conducted = conductor.conduct(mitra, &archive, dir, None);
        (act.join().unwrap_or_else(|_| Err(Stop::Failed("panicked".into()))), conducted)
    });
    conducted?;
    samples(&archive, made?)
}

/// The samples of an archive between begin and end of a run.
fn samples(archive: &Path, run: Times) -> Result<OrdealResult, Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::Failed(format!("{}: {error}", archive.display()));
    let reader = Reader::open(archive).map_err(|error| failed(&error))?;
    let at = |time: SystemTime| (epoch_s(time) * SECOND as f64) as i64;
    let span = Span { since: at(run.since), until: at(run.until) };
    let metrics = lookup("sys.load1").into_iter().collect();
    let set = reader.read(&Query::new(span, metrics)).map_err(|error| failed(&error))?;
    let times = set.system("sys.load1").map_or(Vec::new(), |series| series.axis.t.clone());
    Ok(OrdealResult::of(span, &times, &set.gaps))
}

#[cfg(test)]
mod tests {
    use mitra_model::Span;
    use mitra_model::series::Gap;
    use mitra_model::time::SECOND;

    use super::OrdealResult;

    #[test]
    fn a_recorder_that_stops_recording_before_the_end_has_not_endured() {
        let endured = |times: std::ops::Range<i64>| {
            let times: Vec<i64> = times.map(|s| s * SECOND).collect();
            OrdealResult::of(Span { since: 100 * SECOND, until: 120 * SECOND }, &times, &[])
        };
        assert!(endured(100..120).is_whole());
        assert!(endured(98..123).is_whole());
        let (early, late, none) = (endured(100..115), endured(105..120), endured(0..0));
        assert_eq!((early.samples, early.longest_gap_s), (15, 6.0));
        assert!(!early.is_whole() && !late.is_whole() && !none.is_whole());
    }

    #[test]
    fn a_gap_that_mitra_does_not_tell_of_is_found() {
        let times = [100, 101, 102, 107, 108].map(|s| s * SECOND);
        let span = |since, until| Span { since: since * SECOND, until: until * SECOND };
        let told = |gaps: &[Gap]| OrdealResult::of(span(100, 108), &times, gaps).tells_gaps;
        let gap = |since, until| Gap { span: span(since, until), why: "missed".into() };
        assert!(told(&[gap(102, 107)]));
        assert!(!told(&[]) && !told(&[gap(107, 109)]));
    }
}
