//! `cache`: the page cache, by process and file.
//!
//! What it answers: which file a process reads past the cache, which files evict which, and how large the share of
//! reads is that the cache serves. Pages are counted, never events: a read asks for many pages at once, and what is
//! brought in comes in folios of many.
//!
//! Reads through a mapping ask for no pages. Of them only the faults are seen that find no page mapped by the faults
//! around them, most of which are misses; a ratio is not made of that. Pages that a write creates were missed by
//! nobody and count apart, as do pages that reclaim took and those that went otherwise (deleted, truncated, dropped on
//! request).
//!
//! What readahead brings in counts as brought in, also where a read finds it there later: the share of hits is what did
//! not have to be fetched for these reads, a lower bound. Where more was brought in than was asked for, most of it was
//! readahead, and the share is not known.
//!
//! Needs Linux 6.12 for the reads; before, what is brought in and what goes is seen all the same.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a read of a cached page takes 265 ns longer (`pread`: 532 to
//! 797 ns of CPU), other calls nothing; a file that is seen for the first time 1 µs more, for its name.

use aya::include_bytes_aligned;
use mitra_model::capture::{CaptureRow, Cell, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{
    COMM, Column, Mounts, Names, PID, Rows, Who, set_classes, sort_by_weight, split_dev, table,
};
use crate::capture::loader::{Config, Loader};
use crate::capture::{AnyError, BY_TASK, CaptureReader, Kind, Request};

pub(super) static KIND: Kind = Kind {
    name: "cache",
    help: "the page cache by process and file: pages asked for, brought in, evicted",
    cost: "265 ns for each buffered read, and for each folio that comes or goes; other system calls cost nothing more",
    since: "5.17; pages asked for: 6.12",
    attaches: &[
        "mm_filemap_get_pages",
        "mm_filemap_add_to_page_cache",
        "mm_filemap_delete_from_page_cache",
        "mm_filemap_fault",
    ],
    columns: COLUMNS,
    options: &[],
    filters: BY_TASK,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_cache.bpf.o")),
    source: include_str!("cache.rs"),
    configure,
    arm,
};

const COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("file", "", "the file; one without a name is a device and the number of an inode"),
    ("device", "", "where the file lies"),
    ("asked", "1", "pages that reads asked for"),
    ("brought in", "1", "pages that were not there and were brought in, by readahead too"),
    (
        "hit ratio",
        "1",
        "share of the pages asked for that was there, at least; not known where more was brought in than asked for",
    ),
    ("faults", "1", "faults on a mapping that found no page mapped by those around it"),
    ("written", "1", "pages that were made by writing, or read without anybody asking"),
    ("evicted", "1", "pages that reclaim took, when this process ran it"),
    ("dropped", "1", "pages that went otherwise: deleted, truncated, dropped on request"),
];

/// As many entries as the kernel's maps hold.
const SUMS_MAX: usize = 8192;
const NAMES_MAX: usize = 4096;
/// `CALL_WRITES` of bpf/capture_cache.bpf.c.
const CALL_WRITES: u8 = 1;

fn configure(_: &Request, config: &mut Config) -> Result<(), String> {
    config.arg = u64::from(rustix::param::page_size().trailing_zeros());
    Ok(())
}

fn writes(call: &str) -> u8 {
    let writes = ["write", "writev", "pwrite64", "pwritev", "pwritev2", "fallocate", "ftruncate", "truncate"];
    if writes.contains(&call) { CALL_WRITES } else { 0 }
}

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    set_classes(loader, writes)?;
    let (sums, names) = (loader.map("cache_sums")?, loader.map("cache_names")?);
    loader.tracepoint("mm_filemap_add_to_page_cache", &["pages_added"])?;
    loader.tracepoint("mm_filemap_delete_from_page_cache", &["pages_deleted"])?;
    let reads = loader.optional_tracepoint("mm_filemap_get_pages", &["pages_looked_up"]);
    let faults = loader.optional_tracepoint("mm_filemap_fault", &["page_faulted"]);
    Ok(Box::new(Cache { sums, names, reads, faults, page: rustix::param::page_size() as f64 }))
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    ino: u64,
    dev: u32,
    tgid: u32,
}
const _: () = assert!(size_of::<Key>() == 16, "twin: struct cache_key in bpf/capture_cache.bpf.c");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for Key {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    asked: u64,
    brought_in: u64,
    written: u64,
    faults: u64,
    evicted: u64,
    dropped: u64,
    comm: [u8; 16],
}
const _: () = assert!(size_of::<Sum>() == 64, "twin: struct cache_sum in bpf/capture_cache.bpf.c");
// SAFETY: repr(C), u64 fields and bytes without a hole.
unsafe impl Plain for Sum {}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.asked += other.asked;
        self.brought_in += other.brought_in;
        self.written += other.written;
        self.faults += other.faults;
        self.evicted += other.evicted;
        self.dropped += other.dropped;
    }

    /// What nobody asked for by reading, or by a fault, was not missed: a thread of the kernel wrote it, or it was read
    /// ahead on request, or it belongs to the file system itself. Only where such asking can be seen.
    fn missed_by_somebody(mut self, asking_is_seen: bool) -> Self {
        if asking_is_seen && self.asked == 0 && self.faults == 0 {
            self.written += self.brought_in;
            self.brought_in = 0;
        }
        self
    }

    /// The least that it can be: not all that was brought in need have been asked for.
    fn hit_ratio(&self) -> Option<f64> {
        let can_tell = self.asked > 0 && self.brought_in <= self.asked;
        can_tell.then(|| 1.0 - self.brought_in as f64 / self.asked as f64)
    }

    fn weight(&self) -> f64 {
        (self.brought_in + self.evicted) as f64 + self.asked as f64 * 1e-3
    }
}

struct Cache {
    sums: MapReader<Key, Sum>,
    names: MapReader<Key, Names>,
    reads: bool,
    faults: bool,
    page: f64,
}

impl CaptureReader for Cache {
    fn other(&self) -> Option<&'static str> {
        Some("files whose name had no room")
    }

    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mounts = Mounts::read();
        let names: std::collections::HashMap<Key, Names> =
            self.names.entries(NAMES_MAX)?.into_iter().collect();
        let mut rows = Rows::new();
        for (key, sum) in self.sums.entries(SUMS_MAX)? {
            rows.add(key.tgid, &sum.comm, Key { tgid: 0, ..key }, sum, Sum::add);
        }
        let mut rows: Vec<(Who, (String, String), Sum)> = rows
            .into_rows()
            .into_iter()
            .map(|(who, key, sum)| {
                let name = names.get(&key).and_then(Names::path);
                let file = (file_name(&mounts, key, name), mounts.device(key.dev));
                (who, file, sum.missed_by_somebody(self.reads && self.faults))
            })
            .collect();
        sort_by_weight(&mut rows, |row| row.2.weight(), |row| row.1.clone());
        raw.captured.notes.extend(self.overall(&rows));
        raw.captured.tops = rows.iter().map(|(who, file, sum)| self.top(who, file, sum)).collect();
        let rows = rows.iter().map(|(who, file, sum)| self.row(who, file, sum));
        raw.captured.tables.push(table("files", COLUMNS, rows.collect()));
        Ok(())
    }
}

fn file_name(mounts: &Mounts, key: Key, inside: Option<String>) -> String {
    let (major, minor) = split_dev(key.dev);
    match inside {
        Some(inside) => mounts.whole_path(key.dev, &inside),
        // A block device has no inode of a file system.
        None if key.ino == 0 => format!("/dev/{}", mounts.device(key.dev)),
        None => format!("dev {major}:{minor} inode {}", key.ino),
    }
}

impl Cache {
    fn overall(&self, rows: &[(Who, (String, String), Sum)]) -> Option<String> {
        let asked: u64 = rows.iter().map(|row| row.2.asked).sum();
        let in_files = rows.iter().filter(|row| row.2.asked > 0);
        let brought_in: u64 = in_files.map(|row| row.2.brought_in.min(row.2.asked)).sum();
        (asked > 0).then(|| {
            let hits = 100.0 * (1.0 - brought_in as f64 / asked as f64);
            format!("of {asked} pages that reads asked for at least {hits:.1} % were in the cache")
        })
    }

    fn top(&self, who: &Who, (file, device): &(String, String), sum: &Sum) -> CaptureRow {
        let (what, pages) = if sum.evicted > sum.brought_in {
            (format!("evicts {file}"), sum.evicted)
        } else {
            (file.clone(), sum.brought_in)
        };
        let count = if sum.evicted > sum.brought_in { sum.evicted } else { sum.asked.max(sum.faults) };
        let top = who.top(what, count as f64, pages as f64 * self.page);
        CaptureRow { device: device.clone(), ..top }
    }

    fn row(&self, who: &Who, (file, device): &(String, String), sum: &Sum) -> Vec<Cell> {
        let if_seen =
            |seen: bool, value: u64| if seen { Cell::number(value as f64) } else { Cell::Unknown(()) };
        who.row([
            Cell::text(file.as_str()),
            Cell::text(device.as_str()),
            if_seen(self.reads, sum.asked),
            Cell::number(sum.brought_in as f64),
            sum.hit_ratio().map_or(Cell::Unknown(()), Cell::number),
            if_seen(self.faults, sum.faults),
            Cell::number(sum.written as f64),
            Cell::number(sum.evicted as f64),
            Cell::number(sum.dropped as f64),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::sys::zeroed;

    #[test]
    fn a_ratio_is_made_of_reads_alone() {
        let sum = |asked, brought_in, faults| Sum { asked, brought_in, faults, ..zeroed::<Sum>() };
        assert_eq!(sum(100, 25, 0).hit_ratio(), Some(0.75));
        assert_eq!(sum(100, 100, 0).hit_ratio(), Some(0.0));
        // Readahead brings in more than was asked for: which of it was missed?
        assert_eq!(sum(100, 109, 0).hit_ratio(), None);
        assert_eq!(sum(0, 50, 50).hit_ratio(), None);
        assert_eq!(sum(0, 50, 50).missed_by_somebody(true).brought_in, 50);
        assert_eq!(sum(0, 50, 0).missed_by_somebody(true).written, 50);
        assert_eq!(sum(0, 50, 0).missed_by_somebody(false).brought_in, 50, "nobody can see who asked");
    }
}
