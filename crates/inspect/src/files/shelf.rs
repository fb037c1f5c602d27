//! What was taken in, and the answers from it.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use super::Kind;
use super::frames::Frames;
use super::wire::{Answer, Question};
use crate::perfmap::PerfMap;
use crate::python::elf::Sections;
use crate::symbols::{bounded, plain};
use crate::tables::Headers;

/// What all files together may take: any user can have as many as he likes, of any size.
const BYTES_MAX: u64 = 384 << 20;
/// Tables of names, each of which holds two files open.
const NAMES_MAX: usize = 256;
/// Files of all kinds.
const FILES_MAX: usize = 4096;
/// A perf map of more is cut off.
const PERF_MAP_BYTES_MAX: u64 = 32 << 20;

/// Files by their numbers.
pub(super) struct Shelf {
    files: HashMap<u32, (Known, u64)>,
    next: u32,
    bytes_left: u64,
}

enum Known {
    Names(Names),
    PerfMap(PerfMap),
    Frames(Frames),
    Sections(Sections),
}

impl Default for Shelf {
    fn default() -> Self {
        Self { files: HashMap::new(), next: 0, bytes_left: BYTES_MAX }
    }
}

impl Shelf {
    pub(super) fn take(&mut self, kind: Kind, file: &File) -> Answer {
        let is_names = |(known, _): &&(Known, u64)| matches!(known, Known::Names(_));
        if self.files.len() >= FILES_MAX
            || (kind == Kind::Names && self.files.values().filter(is_names).count() >= NAMES_MAX)
        {
            return Answer::NoRoom;
        }
        let left = self.bytes_left;
        let read = match kind {
            Kind::Names => Names::read(file, left).map(|(names, bytes)| (Known::Names(names), bytes)),
            Kind::PerfMap => perf_map(file, left).map(|map| {
                let bytes = map.bytes();
                (Known::PerfMap(map), bytes)
            }),
            Kind::Frames => Frames::read(file, left).map(|frames| {
                let bytes = frames.bytes();
                (Known::Frames(frames), bytes)
            }),
            Kind::Sections => file.try_clone().ok().map(|file| (Known::Sections(Sections::read(file)), 0)),
        };
        let Some((known, bytes)) = read else {
            // A file that does not fit looks like one without tables. When little room is left, that is the likely reason.
            return if left < BYTES_MAX / 8 { Answer::NoRoom } else { Answer::Nothing };
        };
        let Some(left) = left.checked_sub(bytes) else { return Answer::NoRoom };
        self.bytes_left = left;
        self.next = self.next.wrapping_add(1);
        self.files.insert(self.next, (known, bytes));
        Answer::Taken(self.next)
    }

    pub(super) fn answer(&mut self, question: &Question) -> Answer {
        let known = |id: &u32| self.files.get(id).map(|(known, _)| known);
        let answer = match question {
            Question::Take(_) => None,
            Question::Name { id, at } => match known(id) {
                Some(Known::Names(names)) => names.at(*at).map(Answer::Name),
                Some(Known::PerfMap(map)) => map.name(*at).map(|name| Answer::Name(bounded(name))),
                _ => None,
            },
            Question::UnwindRule { id, at } => match known(id) {
                Some(Known::Frames(frames)) => frames.caller(*at).map(Answer::UnwindRule),
                _ => None,
            },
            Question::Section { id, name } => match known(id) {
                Some(Known::Sections(sections)) => sections.section(name).map(Answer::Address),
                _ => None,
            },
            Question::Symbol { id, name } => match known(id) {
                Some(Known::Sections(sections)) => sections.symbol(name).map(Answer::Address),
                _ => None,
            },
            Question::Forget { id } => {
                if let Some((_, bytes)) = self.files.remove(id) {
                    self.bytes_left += bytes;
                }
                None
            }
        };
        answer.unwrap_or(Answer::Nothing)
    }
}

/// The names of one file. Each has a symbolizer of its own, which remembers what it opened by a path that others get later.
struct Names {
    symbolizer: Box<Symbolizer>,
    source: Source<'static>,
    /// The tables, which the path leads to.
    _tables: OwnedFd,
}

impl Names {
    fn read(file: &File, bytes_max: u64) -> Option<(Self, u64)> {
        let (tables, bytes) = Headers::read(file)?.tables(bytes_max)?;
        let mut elf = Elf::new(format!("/proc/self/fd/{}", tables.as_raw_fd()));
        elf.debug_syms = false;
        let builder = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false);
        let builder = builder.enable_auto_reload(false).set_debug_dirs(Some(std::iter::empty::<&Path>()));
        Some((
            Self { symbolizer: Box::new(builder.build()), source: Source::Elf(elf), _tables: tables },
            bytes,
        ))
    }

    fn at(&self, offset: u64) -> Option<String> {
        plain(self.symbolizer.symbolize_single(&self.source, Input::FileOffset(offset)))
    }
}

/// Up to a bound; `None` where there is nothing in it.
fn perf_map(file: &File, bytes_max: u64) -> Option<PerfMap> {
    let mut bytes =
        vec![0; usize::try_from(file.metadata().ok()?.len().min(PERF_MAP_BYTES_MAX).min(bytes_max)).ok()?];
    let mut length = 0;
    // Who writes it may make it shorter meanwhile.
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64).ok()? {
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    // What is not text is copied, with three bytes for one that makes no sense; what is, which is all but always, is not.
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Some(PerfMap::parse(&text)).filter(|map| !map.is_empty())
}

/// Names of a file that anybody may have written.
pub(crate) fn fuzz(file: &File, offsets: &[u64]) {
    let names = Names::read(file, 64 << 20);
    for offset in offsets {
        std::hint::black_box(names.as_ref().and_then(|(names, _)| names.at(*offset)));
    }
}
