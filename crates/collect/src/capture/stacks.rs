//! Stacks as the kernel keeps them, and the programs that their addresses belong to.

use std::collections::HashMap;

use aya::maps::{MapData, RingBuf};
use mitra_model::capture::Image;

use super::AnyError;
use super::loader::Loader;
use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain, read_plain};

/// `STACK_DEPTH` of bpf/capture.h: `kernel.perf_event_max_stack` unless somebody raised it.
const DEPTH: usize = 127;
/// As many records as the ring of images holds: 64 KiB by 24 bytes and 8 of header.
const RING_RECORDS_MAX: usize = 64 * 1024 / 32;

#[repr(C)]
#[derive(Clone, Copy)]
struct Addresses([u64; DEPTH]);
// SAFETY: only u64.
unsafe impl Plain for Addresses {}

/// The stacks of a capture, by their numbers.
pub(super) struct Stacks {
    map: MapReader<u32, Addresses>,
    known: HashMap<u32, Vec<u64>>,
}

impl Stacks {
    pub(super) fn new(loader: &mut Loader<'_>) -> Result<Self, AnyError> {
        Ok(Self { map: loader.map("stacks")?, known: HashMap::new() })
    }

    /// The addresses of a stack, the leaf first; empty where the program could not take one.
    pub(super) fn get(&mut self, id: i32) -> Result<Vec<u64>, AnyError> {
        let Ok(id) = u32::try_from(id) else { return Ok(Vec::new()) };
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let mut addresses = Vec::new();
        if let Some([stack]) = self.map.lookup(&id)? {
            addresses.extend(stack.0.iter().copied().take_while(|address| *address != 0));
        }
        self.known.insert(id, addresses.clone());
        Ok(addresses)
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ImageRec {
    id: u32,
    pid: u32,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<ImageRec>() == 24, "twin: struct image_rec in bpf/capture.h");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for ImageRec {}

/// The programs of processes, told when they are seen first. A kind without stacks has none.
pub(super) struct Images {
    ring: Option<RingBuf<MapData>>,
}

impl Images {
    pub(super) fn new(loader: &mut Loader<'_>) -> Result<Self, AnyError> {
        // The compiler leaves out what no program uses.
        Ok(Self { ring: loader.ring("image_ring").ok() })
    }

    pub(super) fn take(&mut self, to: &mut Vec<Image>) {
        let Some(ring) = &mut self.ring else { return };
        for _ in 0..RING_RECORDS_MAX {
            let Some(item) = ring.next() else { break };
            let Some(ImageRec { id, pid, comm }) = read_plain::<ImageRec>(&item) else { continue };
            to.push(Image { id, pid, comm: comm_str(&comm).to_owned() });
        }
    }
}
