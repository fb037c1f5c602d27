//! Detects the allocator of a process by its mapped files.
//!
//! A library is identified by its name. An allocator that is linked into the program is identified
//! by strings in the program's data, because a stripped program has no function names:
//!
//! ```text
//! glibc      "GNU C Library (…) stable release version 2.36."   in the library; rarely if static
//!            "corrupted double-linked list"                     malloc/malloc.c, all versions
//! musl       "musl libc ("                                      ldso/dynlink.c
//!            "No error information"                             static: strerror.c, or its own
//!                                                               function names unless stripped
//! jemalloc   "<jemalloc>: "                                     before all its messages
//!            "5.3.0-0-g" and forty digits                       its version
//! tcmalloc   "tcmalloc", "gperftools 2.10"
//! mimalloc   "mimalloc: "                                       before all its messages
//! ```
//!
//! The files are read instead of the process' memory, because reading would fault in its pages.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;

use memchr::memmem;
use mitra_parse::maps::Mapping;

use super::layout::{self, Glibc};
use super::result::{Allocator, DetectedAllocator};
use crate::error::Error;
use crate::memory::{Memory, Word};
use crate::target::Target;

/// Limit of a file.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Bytes that are searched at once, and how many bytes of the previous piece are searched again so
/// that no string is cut in two.
const PIECE: usize = 1 << 20;
const OVERLAP: usize = 256;
/// Steps of the budget per piece.
const PIECE_STEPS: u64 = 4096;
/// Initial size of glibc's main arena: 128 KiB (`DEFAULT_TOP_PAD`) and a page. A program whose main
/// arena never grew gets its memory elsewhere.
const FIRST_BYTES: u64 = 132 << 10;

/// The allocator of a process, and the address of its state.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Detection {
    /// The allocator that serves `malloc`.
    pub allocator: Allocator,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// Other allocators in the process.
    pub others: Vec<DetectedAllocator>,
    /// The state of glibc, if it is present and was used.
    pub glibc: Option<Glibc>,
}

impl Detection {
    /// Why its arenas cannot be walked.
    pub(super) fn why_not(&self) -> String {
        match self.allocator {
            Allocator::Glibc => {
                "glibc's main arena was not found: the program did not allocate yet, or its data is in swap"
                    .to_owned()
            }
            Allocator::Unknown => {
                "no allocator that is known was recognised in the program's files".to_owned()
            }
            other => format!("the structures of {} are not known here", other.name()),
        }
    }
}

/// Detects the allocator of a process.
///
/// # Errors
///
/// It is a 32-bit program, or the budget was exhausted.
pub fn find(target: &Target) -> Result<Detection, Error> {
    if target.word() == Word::Four {
        return Err(Error::Unusable(format!(
            "process {} is a 32-bit program: its C heap has another layout, which is not supported",
            target.pid()
        )));
    }
    let mappings = target.mappings();
    let mut found: Vec<DetectedAllocator> = Vec::new();
    let mut seen = HashSet::new();
    for mapping in mappings.iter().filter(|mapping| mapping.access.execute && mapping.is_file()) {
        let is_program = seen.is_empty();
        if !seen.insert((mapping.path.as_str(), mapping.inode)) {
            continue;
        }
        let named = by_name(mapping.module());
        if named.is_none() && !is_program {
            continue;
        }
        let told = target.file(mapping).map(|file| search(file, &|| target.should_continue(PIECE_STEPS)));
        let told = told.unwrap_or_default();
        match named {
            Some(allocator) => {
                let version = told.into_iter().find(|(other, _)| *other == allocator).and_then(|(_, v)| v);
                found.push(DetectedAllocator {
                    allocator,
                    version,
                    path: mapping.path.clone(),
                    is_static: false,
                });
            }
            None => found.extend(told.into_iter().map(|(allocator, version)| DetectedAllocator {
                allocator,
                version,
                path: mapping.path.clone(),
                is_static: true,
            })),
        }
    }
    let version =
        found.iter().filter(|it| it.allocator == Allocator::Glibc).find_map(|it| it.version.as_deref());
    let numbers = version.and_then(numbers);
    // First in the C library's data, then in all data: the library may have another name, or be
    // linked in statically.
    let is_likely = |mapping: &Mapping| {
        found.iter().any(|it| it.allocator == Allocator::Glibc && it.path == mapping.path)
    };
    let glibc = layout::find(target, &data(mappings, is_likely), numbers)
        .or_else(|| layout::find(target, &data(mappings, |mapping| !is_likely(mapping)), numbers));
    if target.is_exhausted() {
        return Err(Error::Stopped);
    }
    if glibc.is_some() && !found.iter().any(|it| it.allocator == Allocator::Glibc) {
        found.push(DetectedAllocator {
            allocator: Allocator::Glibc,
            is_static: true,
            ..DetectedAllocator::default()
        });
    }
    Ok(decide(found, glibc, target))
}

/// Decides which of the allocators serves `malloc`.
fn decide<M: Memory + ?Sized>(
    mut found: Vec<DetectedAllocator>,
    glibc: Option<Glibc>,
    memory: &M,
) -> Detection {
    let bytes = glibc.as_ref().and_then(|glibc| {
        let state = glibc.state(memory, glibc.main_arena)?;
        // glibc creates a second arena only if the first one is in use.
        Some(if state.next == state.address { state.system_bytes } else { u64::MAX })
    });
    let is_used = bytes.is_some_and(|bytes| bytes > FIRST_BYTES);
    let rank = |it: &DetectedAllocator| match (it.allocator, it.is_static) {
        // A separate library replaces the C library's functions for all callers.
        (Allocator::Jemalloc | Allocator::Tcmalloc | Allocator::Mimalloc, false) => 0,
        (Allocator::Glibc, _) if is_used => 1,
        (Allocator::Jemalloc | Allocator::Tcmalloc | Allocator::Mimalloc, true) => 2,
        (Allocator::Musl, _) => 3,
        (Allocator::Glibc, _) => 4,
        (Allocator::Unknown, _) => 5,
    };
    found.sort_by_key(rank);
    if found.is_empty() {
        return Detection { glibc, ..Detection::default() };
    }
    let first = found.remove(0);
    Detection { allocator: first.allocator, version: first.version, others: found, glibc }
}

/// The library by its file name.
fn by_name(name: &str) -> Option<Allocator> {
    let starts = |start: &str| name.starts_with(start);
    match name {
        _ if starts("libjemalloc") => Some(Allocator::Jemalloc),
        _ if starts("libtcmalloc") => Some(Allocator::Tcmalloc),
        _ if starts("libmimalloc") => Some(Allocator::Mimalloc),
        // musl's library and loader are one file, under several names.
        _ if starts("ld-musl-") || starts("libc.musl-") || name == "libc.so" => Some(Allocator::Musl),
        _ if starts("libc.so.6") || (starts("libc-2.") && name.ends_with(".so")) => Some(Allocator::Glibc),
        _ => None,
    }
}

/// The data of the chosen files: their writable mappings, and the `.bss` mapping behind.
fn data(mappings: &[Mapping], is_chosen: impl Fn(&Mapping) -> bool) -> Vec<(u64, u64)> {
    let mut data: Vec<(u64, u64)> = Vec::new();
    let mut behind = None;
    for mapping in mappings {
        let access = mapping.access;
        let is_data = access.read && access.write && !access.shared;
        let is_bss = is_data && mapping.path.is_empty() && behind == Some(mapping.start);
        let is_file = is_data && mapping.is_file() && is_chosen(mapping);
        behind = None;
        if is_file || is_bss {
            match data.last_mut() {
                Some((_, end)) if *end == mapping.start => *end = mapping.end,
                _ => data.push((mapping.start, mapping.end)),
            }
        }
        if is_file {
            behind = Some(mapping.end);
        }
    }
    data
}

/// Reads the version at a match.
type Version = fn(&[u8], usize) -> Option<String>;

/// The allocators whose strings are in a file, with their versions, as far as the file was read.
pub(crate) fn search(file: File, should_continue: &dyn Fn() -> bool) -> Vec<(Allocator, Option<String>)> {
    // A mapped file may be a device.
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Vec::new();
    }
    let words: [(Allocator, &str, Version); 10] = [
        (Allocator::Glibc, "GNU C Library ", glibc_version),
        (Allocator::Glibc, "corrupted double-linked list", |_, _| None),
        (Allocator::Musl, "musl libc (", |_, _| None),
        (Allocator::Musl, "No error information\0", |_, _| None),
        (Allocator::Musl, "libc_start_main_stage2", |_, _| None),
        (Allocator::Jemalloc, "<jemalloc>: ", |_, _| None),
        (Allocator::Jemalloc, "-0-g", jemalloc_version),
        (Allocator::Tcmalloc, "tcmalloc", |_, _| None),
        (Allocator::Tcmalloc, "gperftools ", gperftools_version),
        (Allocator::Mimalloc, "mimalloc: ", |_, _| None),
    ];
    let finders: Vec<_> = words
        .iter()
        .map(|(allocator, word, version)| (*allocator, memmem::Finder::new(word), version))
        .collect();
    let mut there: Vec<Allocator> = Vec::new();
    let mut versions: Vec<(Allocator, String)> = Vec::new();
    let mut file = file.take(FILE_BYTES_MAX);
    let mut buffer = Vec::with_capacity(PIECE + OVERLAP);
    while should_continue() {
        let kept = buffer.len().min(OVERLAP);
        buffer.drain(..buffer.len() - kept);
        let read = (&mut file).take(PIECE as u64).read_to_end(&mut buffer);
        if !matches!(read, Ok(1..)) {
            break;
        }
        for (allocator, finder, version) in &finders {
            for at in finder.find_iter(&buffer) {
                let told = version(&buffer, at);
                // A short match could occur anywhere. It counts only with a version.
                let is_clear = finder.needle().len() > 4;
                if (is_clear || told.is_some()) && !there.contains(allocator) {
                    there.push(*allocator);
                }
                versions.extend(told.map(|told| (*allocator, told)));
                if is_clear {
                    break;
                }
            }
        }
    }
    let version = |allocator| versions.iter().find(|(other, _)| *other == allocator).map(|(_, v)| v.clone());
    there.into_iter().map(|allocator| (allocator, version(allocator))).collect()
}

/// The digits and dots at the beginning.
fn number(bytes: &[u8]) -> Option<String> {
    let len = bytes.iter().take(16).take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let text = std::str::from_utf8(&bytes[..len]).ok()?.trim_end_matches('.');
    text.contains('.').then(|| text.to_owned())
}

/// `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.`
fn glibc_version(bytes: &[u8], at: usize) -> Option<String> {
    let line = &bytes[at..bytes.len().min(at + OVERLAP)];
    let word = b" version ";
    number(&line[memmem::find(line, word)? + word.len()..])
}

/// `5.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c`
fn jemalloc_version(bytes: &[u8], at: usize) -> Option<String> {
    let digits = bytes.get(at + 4..)?.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let before = &bytes[at.saturating_sub(12)..at];
    let begin = before.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'.').map_or(0, |i| i + 1);
    number(&before[begin..]).filter(|_| digits == 40)
}

/// `gperftools 2.10`
fn gperftools_version(bytes: &[u8], at: usize) -> Option<String> {
    number(&bytes[(at + "gperftools ".len()).min(bytes.len())..])
}

/// Major and minor.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.split_once('.')?;
    Some((major.parse().ok()?, rest.split('.').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    fn told(content: &[u8]) -> Vec<(Allocator, Option<String>)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        search(file, &|| true)
    }

    #[test]
    fn files_say_what_they_are() {
        let glibc = b"\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopyright";
        assert_eq!(told(glibc), [(Allocator::Glibc, Some("2.36".to_owned()))]);
        let jemalloc = b"<jemalloc>: \x005.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0";
        assert_eq!(told(jemalloc), [(Allocator::Jemalloc, Some("5.3.0".to_owned()))]);
        assert_eq!(told(b"abc-0-gdead"), []);
        assert_eq!(told(b"x gperftools 2.10\0"), [(Allocator::Tcmalloc, Some("2.10".to_owned()))]);
        assert_eq!(told(b""), []);
        // Across the pieces of the search.
        let mut long = vec![b'x'; PIECE - 6];
        long.extend_from_slice(b"mimalloc: warning\0");
        assert_eq!(told(&long), [(Allocator::Mimalloc, None)]);
    }

    #[test]
    fn versions_are_cut_off_without_harm() {
        for text in
            [&b"GNU C Library version "[..], b"GNU C Library  version 2", b"-0-g", b"gperftools ", b"9-0-g"]
        {
            told(text);
        }
        assert_eq!(numbers("2.36"), Some((2, 36)));
        assert_eq!(numbers("2.36.9000"), Some((2, 36)));
        assert_eq!(numbers("2"), None);
    }

    #[test]
    fn data_is_what_is_written_and_what_follows_it() {
        let access = mitra_parse::maps::Access { read: true, write: true, execute: false, shared: false };
        let mapping = |start: u64, path: &str| Mapping {
            start,
            end: start + 0x1000,
            access,
            offset: 0,
            device: 0,
            inode: u64::from(!path.is_empty()),
            path: path.to_owned(),
            is_deleted: false,
        };
        let maps = [mapping(0x1000, "/a"), mapping(0x2000, ""), mapping(0x3000, ""), mapping(0x5000, "/b")];
        assert_eq!(data(&maps, |_| true), [(0x1000, 0x3000), (0x5000, 0x6000)]);
        assert_eq!(data(&maps, |mapping| mapping.path == "/b"), [(0x5000, 0x6000)]);
    }
}
