//! Exported symbols of a mapped program or library, read from its memory as the dynamic linker
//! does, even if the file is gone. The interpreter exports its data to extensions, so these symbols
//! survive stripping.
//!
//! `object` defines the structures. Its hash tables need a whole table as a slice, and memory does
//! not tell the length.

use mitra_parse::maps::Mapping;
use object::NativeEndian;
use object::elf::{
    DT_GNU_HASH, DT_HASH, DT_NULL, DT_STRTAB, DT_SYMTAB, Dyn64, GnuHashHeader, PF_W, PT_DYNAMIC, PT_LOAD,
    SHN_UNDEF,
};
use object::pod::Pod;
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Sym as _};

use crate::elf::{E, Header, Program, Symbol, structure};
use crate::memory::Memory;

/// More program headers or dynamic entries than anything has.
const HEADERS_MAX: u64 = 1024;
/// More links of one chain of a hash table than any has.
const CHAIN_MAX: u64 = 1 << 16;
/// Limit of the symbols that are compared by name if there is no GNU hash table.
const SYMBOLS_MAX: u64 = 1 << 20;

fn read<T: Pod + Copy, M: Memory + ?Sized>(memory: &M, address: u64) -> Option<T> {
    let mut bytes = [0; 64];
    let bytes = bytes.get_mut(..size_of::<T>())?;
    memory.exact(address, bytes)?;
    structure(bytes)
}

/// A mapped program or library.
#[derive(Debug, Clone)]
pub(super) struct Module {
    /// Added to the addresses in the file.
    pub bias: u64,
    /// Addresses of its writable segments: data and `.bss`.
    pub writable: Vec<(u64, u64)>,
    symbols: u64,
    strings: u64,
    gnu_hash: u64,
    hash: u64,
}

impl Module {
    /// Reads the headers at the beginning of a file that is mapped at `mapping`.
    pub fn read<M: Memory + ?Sized>(memory: &M, mapping: &Mapping) -> Option<Self> {
        let base = mapping.start;
        let header: Header = read(memory, base)?;
        if mapping.offset != 0 || !header.is_supported() || header.endian().is_err() {
            return None;
        }
        let headers = base.checked_add(header.e_phoff(E))?;
        let (size, count) = (u64::from(header.e_phentsize(E)), u64::from(header.e_phnum(E)));
        let (mut bias, mut dynamic, mut writable) = (None, None, Vec::new());
        for i in 0..count.min(HEADERS_MAX) {
            let program: Program = read(memory, headers.checked_add(i.checked_mul(size)?)?)?;
            let address = program.p_vaddr(E);
            match program.p_type(E) {
                PT_LOAD => {
                    // The first segment is mapped at the beginning.
                    bias = bias.or(Some(base.wrapping_sub(address.wrapping_sub(program.p_offset(E)))));
                    if program.p_flags(E) & PF_W != 0 {
                        writable.push((address, program.p_memsz(E)));
                    }
                }
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        let bias = bias?;
        let in_memory = |(address, bytes): (u64, u64)| {
            let start = bias.wrapping_add(address);
            (start, start.saturating_add(bytes))
        };
        let writable = writable.into_iter().map(in_memory).filter(|(from, to)| from < to).collect();
        let mut module = Self { bias, writable, symbols: 0, strings: 0, gnu_hash: 0, hash: 0 };
        if let Some(dynamic) = dynamic {
            module.read_dynamic(memory, bias.wrapping_add(dynamic));
        }
        Some(module)
    }

    fn read_dynamic<M: Memory + ?Sized>(&mut self, memory: &M, at: u64) {
        for i in 0..HEADERS_MAX {
            let Some(entry) = read::<Dyn64<NativeEndian>, M>(memory, at.wrapping_add(16 * i)) else { return };
            let value = entry.d_val(E);
            // glibc turns these into addresses in place; musl leaves them.
            let value = if value < self.bias { self.bias.wrapping_add(value) } else { value };
            match entry.d_tag(E) {
                DT_NULL => return,
                DT_HASH => self.hash = value,
                DT_STRTAB => self.strings = value,
                DT_SYMTAB => self.symbols = value,
                DT_GNU_HASH => self.gnu_hash = value,
                _ => {}
            }
        }
    }

    /// The address of an exported symbol.
    pub fn symbol<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<u64> {
        if self.symbols == 0 || self.strings == 0 {
            return None;
        }
        if self.gnu_hash != 0 {
            return self.by_gnu_hash(memory, name);
        }
        // The second word of the old hash table is the number of symbols.
        let count = u64::from(memory.u32(self.hash.checked_add(4).filter(|_| self.hash != 0)?)?);
        (1..count.min(SYMBOLS_MAX)).find_map(|index| self.value(memory, index, name))
    }

    fn by_gnu_hash<M: Memory + ?Sized>(&self, memory: &M, name: &str) -> Option<u64> {
        let hash = object::elf::gnu_hash(name.as_bytes());
        let header: GnuHashHeader<NativeEndian> = read(memory, self.gnu_hash)?;
        let word = |field: object::U32<NativeEndian>| u64::from(field.get(E));
        let buckets = self.gnu_hash.checked_add(16 + 8 * word(header.bloom_count))?;
        let chains = buckets.checked_add(4 * word(header.bucket_count))?;
        let bucket = u64::from(hash).checked_rem(word(header.bucket_count))?;
        let first = u64::from(memory.u32(buckets.checked_add(4 * bucket)?)?);
        for index in first..first + CHAIN_MAX {
            let link = memory.u32(chains.checked_add(4 * index.checked_sub(word(header.symbol_base))?)?)?;
            if link | 1 == hash | 1
                && let Some(value) = self.value(memory, index, name)
            {
                return Some(value);
            }
            // The lowest bit ends a chain.
            if link & 1 == 1 {
                return None;
            }
        }
        None
    }

    /// The address of a symbol, if it has this name and is defined here.
    fn value<M: Memory + ?Sized>(&self, memory: &M, index: u64, name: &str) -> Option<u64> {
        let symbol: Symbol = read(memory, self.symbols.checked_add(24_u64.checked_mul(index)?)?)?;
        let at = self.strings.checked_add(u64::from(symbol.st_name(E)))?;
        let mut bytes = [0; 64];
        let found = bytes.get_mut(..=name.len())?;
        memory.exact(at, found)?;
        let is_same = found.split_last().is_some_and(|(zero, rest)| *zero == 0 && rest == name.as_bytes());
        (is_same && symbol.st_shndx(E) != SHN_UNDEF).then(|| self.bias.wrapping_add(symbol.st_value(E)))
    }
}
