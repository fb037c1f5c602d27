//! Memory from bytes instead of a process: for tests, fuzzing, dumps.

use super::{Memory, Word};
use crate::maps::{Access, Mapping};

/// Ranges of bytes at addresses.
#[derive(Debug, Clone)]
pub struct Image {
    word: Word,
    mappings: Vec<Mapping>,
    bytes: Vec<Vec<u8>>,
}

impl Image {
    /// An empty one.
    #[must_use]
    pub fn new(word: Word) -> Self {
        Self { word, mappings: Vec::new(), bytes: Vec::new() }
    }

    /// Adds a readable and writable range, with a name as in `/proc/PID/maps`. Empty and
    /// overlapping ranges are ignored.
    pub fn add(&mut self, start: u64, bytes: &[u8], name: &str) {
        let Some(end) = start.checked_add(bytes.len() as u64) else { return };
        let at = self.mappings.partition_point(|other| other.start < start);
        let overlaps = at > 0 && self.mappings[at - 1].end > start
            || self.mappings.get(at).is_some_and(|next| next.start < end);
        if bytes.is_empty() || overlaps {
            return;
        }
        let access = Access { read: true, write: true, execute: false, shared: false };
        let mapping = Mapping {
            start,
            end,
            access,
            offset: 0,
            device: 0,
            inode: 0,
            path: name.to_owned(),
            is_deleted: false,
        };
        self.mappings.insert(at, mapping);
        self.bytes.insert(at, bytes.to_vec());
    }

    /// Overwrites mapped bytes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let at = address.wrapping_add(i as u64);
            let index = self.mappings.partition_point(|mapping| mapping.end <= at);
            if let Some(mapping) = self.mappings.get(index).filter(|mapping| mapping.start <= at) {
                self.bytes[index][(at - mapping.start) as usize] = *byte;
            }
        }
    }
}

impl Memory for Image {
    fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    fn word(&self) -> Word {
        self.word
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let index = self.mappings.partition_point(|mapping| mapping.end <= at);
            let Some(mapping) = self.mappings.get(index).filter(|mapping| mapping.start <= at) else { break };
            let from = &self.bytes[index][(at - mapping.start) as usize..];
            let count = from.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&from[..count]);
            done += count;
        }
        done
    }

    fn resident(&self, start: u64, end: u64, take: &mut dyn FnMut(u64, u64) -> bool) {
        for mapping in &self.mappings {
            let (from, to) = (mapping.start.max(start), mapping.end.min(end));
            if from < to && !take(from, to) {
                return;
            }
        }
    }
}
