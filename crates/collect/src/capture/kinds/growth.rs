//! `growth`: who makes a process grow: what came of its anonymous memory by stack, and what of that is still there.
//!
//! What it answers: which code brings the memory that a process does not give back, and in which mapping it lies. A
//! process whose memory stays the same may still fault all the time, because it maps and unmaps, or trims its heap and
//! fills it again: `came` is large then and `still there` is nothing, which is churn and no growth. The flame graph shows
//! only what is still there.
//!
//! The kernel tells of each change of a process' count of anonymous pages (`rss_stat`), huge pages and pages that a call
//! fills with one number; the fault before tells the address. In the end `/proc/PID/pagemap` says which of these pages are
//! still there, in memory or in swap. So what came, what went and what is left add up: the first table has the sums,
//! beside what `/proc/PID/status` says. `freed` is all that the process gave back, also what it had before.
//!
//! Memory grows where a page is touched first. An allocator that gets memory back from the program and hands it out again
//! touches nothing: what is leaked then is charged to the code that first touched it. Pages that are moved (`mremap`,
//! as `realloc` does with large blocks) count as gone from where they came to, without being freed; a note says how
//! much that may be. What is brought without a fault (`MAP_POPULATE`, `mlock`) has no address, and whether it is still
//! there is not known. Memory of files and shared memory does not count.
//!
//! On x86-64 stacks do not need frame pointers, which the C library has nowhere but in a few distributions, and `malloc` is
//! where most memory is touched first: they are followed by the tables that compilers write for exceptions. The first stacks
//! of a capture teach the program in the kernel; it follows 64 frames. Elsewhere frame pointers are followed, as by other kinds.
//!
//! A page that comes back from swap counts as one that came: resident memory grows by it. What others bring or take
//! (khugepaged makes huge pages, reclaim swaps out) has sums of its own and no stack. Of CPython, 3.6 to 3.14, the innermost
//! 32 functions of each thread stand in place of the interpreter's: they are read from its own list of calls, which needs no
//! `-X perf` (x86-64; threads that began less than two seconds ago are not known yet). Of other runtimes functions are shown as in
//! all stacks.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine that others used): memory that is touched first and given back takes
//! 1.1 µs longer for each page by a stack of 5 frames (2.0 to 3.2 µs of CPU), the program takes 3.3 µs by one of 18; a page
//! fault of another process takes 250 to 470 ns longer.
//!
//! Needs `--pid`. `--option every=N` takes the stacks of some changes only, by chance, each for N; the sums stay exact.
//! Before Linux 6.2 each thread tells of every 64th page or so.

mod left;
mod twins;

use aya::include_bytes_aligned;
use aya::programs::perf_event::{PerfEventConfig, SamplePolicy, SoftwareEvent};
use mitra_model::capture::{Cell, InterpreterLayout, Raw, RawStack, StackCopy, UnwoundStack};
use mitra_parse::maps::Mapping;

use crate::bpf::comm_str;
use crate::bpf::sys::MapReader;
use crate::capture::calls::{Column, table};
use crate::capture::chains::Chains;
use crate::capture::functions::Functions;
use crate::capture::loader::{Config, Loader};
use crate::capture::memory::{Held, Span, describe, find, mappings, overlap, there};
use crate::capture::{AnyError, BY_TASK, CaptureReader, Kind, Request};
use left::{Left, sum_up, without_what_came_later};
use twins::{Cpu, Key, Page, Sum};

pub(super) static KIND: Kind = Kind {
    name: "growth",
    help: "what makes one process grow: memory that came and is still there, by stack and mapping, apart from churn",
    cost: "1.2 to 3.3 µs each time that memory comes, by the depth of the stack: 2 % of a CPU at 6,000 per second; 300 to 500 ns for each page fault of other processes; --option every=10 takes fewer stacks",
    since: "6.2; each 64th page of a thread: 5.15",
    attaches: &["rss_stat", "page_fault_user", "page_fault_kernel"],
    columns: &[
        ("pid", "", "the process"),
        ("comm", "", "the name of the thread"),
        ("count", "1", "how often memory came"),
        ("still there", "B", "of what came; as much has the process grown by this stack"),
        ("came", "B", "all of it; what is not there any more was churn"),
        ("where", "", "heap (of brk), stack or mapped memory, and the innermost frames"),
    ],
    options: &[("every", "take the stack of one change in N, by chance, and count it N times")],
    filters: BY_TASK,
    one_process: true,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_growth.bpf.o")),
    source: include_str!("growth.rs"),
    configure,
    arm,
};

const SUM_COLUMNS: &[Column] =
    &[("memory", "", "anonymous memory of the process"), ("bytes", "B", "as much of it; unknown: not known")];

const MAPPING_COLUMNS: &[Column] = &[
    ("mapping", "", "what it is, as far as the kernel and the way it lies tell"),
    ("address", "", "where it begins"),
    ("still there", "B", "of what came"),
    ("size", "B", "of addresses, in the end"),
    ("before", "B", "of the same addresses what was mapped in the beginning"),
];

/// As many entries as the kernel's maps hold.
const SUMS_MAX: usize = 16384;
const PAGES_MAX: usize = 131_072;
/// Of a process that does nothing but grow, 1 in so many is enough.
const EVERY_MAX: u32 = 1_000_000;
/// The program that sees each change; the other one is for older kernels.
const EXACT: &str = "growth_changed";

fn every(request: &Request) -> Result<u32, String> {
    let Some(text) = request.option("every") else { return Ok(1) };
    let number = text.parse().ok().filter(|number| (1..=EVERY_MAX).contains(number));
    number.ok_or_else(|| format!("every={text}: want a number from 1 to {EVERY_MAX}"))
}

fn configure(request: &Request, config: &mut Config) -> Result<(), String> {
    config.number = every(request)?;
    config.arg = rustix::param::page_size() as u64;
    Ok(())
}

fn arm(request: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    let pid = request.pid.ok_or("growth of no process")?;
    let every = every(request)?;
    if every > 1 {
        loader.note(format!("each stack that was taken stands for {every}"));
    }
    if request.comm.is_some() || request.cgroup.is_some() {
        loader.note("the sums are of all threads, the stacks of those that were asked for".to_owned());
    }
    let before = mappings(pid);
    let user = loader.tracepoint("page_fault_user", &["growth_fault_user"]);
    if user.and_then(|_| loader.tracepoint("page_fault_kernel", &["growth_fault_kernel"])).is_err() {
        let event = PerfEventConfig::Software(SoftwareEvent::PageFaults);
        loader.perf("growth_fault", event, SamplePolicy::Period(1))?;
    }
    if loader.tracepoint("rss_stat", &[EXACT, "growth_changed_old"])? != EXACT {
        loader.note(
            "this kernel tells of every 64th page of a thread or so (6.2 tells of each): sums may be that wrong".to_owned(),
        );
    }
    let (sums, pages, cpus) =
        (loader.map("growth_sums")?, loader.map("growth_pages")?, loader.percpu_map("growth_cpus")?);
    let (chains, functions) = (Chains::new(loader)?, Functions::new(loader)?);
    let held = Held::of(pid);
    Ok(Box::new(Growth {
        pid,
        every: f64::from(every),
        page_bytes: rustix::param::page_size() as u64,
        mappings: before,
        held,
        sums,
        pages,
        cpus,
        chains,
        functions,
    }))
}

/// In pages, of all CPUs.
#[derive(Debug, Default, Clone, Copy)]
struct Changes {
    came: u64,
    went: u64,
    came_by_others: u64,
    went_by_others: u64,
}

struct Growth {
    pid: u32,
    every: f64,
    page_bytes: u64,
    /// In the beginning.
    mappings: Vec<Mapping>,
    held: Option<Held>,
    sums: MapReader<Key, Sum>,
    pages: MapReader<u64, Page>,
    cpus: MapReader<u32, Cpu>,
    chains: Chains,
    functions: Functions,
}

impl CaptureReader for Growth {
    fn take_copies(&mut self) -> Vec<StackCopy> {
        self.chains.take_copies()
    }

    fn teach(&mut self, chain: u64, followed: UnwoundStack) {
        self.chains.teach(chain, followed);
    }

    fn interprets(&self) -> Option<u32> {
        Some(self.pid)
    }

    fn follow_functions(&mut self, how: &InterpreterLayout) {
        self.functions.follow(how);
    }

    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        raw.weight = Some(("still there", "B"));
        raw.beside = "came";
        let held = Held::of(self.pid);
        let changes = self.changes()?;
        let mut entries = self.pages.entries(PAGES_MAX)?;
        entries.sort_unstable_by_key(|(start, page)| (*start, std::cmp::Reverse(page.span)));
        let left = self.left(&entries);
        if let Err(why) = &left {
            raw.captured.notes.push(format!(
                "which pages are still there is not known ({why}): what came stands for it, of all stacks"
            ));
        }
        let left = left.ok();
        let by_key =
            left.as_ref().map(|left| sum_up(left.iter().zip(&entries).map(|(l, (_, p))| (p.key, *l))));
        let mut told = Told::default();
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            let came = self.bytes(sum.pages) * self.every;
            let unplaced = self.bytes(sum.unplaced) * self.every;
            let there = by_key.as_ref().map(|by_key| {
                let pages = by_key.get(&key).copied().unwrap_or(0.0);
                pages * self.page_bytes as f64 * self.every
            });
            told.add(&key, came, unplaced, there);
            raw.stacks.push(RawStack {
                pid: self.pid,
                image: key.image,
                comm: comm_str(&key.comm).to_owned(),
                tag: key.place().to_owned(),
                user: self.chains.get(key.chain)?,
                functions: self.functions.get(key.functions)?,
                // What has no address may be there, and what is not looked at too.
                weight: there.filter(|_| key.has_address()).unwrap_or(came),
                beside: came,
                count: (sum.count as f64 * self.every) as u64,
                ..RawStack::default()
            });
        }
        let sums = self.sum_rows(&changes, held, &told, left.is_some());
        raw.captured.tables.push(table("sums", SUM_COLUMNS, sums));
        if let Some(left) = &left {
            let rows = self.mapping_rows(left);
            raw.captured.tables.push(table("mappings", MAPPING_COLUMNS, rows));
        }
        self.note(raw, &changes, &told, left.is_some());
        Ok(())
    }
}

/// What the stacks say in all, in bytes.
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    came: f64,
    there: f64,
    /// Without an address.
    unknown: f64,
    /// For whose address there was no room.
    without_room: f64,
}

impl Told {
    fn add(&mut self, key: &Key, came: f64, unplaced: f64, there: Option<f64>) {
        self.came += came;
        self.there += there.unwrap_or(0.0);
        if key.has_address() {
            self.without_room += unplaced;
        } else {
            self.unknown += unplaced;
        }
    }

    fn gone(&self) -> f64 {
        (self.came - self.there - self.unknown - self.without_room).max(0.0)
    }
}

impl Growth {
    fn bytes(&self, pages: u64) -> f64 {
        pages as f64 * self.page_bytes as f64
    }

    fn changes(&mut self) -> Result<Changes, AnyError> {
        let mut sum = Changes::default();
        for cpu in self.cpus.lookup(&0)?.unwrap_or_default() {
            sum.came += cpu.came.saturating_sub(cpu.twice.max(0).cast_unsigned());
            sum.went += cpu.went;
            sum.came_by_others += cpu.came_by_others;
            sum.went_by_others += cpu.went_by_others;
        }
        Ok(sum)
    }

    /// What is there of each entry, which come by their addresses.
    fn left(&self, entries: &[(u64, Page)]) -> std::io::Result<Vec<Left>> {
        let spans: Vec<Span> =
            entries.iter().map(|(start, page)| Span { start: *start, pages: u64::from(page.span) }).collect();
        let counts = there(self.pid, self.page_bytes, &spans)?;
        let lefts = entries.iter().zip(counts).map(|((start, page), there)| Left {
            start: *start,
            at_ns: page.at_ns,
            came: u64::from(page.pages),
            span: u64::from(page.span),
            there,
        });
        let mut lefts: Vec<Left> = lefts.collect();
        without_what_came_later(&mut lefts, self.page_bytes);
        Ok(lefts)
    }

    fn sum_rows(
        &self,
        changes: &Changes,
        held: Option<Held>,
        told: &Told,
        is_left_known: bool,
    ) -> Vec<Vec<Cell>> {
        let bytes = |pages| Cell::number(self.bytes(pages));
        let of = |held: Option<Held>, what: fn(Held) -> u64| {
            held.map_or(Cell::Unknown(()), |held| Cell::number(what(held) as f64))
        };
        let known = |value| if is_left_known { Cell::number(value) } else { Cell::Unknown(()) };
        let rows = [
            ("before", of(self.held, |held| held.anon_bytes)),
            ("after", of(held, |held| held.anon_bytes)),
            ("grew by", Cell::number(changes.net() * self.page_bytes as f64)),
            ("came", bytes(changes.came)),
            ("freed", bytes(changes.went)),
            ("came by others", bytes(changes.came_by_others)),
            ("taken by others", bytes(changes.went_by_others)),
            ("of the stacks: still there", known(told.there)),
            ("of the stacks: gone again", known(told.gone())),
            ("of the stacks: not known", known(told.unknown + told.without_room)),
            ("in swap before", of(self.held, |held| held.swap_bytes)),
            ("in swap after", of(held, |held| held.swap_bytes)),
        ];
        rows.into_iter().map(|(name, cell)| vec![Cell::text(name), cell]).collect()
    }

    fn mapping_rows(&self, left: &[Left]) -> Vec<Vec<Cell>> {
        let now = mappings(self.pid);
        let of_mapping = left.iter().filter_map(|left| Some((find(&now, left.start)?, *left)));
        let mut sums: Vec<(usize, f64)> = sum_up(of_mapping).into_iter().collect();
        sums.retain(|(_, pages)| *pages > 0.0);
        sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let row = |(at, pages): (usize, f64)| {
            let mapping = now.get(at)?;
            Some(vec![
                Cell::text(describe(&now, at)),
                Cell::text(format!("{:#x}", mapping.start)),
                Cell::number(pages * self.page_bytes as f64 * self.every),
                Cell::number((mapping.end - mapping.start) as f64),
                Cell::number(overlap(&self.mappings, mapping.start, mapping.end) as f64),
            ])
        };
        sums.into_iter().filter_map(row).collect()
    }

    fn note(&self, raw: &mut Raw, changes: &Changes, told: &Told, is_left_known: bool) {
        let notes = &mut raw.captured.notes;
        if told.without_room > 0.0 {
            notes.push(format!(
                "of {} that came there was no room to note where: what is still there is a lower bound; --option every=10 \
                 takes fewer stacks",
                text(told.without_room)
            ));
        }
        let freed = self.bytes(changes.went.saturating_add(changes.went_by_others));
        let moved = told.gone() - freed;
        // One stack in so many may be far from its share.
        if is_left_known && self.every == 1.0 && moved > MOVED_MIN * told.came {
            notes.push(format!(
                "{} at least are not where they came to, and were not freed: they were moved (mremap, realloc), and count as gone",
                text(moved)
            ));
        }
        if !is_left_known || changes.came == 0 {
            return;
        }
        let (net, hours) = (changes.net() * self.page_bytes as f64, raw.captured.seconds / 3600.0);
        let rate = if hours > 0.0 { format!(", {} an hour", text(net / hours)) } else { String::new() };
        let unknown = told.unknown + told.without_room;
        let unknown =
            if unknown > 0.0 { format!(", {} are not known", text(unknown)) } else { String::new() };
        notes.insert(
            0,
            format!(
                "anonymous memory grew by {}{rate}; {} came, of which {} are still there and {} are gone again{unknown}",
                text(net),
                text(told.came),
                text(told.there),
                text(told.gone())
            ),
        );
    }
}

/// Where less than this share was moved it is not worth a word.
const MOVED_MIN: f64 = 0.02;

impl Changes {
    fn net(&self) -> f64 {
        let came = self.came.saturating_add(self.came_by_others);
        came as f64 - self.went.saturating_add(self.went_by_others) as f64
    }
}

/// As people read it, decimal.
fn text(bytes: f64) -> String {
    let mut value = bytes;
    let mut units = ["B", "kB", "MB", "GB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value.abs() >= 1000.0
        && let Some(next) = units.next()
    {
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_readable() {
        assert_eq!([text(12.0), text(-4_096.0), text(52_428_800.0)], ["12 B", "-4.1 kB", "52.4 MB"]);
        assert_eq!(text(5e12), "5000.0 GB");
    }
}
