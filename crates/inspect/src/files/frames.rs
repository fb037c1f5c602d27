//! The unwind tables of one file, which compilers write for exceptions.
//!
//! ```text
//! .eh_frame_hdr   addresses of functions, sorted (Linux Standard Base, section "Exception Frames")
//! .eh_frame       for each: where its frame ends at each of its instructions, and where registers
//!                 are saved (DWARF 5, 6.4)
//! ```

use std::fs::File;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection,
};
use mitra_model::capture::UnwindRule;
use object::elf::{EM_X86_64, PT_GNU_EH_FRAME};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::elf::{E, ElfFile, Segment, TABLE_BYTES_MAX, part};

/// Limit of the rules of one function, which each lookup goes through: large functions have some
/// thousands.
const RULES_BYTES_MAX: usize = 64 << 10;

/// Registers of x86-64 as DWARF numbers them (System V ABI, AMD64 supplement, figure 3.36).
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// The unwind tables of one file.
pub(crate) struct Frames {
    segments: Vec<Segment>,
    index: Vec<u8>,
    index_at: u64,
    frames: Vec<u8>,
    frames_at: u64,
}

impl Frames {
    pub(crate) fn read(file: &File, bytes_max: u64) -> Option<Self> {
        let elf = ElfFile::read(file).filter(|elf| elf.header.e_machine(E) == EM_X86_64)?;
        let segments = elf.segments();
        let index_at = elf.programs.iter().find(|program| program.p_type(E) == PT_GNU_EH_FRAME)?;
        let Segment { offset, address: index_at, bytes } = Segment::of(index_at);
        let index = part(file, offset, bytes).filter(|index| index.len() as u64 <= bytes_max)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(index_at);
        let parsed = EhFrameHdr::new(&index, LittleEndian).parse(&bases, 8).ok()?;
        let Pointer::Direct(frames_at) = parsed.eh_frame_ptr() else { return None };
        // The tables end with their segment at the latest; they contain their own end.
        let is_in =
            |segment: &&Segment| frames_at.checked_sub(segment.address).is_some_and(|at| at < segment.bytes);
        let segment = segments.iter().find(is_in)?;
        let skip = frames_at - segment.address;
        let bytes = (segment.bytes - skip).min(TABLE_BYTES_MAX).min(bytes_max);
        let frames = part(file, segment.offset.checked_add(skip)?, bytes)?;
        Some(Self { segments, index, index_at, frames, frames_at })
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.index.len() + self.frames.len()) as u64
    }

    pub(crate) fn caller(&self, offset: u64) -> Option<UnwindRule> {
        let address = Segment::address_of(&self.segments, offset)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.index_at).set_eh_frame(self.frames_at);
        let index = EhFrameHdr::new(&self.index, LittleEndian).parse(&bases, 8).ok()?;
        let frames = EhFrame::new(&self.frames, LittleEndian);
        let mut context = UnwindContext::new();
        let cie =
            |section: &EhFrame<_>, bases: &BaseAddresses, offset| section.cie_from_offset(bases, offset);
        let table = index.table()?;
        // gimli computes with these numbers unchecked.
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

/// For [`crate::fuzzing`]: looks up addresses all over the tables of a file.
pub(crate) fn fuzz(file: &File) {
    let Some(tables) = Frames::read(file, 4 * TABLE_BYTES_MAX) else { return };
    for segment in &tables.segments {
        for at in [0, 1, segment.bytes / 2, segment.bytes.wrapping_sub(1)] {
            std::hint::black_box(tables.caller(segment.offset.wrapping_add(at)));
        }
    }
    assert!(tables.bytes() <= 2 * TABLE_BYTES_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with one segment and an index of its tables at 0x180.
    fn program(index: &[u8]) -> tempfile::NamedTempFile {
        let mut bytes = vec![0; 0x200];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, b"\x7fELF\x02\x01\x01");
        for (at, number) in [(18, 62), (32, 64), (54, 56), (56, 2), (64, 1), (96, 0x200)] {
            put(at, &[number as u8, (number >> 8) as u8]);
        }
        put(120, &PT_GNU_EH_FRAME.to_le_bytes());
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
