//! Finds callers without frame pointers, by the unwind tables that compilers write for exceptions.
//!
//! Supports the usual rules on x86-64: a frame that ends at an offset from the stack pointer or the
//! frame pointer. JIT-compiled code has no tables, such as the trampolines of `python -X perf`:
//! there the instructions after the call are decoded, if they only pop the frame. All other frames
//! are left to frame pointers.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use mitra_model::capture::{CodeAddress, StackCopy, UnwindRule, UnwoundStack};
use mitra_parse::maps::find_mapping;

use crate::files::{self, Frames, Kind, RemoteFile, TakeResult};
use crate::mapped_file::MappedFile;
use crate::process::{MapsBudget, Process};

/// Limit of the frames, as in the BPF program: `CHAIN_DEPTH` of collect/bpf/chain.h.
const DEPTH_MAX: usize = 64;
/// Limit of the tables of all files of root's.
const TABLES_BYTES_MAX: u64 = 256 << 20;
/// Cached lookups.
const PLACES_MAX: usize = 1 << 16;

/// Finds callers in one process.
pub struct Unwinder {
    process: Process,
    budget: MapsBudget,
    /// For decoding code.
    memory: Option<File>,
    tables: HashMap<(u64, u64, String), Option<Tables>>,
    table_bytes_left: u64,
    known: HashMap<CodeAddress, UnwindRule>,
}

impl Unwinder {
    /// The process must be alive. Later mappings are read on demand.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        let mut budget = MapsBudget::default();
        Self {
            process: Process::read(pid, &mut budget),
            budget,
            memory: File::open(format!("/proc/{pid}/mem")).ok(),
            tables: HashMap::new(),
            table_bytes_left: TABLES_BYTES_MAX,
            known: HashMap::new(),
        }
    }

    /// Follows a copied stack as far as it reaches.
    pub fn follow(&mut self, copy: &StackCopy) -> UnwoundStack {
        let known = |address| find_mapping(&self.process.mappings, address).is_some();
        if !known(copy.address) {
            self.process.refresh(&mut self.budget);
        }
        follow_by(copy, |place| self.caller(place))
    }

    fn caller(&mut self, place: CodeAddress) -> UnwindRule {
        if let Some(caller) = self.known.get(&place) {
            return *caller;
        }
        let caller = self.look_up(place).or_else(|| self.by_code(place)).unwrap_or_default();
        if self.known.len() < PLACES_MAX {
            self.known.insert(place, caller);
        }
        caller
    }

    /// Decodes the instructions behind the call.
    fn by_code(&self, place: CodeAddress) -> Option<UnwindRule> {
        if place.is_leaf || !cfg!(target_arch = "x86_64") || i64::try_from(place.address).is_err() {
            return None;
        }
        let mut code = [0; CODE_BYTES];
        self.memory.as_ref()?.read_exact_at(&mut code, place.address).ok()?;
        by_epilogue(&code)
    }

    fn read(&mut self, mapped_file: &MappedFile) -> Option<Tables> {
        if !mapped_file.is_roots {
            return match files::take(Kind::Frames, &mapped_file.file) {
                TakeResult::Taken(file) => Some(Tables::OfOthers(file)),
                TakeResult::Nothing | TakeResult::NoRoom => None,
            };
        }
        let frames = Frames::read(&mapped_file.file, self.table_bytes_left)?;
        self.table_bytes_left = self.table_bytes_left.saturating_sub(frames.bytes());
        Some(Tables::OfRoot(frames))
    }

    fn look_up(&mut self, place: CodeAddress) -> Option<UnwindRule> {
        // A return address may already be in the next function.
        let address = if place.is_leaf { place.address } else { place.address.checked_sub(1)? };
        let mapping = find_mapping(&self.process.mappings, address)?.clone();
        let offset = address.checked_sub(mapping.start)?.checked_add(mapping.offset)?;
        let key = (mapping.device, mapping.inode, mapping.path.clone());
        if !self.tables.contains_key(&key) {
            let tables = self.process.open(&mapping).and_then(|mapped_file| self.read(&mapped_file));
            self.tables.insert(key.clone(), tables);
        }
        match self.tables.get(&key)?.as_ref()? {
            Tables::OfRoot(frames) => frames.caller(offset),
            Tables::OfOthers(file) => file.caller(offset),
        }
    }
}

/// The tables of one file.
enum Tables {
    OfRoot(Frames),
    OfOthers(RemoteFile),
}

fn follow_by(copy: &StackCopy, mut caller_of: impl FnMut(CodeAddress) -> UnwindRule) -> UnwoundStack {
    let word = |address: u64| {
        let at = usize::try_from(address.checked_sub(copy.stack_pointer)?).ok()?;
        copy.bytes.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    };
    let mut followed = UnwoundStack::default();
    let (mut address, mut stack, mut frame) = (copy.address, copy.stack_pointer, copy.frame_pointer);
    for depth in 0..DEPTH_MAX {
        followed.addresses.push(address);
        let place = CodeAddress { address, is_leaf: depth == 0 };
        let caller = caller_of(place);
        followed.callers.push((place, caller));
        let next = match caller {
            UnwindRule::Nobody => None,
            UnwindRule::At { is_from_frame_pointer, offset, frame_pointer_at } => {
                let base = if is_from_frame_pointer { frame } else { stack };
                let end = base.wrapping_add_signed(offset.into());
                let kept = word(end.wrapping_add_signed(frame_pointer_at.into()));
                let frame = if frame_pointer_at == 0 { Some(frame) } else { kept };
                word(end.wrapping_sub(8)).zip(frame).map(|(address, frame)| (address, end, frame))
            }
            UnwindRule::FramePointer => {
                let next = word(frame.wrapping_add(8)).zip(word(frame));
                next.map(|(address, above)| (address, frame.wrapping_add(16), above))
            }
        };
        // Callers are always at higher addresses.
        let Some(next) = next.filter(|next| next.0 != 0 && next.1 > stack) else { break };
        (address, stack, frame) = next;
    }
    followed
}

/// Enough to pop a frame and all saved registers.
const CODE_BYTES: usize = 20;

/// `add $N,%rsp`, any number of `pop`, `ret` (Intel's manual, volume 2). `None` for any other code.
fn by_epilogue(code: &[u8]) -> Option<UnwindRule> {
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
    (offset >= 0).then_some(UnwindRule::At { is_from_frame_pointer: false, offset: end, frame_pointer_at })
}

/// For [`crate::fuzzing`]: bytes as code.
pub(crate) fn fuzz(bytes: &[u8]) {
    std::hint::black_box(by_epilogue(bytes.get(..CODE_BYTES).unwrap_or(bytes)));
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

    fn at(is_from_frame_pointer: bool, offset: i32, frame_pointer_at: i16) -> UnwindRule {
        UnwindRule::At { is_from_frame_pointer, offset, frame_pointer_at }
    }

    #[test]
    fn a_stack_is_followed_by_rules_and_where_there_are_none_by_frame_pointers() {
        // 0xa has 16 bytes of its own and saves the frame pointer, 0xb has a frame of the usual
        // kind, 0xc starts the thread.
        let words = [7, 7, 0x1028, 0xb, 7, 0x0, 0xc];
        let rules = |place: CodeAddress| match place.address {
            0xa => at(false, 32, -16),
            0xc => UnwindRule::Nobody,
            _ => UnwindRule::FramePointer,
        };
        let followed = follow_by(&copy(&words, 0xa, 0x9999), rules);
        assert_eq!(followed.addresses, [0xa, 0xb, 0xc]);
        assert_eq!(followed.callers[0], (CodeAddress { address: 0xa, is_leaf: true }, at(false, 32, -16)));
        assert_eq!(followed.callers[2].1, UnwindRule::Nobody);
    }

    #[test]
    fn a_stack_that_makes_no_sense_ends() {
        let ends = |copy: &StackCopy, caller| follow_by(copy, |_| caller).addresses.len();
        assert_eq!(ends(&copy(&[1, 2, 3], 0xa, 0), UnwindRule::FramePointer), 1);
        assert_eq!(ends(&copy(&[1, 2, 3], 0xa, u64::MAX), at(true, i32::MAX, i16::MIN)), 1);
        assert_eq!(ends(&copy(&[1, 2, 3], 0xa, 0), at(false, -8, 0)), 1);
        assert_eq!(ends(&copy(&[], 0xa, 0), at(false, 8, 0)), 1);
        assert_eq!(ends(&copy(&[9; 2000], 0xa, 0), at(false, 8, 0)), DEPTH_MAX);
        // A loop of frame pointers.
        assert_eq!(ends(&copy(&[0x1000, 5], 0xa, 0x1000), UnwindRule::FramePointer), 2);
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
        let callers: Vec<UnwindRule> =
            addresses.map(|address| own.caller(CodeAddress { address, is_leaf: true })).collect();
        let known = callers.iter().filter(|caller| matches!(caller, UnwindRule::At { .. })).count();
        assert!(known * 10 > callers.len() * 8, "{known} of {} places", callers.len());
        assert_eq!(own.tables.len(), 1);
    }
}
