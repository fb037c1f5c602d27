//! The columns of `iostat`, of all its versions and options, by the names in the header.

use super::super::number::leading;
use super::super::{Column, Form, GroupId, Import};

/// Columns of one table that are read; those behind are passed over.
pub(super) const COLUMNS_MAX: usize = 64;

const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * 1024.0;
/// iostat and the kernel count sectors of 512 bytes whatever the device has.
const SECTOR: f64 = 512.0;

/// Columns whose numbers are kept as they are.
const DISK: &[(&str, &str, f64)] = &[
    ("r/s", "disk.reads", 1.0),
    ("w/s", "disk.writes", 1.0),
    ("d/s", "disk.discards", 1.0),
    ("f/s", "disk.flushes", 1.0),
    ("rrqm/s", "disk.read_merges", 1.0),
    ("wrqm/s", "disk.write_merges", 1.0),
    ("drqm/s", "disk.discard_merges", 1.0),
    ("rkB/s", "disk.read_bytes", KB),
    ("wkB/s", "disk.write_bytes", KB),
    ("dkB/s", "disk.discard_bytes", KB),
    ("rMB/s", "disk.read_bytes", MB),
    ("wMB/s", "disk.write_bytes", MB),
    ("dMB/s", "disk.discard_bytes", MB),
    ("rsec/s", "disk.read_bytes", SECTOR),
    ("wsec/s", "disk.write_bytes", SECTOR),
    ("dsec/s", "disk.discard_bytes", SECTOR),
    ("kB_read/s", "disk.read_bytes", KB),
    ("kB_wrtn/s", "disk.write_bytes", KB),
    ("kB_dscd/s", "disk.discard_bytes", KB),
    ("MB_read/s", "disk.read_bytes", MB),
    ("MB_wrtn/s", "disk.write_bytes", MB),
    ("MB_dscd/s", "disk.discard_bytes", MB),
    ("Blk_read/s", "disk.read_bytes", SECTOR),
    ("Blk_wrtn/s", "disk.write_bytes", SECTOR),
    ("Blk_dscd/s", "disk.discard_bytes", SECTOR),
    ("tps", "disk.transfers", 1.0),
    ("avgqu-sz", "disk.weighted_time", 1.0),
    ("aqu-sz", "disk.weighted_time", 1.0),
    ("%util", "disk.io_time", 0.01),
];

/// Mean milliseconds of a request, and the column with the requests a second: together seconds of waiting a second.
const WAITS: &[(&str, &str, &str)] = &[
    ("r_await", "r/s", "disk.read_time"),
    ("w_await", "w/s", "disk.write_time"),
    ("d_await", "d/s", "disk.discard_time"),
    ("f_await", "f/s", "disk.flush_time"),
];

/// What the CPU table has. `%system` holds the time in interrupts too.
const CPU: &[(&str, &str)] = &[
    ("%user", "sys.cpu_user"),
    ("%nice", "sys.cpu_nice"),
    ("%system", "sys.cpu_system"),
    ("%sys", "sys.cpu_system"),
    ("%iowait", "sys.cpu_iowait"),
    ("%steal", "sys.cpu_steal"),
    ("%idle", "sys.cpu_idle"),
];

/// Whether a word is the name of a column of the device tables that is read.
pub(super) fn is_disk_column(word: &[u8]) -> bool {
    DISK.iter().any(|(name, ..)| name.as_bytes() == word)
        || WAITS.iter().any(|(name, ..)| name.as_bytes() == word)
        || word == b"await"
}

/// Where the cells of a table's rows go.
pub(super) struct Table {
    pub group: GroupId,
    /// The slot of each cell in the row of the group; `None` is passed over.
    cells: Vec<Option<usize>>,
    factors: Vec<f64>,
    /// The slots of a time, which holds mean milliseconds at first, and of the requests that took it.
    waits: Vec<(usize, usize)>,
    /// The slots of all requests, of reads and of writes, where iostat does not add them up itself.
    sum: Option<(usize, usize, usize)>,
}

impl Table {
    /// The CPU table.
    pub fn cpu(import: &mut Import, names: &[&[u8]]) -> Table {
        let mut columns = Vec::new();
        let cells = names
            .iter()
            .map(|name| {
                let (_, metric) = CPU.iter().find(|(n, _)| n.as_bytes() == *name)?;
                columns.push(Column::new(metric, Form::Share, 0.01)?);
                Some(columns.len() - 1)
            })
            .collect();
        Table::new(import, columns, cells)
    }

    /// A table of devices; `names` does not hold the word Device.
    pub fn disk(import: &mut Import, names: &[&[u8]]) -> Table {
        let mut columns: Vec<Column> = Vec::new();
        let mut add = |metric: &str, factor: f64| {
            // Old versions print sectors and kilobytes of the same: the first counts.
            let column = Column::new(metric, Form::Rate, factor)?;
            if columns.iter().any(|c| std::ptr::eq(c.metric, column.metric)) {
                return None;
            }
            columns.push(column);
            Some(columns.len() - 1)
        };
        let mut cells: Vec<Option<usize>> = names
            .iter()
            .map(|name| {
                let (_, metric, factor) = DISK.iter().find(|(n, ..)| n.as_bytes() == *name)?;
                add(metric, *factor)
            })
            .collect();
        let place = |name: &str| names.iter().position(|n| *n == name.as_bytes());
        let mut waits = Vec::new();
        for (wait, requests, metric) in WAITS {
            let (Some(at), Some(rate)) = (place(wait), place(requests).and_then(|i| *cells.get(i)?)) else {
                continue;
            };
            if let (Some(time), Some(cell)) = (add(metric, 1.0), cells.get_mut(at)) {
                *cell = Some(time);
                waits.push((time, rate));
            }
        }
        let mut sum = None;
        let both = place("await").filter(|_| place("r_await").is_none());
        if let Some(at) = both {
            let slot = |name: &str| place(name).and_then(|i| cells.get(i).copied()?);
            let (tps, reads, writes) = (slot("tps"), slot("r/s"), slot("w/s"));
            let requests = tps.or_else(|| {
                let slots = (add("disk.transfers", 1.0)?, reads?, writes?);
                sum = Some(slots);
                Some(slots.0)
            });
            if let (Some(requests), Some(time), Some(cell)) =
                (requests, add("disk.transfer_time", 1.0), cells.get_mut(at))
            {
                *cell = Some(time);
                waits.push((time, requests));
            }
        }
        Table { waits, sum, ..Table::new(import, columns, cells) }
    }

    fn new(import: &mut Import, columns: Vec<Column>, cells: Vec<Option<usize>>) -> Table {
        let factors = columns.iter().map(|c| c.factor).collect();
        Table { group: import.group(columns), cells, factors, waits: Vec::new(), sum: None }
    }

    /// How many cells a row has, the name not counted.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// How many numbers a row of the group has.
    pub fn width(&self) -> usize {
        self.factors.len()
    }

    /// Fills in a row from its cells.
    pub fn fill(&self, words: &[&[u8]], slots: &mut [f64]) {
        for (word, cell) in words.iter().zip(&self.cells) {
            if let Some((slot, factor)) = cell.and_then(|i| slots.get_mut(i).zip(self.factors.get(i))) {
                *slot = printed(word, *factor);
            }
        }
        self.work_out(slots);
    }

    /// Fills in a row from numbers in the order of the names.
    pub fn fill_numbers(&self, numbers: &[f64], slots: &mut [f64]) {
        for (number, cell) in numbers.iter().zip(&self.cells) {
            if let Some(slot) = cell.and_then(|i| slots.get_mut(i)) {
                *slot = *number;
            }
        }
        self.work_out(slots);
    }

    fn work_out(&self, slots: &mut [f64]) {
        let get = |slots: &[f64], i: usize| slots.get(i).copied().unwrap_or(f64::NAN);
        if let Some((all, reads, writes)) = self.sum {
            let sum = get(slots, reads) + get(slots, writes);
            if let Some(slot) = slots.get_mut(all) {
                *slot = sum;
            }
        }
        for (time, requests) in &self.waits {
            let seconds = get(slots, *time) / 1000.0 * get(slots, *requests);
            if let Some(slot) = slots.get_mut(*time) {
                *slot = seconds;
            }
        }
    }
}

/// A printed number in the unit of its column. With `-h` and `--human` sizes have a unit of their own: `9.3M`, `84.1k`,
/// `12.0B`, `7.0s` (sectors).
pub(super) fn printed(word: &[u8], factor: f64) -> f64 {
    let Some((value, rest)) = leading(word) else { return f64::NAN };
    let unit = match rest {
        [] | [b'%'] => return value,
        _ if factor < SECTOR => return f64::NAN,
        [b'B'] => 1.0,
        [b's'] => SECTOR,
        [b'k' | b'K'] => KB,
        [b'M'] => MB,
        [b'G'] => MB * KB,
        [b'T'] => MB * MB,
        [b'P'] => MB * MB * KB,
        _ => return f64::NAN,
    };
    value * unit / factor
}
