//! `oncpu`: where CPU time goes, by stack.
//!
//! What it answers: which functions, of programs and of the kernel, the CPUs are busy with.
//!
//! A clock ticks 99 times a second on each CPU and looks at who runs: what takes a hundredth of the time of one CPU is
//! seen once a second, and what is shorter than that only on average. What happens with interrupts turned off is seen
//! when they are turned on again, in the function that does so. Time off CPU is not seen: that is `offcpu`.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): the program takes 10 µs for a sample while nothing else runs, 15 µs
//! while others compile; work on all CPUs becomes no slower than it varies by itself (1 %).

use aya::include_bytes_aligned;
use aya::programs::perf_event::{PerfEventConfig, SamplePolicy, SoftwareEvent};
use mitra_model::capture::{Raw, RawStack};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain};
use crate::capture::loader::Loader;
use crate::capture::stacks::Stacks;
use crate::capture::{AnyError, BY_TASK, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "oncpu",
    help: "where CPU time goes, by stack: samples at 99 Hz on every CPU",
    cost: "about 10 µs for each sample: 0.1 % of each CPU that is busy, whatever it does",
    since: "5.8",
    attaches: &["cpu-clock (perf_event)"],
    columns: &[
        ("pid", "", "the process"),
        ("comm", "", "the name of the thread"),
        ("count", "1", "samples"),
        ("CPU time", "s", "samples by the time between two"),
        ("where", "", "innermost frames"),
    ],
    options: &[],
    filters: BY_TASK,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_oncpu.bpf.o")),
    source: include_str!("oncpu.rs"),
    configure: as_all,
    arm,
};

/// Not a divisor of anything that programs do in rhythm, as 100 would be.
const SAMPLES_PER_SECOND: u64 = 99;
/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 16384;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
    loader.perf("on_tick", clock, SamplePolicy::Frequency(SAMPLES_PER_SECOND))?;
    Ok(Box::new(OnCpu { sums: loader.map("on_sums")?, stacks: Stacks::new(loader)? }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    tgid: u32,
    image: u32,
    user: i32,
    kernel: i32,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<Key>() == 32, "twin: struct on_key in bpf/capture_oncpu.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Key {}

struct OnCpu {
    sums: MapReader<Key, u64>,
    stacks: Stacks,
}

impl CaptureReader for OnCpu {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        raw.weight = Some(("CPU time", "s"));
        for (key, count) in self.sums.entries(SUMS_MAX)? {
            raw.stacks.push(RawStack {
                pid: key.tgid,
                image: key.image,
                comm: comm_str(&key.comm).to_owned(),
                tag: String::new(),
                user: self.stacks.get(key.user)?,
                kernel: self.stacks.get(key.kernel)?,
                weight: count as f64 / SAMPLES_PER_SECOND as f64,
                count,
                ..RawStack::default()
            });
        }
        Ok(())
    }
}
