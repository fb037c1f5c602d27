//! What every reader needs: where to read, the buffer, the texts, and the list of what is missing.

use std::net::IpAddr;

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
    /// The TCP ports that are listened on, as of the last sample.
    pub listening: Vec<Listening>,
    /// The process id of the recorder for the kernel, if it asks services itself.
    pub asks_as: Option<u32>,
    /// Whether it is read how answers of services begin.
    pub reads_answers: bool,
}

/// A TCP port that is listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// The network namespace; the recorder's own by its number too.
    pub netns: u32,
    /// The address that the socket is bound to.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
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
            listening: Vec::new(),
            asks_as: None,
            reads_answers: false,
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
