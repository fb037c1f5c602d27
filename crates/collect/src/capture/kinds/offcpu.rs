//! `offcpu`: time off CPU by stack.
//!
//! What it answers: what threads wait for (a disk, a lock, the network, another process, a CPU) and on which way through
//! the program and the kernel they came to wait. The state tells kinds of waiting apart: runnable is a wait for a CPU,
//! sleeping one that a signal can end, blocked (D) one that nothing can, which is also what the load average counts.
//! `--d-only` takes only the last, `--min 1ms` only long ones.
//!
//! A wait is seen from the moment that its thread leaves the CPU: one that began before the capture is not. One that
//! goes on at the end counts up to there and is marked. Most threads of a healthy machine sleep most of the time, idle:
//! the longest time is not the trouble, the time of those who had work to do is.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a switch from one thread to another takes 4.1 µs longer (through a
//! pipe, on one CPU: 2.7 to 6.7 µs of CPU), one between threads that are not asked for 200 to 330 ns.

use aya::include_bytes_aligned;
use mitra_model::capture::{CaptureHistogram, Raw, RawStack};

use crate::bpf::sys::{MapReader, Plain};
use crate::bpf::{LATENCY_BUCKETS, comm_str, latency_bucket_us_max};
use crate::capture::loader::{Config, Loader};
use crate::capture::stacks::Stacks;
use crate::capture::{AnyError, CaptureReader, Kind, Request, end_mono_ns, state_now};

pub(super) static KIND: Kind = Kind {
    name: "offcpu",
    help: "time off CPU by stack: what threads wait for; --d-only for what nothing can interrupt. A wait that began before is \
           not seen",
    cost: "about 4 µs for each context switch, and 200 to 330 ns for those that are not asked for: 2 % of a CPU \
           at 5,000 per second",
    since: "5.8",
    attaches: &["sched_switch"],
    columns: &[
        ("pid", "", "the process"),
        ("comm", "", "the name of the thread"),
        ("count", "1", "how often it left the CPU"),
        ("time off CPU", "s", "until it was back on one"),
        ("where", "", "state and innermost frames"),
    ],
    options: &[],
    filters: &["pid", "comm", "cgroup", "min", "d-only"],
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_offcpu.bpf.o")),
    source: include_str!("offcpu.rs"),
    configure,
    arm,
};

/// `FLAG_D_ONLY` of bpf/capture_offcpu.bpf.c.
const FLAG_D_ONLY: u32 = 1;
/// As many entries as the kernel's maps hold.
const SUMS_MAX: usize = 16384;
const STARTS_MAX: usize = 32768;

fn configure(request: &Request, config: &mut Config) -> Result<(), String> {
    if request.d_only {
        config.flags |= FLAG_D_ONLY;
    }
    Ok(())
}

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    loader.tracepoint("sched_switch", &["off_switch", "off_switch_old"])?;
    Ok(Box::new(OffCpu {
        sums: loader.map("off_sums")?,
        starts: loader.map("off_starts")?,
        lengths: loader.percpu_map("off_lengths")?,
        stacks: Stacks::new(loader)?,
        min_ns: u64::try_from(request.min.as_nanos()).unwrap_or(u64::MAX),
    }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    tgid: u32,
    image: u32,
    user: i32,
    kernel: i32,
    state: u32,
    pad: u32,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<Key>() == 40, "twin: struct off_key in bpf/capture_offcpu.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Key {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    total_ns: u64,
    longest_ns: u64,
}
const _: () = assert!(size_of::<Sum>() == 24, "twin: struct off_sum in bpf/capture_offcpu.bpf.c");
// SAFETY: only u64 fields.
unsafe impl Plain for Sum {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Start {
    since_ns: u64,
    key: Key,
}
const _: () = assert!(size_of::<Start>() == 48, "twin: struct off_start in bpf/capture_offcpu.bpf.c");
// SAFETY: repr(C), a u64 and a struct without holes.
unsafe impl Plain for Start {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Lengths([u64; LATENCY_BUCKETS]);
// SAFETY: only u64.
unsafe impl Plain for Lengths {}

/// `enum off_state` of bpf/capture_offcpu.bpf.c: its name, and the letters that `/proc/PID/stat` has for it.
fn state(number: u32) -> (&'static str, &'static str) {
    match number {
        0 => ("runnable", "R"),
        1 => ("sleeping", "S"),
        2 => ("blocked (D)", "D"),
        3 => ("idle", "I"),
        // Stopped, traced, parked, frozen.
        _ => ("stopped", "TtPD"),
    }
}

struct OffCpu {
    sums: MapReader<Key, Sum>,
    starts: MapReader<u32, Start>,
    lengths: MapReader<u32, Lengths>,
    stacks: Stacks,
    min_ns: u64,
}

impl CaptureReader for OffCpu {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        raw.weight = Some(("time off CPU", "s"));
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            raw.stacks.push(self.stack(&key, sum.count, sum.total_ns, "")?);
        }
        // Who is off CPU still has lost time too, and whoever never comes back lost most.
        let end_ns = end_mono_ns(&raw.captured);
        let mut waiting = 0u64;
        for (tid, start) in self.starts.entries(STARTS_MAX)? {
            let ns = end_ns.saturating_sub(start.since_ns);
            if ns >= self.min_ns && waits_still(&start.key, tid) {
                raw.stacks.push(self.stack(&start.key, 1, ns, ", at the end still")?);
                waiting += 1;
            }
        }
        if waiting > 0 {
            raw.captured.notes.push(format!(
                "waits that had not ended: {waiting}; they count up to the end of the capture, and are marked"
            ));
        }
        let mut sum = [0; LATENCY_BUCKETS];
        for one in self.lengths.lookup(&0)?.unwrap_or_default() {
            sum.iter_mut().zip(one.0).for_each(|(to, from)| *to += from);
        }
        let bound = |i| latency_bucket_us_max(i).map(|us| us as f64 * 1e-6);
        raw.captured.histograms.push(CaptureHistogram {
            name: "time off CPU".to_owned(),
            unit: "s".to_owned(),
            buckets: sum.iter().enumerate().map(|(i, count)| (bound(i), *count)).collect(),
        });
        Ok(())
    }
}

/// Whether a thread waits now as it did when it left its CPU. In a virtual machine a switch now and then reaches no program; a
/// thread that has come back unseen, or has ended, did not wait until the end.
fn waits_still(key: &Key, tid: u32) -> bool {
    state_now(key.tgid, tid).is_some_and(|letter| is_state(letter, key.state))
}

fn is_state(letter: char, number: u32) -> bool {
    state(number).1.contains(letter)
}

impl OffCpu {
    fn stack(&mut self, key: &Key, count: u64, ns: u64, mark: &str) -> Result<RawStack, AnyError> {
        Ok(RawStack {
            pid: key.tgid,
            image: key.image,
            comm: comm_str(&key.comm).to_owned(),
            tag: format!("{}{mark}", state(key.state).0),
            user: self.stacks.get(key.user)?,
            kernel: self.stacks.get(key.kernel)?,
            weight: ns as f64 * 1e-9,
            count,
            ..RawStack::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_goes_on_only_in_the_state_that_it_began_in() {
        for (number, letter) in [(0, 'R'), (1, 'S'), (2, 'D'), (3, 'I'), (4, 'T')] {
            assert!(is_state(letter, number), "{letter} {number}");
            let others = "RSDIZX".chars().filter(|other| *other != letter);
            // What is frozen is shown as blocked.
            for other in others.filter(|other| (*other, number) != ('D', 4)) {
                assert!(!is_state(other, number), "{other} {number}");
            }
        }
    }
}
