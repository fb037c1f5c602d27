//! What every reader needs: where to read, the buffer, the texts, and the list of what is missing.

use crate::file::{Buffer, Root};
use crate::missing::Missing;
use crate::net::names::NetnsNames;
use mitra_model::Strings;

/// One of each, passed to every reader.
#[derive(Debug)]
pub struct Io {
    /// The directory that everything is read below.
    pub root: Root,
    /// The one buffer.
    pub buffer: Buffer,
    /// The texts of all frames.
    pub strings: Strings,
    /// What cannot be read.
    pub missing: Missing,
    /// What network namespaces are called.
    pub netns: NetnsNames,
}

impl Io {
    /// An empty buffer, no texts, nothing missing.
    #[must_use]
    pub fn new(root: Root) -> Self {
        Io {
            root,
            buffer: Buffer::default(),
            strings: Strings::new(),
            missing: Missing::default(),
            netns: NetnsNames::default(),
        }
    }

    /// Notes whether something could be read that is read on each tick.
    pub fn missing_if(&mut self, source: &str, read: std::io::Result<()>) {
        match read {
            Ok(()) => self.missing.remove(source),
            Err(error) => self.missing.add(source, &crate::missing::reason(&error)),
        }
    }
}
