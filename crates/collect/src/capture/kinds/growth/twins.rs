//! What the program in the kernel writes, bpf/capture_growth.bpf.c.

use crate::bpf::sys::Plain;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) image: u32,
    pub(super) place: u32,
    pub(super) chain: u64,
    pub(super) functions: u64,
    pub(super) comm: [u8; 16],
}
const _: () = assert!(size_of::<Key>() == 40, "twin: struct growth_key in bpf/capture_growth.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Key {}

impl Key {
    /// `enum growth_place` of bpf/capture_growth.bpf.c.
    pub(super) fn place(&self) -> &'static str {
        match self.place {
            1 => "heap",
            2 => "stack",
            3 => "mapped memory",
            _ => "without a fault, not known whether still there",
        }
    }

    pub(super) fn has_address(&self) -> bool {
        self.place != 0
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) pages: u64,
    pub(super) unplaced: u64,
}
const _: () = assert!(size_of::<Sum>() == 24, "twin: struct growth_sum in bpf/capture_growth.bpf.c");
// SAFETY: only u64 fields.
unsafe impl Plain for Sum {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) at_ns: u64,
    pub(super) key: Key,
    pub(super) pages: u32,
    pub(super) span: u32,
}
const _: () = assert!(size_of::<Page>() == 56, "twin: struct growth_page in bpf/capture_growth.bpf.c");
// SAFETY: repr(C), integers and a struct without holes.
unsafe impl Plain for Page {}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Cpu {
    pub(super) mm: u64,
    pub(super) local: u64,
    pub(super) twice: i64,
    pub(super) offset: u64,
    pub(super) has_offset: u64,
    pub(super) scratch: u64,
    pub(super) came: u64,
    pub(super) went: u64,
    pub(super) came_by_others: u64,
    pub(super) went_by_others: u64,
}
const _: () = assert!(size_of::<Cpu>() == 80, "twin: struct growth_cpu in bpf/capture_growth.bpf.c");
// SAFETY: only u64 fields.
unsafe impl Plain for Cpu {}
