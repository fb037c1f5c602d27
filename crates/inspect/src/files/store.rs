//! Files that were parsed, and the answers from them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use super::Kind;
use super::frames::Frames;
use super::protocol::{Request, Response};
use crate::elf::{ElfFile, FunctionNames};
use crate::names::NameTable;
use crate::perfmap;
use crate::symbols::{bounded, printable};

/// Limit of all files together: any user can have any number, of any size.
const BYTES_MAX: u64 = 384 << 20;
const FILES_MAX: usize = 4096;
/// A longer perf map is cut off.
const PERF_MAP_BYTES_MAX: u64 = 32 << 20;

/// Parsed files by their numbers, with the bytes that each takes.
pub(super) struct FileStore {
    files: HashMap<u32, (ParsedFile, u64)>,
    next: u32,
    bytes_left: u64,
}

enum ParsedFile {
    Names(FunctionNames),
    PerfMap(NameTable),
    Frames(Frames),
    /// Read a few times only, so its tables are not kept.
    Sections(File),
}

impl ParsedFile {
    fn read(kind: Kind, file: &File, bytes_max: u64) -> Option<Self> {
        Some(match kind {
            Kind::Names => Self::Names(ElfFile::read(file)?.function_names(bytes_max)?),
            Kind::PerfMap => Self::PerfMap(perf_map(file, bytes_max)?),
            Kind::Frames => Self::Frames(Frames::read(file, bytes_max)?),
            Kind::Sections => Self::Sections(file.try_clone().ok()?),
        })
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Names(names) => names.bytes(),
            Self::PerfMap(map) => map.bytes(),
            Self::Frames(frames) => frames.bytes(),
            Self::Sections(_) => 0,
        }
    }

    fn answer(&self, request: &Request) -> Option<Response> {
        match (request, self) {
            (Request::Name { at, .. }, Self::Names(names)) => {
                names.at(*at).map(printable).map(Response::Name)
            }
            (Request::Name { at, .. }, Self::PerfMap(map)) => map.name(*at).map(bounded).map(Response::Name),
            (Request::UnwindRule { at, .. }, Self::Frames(frames)) => {
                frames.caller(*at).map(Response::UnwindRule)
            }
            (Request::Section { name, .. }, Self::Sections(file)) => {
                ElfFile::read(file)?.section(name).map(Response::Address)
            }
            (Request::Symbol { name, .. }, Self::Sections(file)) => {
                ElfFile::read(file)?.symbol(name).map(Response::Address)
            }
            _ => None,
        }
    }
}

impl Default for FileStore {
    fn default() -> Self {
        Self { files: HashMap::new(), next: 0, bytes_left: BYTES_MAX }
    }
}

impl FileStore {
    pub(super) fn take(&mut self, kind: Kind, file: &File) -> Response {
        if self.files.len() >= FILES_MAX {
            return Response::NoRoom;
        }
        let Some(parsed) = ParsedFile::read(kind, file, self.bytes_left) else {
            // A file that does not fit looks like one without tables. With little room left, that
            // is the likely reason.
            return if self.bytes_left < BYTES_MAX / 8 { Response::NoRoom } else { Response::Nothing };
        };
        let bytes = parsed.bytes();
        let Some(left) = self.bytes_left.checked_sub(bytes) else { return Response::NoRoom };
        self.bytes_left = left;
        self.next = self.next.wrapping_add(1);
        self.files.insert(self.next, (parsed, bytes));
        Response::Taken(self.next)
    }

    pub(super) fn answer(&mut self, request: &Request) -> Response {
        let id = match request {
            Request::Take(_) => return Response::Nothing,
            Request::Forget { id } => {
                self.bytes_left += self.files.remove(id).map_or(0, |(_, bytes)| bytes);
                return Response::Nothing;
            }
            Request::Name { id, .. }
            | Request::UnwindRule { id, .. }
            | Request::Section { id, .. }
            | Request::Symbol { id, .. } => id,
        };
        self.files.get(id).and_then(|(parsed, _)| parsed.answer(request)).unwrap_or(Response::Nothing)
    }
}

/// `None` if the file has no functions.
fn perf_map(file: &File, bytes_max: u64) -> Option<NameTable> {
    let mut bytes = Vec::new();
    file.take(PERF_MAP_BYTES_MAX.min(bytes_max)).read_to_end(&mut bytes).ok()?;
    Some(perfmap::parse(&String::from_utf8_lossy(&bytes))).filter(|map| !map.is_empty())
}

/// For [`crate::fuzzing`]: names of a file that any user may have written.
pub(crate) fn fuzz(file: &File, offsets: &[u64]) {
    let elf = ElfFile::read(file);
    let names = elf.as_ref().and_then(|elf| elf.function_names(64 << 20));
    for offset in offsets {
        std::hint::black_box(names.as_ref().and_then(|names| names.at(*offset)));
    }
    if let Some(elf) = elf {
        std::hint::black_box((elf.inflates(), elf.section(".PyRuntime"), elf.symbol("_PyRuntime")));
    }
}
