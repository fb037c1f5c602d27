//! Symbols of a program or library, as the dynamic linker finds them: in memory, whatever became of the file.
//!
//! ```text
//! ELF header   e_phoff at 32, e_phentsize at 54, e_phnum at 56
//! program header (56 bytes)  p_type 0, p_offset 8, p_vaddr 16, p_filesz 32, p_memsz 40
//! PT_DYNAMIC   pairs of (tag, value): DT_HASH 4, DT_STRTAB 5, DT_SYMTAB 6, DT_GNU_HASH 0x6ffffef5
//! Elf64_Sym (24 bytes)  st_name 0 (u32), st_info 4, st_shndx 6 (u16), st_value 8, st_size 16
//! ```
//!
//! The interpreter exports its data to extensions, so that the dynamic symbols survive stripping. The section `.PyRuntime`, since
//! 3.11, and the full table of symbols are read from the file, where there is one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::maps::Mapping;
use crate::memory::Memory;

/// More program headers, sections or dynamic entries than anything has.
const HEADERS_MAX: u64 = 1024;
/// More links of one chain of a hash table than any has.
const CHAIN_MAX: u64 = 1 << 16;
/// Of a file so many bytes of names and symbols are read at most.
const TABLE_BYTES_MAX: u64 = 64 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// A module that is mapped.
#[derive(Debug, Clone)]
pub(super) struct Module {
    /// What is added to the addresses in the file.
    pub bias: u64,
    /// Its parts that can be written, as addresses in memory: data and what begins as zero.
    pub writable: Vec<(u64, u64)>,
    symbols: u64,
    strings: u64,
    gnu_hash: u64,
    hash: u64,
}

impl Module {
    /// Reads the headers of what is mapped from the beginning of a file at `mapping`.
    pub fn read<M: Memory + ?Sized>(memory: &M, mapping: &Mapping) -> Option<Self> {
        let base = mapping.start;
        if mapping.offset != 0
            || memory.u32(base)? != u32::from_le_bytes(*b"\x7fELF")
            || memory.u8(base.wrapping_add(4))? != 2
        {
            return None;
        }
        let headers = base.checked_add(memory.u64(base.wrapping_add(32))?)?;
        let size = u64::from(memory.u16(base.wrapping_add(54))?);
        let count = u64::from(memory.u16(base.wrapping_add(56))?).min(HEADERS_MAX);
        let mut bias = None;
        let mut dynamic = None;
        let mut writable = Vec::new();
        for i in 0..count {
            let at = headers.checked_add(i.checked_mul(size)?)?;
            let address = memory.u64(at.checked_add(16)?)?;
            match memory.u32(at)? {
                PT_LOAD => {
                    let offset = memory.u64(at.wrapping_add(8))?;
                    if bias.is_none() {
                        // The first is mapped at the beginning, page by page.
                        bias = Some(base.wrapping_sub(address.wrapping_sub(offset)));
                    }
                    if memory.u32(at.wrapping_add(4))? & 2 != 0 {
                        writable.push((address, memory.u64(at.wrapping_add(40))?));
                    }
                }
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = bias?;
        let writable = writable
            .into_iter()
            .map(|(address, bytes)| {
                (bias.wrapping_add(address), bias.wrapping_add(address).saturating_add(bytes))
            })
            .filter(|(from, to)| from < to)
            .collect();
        let mut module = Self { bias, writable, symbols: 0, strings: 0, gnu_hash: 0, hash: 0 };
        if let Some(dynamic) = dynamic {
            module.read_dynamic(memory, bias.wrapping_add(dynamic));
        }
        Some(module)
    }

    fn read_dynamic<M: Memory + ?Sized>(&mut self, memory: &M, at: u64) {
        for i in 0..HEADERS_MAX {
            let at = at.wrapping_add(16 * i);
            let (Some(tag), Some(value)) = (memory.u64(at), memory.u64(at.wrapping_add(8))) else { return };
            // The dynamic linker of glibc turns these into addresses in place; that of musl leaves them.
            let value = if value < self.bias { self.bias.wrapping_add(value) } else { value };
            match tag {
                0 => return,
                4 => self.hash = value,
                5 => self.strings = value,
                6 => self.symbols = value,
                0x6fff_fef5 => self.gnu_hash = value,
                _ => {}
            }
        }
    }

    /// Where a symbol that is exported lies.
    pub fn symbol<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<u64> {
        if self.symbols == 0 || self.strings == 0 {
            return None;
        }
        if self.gnu_hash != 0 { self.by_gnu_hash(memory, name) } else { self.by_hash(memory, name) }
    }

    fn by_gnu_hash<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<u64> {
        let hash =
            name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let table = self.gnu_hash;
        let buckets = u64::from(memory.u32(table)?);
        let first = u64::from(memory.u32(table.checked_add(4)?)?);
        let bloom = u64::from(memory.u32(table.checked_add(8)?)?);
        let start = table.checked_add(16 + 8 * bloom)?;
        let chains = start.checked_add(4 * buckets)?;
        let bucket = u64::from(hash).checked_rem(buckets)?;
        let index = u64::from(memory.u32(start.checked_add(4 * bucket)?)?);
        for index in index..index + CHAIN_MAX {
            let link = memory.u32(chains.checked_add(4 * index.checked_sub(first)?)?)?;
            if link | 1 == hash | 1
                && let Some(value) = self.value(memory, index, name)
            {
                return Some(value);
            }
            if link & 1 == 1 {
                return None;
            }
        }
        None
    }

    fn by_hash<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<u64> {
        if self.hash == 0 {
            return None;
        }
        let count = u64::from(memory.u32(self.hash.checked_add(4)?)?).min(CHAIN_MAX * 16);
        (1..count).find_map(|index| self.value(memory, index, name))
    }

    /// The value of a symbol, should that be its name, and it be defined here.
    fn value<M: Memory + ?Sized>(&self, memory: &M, index: u64, name: &str) -> Option<u64> {
        let symbol = self.symbols.checked_add(24_u64.checked_mul(index)?)?;
        let at = self.strings.checked_add(u64::from(memory.u32(symbol)?))?;
        let mut bytes = [0; 64];
        let wanted = bytes.get_mut(..=name.len())?;
        memory.exact(at, wanted)?;
        let is_same = wanted.split_last().is_some_and(|(zero, rest)| *zero == 0 && rest == name.as_bytes());
        if !is_same || memory.u16(symbol.wrapping_add(6))? == 0 {
            return None;
        }
        Some(self.bias.wrapping_add(memory.u64(symbol.wrapping_add(8))?))
    }
}

/// What the sections of a file say, as addresses of the file: `.PyRuntime`, and symbols that are not exported.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    file: Option<File>,
    /// Name, address, offset, size, link, type.
    all: Vec<Section>,
}

#[derive(Debug, Clone)]
struct Section {
    name: String,
    kind: u32,
    address: u64,
    offset: u64,
    bytes: u64,
    link: usize,
}

impl Sections {
    /// Reads the table of sections; empty where there is none.
    pub fn read(file: File) -> Self {
        Self::try_read(file).unwrap_or_default()
    }

    fn try_read(file: File) -> Option<Self> {
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        if head.first_chunk::<5>() != Some(b"\x7fELF\x02") {
            return None;
        }
        let (table, size) = (u64_at(&head, 40)?, u64::from(u16_at(&head, 58)?));
        let (count, names) =
            (u64::from(u16_at(&head, 60)?).min(HEADERS_MAX), usize::from(u16_at(&head, 62)?));
        let mut raw = Vec::new();
        for i in 0..count {
            let mut section = [0; 64];
            file.read_exact_at(&mut section, table.checked_add(i.checked_mul(size)?)?).ok()?;
            let all = Section {
                name: String::new(),
                kind: u32_at(&section, 4)?,
                address: u64_at(&section, 16)?,
                offset: u64_at(&section, 24)?,
                bytes: u64_at(&section, 32)?,
                link: u32_at(&section, 40)? as usize,
            };
            raw.push((u32_at(&section, 0)? as usize, all));
        }
        let names = contents(&file, &raw.get(names)?.1)?;
        let all = raw
            .into_iter()
            .map(|(at, section)| Section { name: text_at(&names, at).unwrap_or_default(), ..section })
            .collect();
        Some(Self { file: Some(file), all })
    }

    /// The address of a section.
    pub fn section(&self, name: &str) -> Option<u64> {
        self.all.iter().find(|section| section.name == name).map(|section| section.address)
    }

    /// The address of a symbol of the full table.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        const SYMTAB: u32 = 2;
        let table = self.all.iter().find(|section| section.kind == SYMTAB)?;
        let file = self.file.as_ref()?;
        let names = contents(file, self.all.get(table.link)?)?;
        let symbols = contents(file, table)?;
        symbols.as_chunks::<24>().0.iter().find_map(|symbol| {
            let at = u32_at(symbol, 0)? as usize;
            let rest = names.get(at..)?;
            let is_same = rest.starts_with(name.as_bytes()) && rest.get(name.len()) == Some(&0);
            (is_same && u16_at(symbol, 6)? != 0).then(|| u64_at(symbol, 8))?
        })
    }
}

fn contents(file: &File, section: &Section) -> Option<Vec<u8>> {
    if section.bytes > TABLE_BYTES_MAX
        || section.offset.checked_add(section.bytes)? > file.metadata().ok()?.len()
    {
        return None;
    }
    let mut bytes = vec![0; section.bytes as usize];
    file.read_exact_at(&mut bytes, section.offset).ok()?;
    Some(bytes)
}

fn text_at(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
