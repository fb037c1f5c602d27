//! `faults`: page faults by stack and by what is mapped where they happen.
//!
//! What it answers: which code touches memory for the first time or again, in which file or heap, and which faults had to
//! wait for the disk (major). A storm of minor ones is a program that gets and returns its memory over and over, or maps
//! and unmaps; major ones are a file or swapped memory that does not stay.
//!
//! The kernel counts a fault after it was handled. Faults inside the kernel on behalf of a call (`read` into fresh memory)
//! count too, those on memory that is mapped around another fault do not happen. Huge pages make one fault of 512.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a fault takes 11.6 µs longer (first touch of memory: 1.9 to 13.5 µs
//! of CPU, of a page of a file that is copied: 2.4 to 14.3 µs), one that is not asked for 290 to 400 ns. The program takes
//! 6.3 µs of that, which is what the capture counts as its cost.

use std::collections::HashMap;

use aya::include_bytes_aligned;
use aya::programs::perf_event::{PerfEventConfig, SamplePolicy, SoftwareEvent};
use mitra_model::capture::{Cell, Raw, RawStack};

use crate::bpf::comm_str;
use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::table;
use crate::capture::loader::{Config, Loader};
use crate::capture::stacks::Stacks;
use crate::capture::{AnyError, BY_TASK, CaptureReader, Kind, Request};

pub(super) static KIND: Kind = Kind {
    name: "faults",
    help: "page faults by process, mapped file and stack; those that waited for the disk apart",
    cost: "about 12 µs for each fault that is looked at: 2 % of a CPU at 1,700 per second; --option every=100 looks at fewer",
    since: "5.8; what is mapped where they happen: 5.17",
    attaches: &["page-faults-min (perf_event)", "page-faults-maj (perf_event)"],
    columns: &[
        ("pid", "", "the process"),
        ("comm", "", "the name of the thread"),
        ("major", "1", "faults that waited for the disk"),
        ("minor", "1", "faults that did not"),
        ("mapping", "", "the file, or heap, stack, other memory without a file"),
        ("inode", "1", "number of the file's inode"),
        ("device", "", "number of the file's device, major:minor"),
    ],
    options: &[("every", "look at each N-th fault only, and count it N times")],
    filters: BY_TASK,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_faults.bpf.o")),
    source: include_str!("faults.rs"),
    configure,
    arm,
};

/// As many entries as the kernel's map holds.
const SUMS_MAX: usize = 16384;

/// Of a machine that does nothing but fault, 1 in so many is enough.
const EVERY_MAX: u64 = 1_000_000;

fn every(request: &Request) -> Result<u64, String> {
    let Some(text) = request.option("every") else { return Ok(1) };
    let number = text.parse().ok().filter(|number| (1..=EVERY_MAX).contains(number));
    number.ok_or_else(|| format!("every={text}: want a number from 1 to {EVERY_MAX}"))
}

fn configure(request: &Request, _: &mut Config) -> Result<(), String> {
    every(request).map(|_| ())
}

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let every = every(request)?;
    if every > 1 {
        loader.note(format!("each fault that was looked at stands for {every}"));
    }
    for (event, programs) in [
        (SoftwareEvent::PageFaultsMaj, ["fault_major", "fault_major_old"]),
        (SoftwareEvent::PageFaultsMin, ["fault_minor", "fault_minor_old"]),
    ] {
        let period = SamplePolicy::Period(every);
        let [program, old] = programs;
        if let Err(error) = loader.perf(program, PerfEventConfig::Software(event), period) {
            loader.perf(old, PerfEventConfig::Software(event), period).map_err(|_| error)?;
            loader.note(
                "this kernel does not tell what is mapped where a fault happens (5.17 does)".to_owned(),
            );
        }
    }
    Ok(Box::new(Faults { sums: loader.map("fault_sums")?, stacks: Stacks::new(loader)?, every }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    tgid: u32,
    image: u32,
    user: i32,
    kernel: i32,
    major: u32,
    place: u32,
    inode: u64,
    dev: u32,
    pad: u32,
    comm: [u8; 16],
    file: [u8; 32],
}
const _: () = assert!(size_of::<Key>() == 88, "twin: struct fault_key in bpf/capture_faults.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Key {}

impl Key {
    /// `enum fault_place` of bpf/capture_faults.bpf.c.
    fn mapping(&self) -> String {
        match self.place {
            1 => {
                let end = self.file.iter().position(|b| *b == 0).unwrap_or(self.file.len());
                String::from_utf8_lossy(self.file.get(..end).unwrap_or_default()).into_owned()
            }
            2 => "memory without a file".to_owned(),
            3 => "heap".to_owned(),
            4 => "stack".to_owned(),
            _ => "not known".to_owned(),
        }
    }
}

/// A row of the table: the process, the name of the thread, the mapping, the inode and its device.
type Place = (u32, String, String, u64, u32);

struct Faults {
    sums: MapReader<Key, u64>,
    stacks: Stacks,
    every: u64,
}

impl CaptureReader for Faults {
    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        raw.weight = Some(("faults", "1"));
        let mut places: HashMap<Place, [u64; 2]> = HashMap::new();
        for (key, count) in self.sums.entries(SUMS_MAX)? {
            let count = count.saturating_mul(self.every);
            let comm = comm_str(&key.comm).to_owned();
            let mapping = key.mapping();
            let place = (key.tgid, comm.clone(), mapping.clone(), key.inode, key.dev);
            let major = key.major == 1;
            places.entry(place).or_default()[usize::from(major)] += count;
            raw.stacks.push(RawStack {
                pid: key.tgid,
                image: key.image,
                comm,
                tag: format!("{}, {mapping}", if major { "major" } else { "minor" }),
                user: self.stacks.get(key.user)?,
                kernel: self.stacks.get(key.kernel)?,
                weight: count as f64,
                count,
                ..RawStack::default()
            });
        }
        let mut rows: Vec<(Place, [u64; 2])> = places.into_iter().collect();
        // One that waited for the disk weighs as much as thousands that did not.
        rows.sort_by(|(_, [minor_a, major_a]), (_, [minor_b, major_b])| {
            (major_b, minor_b).cmp(&(major_a, minor_a))
        });
        let rows = rows.into_iter().map(|((pid, comm, mapping, inode, dev), [minor, major])| {
            vec![
                Cell::number(f64::from(pid)),
                Cell::text(comm),
                Cell::number(major as f64),
                Cell::number(minor as f64),
                Cell::text(mapping),
                if inode > 0 { Cell::number(inode as f64) } else { Cell::Unknown(()) },
                // As the kernel keeps it: 12 bits and 20 bits (linux/kdev_t.h).
                if inode > 0 {
                    Cell::text(format!("{}:{}", dev >> 20, dev & 0xf_ffff))
                } else {
                    Cell::Unknown(())
                },
            ]
        });
        raw.captured.tables.push(table("mappings", KIND.columns, rows.collect()));
        Ok(())
    }
}
