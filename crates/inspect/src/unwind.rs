//! From a place in a program to its caller, without frame pointers: by the tables that compilers write for exceptions.
//!
//! ```text
//! .eh_frame_hdr   addresses of functions, sorted (Linux Standard Base, section "Exception Frames")
//! .eh_frame       for each: where its frame ends at each of its instructions, and where registers are kept (DWARF 5, 6.4)
//! ```
//!
//! Of what the tables can say the usual is understood: a frame that ends some way behind the stack pointer or the frame
//! pointer, on x86-64. Code without tables is made while a program runs, as the trampolines of `python -X perf`: where what
//! follows a call does no more than to give the frame back, that says as much. Everything else is left to frame pointers.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindSection,
};
use mitra_model::capture::{Caller, Followed, Place, StackCopy};

use crate::maps;
use crate::process::{Budget, Process};

/// As many frames as the program in the kernel follows: `CHAIN_DEPTH` of collect/bpf/chain.h.
const DEPTH_MAX: usize = 64;
/// Program headers of a file.
const HEADERS_MAX: usize = 64;
/// Tables of one file, and of all files of a process.
const TABLE_BYTES_MAX: u64 = 64 << 20;
const TABLES_BYTES_MAX: u64 = 256 << 20;
/// Rules of one function, which are gone through for each of its places: those of large ones have some thousands.
const RULES_BYTES_MAX: usize = 64 << 10;
/// Places whose callers are remembered.
const PLACES_MAX: usize = 1 << 16;

/// Registers of x86-64 as DWARF numbers them (System V ABI, AMD64 supplement, figure 3.36).
const RBP: Register = Register(6);
const RSP: Register = Register(7);
const RETURN_ADDRESS: Register = Register(16);

/// Finds callers in one process.
pub struct Unwinder {
    process: Process,
    budget: Budget,
    /// The memory of the process, for its code.
    memory: Option<File>,
    tables: HashMap<(u64, u64, String), Option<Tables>>,
    table_bytes_left: u64,
    known: HashMap<Place, Caller>,
}

impl Unwinder {
    /// Of a process that lives. What it maps later is seen when it is asked for.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        let mut budget = Budget::default();
        Self {
            process: Process::read(pid, true, &mut budget),
            budget,
            memory: File::open(format!("/proc/{pid}/mem")).ok(),
            tables: HashMap::new(),
            table_bytes_left: TABLES_BYTES_MAX,
            known: HashMap::new(),
        }
    }

    /// Follows a copy of a stack as far as it reaches.
    pub fn follow(&mut self, copy: &StackCopy) -> Followed {
        let known = |address| maps::find(&self.process.mappings, address).is_some();
        if !known(copy.address) {
            self.process.refresh(&mut self.budget);
        }
        follow_by(copy, |place| self.caller(place))
    }

    fn caller(&mut self, place: Place) -> Caller {
        if let Some(caller) = self.known.get(&place) {
            return *caller;
        }
        let caller = self.look_up(place).or_else(|| self.by_code(place)).unwrap_or_default();
        if self.known.len() < PLACES_MAX {
            self.known.insert(place, caller);
        }
        caller
    }

    /// By what is executed when the call returns.
    fn by_code(&self, place: Place) -> Option<Caller> {
        if place.is_leaf || !cfg!(target_arch = "x86_64") || i64::try_from(place.address).is_err() {
            return None;
        }
        let mut code = [0; CODE_BYTES];
        self.memory.as_ref()?.read_exact_at(&mut code, place.address).ok()?;
        by_epilogue(&code)
    }

    fn look_up(&mut self, place: Place) -> Option<Caller> {
        // Where a call returns to the next function may begin.
        let address = if place.is_leaf { place.address } else { place.address.checked_sub(1)? };
        let mapping = maps::find(&self.process.mappings, address)?.clone();
        let offset = address.checked_sub(mapping.start)?.checked_add(mapping.offset)?;
        let key = (mapping.device, mapping.inode, mapping.path.clone());
        if !self.tables.contains_key(&key) {
            let file = self.process.open(&mapping);
            let tables = file.and_then(|opened| Tables::read(&opened.file, self.table_bytes_left));
            let bytes = tables.as_ref().map_or(0, Tables::bytes);
            self.table_bytes_left = self.table_bytes_left.saturating_sub(bytes);
            self.tables.insert(key.clone(), tables);
        }
        self.tables.get(&key)?.as_ref()?.caller(offset)
    }
}

fn follow_by(copy: &StackCopy, mut caller_of: impl FnMut(Place) -> Caller) -> Followed {
    let word = |address: u64| {
        let at = usize::try_from(address.checked_sub(copy.stack_pointer)?).ok()?;
        copy.bytes.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    };
    let mut followed = Followed::default();
    let (mut address, mut stack, mut frame) = (copy.address, copy.stack_pointer, copy.frame_pointer);
    for depth in 0..DEPTH_MAX {
        followed.addresses.push(address);
        let place = Place { address, is_leaf: depth == 0 };
        let caller = caller_of(place);
        followed.callers.push((place, caller));
        let next = match caller {
            Caller::Nobody => None,
            Caller::At { is_from_frame_pointer, offset, frame_pointer_at } => {
                let base = if is_from_frame_pointer { frame } else { stack };
                let end = base.wrapping_add_signed(offset.into());
                let kept = word(end.wrapping_add_signed(frame_pointer_at.into()));
                let frame = if frame_pointer_at == 0 { Some(frame) } else { kept };
                word(end.wrapping_sub(8)).zip(frame).map(|(address, frame)| (address, end, frame))
            }
            Caller::FramePointer => {
                let next = word(frame.wrapping_add(8)).zip(word(frame));
                next.map(|(address, above)| (address, frame.wrapping_add(16), above))
            }
        };
        // A stack only grows back.
        let Some(next) = next.filter(|next| next.0 != 0 && next.1 > stack) else { break };
        (address, stack, frame) = next;
    }
    followed
}

/// Enough to give back a frame and all registers that are kept in it.
const CODE_BYTES: usize = 20;

/// `add $N,%rsp`, any number of `pop`, `ret` (Intel's manual, volume 2). None where the code is anything else.
fn by_epilogue(code: &[u8]) -> Option<Caller> {
    let (mut offset, mut rest) = (0_i32, code);
    if let [0x48, 0x83, 0xc4, bytes, after @ ..] = rest {
        (offset, rest) = (i32::from(bytes.cast_signed()), after);
    }
    let mut popped = None;
    loop {
        rest = match rest {
            [0xc3, ..] => break,
            [0x5d, after @ ..] => {
                popped = Some(offset);
                after
            }
            [0x58..=0x5f, after @ ..] | [0x41, 0x58..=0x5f, after @ ..] => after,
            _ => return None,
        };
        offset = offset.checked_add(8)?;
    }
    let end = offset.checked_add(8)?;
    let frame_pointer_at = popped.map_or(Some(0), |at| i16::try_from(at - end).ok())?;
    (offset >= 0).then_some(Caller::At { is_from_frame_pointer: false, offset: end, frame_pointer_at })
}

/// The tables of one file.
struct Tables {
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

impl Tables {
    fn read(file: &File, bytes_max: u64) -> Option<Self> {
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

    fn bytes(&self) -> u64 {
        (self.index.len() + self.frames.len()) as u64
    }

    /// At an offset in the file.
    fn caller(&self, offset: u64) -> Option<Caller> {
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
            Some(RegisterRule::Undefined) => return Some(Caller::Nobody),
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
        Some(Caller::At { is_from_frame_pointer, offset: i32::try_from(offset).ok()?, frame_pointer_at })
    }
}

/// For [`crate::fuzzing`]: the tables of a file, asked for callers all over it, and its bytes as code.
pub(crate) fn fuzz(file: &File, bytes: &[u8]) {
    std::hint::black_box(by_epilogue(bytes.get(..CODE_BYTES).unwrap_or(bytes)));
    let Some(tables) = Tables::read(file, TABLES_BYTES_MAX) else { return };
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

    /// Words of a stack from 0x1000 on.
    fn copy(words: &[u64], address: u64, frame_pointer: u64) -> StackCopy {
        StackCopy {
            address,
            stack_pointer: 0x1000,
            frame_pointer,
            bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            ..StackCopy::default()
        }
    }

    fn at(is_from_frame_pointer: bool, offset: i32, frame_pointer_at: i16) -> Caller {
        Caller::At { is_from_frame_pointer, offset, frame_pointer_at }
    }

    #[test]
    fn a_stack_is_followed_by_rules_and_where_there_are_none_by_frame_pointers() {
        // 0xa has 16 bytes of its own and keeps the frame pointer, 0xb has a frame of the usual kind, 0xc begins the thread.
        let words = [7, 7, 0x1028, 0xb, 7, 0x0, 0xc];
        let rules = |place: Place| match place.address {
            0xa => at(false, 32, -16),
            0xc => Caller::Nobody,
            _ => Caller::FramePointer,
        };
        let followed = follow_by(&copy(&words, 0xa, 0x9999), rules);
        assert_eq!(followed.addresses, [0xa, 0xb, 0xc]);
        assert_eq!(followed.callers[0], (Place { address: 0xa, is_leaf: true }, at(false, 32, -16)));
        assert_eq!(followed.callers[2].1, Caller::Nobody);
    }

    #[test]
    fn a_stack_that_makes_no_sense_ends() {
        let ends = |copy: &StackCopy, caller| follow_by(copy, |_| caller).addresses.len();
        assert_eq!(ends(&copy(&[1, 2, 3], 0xa, 0), Caller::FramePointer), 1);
        assert_eq!(ends(&copy(&[1, 2, 3], 0xa, u64::MAX), at(true, i32::MAX, i16::MIN)), 1);
        assert_eq!(ends(&copy(&[1, 2, 3], 0xa, 0), at(false, -8, 0)), 1);
        assert_eq!(ends(&copy(&[], 0xa, 0), at(false, 8, 0)), 1);
        assert_eq!(ends(&copy(&[9; 2000], 0xa, 0), at(false, 8, 0)), DEPTH_MAX);
        // A loop of frame pointers.
        assert_eq!(ends(&copy(&[0x1000, 5], 0xa, 0x1000), Caller::FramePointer), 2);
    }

    #[test]
    fn code_that_gives_its_frame_back_says_how_large_it_was() {
        // The trampoline of CPython 3.12, and one that keeps the frame pointer.
        assert_eq!(by_epilogue(&[0x48, 0x83, 0xc4, 8, 0xc3, 0x90]), Some(at(false, 16, 0)));
        assert_eq!(by_epilogue(&[0x5d, 0xc3]), Some(at(false, 16, -16)));
        // add $0x18,%rsp; pop %rbx; pop %rbp; pop %r12; ret
        let code = [0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0x41, 0x5c, 0xc3];
        assert_eq!(by_epilogue(&code), Some(at(false, 0x38, -24)));
        for other in
            [&[0x90, 0xc3][..], &[0x48, 0x83, 0xc4], &[0x5d; 20], &[], &[0x48, 0x83, 0xc4, 0xf0, 0xc3]]
        {
            assert_eq!(by_epilogue(other), None, "{other:x?}");
        }
    }

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
            let tables = Tables::read(file.as_file(), TABLES_BYTES_MAX).unwrap();
            assert_eq!(tables.caller(0x40), None);
        }
    }

    #[test]
    fn the_c_library_says_how_its_functions_are_left() {
        if !cfg!(target_arch = "x86_64") {
            println!("skipped: not of this machine");
            return;
        }
        let mut own = Unwinder::new(std::process::id());
        let libc = own.process.mappings.iter().find(|mapping| mapping.module().starts_with("libc.")).cloned();
        let Some(libc) = libc else {
            println!("skipped: no C library is mapped");
            return;
        };
        let addresses = (libc.start..libc.end).step_by(101);
        let callers: Vec<Caller> =
            addresses.map(|address| own.caller(Place { address, is_leaf: true })).collect();
        let known = callers.iter().filter(|caller| matches!(caller, Caller::At { .. })).count();
        assert!(known * 10 > callers.len() * 8, "{known} of {} places", callers.len());
        assert_eq!(own.tables.len(), 1);
    }
}
