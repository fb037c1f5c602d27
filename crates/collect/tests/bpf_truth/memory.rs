//! Compaction, direct reclaim and its throttling against `/proc/vmstat`, and against bpftrace at the same tracepoints.
//!
//! They are made by asking for huge pages, which need memory in one piece. Who writes the number compacts and reclaims
//! until there are as many, or no more are to be had; nothing is killed for them. Throttling comes only where reclaim finds
//! nothing at all, just before the OOM killer: nobody makes it on purpose, but it is compared where it happens.

use std::fs;
use std::time::Instant;

use mitra_collect::bpf::{Probes, StallHist, StallKind};

use super::judge::{Judge, agree};
use super::probes;

/// What this process does, by the tracepoints that the probes are at. Sums at the end, so that what did not happen is 0.
fn watch_own() -> Option<Judge> {
    let own = std::process::id();
    Judge::start(&format!(
        "tracepoint:compaction:mm_compaction_begin /pid == {own}/ {{ @c[tid] = nsecs; }} \
         tracepoint:compaction:mm_compaction_end /@c[tid]/ \
         {{ @compactions = sum(1); @compacting = sum(nsecs - @c[tid]); delete(@c[tid]); }} \
         tracepoint:vmscan:mm_vmscan_direct_reclaim_begin /pid == {own}/ {{ @r[tid] = nsecs; }} \
         tracepoint:vmscan:mm_vmscan_direct_reclaim_end /@r[tid]/ \
         {{ @reclaims = sum(1); @reclaiming = sum(nsecs - @r[tid]); delete(@r[tid]); }} \
         tracepoint:vmscan:mm_vmscan_throttled /pid == {own}/ \
         {{ @throttles = sum(1); @throttled = sum(args->usec_delayed); }} \
         END {{ clear(@c); clear(@r); @compactions = sum(0); @compacting = sum((uint64)0); \
         @reclaims = sum(0); @reclaiming = sum((uint64)0); @throttles = sum(0); @throttled = sum(0); }}"
    ))
}

/// What the probes saw of one kind since they were loaded: of the machine, and of this process alone.
#[derive(Debug)]
struct Stalled {
    all: StallHist,
    count: u64,
    ns: u64,
}

fn stalled(probes: &mut Probes, wanted: StallKind) -> Stalled {
    let stalls = probes.stalls.as_mut().expect("the stall probes");
    let mut all = None;
    stalls.read(|kind, hist| all = if kind == wanted { Some(*hist) } else { all }).expect("the stalls");
    let all = all.expect("the kind");
    assert_eq!(all.latency.iter().sum::<u64>(), all.count, "{wanted:?}");
    let (mut count, mut ns) = (0, 0);
    stalls
        .owners(|tgid, kind, sum| {
            if tgid == std::process::id() && kind == wanted {
                (count, ns) = (sum.count, sum.total_ns);
            }
        })
        .expect("the owners");
    assert!(count <= all.count && ns <= all.total_ns, "{wanted:?}: {count} in {ns} ns of {all:?}");
    Stalled { all, count, ns }
}

/// Of each time one of the two is inside of the other, and a little longer.
fn agree_with(what: &str, ours: &Stalled, count: f64, ns: f64) {
    const APART_NS: f64 = 20_000.0;
    if ours.count == 0 && count == 0.0 {
        return;
    }
    agree(what, ours.count as f64, count);
    println!("{what}: {} ns here, {ns} ns by bpftrace", ours.ns);
    assert!((ours.ns as f64 - ns).abs() <= 0.05 * ns + APART_NS * count, "{what}: {} ns, not {ns}", ours.ns);
}

/// Zones that have memory.
fn zones() -> u64 {
    let text = fs::read_to_string("/proc/zoneinfo").expect("/proc/zoneinfo");
    let present = text.lines().filter_map(|line| line.trim().strip_prefix("present "));
    present.filter(|pages| pages.trim() != "0").count() as u64
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_task_that_compacts_all_memory_does_so_once_in_each_zone() {
    let Some((_guard, mut probes)) = probes() else { return };
    let judge = watch_own();
    let began = Instant::now();
    if let Err(error) = fs::write("/proc/sys/vm/compact_memory", "1") {
        eprintln!("skipped: /proc/sys/vm/compact_memory: {error}");
        return;
    }
    let took = began.elapsed().as_nanos();
    let ours = stalled(&mut probes, StallKind::Compaction);
    assert_eq!(ours.count, zones());
    assert!(ours.ns > 0 && u128::from(ours.ns) <= took, "{} ns of {took}", ours.ns);
    if let Some(judge) = judge {
        let [theirs, their_ns] = judge.values(["compactions", "compacting"]);
        agree_with("compaction", &ours, theirs, their_ns);
    }
}

/// What the kernel counts by itself, in `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    /// Allocations that compacted.
    compact_stall: u64,
    /// Each time that a task began to reclaim.
    allocstall: u64,
    /// Pages that tasks reclaimed.
    pgsteal_direct: u64,
}

impl Counted {
    fn now() -> Self {
        let mut now = Self::default();
        for line in fs::read_to_string("/proc/vmstat").expect("/proc/vmstat").lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            let to = match name {
                "compact_stall" => &mut now.compact_stall,
                "pgsteal_direct" => &mut now.pgsteal_direct,
                _ if name.starts_with("allocstall_") => &mut now.allocstall,
                _ => continue,
            };
            *to += value.parse::<u64>().expect("a number");
        }
        now
    }

    fn since(self, before: Self) -> Self {
        Self {
            compact_stall: self.compact_stall - before.compact_stall,
            allocstall: self.allocstall - before.allocstall,
            pgsteal_direct: self.pgsteal_direct - before.pgsteal_direct,
        }
    }
}

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

/// As many huge pages as there were, again once it is dropped.
struct HugePages(u64);

impl HugePages {
    /// Asks for more of them, and gets as many as are to be had.
    fn more(pages: u64) -> Option<Self> {
        let before = Self(fs::read_to_string(NR_HUGEPAGES).ok()?.trim().parse().ok()?);
        fs::write(NR_HUGEPAGES, (before.0 + pages).to_string()).ok()?;
        Some(before)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(NR_HUGEPAGES, self.0.to_string()) {
            eprintln!("left behind: more huge pages than {}: {error}", self.0);
        }
    }
}

fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// One call of `try_to_free_pages` begins again with other rules when it found nothing: up to three times
/// (`do_try_to_free_pages`, mm/vmscan.c), and counts each time.
const BEGINNINGS_MAX: u64 = 4;

/// Asks for huge pages of so many bytes and gives them back.
fn asking_for_huge_pages_stalls_as_the_kernel_counts(bytes: u64) {
    let outer = Counted::now();
    let Some((_guard, mut probes)) = probes() else { return };
    let Some(page_bytes) = meminfo_bytes("Hugepagesize") else {
        eprintln!("skipped: this kernel has no huge pages");
        return;
    };
    let judge = watch_own();
    let inner = Counted::now();
    let began = Instant::now();
    let Some(more) = HugePages::more(bytes / page_bytes) else {
        eprintln!("skipped: {NR_HUGEPAGES} cannot be written");
        return;
    };
    drop(more);
    let took = began.elapsed();
    let inner = Counted::now().since(inner);
    let compaction = stalled(&mut probes, StallKind::Compaction);
    let reclaim = stalled(&mut probes, StallKind::DirectReclaim);
    let throttled = stalled(&mut probes, StallKind::Throttled);
    let outer = Counted::now().since(outer);
    if inner.compact_stall + inner.allocstall == 0 {
        eprintln!("skipped: {} MB of huge pages were to be had without any trouble", bytes >> 20);
        return;
    }
    eprintln!(
        "{inner:?} in {took:?}; compaction {compaction:?}, reclaim {reclaim:?}, throttled {throttled:?}"
    );
    // An allocation compacts each zone at most once; where that is put off it counts as well, and does nothing.
    assert!(compaction.all.count <= outer.compact_stall * zones());
    assert!(reclaim.all.count <= outer.allocstall);
    // A few runs of a program may be left out, see `BlockHist`.
    assert!((reclaim.all.count * BEGINNINGS_MAX) as f64 >= 0.9 * inner.allocstall as f64);
    // Slab pages are not among those that the kernel counts.
    assert!(reclaim.all.reclaimed_pages as f64 >= 0.9 * inner.pgsteal_direct as f64);
    assert!(throttled.ns <= reclaim.ns, "what reclaim has ordered is part of it");
    let Some(judge) = judge else { return };
    let names = ["compactions", "compacting", "reclaims", "reclaiming", "throttles", "throttled"];
    let [compactions, compacting, reclaims, reclaiming, throttles, throttled_us] = judge.values(names);
    agree_with("compaction", &compaction, compactions, compacting);
    agree_with("direct reclaim", &reclaim, reclaims, reclaiming);
    agree_with("throttling", &throttled, throttles, throttled_us * 1000.0);
}

/// Where memory is free in one piece this makes no trouble, and is skipped.
#[test]
#[ignore = "needs root: make test-kernel"]
fn huge_pages_that_are_not_at_hand_stall_as_the_kernel_counts() {
    const BYTES_MAX: u64 = 1 << 30;
    let available = meminfo_bytes("MemAvailable").expect("MemAvailable");
    asking_for_huge_pages_stalls_as_the_kernel_counts(BYTES_MAX.min(available / 2));
}

#[test]
#[ignore = "takes the memory that is free and some of the page cache, for a second"]
fn by_hand_huge_pages_beyond_what_is_free_stall_as_the_kernel_counts() {
    let [free, available] =
        ["MemFree", "MemAvailable"].map(|name| meminfo_bytes(name).expect("a line of meminfo"));
    // For all else 1 GB stays.
    let bytes = (free + (1 << 29)).min(available.saturating_sub(1 << 30));
    asking_for_huge_pages_stalls_as_the_kernel_counts(bytes);
}
