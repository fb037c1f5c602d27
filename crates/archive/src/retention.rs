//! How long recordings are kept.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;

/// A file that will not change any more.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The wall clock at its last frame.
    pub(crate) last_real_us: i64,
}

/// The closed files, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    files: VecDeque<Kept>,
    bytes: u64,
}

impl Shelf {
    pub(crate) fn add(&mut self, kept: Kept) {
        self.bytes += kept.bytes;
        let at = self.files.partition_point(|file| file.number < kept.number);
        self.files.insert(at, kept);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Removes the oldest files until what is left, with `beside_bytes` for the open log and captures, is no more than
    /// `max_bytes`, and those whose last frame is before `oldest_us`. A file that cannot be removed is forgotten:
    /// trying again every second helps nobody, and the next start finds it.
    pub(crate) fn trim(&mut self, beside_bytes: u64, max_bytes: u64, oldest_us: i64) {
        while let Some(file) = self.files.front() {
            let total = self.bytes.saturating_add(beside_bytes);
            if total <= max_bytes && file.last_real_us >= oldest_us {
                break;
            }
            let _ = fs::remove_file(&file.path);
            self.bytes -= file.bytes;
            self.files.pop_front();
        }
    }
}
