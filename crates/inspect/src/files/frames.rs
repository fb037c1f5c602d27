//! The tables that compilers write for exceptions, of one file.
//!
//! ```text
//! .eh_frame_hdr   addresses of functions, sorted (Linux Standard Base, section "Exception Frames")
//! .eh_frame       for each: where its frame ends at each of its instructions, and where registers are kept (DWARF 5, 6.4)
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection,
};
use mitra_model::capture::UnwindRule;

/// Program headers of a file.
const HEADERS_MAX: usize = 64;
/// Of one file.
const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Rules of one function, which are gone through for each of its places: those of large ones have some thousands.
const RULES_BYTES_MAX: usize = 64 << 10;

/// Registers of x86-64 as DWARF numbers them (System V ABI, AMD64 supplement, figure 3.36).
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// The tables of one file.
pub(crate) struct Frames {
    /// Offset in the file, address, bytes of what is loaded.
    segments: Vec<(u64, u64, u64)>,
    index: Vec<u8>,
    index_at: u64,
    frames: Vec<u8>,
    frames_at: u64,
}

/// Offsets in the header of an ELF file with 64 bits, and in its program headers (`elf.h`).
const E_MACHINE: usize = 18;
const E_PHOFF: usize = 32;
const E_PHENTSIZE: usize = 54;
const E_PHNUM: usize = 56;
const EM_X86_64: u64 = 62;
const PT_LOAD: u64 = 1;
const PT_GNU_EH_FRAME: u64 = 0x6474_e550;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut whole = [0; 8];
    whole.get_mut(..N)?.copy_from_slice(bytes.get(at..)?.get(..N)?);
    Some(u64::from_le_bytes(whole))
}

impl Frames {
    pub(crate) fn read(file: &File, bytes_max: u64) -> Option<Self> {
        let all = file.metadata().ok()?.len();
        let read = |offset: u64, bytes: u64| {
            // What a header says of a size is no reason to take as much memory.
            if offset.checked_add(bytes)? > all {
                return None;
            }
            let mut buffer = vec![0; usize::try_from(bytes.min(TABLE_BYTES_MAX).min(bytes_max)).ok()?];
            file.read_exact_at(&mut buffer, offset).ok()?;
            Some(buffer)
        };
        let head = read(0, 64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") || number::<2>(&head, E_MACHINE)? != EM_X86_64 {
            return None;
        }
        let size = usize::try_from(number::<2>(&head, E_PHENTSIZE)?).ok()?.max(56);
        let count = usize::try_from(number::<2>(&head, E_PHNUM)?).ok()?.min(HEADERS_MAX);
        let headers = read(number::<8>(&head, E_PHOFF)?, (size * count) as u64)?;
        let (mut segments, mut index) = (Vec::new(), None);
        for header in headers.chunks_exact(size) {
            let part = (number::<8>(header, 8)?, number::<8>(header, 16)?, number::<8>(header, 32)?);
            match number::<4>(header, 0)? {
                PT_LOAD => segments.push(part),
                PT_GNU_EH_FRAME => index = Some(part),
                _ => {}
            }
        }
        let (index_offset, index_at, index_bytes) = index?;
        let index = read(index_offset, index_bytes)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(index_at);
        let parsed = EhFrameHdr::new(&index, LittleEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(frames_at) = parsed.eh_frame_ptr() else { return None };
        // The tables end with their segment at the latest; they say themselves where.
        let inside =
            |segment: &&(u64, u64, u64)| frames_at.checked_sub(segment.1).is_some_and(|at| at < segment.2);
        let (offset, address, bytes) = *segments.iter().find(inside)?;
        let skip = frames_at - address;
        let frames = read(offset.checked_add(skip)?, bytes - skip)?;
        Some(Self { segments, index, index_at, frames, frames_at })
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.index.len() + self.frames.len()) as u64
    }

    /// At an offset in the file.
    pub(crate) fn caller(&self, offset: u64) -> Option<UnwindRule> {
        let inside =
            |segment: &&(u64, u64, u64)| offset.checked_sub(segment.0).is_some_and(|at| at < segment.2);
        let (start, address, _) = *self.segments.iter().find(inside)?;
        let address = address.checked_add(offset - start)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.index_at).set_eh_frame(self.frames_at);
        let index = EhFrameHdr::new(&self.index, LittleEndian).parse(&bases, 8).ok()?;
        let frames = EhFrame::new(&self.frames, LittleEndian);
        let mut context = UnwindContext::new();
        let cie =
            |section: &EhFrame<_>, bases: &BaseAddresses, offset| section.cie_from_offset(bases, offset);
        let table = index.table()?;
        // gimli multiplies and subtracts what the file says without looking.
        if table.iter(&bases).size_hint().0 > self.index.len() {
            return None;
        }
        let at = table.lookup(address, &bases).ok()?.direct().ok()?.checked_sub(self.frames_at)?;
        let entry = frames.fde_from_offset(&bases, usize::try_from(at).ok()?.into(), cie).ok()?;
        if !entry.contains(address) || entry.entry_len().max(entry.cie().entry_len()) > RULES_BYTES_MAX {
            return None;
        }
        let row = entry.unwind_info_for_address(&frames, &bases, &mut context, address).ok()?;
        match row.register(RETURN_ADDRESS) {
            Some(RegisterRule::Undefined) => return Some(UnwindRule::Nobody),
            Some(RegisterRule::Offset(-8)) => {}
            _ => return None,
        }
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        let is_from_frame_pointer = match register {
            RBP => true,
            RSP => false,
            _ => return None,
        };
        let frame_pointer_at = match row.register(RBP) {
            None | Some(RegisterRule::SameValue) => 0,
            Some(RegisterRule::Offset(at)) => i16::try_from(at).ok()?,
            Some(_) => return None,
        };
        Some(UnwindRule::At { is_from_frame_pointer, offset: i32::try_from(offset).ok()?, frame_pointer_at })
    }
}

/// For [`crate::fuzzing`]: the tables of a file, asked for callers all over it.
pub(crate) fn fuzz(file: &File) {
    let Some(tables) = Frames::read(file, 4 * TABLE_BYTES_MAX) else { return };
    for (start, address, length) in &tables.segments {
        for at in [0, 1, length / 2, length.wrapping_sub(1)] {
            std::hint::black_box((tables.caller(start.wrapping_add(at)), address));
        }
    }
    assert!(tables.bytes() <= 2 * TABLE_BYTES_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with one segment and an index of its tables, which lie at 0x180.
    fn program(index: &[u8]) -> tempfile::NamedTempFile {
        let mut bytes = vec![0; 0x200];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, b"\x7fELF\x02\x01");
        for (at, number) in
            [(E_MACHINE, 62), (E_PHOFF, 64), (E_PHENTSIZE, 56), (E_PHNUM, 2), (64, 1), (96, 0x200)]
        {
            put(at, &[number as u8, (number >> 8) as u8]);
        }
        put(120, &(PT_GNU_EH_FRAME as u32).to_le_bytes());
        for at in [128, 136] {
            put(at, &[0, 1]);
        }
        put(152, &[index.len() as u8]);
        put(0x100, index);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file
    }

    #[test]
    fn an_index_that_points_before_its_tables_or_counts_too_many_has_nothing() {
        let before = [&[1, 3, 3, 3, 0x80, 1, 0, 0, 1, 0, 0, 0][..], &[0, 0, 0, 0, 0x10, 0, 0, 0]].concat();
        let many = [&[1, 3, 4, 3, 0x80, 1, 0, 0][..], &[0xff; 8], &[0; 8]].concat();
        for index in [before, many] {
            let file = program(&index);
            let tables = Frames::read(file.as_file(), TABLE_BYTES_MAX).unwrap();
            assert_eq!(tables.caller(0x40), None);
        }
    }
}
