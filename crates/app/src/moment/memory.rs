//! What the memory of the machine is used for, and what is done to get some: the lines above the panel of memory.

use mitra_diagnose::words;

use super::machine::{At, Item, MachineLine, item, plain, rate, share};
use super::value::Value;

pub const METRICS: &[&str] = &[
    "mem.total",
    "mem.free",
    "mem.available",
    "mem.buffers",
    "mem.cached",
    "mem.mapped",
    "mem.shmem",
    "mem.active_file",
    "mem.anon",
    "mem.anon_huge",
    "mem.mlocked",
    "mem.slab",
    "mem.sreclaimable",
    "mem.sunreclaim",
    "mem.page_tables",
    "mem.kernel_stack",
    "mem.dirty",
    "mem.writeback",
    "mem.swap_total",
    "mem.swap_free",
    "vm.pswpin",
    "vm.pswpout",
    "vm.pgsteal_kswapd",
    "vm.pgsteal_direct",
    "vm.pgsteal_anon",
    "vm.pgsteal_file",
    "vm.pgscan_kswapd",
    "vm.pgscan_direct",
    "vm.allocstall_dma",
    "vm.allocstall_dma32",
    "vm.allocstall_normal",
    "vm.allocstall_high",
    "vm.allocstall_movable",
    "vm.allocstall_device",
    "vm.workingset_refault",
    "vm.workingset_refault_anon",
    "vm.workingset_refault_file",
    "psi.memory_some",
    "psi.memory_full",
];
const CACHE: &[&str] = &["mem.cached", "mem.buffers"];
/// By whomever, the limits of cgroups included; since Linux 5.8.
const RECLAIMED: &[&str] = &["vm.pgsteal_anon", "vm.pgsteal_file"];
/// Before that.
const RECLAIMED_FOR_ALL: &[&str] = &["vm.pgsteal_kswapd", "vm.pgsteal_direct"];
const STALLS: &[&str] = &[
    "vm.allocstall_dma",
    "vm.allocstall_dma32",
    "vm.allocstall_normal",
    "vm.allocstall_high",
    "vm.allocstall_movable",
    "vm.allocstall_device",
];
const REFAULTS: &[&str] =
    &["vm.workingset_refault", "vm.workingset_refault_anon", "vm.workingset_refault_file"];
/// The share of memory that fills the bar of dirty pages: `vm.dirty_ratio`, unless it was set.
const DIRTY_SHARE: f64 = 0.2;
/// A full bar of traffic is at least a megabyte a second.
const TRAFFIC_FULL: f64 = 1e6;

/// The lines at a sample, what decides first.
pub fn lines(at: &At<'_>) -> Vec<MachineLine> {
    let total = at.sum(&["mem.total"]);
    vec![
        available(at, total),
        anonymous(at, total),
        cache(at, total),
        slab(at, total),
        dirty(at, total),
        swap(at),
        reclaim(at),
        pressure(at),
    ]
}

fn line(at: &At<'_>, label: &str, value: Value, full: f64, items: Vec<Item>) -> MachineLine {
    MachineLine { label: label.to_owned(), items, curve: at.over_time(value), full }
}

fn bytes(at: &At<'_>, word: &str, names: &'static [&'static str]) -> Item {
    plain(word, words::bytes, at.sum(names))
}

fn grows(at: &At<'_>, names: &[&str]) -> Item {
    plain("grows", rate, at.growth(names))
}

/// Pages a second.
fn traffic(at: &At<'_>, word: &str, names: &'static [&'static str]) -> Item {
    plain(word, rate, at.of(Value::Pages(names)))
}

fn available(at: &At<'_>, total: f64) -> MachineLine {
    const AVAILABLE: &[&str] = &["mem.available"];
    let items = vec![
        bytes(at, "now", AVAILABLE),
        share("used", 1.0 - at.sum(AVAILABLE) / total, 0.95),
        bytes(at, "free", &["mem.free"]),
        bytes(at, "of", &["mem.total"]),
        grows(at, AVAILABLE),
    ];
    line(at, "AVAILABLE", Value::Sum(AVAILABLE), total, items)
}

fn anonymous(at: &At<'_>, total: f64) -> MachineLine {
    const ANON: &[&str] = &["mem.anon"];
    let items = vec![
        bytes(at, "now", ANON),
        grows(at, ANON),
        bytes(at, "shared", &["mem.shmem"]),
        bytes(at, "huge", &["mem.anon_huge"]),
        bytes(at, "locked", &["mem.mlocked"]),
    ];
    line(at, "ANONYMOUS", Value::Sum(ANON), total, items)
}

fn cache(at: &At<'_>, total: f64) -> MachineLine {
    let items = vec![
        bytes(at, "now", CACHE),
        grows(at, CACHE),
        bytes(at, "active", &["mem.active_file"]),
        bytes(at, "mapped", &["mem.mapped"]),
    ];
    line(at, "PAGE-CACHE", Value::Sum(CACHE), total, items)
}

fn slab(at: &At<'_>, total: f64) -> MachineLine {
    const SLAB: &[&str] = &["mem.slab"];
    let items = vec![
        bytes(at, "now", SLAB),
        bytes(at, "reclaimable", &["mem.sreclaimable"]),
        bytes(at, "unreclaim", &["mem.sunreclaim"]),
        grows(at, SLAB),
        bytes(at, "page tables", &["mem.page_tables"]),
        bytes(at, "stacks", &["mem.kernel_stack"]),
    ];
    line(at, "SLAB", Value::Sum(SLAB), total, items)
}

fn dirty(at: &At<'_>, total: f64) -> MachineLine {
    const DIRTY: &[&str] = &["mem.dirty"];
    let items = vec![bytes(at, "now", DIRTY), bytes(at, "write-back", &["mem.writeback"]), grows(at, DIRTY)];
    line(at, "DIRTY", Value::Sum(DIRTY), total * DIRTY_SHARE, items)
}

fn swap(at: &At<'_>) -> MachineLine {
    let total = at.sum(&["mem.swap_total"]);
    let items = vec![
        traffic(at, "in", &["vm.pswpin"]),
        traffic(at, "out", &["vm.pswpout"]),
        plain("used", words::bytes, total - at.sum(&["mem.swap_free"])),
        plain("of", words::bytes, total),
    ];
    line(at, "SWAP", Value::Pages(&["vm.pswpin", "vm.pswpout"]), TRAFFIC_FULL, items)
}

fn reclaim(at: &At<'_>) -> MachineLine {
    let is_known = at.of(Value::Pages(RECLAIMED)).is_finite();
    let all = if is_known { RECLAIMED } else { RECLAIMED_FOR_ALL };
    let items = vec![
        traffic(at, "all", all),
        traffic(at, "kswapd", &["vm.pgsteal_kswapd"]),
        traffic(at, "direct", &["vm.pgsteal_direct"]),
        plain("stalls", |v| format!("{}/s", words::count(v)), at.sum(STALLS)),
        traffic(at, "scanned", &["vm.pgscan_kswapd", "vm.pgscan_direct"]),
        traffic(at, "refaults", REFAULTS),
    ];
    line(at, "RECLAIM", Value::Pages(all), TRAFFIC_FULL, items)
}

fn pressure(at: &At<'_>) -> MachineLine {
    const SOME: &[&str] = &["psi.memory_some"];
    let percent = |v: f64| format!("{:.1} %", v * 100.0);
    let items = vec![
        item("some", percent, at.sum(SOME), 0.1),
        item("full", percent, at.sum(&["psi.memory_full"]), 0.1),
    ];
    line(at, "PRESSURE", Value::Sum(SOME), 1.0, items)
}

#[cfg(test)]
mod tests {
    use mitra_model::{Entity, lookup};

    use super::METRICS;

    #[test]
    fn all_are_metrics_of_the_machine() {
        for name in METRICS {
            assert!(lookup(name).is_some_and(|metric| metric.entity == Entity::System), "{name}");
        }
    }
}
