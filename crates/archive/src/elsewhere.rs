//! Segments of which only parts are here: a reader has the blocks brought that it wants.

use std::io;
use std::ops::Range;

use crate::segment::index::BlockRef;

/// Between two blocks that are wanted so many bytes come along, because a question of its own takes longer.
const ALONG_BYTES: u64 = 16 << 10;

/// A stretch of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The name of the file in the folder.
    pub name: String,
    /// Which bytes.
    pub bytes: Range<u64>,
}

/// Where the rest of the files of a folder is.
pub trait Elsewhere: Send + Sync {
    /// Writes these stretches into their files, in their places. What is damaged there is damaged here.
    ///
    /// # Errors
    /// If they cannot be had, or not be written.
    fn bring(&self, stretches: &[Stretch]) -> io::Result<()>;
}

/// The stretches of a file in which these blocks are, which are in the order of the file.
pub(crate) fn stretches<'a>(
    name: &str,
    blocks: impl Iterator<Item = &'a BlockRef>,
    file_bytes: u64,
) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    for block in blocks {
        let end = block.offset.saturating_add(block.bytes).min(file_bytes);
        match found.last_mut() {
            Some(last) if block.offset <= last.bytes.end.saturating_add(ALONG_BYTES) => {
                last.bytes.end = last.bytes.end.max(end);
            }
            _ => found.push(Stretch { name: name.to_owned(), bytes: block.offset.min(end)..end }),
        }
    }
    found.retain(|stretch| !stretch.bytes.is_empty());
    found
}
