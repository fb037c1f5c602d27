//! Stacks that are followed by rules where frame pointers do not connect them: bpf/chain.h. The rules come from whoever
//! can read the files of programs ([`super::Armed::teach`]).

use std::collections::HashMap;

use aya::maps::{MapData, RingBuf};
use mitra_model::capture::{CodeAddress, StackCopy, UnwindRule, UnwoundStack};

use super::AnyError;
use super::loader::Loader;
use crate::bpf::sys::{MapReader, Plain, read_plain};

/// `CHAIN_DEPTH`, `COPY_BYTES` and `COPY_RING_BYTES` of bpf/chain.h.
const DEPTH: usize = 64;
const COPY_BYTES: usize = 8192;
const COPY_RING_BYTES: usize = 512 * 1024;
/// As many records as the ring holds.
const RING_RECORDS_MAX: usize = COPY_RING_BYTES / COPY_BYTES;
/// Stacks that are known better than the program in the kernel knew them.
const CORRECTED_MAX: usize = 8192;

#[repr(C)]
#[derive(Clone, Copy)]
struct Addresses([u64; DEPTH]);
// SAFETY: only u64.
unsafe impl Plain for Addresses {}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    offset: i32,
    frame_pointer_at: i16,
    kind: u8,
    pad: u8,
}
const _: () = assert!(size_of::<Rule>() == 8, "twin: struct frame_rule in bpf/chain.h");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for Rule {}

impl Rule {
    /// `enum frame_rule_kind` of bpf/chain.h.
    fn of(caller: UnwindRule) -> Self {
        let of_kind = |kind| Self { offset: 0, frame_pointer_at: 0, kind, pad: 0 };
        match caller {
            UnwindRule::FramePointer => of_kind(0),
            UnwindRule::At { is_from_frame_pointer, offset, frame_pointer_at } => {
                Self { offset, frame_pointer_at, ..of_kind(if is_from_frame_pointer { 2 } else { 1 }) }
            }
            UnwindRule::Nobody => of_kind(3),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Copied {
    chain: u64,
    ip: u64,
    sp: u64,
    bp: u64,
    tgid: u32,
    bytes: u32,
}
const _: () = assert!(size_of::<Copied>() == 40, "twin: struct stack_copy in bpf/chain.h");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for Copied {}

/// The stacks of a capture, by their numbers.
pub(super) struct Chains {
    map: MapReader<u64, Addresses>,
    rules: MapReader<u64, Rule>,
    ring: RingBuf<MapData>,
    corrected: HashMap<u64, Vec<u64>>,
}

impl Chains {
    /// Once the programs are attached.
    pub(super) fn new(loader: &mut Loader<'_>) -> Result<Self, AnyError> {
        let (map, rules) = (loader.map("chains")?, loader.map("frame_rules")?);
        Ok(Self { map, rules, ring: loader.ring("copy_ring")?, corrected: HashMap::new() })
    }

    /// Copies of stacks with places that have no rule yet. Of several with the same number one is enough.
    pub(super) fn take_copies(&mut self) -> Vec<StackCopy> {
        let mut copies: Vec<StackCopy> = Vec::new();
        for _ in 0..RING_RECORDS_MAX {
            let Some(item) = self.ring.next() else { break };
            let Some(head) = read_plain::<Copied>(&item) else { continue };
            if self.corrected.contains_key(&head.chain) || copies.iter().any(|copy| copy.chain == head.chain)
            {
                continue;
            }
            let stack = item.get(size_of::<Copied>()..).unwrap_or_default();
            let bytes = usize::try_from(head.bytes).unwrap_or(0).min(stack.len());
            copies.push(StackCopy {
                pid: head.tgid,
                chain: head.chain,
                address: head.ip,
                stack_pointer: head.sp,
                frame_pointer: head.bp,
                bytes: stack.get(..bytes).unwrap_or_default().to_vec(),
            });
        }
        copies
    }

    /// What was made of a copy.
    pub(super) fn teach(&mut self, chain: u64, followed: UnwoundStack) {
        for (place, caller) in &followed.callers {
            // Without room frame pointers are followed there, as before.
            _ = self.rules.store(&key(*place), &Rule::of(*caller));
        }
        if self.corrected.len() < CORRECTED_MAX {
            self.corrected.insert(chain, followed.addresses);
        }
    }

    /// The addresses of a stack, the leaf first; empty where the program could not take one.
    pub(super) fn get(&mut self, id: u64) -> Result<Vec<u64>, AnyError> {
        if let Some(corrected) = self.corrected.get(&id) {
            return Ok(corrected.clone());
        }
        let mut addresses = Vec::new();
        if let Some([chain]) = self.map.lookup(&id)? {
            addresses.extend(chain.0.iter().copied().take_while(|address| *address != 0));
        }
        Ok(addresses)
    }
}

fn key(place: CodeAddress) -> u64 {
    place.address << 1 | u64::from(place.is_leaf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_the_program_reads_them() {
        let at = |is_from_frame_pointer| UnwindRule::At {
            is_from_frame_pointer,
            offset: 96,
            frame_pointer_at: -16,
        };
        assert_eq!(Rule::of(at(false)), Rule { offset: 96, frame_pointer_at: -16, kind: 1, pad: 0 });
        assert_eq!(Rule::of(at(true)).kind, 2);
        assert_eq!((Rule::of(UnwindRule::FramePointer).kind, Rule::of(UnwindRule::Nobody).kind), (0, 3));
        let key_of = |is_leaf| key(CodeAddress { address: 0x7f00_0000_1234, is_leaf });
        assert_eq!((key_of(false), key_of(true)), (0xfe00_0000_2468, 0xfe00_0000_2469));
    }
}
