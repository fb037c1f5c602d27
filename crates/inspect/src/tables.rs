//! The tables of symbols of a file that anybody may have written, as a small file of our own.
//!
//! A library for ELF files follows what a file says: links to other files, compressed sections of any size, debug information that
//! refers to itself; and it maps the file, which ends us when somebody makes it shorter meanwhile. For a file that is not root's
//! only its program headers and its two tables of symbols are taken, each read once into a file in memory, within bounds, which
//! nobody else can change. Names of functions stand there; debug information has little more.
//!
//! ```text
//! ELF header         e_ident 0, e_type 16, e_phoff 32, e_shoff 40, e_phentsize 54, e_phnum 56, e_shentsize 58, e_shnum 60
//! section header     sh_name 0, sh_type 4, sh_flags 8, sh_offset 24, sh_size 32, sh_link 40, sh_entsize 56
//! compressed section ch_type 0, ch_size 8
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};

/// Of one table: a million functions; half as many names of C++.
const TABLE_BYTES_MAX: u64 = 32 << 20;
/// Program headers that are kept.
const PROGRAM_HEADERS_MAX: usize = 256;
/// Section headers that are looked at.
const SECTIONS_MAX: usize = 4096;
/// What a compressed section may become, of a file that is believed. Debug information of the largest programs has a few GB.
const INFLATED_BYTES_MAX: u64 = 1 << 30;
const HEADER: usize = 64;
const SECTION: usize = 64;
const PROGRAM: usize = 56;
const SYMBOL: usize = 24;
const ET_EXEC: u64 = 2;
const ET_DYN: u64 = 3;
const SHT_SYMTAB: u64 = 2;
const SHT_STRTAB: u64 = 3;
const SHT_NOBITS: u64 = 8;
const SHT_DYNSYM: u64 = 11;
const SHF_COMPRESSED: u64 = 1 << 11;
/// Names of our own sections, and where each begins.
const NAMES: &[u8] = b"\0.symtab\0.strtab\0.dynsym\0.dynstr\0.shstrtab\0";

/// The headers of a file of 64 bits, in the order of bytes of this machine.
pub(crate) struct Headers<'f> {
    file: &'f File,
    bytes: u64,
    head: Vec<u8>,
    programs: Vec<u8>,
    sections: Vec<u8>,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.get(..N)?;
    let mut whole = [0; 8];
    if cfg!(target_endian = "little") {
        whole.get_mut(..N)?.copy_from_slice(field);
    } else {
        whole.get_mut(8 - N..)?.copy_from_slice(field);
    }
    Some(u64::from_ne_bytes(whole))
}

/// Whether what a header describes ends where numbers do, by where its beginnings and lengths are in it.
fn ends(header: &[u8], places: &[(usize, usize)]) -> bool {
    let end = |(start, length): &(usize, usize)| {
        number::<8>(header, *start)?.checked_add(number::<8>(header, *length)?)
    };
    places.iter().all(|place| end(place).is_some())
}

/// A part of a file, no more than there is of it.
fn part(file: &File, all: u64, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    if offset.checked_add(bytes)? > all || bytes > TABLE_BYTES_MAX {
        return None;
    }
    let mut buffer = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

impl<'f> Headers<'f> {
    pub(crate) fn read(file: &'f File) -> Option<Self> {
        let bytes = file.metadata().ok()?.len();
        let head = part(file, bytes, 0, HEADER as u64)?;
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if !head.starts_with(&[0x7f, b'E', b'L', b'F', 2, order]) {
            return None;
        }
        let table = |at: usize, size: usize, size_at: usize, most: usize| {
            let count = number::<2>(&head, size_at + 2)?.min(most as u64);
            if count == 0 {
                return Some(Vec::new());
            }
            if number::<2>(&head, size_at)? != size as u64 {
                return None;
            }
            part(file, bytes, number::<8>(&head, at)?, count * size as u64)
        };
        let mut programs = table(32, PROGRAM, 54, PROGRAM_HEADERS_MAX)?;
        // Offset, address, bytes in the file and in memory. One that has no end is none.
        let places = [(8, 32), (8, 40), (16, 32), (16, 40)];
        for program in programs.chunks_exact_mut(PROGRAM).filter(|program| !ends(program, &places)) {
            program.fill(0);
        }
        let sections = table(40, SECTION, 58, SECTIONS_MAX).unwrap_or_default();
        Some(Self { file, bytes, head, programs, sections })
    }

    fn section(&self, index: usize) -> Option<&[u8]> {
        self.sections.chunks_exact(SECTION).nth(index)
    }

    /// Whether some section says of itself that it becomes larger than anything does.
    pub(crate) fn inflates(&self) -> bool {
        self.sections.chunks_exact(SECTION).any(|section| {
            let is_compressed = number::<8>(section, 8).is_some_and(|flags| flags & SHF_COMPRESSED != 0);
            let size = || number::<8>(&part(self.file, self.bytes, number::<8>(section, 24)?, 16)?, 8);
            is_compressed && size().is_none_or(|size| size > INFLATED_BYTES_MAX)
        })
    }

    /// A table of symbols and its names.
    fn symbols(&self, kind: u64) -> Option<(Vec<u8>, Vec<u8>)> {
        let is_it = |section: &&[u8]| number::<4>(section, 4) == Some(kind);
        let section = self.sections.chunks_exact(SECTION).find(is_it)?;
        let names = self.section(usize::try_from(number::<4>(section, 40)?).ok()?)?;
        if number::<4>(names, 4)? != SHT_STRTAB {
            return None;
        }
        let contents = |section: &[u8]| {
            let is_compressed = number::<8>(section, 8)? & SHF_COMPRESSED != 0;
            let bytes = number::<8>(section, 32)
                .filter(|_| !is_compressed && number::<4>(section, 4) != Some(SHT_NOBITS))?;
            part(self.file, self.bytes, number::<8>(section, 24)?, bytes)
        };
        let (mut symbols, mut names) = (contents(section)?, contents(names)?);
        symbols.truncate(symbols.len() / SYMBOL * SYMBOL);
        // One that would reach beyond all addresses is none; others count on it that none does.
        for symbol in symbols.chunks_exact_mut(SYMBOL).filter(|symbol| !ends(symbol, &[(8, 16)])) {
            symbol.fill(0);
        }
        names.push(0);
        Some((symbols, names))
    }

    /// A file with the tables and nothing else, and its size. `None` where there are none, or they are larger than `bytes_max`.
    pub(crate) fn tables(&self, bytes_max: u64) -> Option<(OwnedFd, u64)> {
        let (symbols, names) = self.symbols(SHT_SYMTAB).unwrap_or_default();
        let (exported, exported_names) = self.symbols(SHT_DYNSYM).unwrap_or_default();
        let most =
            [&symbols, &names, &exported, &exported_names].iter().map(|part| part.len() as u64).sum::<u64>();
        if (symbols.is_empty() && exported.is_empty()) || most > bytes_max {
            return None;
        }
        let mut content = vec![0; HEADER];
        let mut put = |part: &[u8]| {
            content.resize(content.len().next_multiple_of(8), 0);
            let at = content.len() as u64;
            content.extend_from_slice(part);
            at
        };
        let programs_at = put(&self.programs);
        // Type, names, entry, index of the section with its names; the places in `NAMES`.
        let sections = [
            (1, SHT_SYMTAB, 2, SYMBOL, put(&symbols), symbols.len()),
            (9, SHT_STRTAB, 0, 0, put(&names), names.len()),
            (17, SHT_DYNSYM, 4, SYMBOL, put(&exported), exported.len()),
            (25, SHT_STRTAB, 0, 0, put(&exported_names), exported_names.len()),
            (33, SHT_STRTAB, 0, 0, put(NAMES), NAMES.len()),
        ];
        let mut table = vec![0; SECTION];
        for (name, kind, link, entry, at, bytes) in sections {
            let mut section = [0; SECTION];
            let fields: [(usize, u64, usize); 6] = [
                (0, name, 4),
                (4, kind, 4),
                (24, at, 8),
                (32, bytes as u64, 8),
                (40, link, 4),
                (56, entry as u64, 8),
            ];
            for (at, value, bytes) in fields {
                set(&mut section, at, value, bytes);
            }
            table.extend_from_slice(&section);
        }
        let table_at = put(&table);
        let count = (table.len() / SECTION) as u64;
        let programs = (self.programs.len() / PROGRAM) as u64;
        // Machine and version are the file's own.
        content.get_mut(..24)?.copy_from_slice(self.head.get(..24)?);
        // Neither an object file, whose addresses would be relocated, nor a core.
        let kind = number::<2>(&self.head, 16).filter(|kind| *kind == ET_EXEC).unwrap_or(ET_DYN);
        let fields = [
            (16, kind, 2),
            (32, programs_at, 8),
            (40, table_at, 8),
            (52, HEADER as u64, 2),
            (54, PROGRAM as u64, 2),
            (56, programs, 2),
            (58, SECTION as u64, 2),
            (60, count, 2),
            (62, count - 1, 2),
        ];
        for (at, value, bytes) in fields {
            set(&mut content, at, value, bytes);
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(c"symbols", flags).ok()?);
        file.write_all_at(&content, 0).ok()?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).ok()?;
        Some((file.into(), content.len() as u64))
    }
}

fn set(into: &mut [u8], at: usize, value: u64, bytes: usize) {
    let whole = value.to_ne_bytes();
    let field = if cfg!(target_endian = "little") { whole.get(..bytes) } else { whole.get(8 - bytes..) };
    if let (Some(into), Some(field)) = (into.get_mut(at..at + bytes), field) {
        into.copy_from_slice(field);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        file
    }

    fn tables_of(content: &[u8]) -> Option<(OwnedFd, u64)> {
        Headers::read(&file(content))?.tables(u64::MAX)
    }

    /// A library of some kind, small enough to be damaged at each byte of its headers.
    fn library() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so")));
        std::fs::read(format!("/{}", path.expect("a C library").1)).unwrap()
    }

    #[test]
    fn the_tables_are_those_of_the_file_and_nobody_changes_them() {
        let content = library();
        let (made, bytes) = tables_of(&content).unwrap();
        let made = File::from(made);
        assert!(bytes < content.len() as u64);
        let (before, after) = (file(&content), Headers::read(&made).unwrap());
        let before = Headers::read(&before).unwrap();
        assert_eq!(before.programs, after.programs);
        let (symbols, names) = after.symbols(SHT_DYNSYM).unwrap();
        let (own, own_names) = before.symbols(SHT_DYNSYM).unwrap();
        assert!(symbols == own && names.starts_with(&own_names) && symbols.len() > 1000 * SYMBOL);
        assert!(made.set_len(0).is_err() && made.write_at(b"x", 0).is_err());
        assert!(before.tables(1 << 10).is_none(), "more than there is for it");
    }

    /// A library for ELF files adds beginnings and lengths up without looking.
    #[test]
    fn what_has_no_end_is_left_out() {
        let mut content = library();
        let programs = number::<8>(&content, 32).unwrap() as usize;
        content[programs + 8..programs + 16].fill(0xff);
        let damaged = file(&content);
        let headers = Headers::read(&damaged).unwrap();
        assert_eq!(headers.programs[..PROGRAM], [0; PROGRAM]);
        assert_ne!(headers.programs[PROGRAM..2 * PROGRAM], [0; PROGRAM]);
        let (symbols, _) = headers.symbols(SHT_DYNSYM).unwrap();
        let place = content.windows(symbols.len()).position(|part| part == symbols).unwrap();
        content[place + SYMBOL + 8..place + SYMBOL + 24].fill(0xff);
        let damaged = file(&content);
        let (now, _) = Headers::read(&damaged).unwrap().symbols(SHT_DYNSYM).unwrap();
        assert_eq!(now[SYMBOL..2 * SYMBOL], [0; SYMBOL]);
        assert!(now[2 * SYMBOL..] == symbols[2 * SYMBOL..]);
    }

    #[test]
    fn whatever_the_headers_say_no_more_is_taken_than_there_is() {
        let content = library();
        let sections = number::<8>(&content, 40).unwrap() as usize;
        let count = number::<2>(&content, 60).unwrap() as usize;
        let table = sections..sections + count * SECTION;
        let damaged = file(&content);
        // The sizes and places of sections, and all of the header.
        for at in (0..HEADER).chain(table.filter(|at| (at - sections) % SECTION % 8 >= 6)) {
            for damage in [0_u8, 0x7f, 0xff] {
                damaged.write_at(&[damage], at as u64).unwrap();
                let made = Headers::read(&damaged).and_then(|headers| headers.tables(u64::MAX));
                let made = made.map_or(0, |(_, bytes)| bytes);
                damaged.write_at(&[content[at]], at as u64).unwrap();
                assert!(made <= content.len() as u64 + 4096, "{made} bytes by {damage:#x} at {at:#x}");
            }
        }
        for length in [0, 4, 63, 64, 100, 4096, content.len() - 1] {
            tables_of(&content[..length]);
        }
        assert!(tables_of(b"\x7fELF\x01\x01").is_none() && tables_of(b"#!/bin/sh").is_none());
    }
}
