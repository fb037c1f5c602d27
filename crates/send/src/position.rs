//! How far an output has come. It stands on the disk; what lies behind it is in the archive.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// More outputs of a folder are not listed.
const OUTPUTS_MAX: usize = 64;
/// More files of a folder are not looked at.
const FILES_MAX: usize = 1_024;
/// A larger file is no position.
const BYTES_MAX: u64 = 64 << 10;

/// What became of all samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Samples that the store took.
    pub sent: u64,
    /// Samples that it refused for good.
    pub refused: u64,
    /// Seconds of the recording that were given up: they lay further back than `keep`, or the archive deleted them before.
    pub dropped_s: u64,
    /// Times that the store could not be reached, or said to come again.
    pub failed: u64,
}

/// How far an output has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// The time of the recording up to which the store has everything.
    pub until_ns: Option<i64>,
    /// The boot that was recorded then, and what was added to its boot time. Times of a recording move when the wall clock is
    /// set; boot time does not.
    #[serde(default)]
    pub boot_id: String,
    /// See `boot_id`.
    #[serde(default)]
    pub offset_ns: i64,
    /// The folder of the recording; empty in positions that do not say so yet.
    #[serde(default)]
    pub archive: String,
    /// Whether it counts records of a log, and not samples.
    #[serde(default)]
    pub is_of_records: bool,
    /// What became of all samples.
    #[serde(default)]
    pub tally: Tally,
    /// Why the store took nothing the last time, while that is so.
    #[serde(default)]
    pub last_error: Option<String>,
    #[serde(skip)]
    path: PathBuf,
}

/// Reads a file of state. One that is damaged is begun anew, which is told.
pub(crate) fn read_state<T: DeserializeOwned + Default>(path: &Path) -> Result<(T, Option<String>), String> {
    let read = match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    Ok(match read {
        Ok(state) => (state, None),
        Err(error) => (T::default(), Some(format!("{}: begun anew: {error}", path.display()))),
    })
}

impl Position {
    /// Reads the position of this output in a folder. One that is damaged is begun anew, which is told.
    ///
    /// # Errors
    /// Where it is there and cannot be read: what it holds would be sent never.
    pub fn open(dir: &Path, name: &str) -> Result<(Position, Option<String>), String> {
        let path = dir.join(format!("{name}.json"));
        let (position, why) = read_state::<Position>(&path)?;
        Ok((Position { path, ..position }, why))
    }

    /// The outputs that have a position in a folder, by their names. What cannot be read is left out.
    #[must_use]
    pub fn all(dir: &Path) -> Vec<(String, Position)> {
        let mut all: Vec<(String, Position)> = fs::read_dir(dir)
            .into_iter()
            .flatten()
            .flatten()
            .take(FILES_MAX)
            .filter_map(|entry| {
                let path = entry.path();
                let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
                // No link is followed, no pipe is waited for, and nothing but a file is read.
                let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
                let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).ok()?;
                if !file.metadata().ok()?.is_file() {
                    return None;
                }
                let mut bytes = Vec::new();
                file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
                Some((name, Position { path, ..serde_json::from_slice(&bytes).ok()? }))
            })
            .take(OUTPUTS_MAX)
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Where it is on an axis whose clock says `offset_of` of its boot. `None` before the first.
    #[must_use]
    pub fn at(&self, offset_of: impl Fn(&str) -> Option<i64>) -> Option<i64> {
        let moved = offset_of(&self.boot_id).map_or(0, |offset| offset.saturating_sub(self.offset_ns));
        Some(self.until_ns?.saturating_add(moved))
    }

    /// It has come so far, on the clock of this boot.
    pub fn advance(&mut self, until_ns: i64, boot_id: &str, offset_ns: i64) {
        self.until_ns = Some(until_ns);
        boot_id.clone_into(&mut self.boot_id);
        self.offset_ns = offset_ns;
    }

    /// Writes it to the disk.
    ///
    /// # Errors
    /// Where that fails; what was there before is still there.
    pub fn save(&self) -> io::Result<()> {
        replace(&self.path, &serde_json::to_vec(self)?)
    }
}

/// Writes a file that is there whole or as it was. Only its owner reads it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // What a program that was killed has left; a link there would be followed.
    _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    // A position that a power failure takes back is sent again, which stores see as the same samples.
    file.sync_data()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_and_moves_with_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let (mut position, trouble) = Position::open(dir.path(), "a").unwrap();
        assert_eq!((position.at(|_| Some(5)), trouble), (None, None));
        position.advance(1_000, "boot", 100);
        position.tally.sent = 7;
        position.save().unwrap();
        let (read, trouble) = Position::open(dir.path(), "a").unwrap();
        assert_eq!((&read, trouble), (&position, None));
        fs::write(dir.path().join("damaged.json"), "{").unwrap();
        fs::write(dir.path().join("other"), "{}").unwrap();
        std::os::unix::fs::symlink(dir.path().join("a.json"), dir.path().join("link.json")).unwrap();
        let pipe = dir.path().join("pipe.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(Position::all(dir.path()), [("a".to_owned(), position)]);
        assert_eq!(read.at(|boot| (boot == "boot").then_some(100)), Some(1_000));
        // The clock was set an hour ahead, or that boot is in the archive no more.
        assert_eq!(read.at(|boot| (boot == "boot").then_some(3_700)), Some(4_600));
        assert_eq!(read.at(|_| None), Some(1_000));
    }

    #[test]
    fn a_damaged_position_is_begun_anew_and_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.json"), "{").unwrap();
        let (position, trouble) = Position::open(dir.path(), "a").unwrap();
        assert!(position.until_ns.is_none() && trouble.unwrap().contains("begun anew"));
        position.save().unwrap();
        assert_eq!(Position::open(dir.path(), "a").unwrap().1, None);
    }
}
