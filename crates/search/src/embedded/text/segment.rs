//! A segment: the words and facts of the contents between two ordinals, in one file that is never changed.
//!
//! ```text
//! N.words    blocks of words, in order | blocks of facts | directory of words | directory of facts | end
//! directory  count | for each block: a term that is not greater than its first and greater than all before it,
//!            bytes between the block before and it, its length
//! end        "MITRAIWD" | u32 format | u32 first and last ordinal, count of contents | u64 place of both directories
//!            | u32 crc32c of the directories and the end
//! ```
//!
//! The directories are in memory as long as a segment is open: some bytes for some hundred terms. A term costs one read.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::codec::{Corrupt, Got, Input, put};
use super::super::dictionary::{Behind, Part, Take, Wanted, behind};
use super::super::files;
use super::super::frame::read_at;
use super::FORMAT;
use super::block::{Block, Builder};
use crate::error::{At, Error};
use crate::query::Bound;
use crate::query::matcher::Automaton;

const MAGIC: [u8; 8] = *b"MITRAIWD";
const END_BYTES: usize = 8 + 4 + 3 * 4 + 2 * 8 + 4;
/// Bytes of directories: they are in memory.
const DIRECTORY_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a block and of a list behind one.
const READ_BYTES_MAX: usize = 64 << 20;

/// The path of a segment.
pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:010}.words"))
}

/// The number of the segment with this name.
pub(super) fn number(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".words")?.parse().ok()?;
    (format!("{number:010}.words") == name).then_some(number)
}

/// A segment that is written. Words come first, then facts, each in order.
pub(super) struct Writing {
    path: PathBuf,
    file: BufWriter<File>,
    at: u64,
    /// Where the last block ends.
    end: u64,
    range: Range<u32>,
    builder: Builder,
    /// What the directory says of the block that is made.
    first: Vec<u8>,
    words: Vec<u8>,
    facts: Vec<u8>,
    blocks: [u64; 2],
    part: Part,
    out: Vec<u8>,
    relative: Vec<u32>,
}

impl Writing {
    pub(super) fn create(dir: &Path, number: u64, range: Range<u32>, level: i32) -> Result<Self, Error> {
        let path = path(dir, number);
        let file = BufWriter::with_capacity(64 << 10, files::create(&path).at(&path)?);
        let builder = Builder::new(range.end.saturating_sub(range.start), level).at(&path)?;
        Ok(Self {
            path,
            file,
            at: 0,
            end: 0,
            range,
            builder,
            first: Vec::new(),
            words: Vec::new(),
            facts: Vec::new(),
            blocks: [0; 2],
            part: Part::Words,
            out: Vec::new(),
            relative: Vec::new(),
        })
    }

    /// Takes the next term and its contents, ascending.
    pub(super) fn add(&mut self, part: Part, term: &[u8], contents: &[u32]) -> Result<(), Error> {
        if part != self.part {
            self.flush()?;
            self.part = part;
            self.first.clear();
        } else if self.builder.is_full() {
            self.flush()?;
        }
        if self.builder.is_empty() {
            // As short as it can be, to tell it from the last one.
            let same = self.builder.last().iter().zip(term).take_while(|(a, b)| a == b).count();
            let blocks = match part {
                Part::Words => self.blocks[0],
                Part::Facts => self.blocks[1],
            };
            let needed = if blocks == 0 { 0 } else { same + 1 };
            self.first.clear();
            self.first.extend_from_slice(term.get(..needed).unwrap_or(term));
        }
        self.relative.clear();
        self.relative.extend(contents.iter().map(|ordinal| ordinal - self.range.start));
        self.builder.add(term, &self.relative);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.builder.is_empty() {
            return Ok(());
        }
        self.out.clear();
        let len = self.builder.finish(&mut self.out).at(&self.path)?;
        self.file.write_all(&self.out).at(&self.path)?;
        let (directory, blocks) = match self.part {
            Part::Words => (&mut self.words, &mut self.blocks[0]),
            Part::Facts => (&mut self.facts, &mut self.blocks[1]),
        };
        put(directory, self.first.len() as u64);
        directory.extend_from_slice(&self.first);
        put(directory, self.at - self.end);
        put(directory, u64::from(len));
        *blocks += 1;
        self.end = self.at + u64::from(len);
        self.at += self.out.len() as u64;
        Ok(())
    }

    /// Makes it durable. The name of the file is not yet.
    pub(super) fn finish(mut self, contents: u32) -> Result<(), Error> {
        self.flush()?;
        let mut end = Vec::with_capacity(self.words.len() + self.facts.len() + 128);
        put(&mut end, self.blocks[0]);
        end.extend_from_slice(&self.words);
        let facts_at = self.at + end.len() as u64;
        put(&mut end, self.blocks[1]);
        end.extend_from_slice(&self.facts);
        end.extend_from_slice(&MAGIC);
        for number in [FORMAT, self.range.start, self.range.end, contents] {
            end.extend_from_slice(&number.to_le_bytes());
        }
        for place in [self.at, facts_at] {
            end.extend_from_slice(&place.to_le_bytes());
        }
        end.extend_from_slice(&crc32c::crc32c(&end).to_le_bytes());
        self.file.write_all(&end).at(&self.path)?;
        self.file.flush().at(&self.path)?;
        self.file.get_ref().sync_all().at(&self.path)
    }
}

/// Where the blocks of one part are.
#[derive(Debug, Default)]
struct Directory {
    /// The terms that part them, one behind the other.
    terms: Vec<u8>,
    ends: Vec<usize>,
    places: Vec<(u64, u32)>,
}

impl Directory {
    fn read(bytes: &[u8], mut end: u64, file: u64) -> Got<(Self, u64)> {
        let mut input = Input::new(bytes);
        let mut directory = Self::default();
        for _ in 0..input.count(3)? {
            let len = input.count(1)?;
            directory.terms.extend_from_slice(input.take(len)?);
            directory.ends.push(directory.terms.len());
            let at = end.saturating_add(input.varint()?);
            let len = input.u32()?;
            end = at.saturating_add(u64::from(len));
            if end > file || len as usize > READ_BYTES_MAX {
                return Err(Corrupt("a block within the file"));
            }
            directory.places.push((at, len));
        }
        input.end()?;
        Ok((directory, end))
    }

    /// What parts a block from the one before.
    fn first(&self, block: usize) -> Option<&[u8]> {
        let end = *self.ends.get(block)?;
        let start = block.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.terms.get(start..end)
    }

    /// The block that has a term, if any has it.
    fn block_of(&self, term: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.first(middle).is_some_and(|first| first <= term) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }
}

/// A segment that is read.
pub(super) struct Segment {
    pub(super) number: u64,
    /// Of the ordinals.
    pub(super) range: Range<u32>,
    /// How many of them are in it.
    pub(super) contents: u32,
    path: PathBuf,
    file: File,
    words: Directory,
    facts: Directory,
}

impl Segment {
    pub(super) fn open(dir: &Path, number: u64) -> Result<Self, Error> {
        let path = path(dir, number);
        let file = File::open(&path).at(&path)?;
        let len = file.metadata().at(&path)?.len();
        match Self::read(&file, len).at(&path)? {
            Ok((range, contents, words, facts)) => {
                Ok(Self { number, range, contents, path, file, words, facts })
            }
            Err(Corrupt(what)) => Err(Error::Broken { path, what: format!("no {what}") }),
        }
    }

    #[expect(clippy::type_complexity, reason = "what open makes a segment of, at once")]
    fn read(file: &File, len: u64) -> std::io::Result<Got<(Range<u32>, u32, Directory, Directory)>> {
        let Some(end_at) = len.checked_sub(END_BYTES as u64) else { return Ok(Err(Corrupt("end"))) };
        let mut end = [0; END_BYTES];
        read_at(file, &mut end, end_at)?;
        let head = || {
            let mut input = Input::new(&end);
            if input.array()? != MAGIC || u32::from_le_bytes(input.array()?) != FORMAT {
                return Err(Corrupt("end of a segment of this format"));
            }
            let mut number = || input.array().map(u32::from_le_bytes);
            let (range, contents) = (number()?..number()?, number()?);
            let (words_at, facts_at) =
                (u64::from_le_bytes(input.array()?), u64::from_le_bytes(input.array()?));
            let ordered = words_at <= facts_at && facts_at <= end_at && range.start <= range.end;
            if !ordered || end_at - words_at > DIRECTORY_BYTES_MAX {
                return Err(Corrupt("directories within the file"));
            }
            Ok((range, contents, words_at, facts_at))
        };
        let (range, contents, words_at, facts_at) = match head() {
            Ok(head) => head,
            Err(e) => return Ok(Err(e)),
        };
        let mut bytes = vec![0; (len - words_at) as usize];
        let got = read_at(file, &mut bytes, words_at)?;
        let parse = || {
            let (checked, crc) = bytes.split_at_checked(got.saturating_sub(4)).ok_or(Corrupt("end"))?;
            if crc != crc32c::crc32c(checked).to_le_bytes() {
                return Err(Corrupt("directories as they were written: their checksum differs"));
            }
            let mut input = Input::new(&bytes);
            let (words, facts) =
                (input.take((facts_at - words_at) as usize)?, input.take((end_at - facts_at) as usize)?);
            let (words, end) = Directory::read(words, 0, words_at)?;
            let (facts, _) = Directory::read(facts, end, words_at)?;
            Ok((range, contents, words, facts))
        };
        Ok(parse())
    }

    fn directory(&self, part: Part) -> &Directory {
        match part {
            Part::Words => &self.words,
            Part::Facts => &self.facts,
        }
    }

    fn broken(&self, Corrupt(what): Corrupt) -> Error {
        Error::Broken { path: self.path.clone(), what: format!("no {what}") }
    }

    fn load(&self, part: Part, block: usize, into: &mut Block) -> Result<bool, Error> {
        let Some((at, len)) = self.directory(part).places.get(block).copied() else { return Ok(false) };
        into.bytes.resize(len as usize, 0);
        let got = read_at(&self.file, &mut into.bytes, at).at(&self.path)?;
        into.bytes.truncate(got);
        into.begin(self.range.end - self.range.start).map_err(|e| self.broken(e))?;
        Ok(true)
    }

    /// The contents of the term that a block stands at.
    fn contents(
        &self,
        part: Part,
        number: usize,
        block: &Block,
        mut take: impl FnMut(u32),
    ) -> Result<(), Error> {
        let mut far = Vec::new();
        if let Some((behind, len)) = block.far() {
            let end = self.directory(part).places.get(number).map_or(0, |(at, len)| at + u64::from(*len));
            if len > READ_BYTES_MAX {
                return Err(self.broken(Corrupt("a list that can be read")));
            }
            far.resize(len, 0);
            let got = read_at(&self.file, &mut far, end.saturating_add(behind)).at(&self.path)?;
            far.truncate(got);
        }
        block.contents(&far, |content| take(self.range.start + content)).map_err(|e| self.broken(e))
    }

    /// The contents that have any of the wanted terms.
    pub(super) fn walk(
        &self,
        part: Part,
        wanted: &Wanted<'_>,
        block: &mut Block,
        take: &mut impl Take,
    ) -> Result<(), Error> {
        match wanted {
            Wanted::One(term) => self.one(part, term.as_bytes(), block, take),
            Wanted::Between(low, high) => self.between(part, low, high, block, take),
            Wanted::Pattern { head, matcher } => {
                let literal = format!("{head}{}", matcher.literal());
                self.pattern(part, &Behind::new(head, matcher), &literal, block, take)
            }
        }
    }

    fn one(&self, part: Part, term: &[u8], block: &mut Block, take: &mut impl Take) -> Result<(), Error> {
        let number = self.directory(part).block_of(term);
        if !self.load(part, number, block)? {
            return Ok(());
        }
        while block.next().map_err(|e| self.broken(e))? {
            if block.term() >= term {
                if block.term() == term {
                    take.term(text(term));
                    self.contents(part, number, block, |content| take.content(content))?;
                }
                break;
            }
        }
        Ok(())
    }

    fn between(
        &self,
        part: Part,
        low: &Bound<String>,
        high: &Bound<String>,
        block: &mut Block,
        take: &mut impl Take,
    ) -> Result<(), Error> {
        let first = match low {
            Bound::With(term) | Bound::Without(term) => self.directory(part).block_of(term.as_bytes()),
            Bound::Open => 0,
        };
        for number in first.. {
            if !self.load(part, number, block)? {
                break;
            }
            while block.next().map_err(|e| self.broken(e))? {
                let below = match low {
                    Bound::With(term) => block.term() < term.as_bytes(),
                    Bound::Without(term) => block.term() <= term.as_bytes(),
                    Bound::Open => false,
                };
                let above = match high {
                    Bound::With(term) => block.term() > term.as_bytes(),
                    Bound::Without(term) => block.term() >= term.as_bytes(),
                    Bound::Open => false,
                };
                if above {
                    return Ok(());
                }
                if !below {
                    take.term(text(block.term()));
                    self.contents(part, number, block, |content| take.content(content))?;
                }
            }
        }
        Ok(())
    }

    /// All terms that begin with `literal` and that the automaton takes. Blocks of which it takes none are not read.
    fn pattern<A: Automaton>(
        &self,
        part: Part,
        automaton: &A,
        literal: &str,
        block: &mut Block,
        take: &mut impl Take,
    ) -> Result<(), Error> {
        let directory = self.directory(part);
        let end = behind(literal);
        let mut states = vec![automaton.start()];
        // After so many bytes of the last term it was clear that nothing is taken, or everything.
        let mut clear: Option<(usize, bool)>;
        for number in directory.block_of(literal.as_bytes()).. {
            let Some(first) = directory.first(number) else { break };
            if end.as_ref().is_some_and(|end| first >= end.as_slice()) {
                break;
            }
            // What all of its terms begin with.
            let next = directory.first(number + 1).unwrap_or_default();
            let same = first.iter().zip(next).take_while(|(a, b)| a == b).map(|(a, _)| a);
            let mut state = automaton.start();
            if !same.into_iter().all(|byte| {
                state = automaton.accept(&state, *byte);
                automaton.can_match(&state)
            }) {
                continue;
            }
            if !self.load(part, number, block)? {
                break;
            }
            clear = None;
            states.truncate(1);
            while block.next().map_err(|e| self.broken(e))? {
                let kept = block.kept();
                if clear.is_none_or(|(after, _)| kept < after) {
                    clear = None;
                    states.truncate(kept + 1);
                    for (at, byte) in block.term().iter().enumerate().skip(states.len() - 1) {
                        let Some(last) = states.last() else { break };
                        let state = automaton.accept(last, *byte);
                        if !automaton.can_match(&state) {
                            clear = Some((at + 1, false));
                            break;
                        }
                        if automaton.will_always_match(&state) {
                            clear = Some((at + 1, true));
                            break;
                        }
                        states.push(state);
                    }
                }
                let taken = match clear {
                    Some((_, taken)) => taken,
                    None => states.last().is_some_and(|state| automaton.is_match(state)),
                };
                if taken {
                    take.term(text(block.term()));
                    self.contents(part, number, block, |content| take.content(content))?;
                }
            }
        }
        Ok(())
    }

    /// Goes through all terms.
    pub(super) fn terms(&self, part: Part) -> Result<Terms<'_>, Error> {
        let block = Block::new().at(&self.path)?;
        Ok(Terms { segment: self, part, number: 0, begun: false, block })
    }
}

/// Only texts become terms.
fn text(term: &[u8]) -> &str {
    std::str::from_utf8(term).unwrap_or_default()
}

/// The terms of a part of a segment, one after the other.
pub(super) struct Terms<'s> {
    segment: &'s Segment,
    part: Part,
    number: usize,
    begun: bool,
    block: Block,
}

impl Terms<'_> {
    /// Goes to the next term; says whether there is one.
    pub(super) fn next(&mut self) -> Result<bool, Error> {
        loop {
            if self.begun && self.block.next().map_err(|e| self.segment.broken(e))? {
                return Ok(true);
            }
            let number = if self.begun { self.number + 1 } else { 0 };
            if !self.segment.load(self.part, number, &mut self.block)? {
                return Ok(false);
            }
            self.number = number;
            self.begun = true;
        }
    }

    /// The term.
    pub(super) fn term(&self) -> &[u8] {
        self.block.term()
    }

    /// Its contents.
    pub(super) fn contents(&self, take: impl FnMut(u32)) -> Result<(), Error> {
        self.segment.contents(self.part, self.number, &self.block, take)
    }
}

#[cfg(test)]
mod tests;
