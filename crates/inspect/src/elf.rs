//! ELF files of any user: headers and symbol tables, each read once and bounded.
//!
//! `object` defines the structures. Its readers of whole files are not used: they map the file, so
//! that its owner can kill us with SIGBUS by truncating it, or they allocate what a header claims.
//! Debug information of other users is not read: it links other files, inflates, and refers to
//! itself.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::NativeEndian;
use object::elf::{
    CompressionHeader64, FileHeader64, PT_LOAD, ProgramHeader64, SHF_COMPRESSED, SHN_UNDEF, SHT_DYNSYM,
    SHT_NOBITS, SHT_STRTAB, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, SectionHeader64,
    Sym64,
};
use object::pod::{self, Pod};
use object::read::elf::{
    CompressionHeader as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _,
};

use crate::names::NameTable;

/// Limit of one table: two million functions, or the unwind tables of the largest programs.
pub(crate) const TABLE_BYTES_MAX: u64 = 64 << 20;
const PROGRAM_HEADERS_MAX: usize = 256;
const SECTIONS_MAX: usize = 4096;
/// Inflated size of a compressed section of a trusted file. The largest debug sections have a few
/// GB.
const INFLATED_BYTES_MAX: u64 = 1 << 30;

/// The byte order of this machine, which is that of its programs.
pub(crate) const E: NativeEndian = NativeEndian;

pub(crate) type Header = FileHeader64<NativeEndian>;
pub(crate) type Program = ProgramHeader64<NativeEndian>;
pub(crate) type Symbol = Sym64<NativeEndian>;
type Section = SectionHeader64<NativeEndian>;

/// A loaded segment: offset in the file, address, bytes in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Segment {
    pub(crate) fn of(program: &Program) -> Self {
        Self { offset: program.p_offset(E), address: program.p_vaddr(E), bytes: program.p_filesz(E) }
    }

    /// The address of an offset in the file.
    pub(crate) fn address_of(segments: &[Self], offset: u64) -> Option<u64> {
        let is_in = |segment: &&Self| offset.checked_sub(segment.offset).is_some_and(|at| at < segment.bytes);
        let segment = segments.iter().find(is_in)?;
        segment.address.checked_add(offset - segment.offset)
    }
}

/// The headers of a file of 64 bits in the byte order of this machine.
pub(crate) struct ElfFile<'f> {
    file: &'f File,
    pub(crate) header: Header,
    pub(crate) programs: Vec<Program>,
    sections: Vec<Section>,
}

/// A structure at the beginning of some bytes.
pub(crate) fn structure<T: Pod + Copy>(bytes: &[u8]) -> Option<T> {
    pod::from_bytes::<T>(bytes).ok().map(|(found, _)| *found)
}

fn array<T: Pod + Copy>(file: &File, offset: u64, entry_bytes: u16, count: usize) -> Option<Vec<T>> {
    if count == 0 {
        return Some(Vec::new());
    }
    if usize::from(entry_bytes) != size_of::<T>() {
        return None;
    }
    let bytes = part(file, offset, (count * size_of::<T>()) as u64)?;
    Some(pod::slice_from_all_bytes::<T>(&bytes).ok()?.to_vec())
}

/// Bytes of a file. `None` if a header claims more than the file has.
pub(crate) fn part(file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
    if offset.checked_add(bytes)? > file.metadata().ok()?.len() || bytes > TABLE_BYTES_MAX {
        return None;
    }
    let mut buffer = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

impl<'f> ElfFile<'f> {
    pub(crate) fn read(file: &'f File) -> Option<Self> {
        let header: Header = structure(&part(file, 0, size_of::<Header>() as u64)?)?;
        if !header.is_supported() || header.endian().is_err() {
            return None;
        }
        let count = usize::from(header.e_phnum(E)).min(PROGRAM_HEADERS_MAX);
        let programs = array(file, header.e_phoff(E), header.e_phentsize(E), count)?;
        let count = usize::from(header.e_shnum(E)).min(SECTIONS_MAX);
        let sections = array(file, header.e_shoff(E), header.e_shentsize(E), count);
        Some(Self { file, header, programs, sections: sections.unwrap_or_default() })
    }

    pub(crate) fn segments(&self) -> Vec<Segment> {
        let loads = self.programs.iter().filter(|program| program.p_type(E) == PT_LOAD);
        loads.map(Segment::of).collect()
    }

    /// Whether a compressed section claims a size that no section has.
    pub(crate) fn inflates(&self) -> bool {
        self.sections.iter().filter(|section| is_compressed(section)).any(|section| {
            let head =
                part(self.file, section.sh_offset(E), size_of::<CompressionHeader64<NativeEndian>>() as u64);
            let head: Option<CompressionHeader64<NativeEndian>> = head.and_then(|head| structure(&head));
            head.is_none_or(|head| head.ch_size(E) > INFLATED_BYTES_MAX)
        })
    }

    fn contents(&self, section: &Section) -> Option<Vec<u8>> {
        if is_compressed(section) || section.sh_type(E) == SHT_NOBITS {
            return None;
        }
        part(self.file, section.sh_offset(E), section.sh_size(E))
    }

    /// A symbol table and the names that its symbols refer to.
    fn symbols(&self, kind: u32) -> Option<(Vec<Symbol>, Vec<u8>)> {
        let section = self.sections.iter().find(|section| section.sh_type(E) == kind)?;
        let names = self.sections.get(section.sh_link(E) as usize)?;
        if names.sh_type(E) != SHT_STRTAB {
            return None;
        }
        let bytes = self.contents(section)?;
        let whole = bytes.len() / size_of::<Symbol>() * size_of::<Symbol>();
        let symbols = pod::slice_from_all_bytes::<Symbol>(bytes.get(..whole)?).ok()?.to_vec();
        Some((symbols, self.contents(names)?))
    }

    /// Names by offset in the file. `None` if there are none, or they take more than `bytes_max`.
    pub(crate) fn function_names(&self, bytes_max: u64) -> Option<FunctionNames> {
        let tables = [SHT_SYMTAB, SHT_DYNSYM].map(|kind| {
            let (symbols, names) = self.symbols(kind).unwrap_or_default();
            name_table(&symbols, &names, kind == SHT_SYMTAB)
        });
        let names = FunctionNames { segments: self.segments(), tables };
        let is_empty = names.tables.iter().all(NameTable::is_empty);
        (!is_empty && names.bytes() <= bytes_max).then_some(names)
    }

    /// The address of a section.
    pub(crate) fn section(&self, wanted: &str) -> Option<u64> {
        let names = self.contents(self.sections.get(usize::from(self.header.e_shstrndx(E)))?)?;
        let is_it = |section: &&Section| text_at(&names, section.sh_name(E)) == Some(wanted.as_bytes());
        self.sections.iter().find(is_it).map(|section| section.sh_addr(E))
    }

    /// The address of a symbol of the full table.
    pub(crate) fn symbol(&self, wanted: &str) -> Option<u64> {
        let (symbols, names) = self.symbols(SHT_SYMTAB)?;
        let is_it = |symbol: &&Symbol| {
            symbol.st_shndx(E) != SHN_UNDEF && text_at(&names, symbol.st_name(E)) == Some(wanted.as_bytes())
        };
        symbols.iter().find(is_it).map(|symbol| symbol.st_value(E))
    }
}

fn is_compressed(section: &Section) -> bool {
    section.sh_flags(E) & u64::from(SHF_COMPRESSED) != 0
}

/// The text up to a zero byte.
fn text_at(names: &[u8], at: u32) -> Option<&[u8]> {
    let rest = names.get(at as usize..)?;
    rest.get(..memchr::memchr(0, rest)?)
}

/// Names of the functions of a file, by offset in the file.
pub(crate) struct FunctionNames {
    segments: Vec<Segment>,
    /// The full table, then the exported symbols.
    tables: [NameTable; 2],
}

impl FunctionNames {
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(NameTable::bytes).sum()
    }

    pub(crate) fn at(&self, offset: u64) -> Option<&str> {
        let address = Segment::address_of(&self.segments, offset)?;
        self.tables.iter().find_map(|table| table.name(address))
    }
}

/// Of several symbols at an address, the longest counts. One without a size extends to the next
/// one, if the table is complete (`is_full`).
fn name_table(symbols: &[Symbol], names: &[u8], is_full: bool) -> NameTable {
    let is_named = |symbol: &&Symbol| {
        [STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_GNU_IFUNC].contains(&(symbol.st_info & 0xf))
            && symbol.st_shndx(E) != SHN_UNDEF
    };
    let range = |symbol: &Symbol| (symbol.st_value(E), symbol.st_size(E));
    let mut order: Vec<&Symbol> = symbols.iter().filter(is_named).collect();
    order.sort_by_key(|symbol| std::cmp::Reverse(range(symbol).1));
    let mut table = NameTable::default();
    for symbol in order {
        let (start, size) = range(symbol);
        let end = match size {
            0 if is_full => u64::MAX,
            size => start.saturating_add(size.max(1)),
        };
        let name = text_at(names, symbol.st_name(E)).and_then(|name| str::from_utf8(name).ok());
        if name.is_some_and(|name| !table.push(start, end, name)) {
            break;
        }
    }
    table.finish();
    table
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    /// A C library: small enough to damage each byte of its headers.
    fn library() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().find_map(|line| line.split_once('/').filter(|(_, path)| path.contains("libc.so")));
        std::fs::read(format!("/{}", path.expect("a C library").1)).unwrap()
    }

    fn names_of(content: &[u8]) -> Option<FunctionNames> {
        ElfFile::read(&file(content))?.function_names(u64::MAX)
    }

    /// The offset in the file of an exported function.
    fn offset_of(elf: &ElfFile<'_>, wanted: &str) -> u64 {
        let (symbols, names) = elf.symbols(SHT_DYNSYM).unwrap();
        let is_it = |symbol: &&Symbol| text_at(&names, symbol.st_name(E)) == Some(wanted.as_bytes());
        let address = symbols.iter().find(is_it).unwrap().st_value(E);
        let segments = elf.segments();
        let segment = segments.iter().find(|s| (s.address..s.address + s.bytes).contains(&address)).unwrap();
        address - segment.address + segment.offset
    }

    #[test]
    fn functions_are_named_by_their_offset() {
        let content = library();
        let file = file(&content);
        let elf = ElfFile::read(&file).unwrap();
        let names = elf.function_names(u64::MAX).unwrap();
        let at = offset_of(&elf, "getaddrinfo");
        assert_eq!((names.at(at), names.at(at + 1)), (Some("getaddrinfo"), Some("getaddrinfo")));
        assert_eq!(names.at(u64::MAX), None);
        assert!(names.bytes() < content.len() as u64);
        assert!(elf.function_names(1 << 10).is_none(), "more than there is room for");
        assert!(elf.section(".dynsym").is_some() && elf.section(".nothing").is_none());
    }

    #[test]
    fn ranges_that_overflow_are_harmless() {
        let mut content = library();
        let at = offset_of(&ElfFile::read(&file(&content)).unwrap(), "getaddrinfo");
        let headers = ElfFile::read(&file(&content)).unwrap().header.e_phoff(E) as usize;
        let symbols = ElfFile::read(&file(&content)).unwrap().symbols(SHT_DYNSYM).unwrap().0;
        let bytes = pod::bytes_of_slice(&symbols).to_vec();
        let place = content.windows(bytes.len()).position(|part| part == bytes).unwrap();
        // The first program header that loads nothing, and the first symbol.
        content[headers + 8..headers + 16].fill(0xff);
        let symbol = place + size_of::<Symbol>();
        content[symbol + 8..symbol + 24].fill(0xff);
        let names = names_of(&content).unwrap();
        assert_eq!(names.at(at), Some("getaddrinfo"));
        assert_eq!(names.at(u64::MAX), None);
    }

    #[test]
    fn headers_never_get_more_than_the_file_has() {
        let content = library();
        let (sections, count) = {
            let file = file(&content);
            let elf = ElfFile::read(&file).unwrap();
            (elf.header.e_shoff(E) as usize, elf.sections.len())
        };
        let table = sections..sections + count * size_of::<Section>();
        let damaged = file(&content);
        // The whole header; of the sections, the high bytes of offsets and sizes.
        for at in
            (0..size_of::<Header>()).chain(table.filter(|at| (at - sections) % size_of::<Section>() % 8 >= 6))
        {
            for damage in [0_u8, 0x7f, 0xff] {
                damaged.write_at(&[damage], at as u64).unwrap();
                let names = ElfFile::read(&damaged).and_then(|elf| elf.function_names(u64::MAX));
                let bytes = names.map_or(0, |names| names.bytes());
                damaged.write_at(&[content[at]], at as u64).unwrap();
                assert!(bytes <= 2 * content.len() as u64, "{bytes} bytes by {damage:#x} at {at:#x}");
            }
        }
        for length in [0, 4, 63, 64, 100, 4096, content.len() - 1] {
            names_of(&content[..length]);
        }
        assert!(names_of(b"\x7fELF\x01\x01").is_none() && names_of(b"#!/bin/sh").is_none());
    }
}
