//! How the rows below one header are read: which printed columns go where, and what is worked out of several.

use mitra_model::lookup;

use super::columns::{self, Kind, SECTOR, WAITS};
use crate::text::prelude::*;

/// Columns of one section that are looked at. The widest, of `sadf -p` with everything, has about 200.
pub const COLUMNS_MAX: usize = 256;
/// Different headers of one file that are remembered.
const PLANS_MAX: usize = 128;

/// The printed numbers of one row.
pub type Cells = [f64; COLUMNS_MAX];

/// What one column of a group is made of.
#[derive(Debug, Clone, Copy)]
enum Out {
    Copy(usize),
    Sum(usize, usize),
    /// Transfers per second, each of so many milliseconds: seconds of waiting per second.
    Millis(usize, usize),
    /// The same of reads and writes, which are counted apart.
    MillisOfBoth(usize, usize, usize),
    /// The size of memory, where the columns agree on it: see [`memory_total`].
    Total(Memory),
    /// What processes without privileges may still use of free, used, and the percentage that they may not.
    Avail(usize, usize, usize),
}

#[derive(Debug, Clone, Copy)]
struct Memory {
    free: usize,
    used: usize,
    percent: usize,
    buffers: Option<usize>,
    cached: Option<usize>,
    slab: Option<usize>,
}

/// Where the numbers of a row go.
pub struct Target {
    /// The group of the rows.
    pub group: GroupId,
    outs: Box<[Out]>,
}

impl Target {
    /// How many numbers a row of the group has.
    #[must_use]
    pub fn width(&self) -> usize {
        self.outs.len()
    }

    /// Fills in a row.
    #[inline]
    pub fn fill(&self, cells: &Cells, row: &mut [f64]) {
        for (slot, out) in row.iter_mut().zip(&self.outs) {
            *slot = out.value(cells);
        }
    }
}

/// Where the names of the rows stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    None,
    First,
    Last,
}

/// How the rows below one header are read.
pub struct Plan {
    /// The option of sar that prints it.
    pub option: Option<String>,
    /// What the rows are about.
    pub kind: Kind,
    /// Where the names of the rows stand.
    pub names: Names,
    /// How many columns of numbers there are.
    pub width: usize,
    /// The unit of each column whose numbers are needed: what a number with a suffix (`1.5G`) is divided by.
    pub needed: Vec<Option<f64>>,
    /// Where the rows of all CPUs or interrupts together go, and those of the machine.
    pub whole: Option<Target>,
    /// Where the rows of single things go.
    pub each: Option<Target>,
}

impl Plan {
    /// The plan for a header of these words; `None` when it is none of sar.
    fn new(words: &[&[u8]], import: &mut Import) -> Plan {
        let first = words.first().and_then(|w| columns::kind(w));
        let last = words.last().and_then(|w| columns::kind(w));
        let (names, kind, list) = match (first, last) {
            (Some(kind), _) => (Names::First, kind, words.get(1..)),
            (None, Some(kind)) => (Names::Last, kind, words.get(..words.len().saturating_sub(1))),
            (None, None) => (Names::None, Kind::System, Some(words)),
        };
        let mut plan = Plan::of(kind, list.unwrap_or_default(), import);
        plan.names = names;
        plan.option = columns::option(words.iter().copied());
        if let Some(option) = plan.option.as_ref().filter(|_| plan.is_read()) {
            import.format(option);
        }
        plan
    }

    /// The plan for rows of a kind with these columns of numbers, their names apart.
    pub fn of(kind: Kind, list: &[&[u8]], import: &mut Import) -> Plan {
        let mut builder = Builder { list, needed: vec![None; list.len().min(COLUMNS_MAX)] };
        let (whole, each) = match kind {
            Kind::System => (builder.plain(Kind::System), Vec::new()),
            Kind::Cpu => (builder.all_cpus(), builder.each_cpu()),
            Kind::Irq => (builder.interrupts("sys.intr"), builder.interrupts("irq.count")),
            kind => (Vec::new(), builder.plain(kind)),
        };
        let needed = builder.needed;
        let mut target = |list: Vec<(Column, Out)>| {
            let (columns, outs): (Vec<_>, Vec<_>) = list.into_iter().unzip();
            (!outs.is_empty()).then(|| Target { group: import.group(columns), outs: outs.into() })
        };
        Plan {
            option: None,
            kind,
            names: if kind == Kind::System { Names::None } else { Names::First },
            width: list.len(),
            needed,
            whole: target(whole),
            each: target(each),
        }
    }

    /// Whether anything of the section has a place.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.whole.is_some() || self.each.is_some()
    }

    /// Says when the first interval began.
    pub fn since(&self, import: &mut Import, when: When) {
        for target in [&self.whole, &self.each].into_iter().flatten() {
            import.since(target.group, when);
        }
    }

    /// Says that counting began anew at that moment.
    pub fn sampled(&self, import: &mut Import, when: When) {
        for target in [&self.whole, &self.each].into_iter().flatten() {
            import.sampled(target.group, when);
        }
    }

    /// Reads the words of a row, its name apart.
    pub fn read(&self, words: &[&[u8]], cells: &mut Cells) {
        for ((word, cell), unit) in words.iter().zip(cells).zip(&self.needed) {
            if let Some(unit) = unit {
                *cell = printed(word, *unit);
            }
        }
    }

    /// Puts the numbers of one row where they belong.
    #[inline]
    pub fn put(&self, import: &mut Import, name: &[u8], when: When, line: u32, cells: &Cells) {
        if let Some((target, name)) = self.target(name) {
            target.fill(cells, import.row(target.group, name, when, line));
        }
    }

    /// Where the row of that name goes, and its name there.
    #[inline]
    pub fn target<'a>(&self, name: &'a [u8]) -> Option<(&Target, &'a [u8])> {
        let of_all = match self.kind {
            Kind::System => true,
            Kind::Cpu => matches!(name, b"all" | b"-1"),
            Kind::Irq => name == b"sum",
            _ => false,
        };
        if of_all { Some((self.whole.as_ref()?, b"")) } else { Some((self.each.as_ref()?, name)) }
    }
}

impl Out {
    #[inline]
    fn value(self, cells: &Cells) -> f64 {
        let cell = |i: usize| cells.get(i).copied().unwrap_or(f64::NAN);
        match self {
            Out::Copy(i) => cell(i),
            Out::Sum(a, b) => cell(a) + cell(b),
            Out::Millis(count, each) => cell(count) * cell(each) / 1000.0,
            Out::MillisOfBoth(reads, writes, each) => (cell(reads) + cell(writes)) * cell(each) / 1000.0,
            Out::Avail(free, used, percent) => {
                (cell(free) + cell(used)) * (1.0 - cell(percent) / 100.0).max(0.0)
            }
            Out::Total(memory) => memory_total(&memory, cell),
        }
    }
}

/// The size of memory. What counts as used differs: until 11.6 it is all that is not free, later the page cache and
/// slab are not in it. The printed percentage tells: the sum that it fits is the whole.
fn memory_total(m: &Memory, cell: impl Fn(usize) -> f64) -> f64 {
    let (free, used, percent) = (cell(m.free), cell(m.used), cell(m.percent));
    let part = |i: Option<usize>| i.map_or(0.0, &cell);
    let cache = part(m.buffers) + part(m.cached);
    let fits = |total: &f64| *total > 0.0 && (used / total * 100.0 - percent).abs() <= 0.0051;
    let sums = [free + used, free + used + cache, free + used + cache + part(m.slab)];
    let mut fitting = sums.iter().filter(|s| fits(s));
    match (fitting.next(), fitting.next()) {
        (Some(total), None) => *total,
        // Little is used, so that the percentage does not tell them apart: the sums must not differ by much.
        (Some(a), Some(b)) if (a - b).abs() <= 0.001 * b => *b,
        _ => f64::NAN,
    }
}

struct Builder<'a> {
    list: &'a [&'a [u8]],
    needed: Vec<Option<f64>>,
}

impl Builder<'_> {
    fn at(&mut self, name: &str, unit: f64) -> Option<usize> {
        let i = self.list.iter().take(COLUMNS_MAX).position(|n| *n == name.as_bytes())?;
        self.need(i, unit);
        Some(i)
    }

    fn need(&mut self, i: usize, unit: f64) {
        if let Some(needed) = self.needed.get_mut(i) {
            needed.get_or_insert(unit);
        }
    }

    /// The columns of the table, and those that follow from several.
    fn plain(&mut self, kind: Kind) -> Vec<(Column, Out)> {
        let mut out: Vec<(Column, Out)> = Vec::new();
        for (i, name) in self.list.iter().enumerate().take(COLUMNS_MAX) {
            let Some((metric, like)) = columns::find(kind, name) else { continue };
            let before = i.checked_sub(1).and_then(|b| self.list.get(b)).copied();
            if *name == b"retrans/s" && columns::of_nfs(before) {
                continue;
            }
            // Old versions print sectors and kilobytes of the same: the first counts.
            let known = out.iter().any(|(c, _)| c.metric.name == metric);
            if let Some(column) = Column::new(metric, like.form, like.factor).filter(|_| !known) {
                let in_bytes = column.metric.unit.label() == "bytes";
                self.need(i, if in_bytes { like.factor } else { 1.0 });
                out.push((column, Out::Copy(i)));
            }
        }
        match kind {
            Kind::System => self.memory(&mut out),
            Kind::Disk => self.waits(&mut out),
            Kind::Filesystem => self.filesystem(&mut out),
            _ => {}
        }
        out
    }

    fn memory(&mut self, out: &mut Vec<(Column, Out)>) {
        const KIB: f64 = 1024.0;
        let (free, used) = (self.at("kbmemfree", KIB), self.at("kbmemused", KIB));
        if let (Some(free), Some(used), Some(percent)) = (free, used, self.at("%memused", 1.0)) {
            let memory = Memory {
                free,
                used,
                percent,
                buffers: self.at("kbbuffers", KIB),
                cached: self.at("kbcached", KIB),
                slab: self.at("kbslab", KIB),
            };
            push(out, "mem.total", Form::Level, KIB, Out::Total(memory));
        }
        if let (Some(free), Some(used)) = (self.at("kbswpfree", KIB), self.at("kbswpused", KIB)) {
            push(out, "mem.swap_total", Form::Level, KIB, Out::Sum(free, used));
        }
    }

    /// The times of waiting; `await` counts where it is not told apart.
    fn waits(&mut self, out: &mut Vec<(Column, Out)>) {
        for (wait, requests, metric) in WAITS {
            if let (Some(wait), Some(requests)) = (self.at(wait, 1.0), self.at(requests, 1.0)) {
                push(out, metric, Form::Rate, 1.0, Out::Millis(requests, wait));
            }
        }
        let (None, Some(each)) = (self.at("r_await", 1.0), self.at("await", 1.0)) else { return };
        let time = match (self.at("tps", 1.0), self.at("r/s", 1.0), self.at("w/s", 1.0)) {
            (Some(tps), ..) => Out::Millis(tps, each),
            (None, Some(reads), Some(writes)) => {
                push(out, "disk.transfers", Form::Rate, 1.0, Out::Sum(reads, writes));
                Out::MillisOfBoth(reads, writes, each)
            }
            _ => return,
        };
        push(out, "disk.transfer_time", Form::Rate, 1.0, time);
    }

    fn filesystem(&mut self, out: &mut Vec<(Column, Out)>) {
        const MIB: f64 = 1_048_576.0;
        if let (Some(free), Some(used)) = (self.at("MBfsfree", MIB), self.at("MBfsused", MIB)) {
            push(out, "fs.total_bytes", Form::Level, MIB, Out::Sum(free, used));
            if let Some(percent) = self.at("%ufsused", 1.0) {
                push(out, "fs.avail_bytes", Form::Level, MIB, Out::Avail(free, used, percent));
            }
        }
        if let (Some(free), Some(used)) = (self.at("Ifree", 1.0), self.at("Iused", 1.0)) {
            push(out, "fs.inodes", Form::Level, 1.0, Out::Sum(free, used));
        }
    }

    /// Shares of CPU time. `%usr` of `-u ALL` leaves the guests out, which the kernel's number and `%user` contain.
    fn cpu_times(&mut self, prefix: &str, form: Form) -> Vec<(Column, Out)> {
        let mut out = Vec::new();
        for (i, name) in self.list.iter().enumerate().take(COLUMNS_MAX) {
            let Some(time) = columns::cpu_time(name) else { continue };
            self.need(i, 1.0);
            let with = match *name {
                b"%usr" => self.at("%guest", 1.0),
                // Old versions of mpstat say `%user` and leave them out, too.
                b"%user" if self.at("%irq", 1.0).is_some() => self.at("%guest", 1.0),
                b"%nice" => self.at("%gnice", 1.0),
                _ => None,
            };
            let what = with.map_or(Out::Copy(i), |guest| Out::Sum(i, guest));
            push(&mut out, &format!("{prefix}{time}"), form, 0.01, what);
        }
        out
    }

    /// There is no metric for the interrupts of one CPU, nor for the soft interrupts of all.
    fn all_cpus(&mut self) -> Vec<(Column, Out)> {
        let mut out = self.cpu_times("sys.cpu_", Form::Share);
        if let Some(i) = self.at("intr/s", 1.0) {
            push(&mut out, "sys.intr", Form::Rate, 1.0, Out::Copy(i));
        }
        out
    }

    fn each_cpu(&mut self) -> Vec<(Column, Out)> {
        let mut out = self.cpu_times("cpu.", Form::Rate);
        out.extend(self.plain(Kind::Cpu));
        for (i, name) in self.list.iter().enumerate().take(COLUMNS_MAX) {
            let Some(kind) = name.strip_suffix(b"/s").and_then(|kind| std::str::from_utf8(kind).ok()) else {
                continue;
            };
            if let Some(metric) = lookup(&format!("softirq.{}", kind.to_ascii_lowercase())) {
                self.need(i, 1.0);
                push(&mut out, metric.name, Form::Rate, 1.0, Out::Copy(i));
            }
        }
        out
    }

    fn interrupts(&mut self, metric: &str) -> Vec<(Column, Out)> {
        let mut out = Vec::new();
        if let Some(i) = ["all", "CPU*", "intr/s"].iter().find_map(|n| self.at(n, 1.0)) {
            push(&mut out, metric, Form::Rate, 1.0, Out::Copy(i));
        }
        out
    }
}

fn push(out: &mut Vec<(Column, Out)>, metric: &str, form: Form, factor: f64, what: Out) {
    if out.iter().all(|(c, _)| c.metric.name != metric) {
        out.extend(Column::new(metric, form, factor).map(|c| (c, what)));
    }
}

/// A printed number in the unit of its column. With `-h` and `--human` sizes have a unit of their own: `9.3M`, `84.1k`,
/// `12.0B`, `7.0s` (sectors).
#[inline]
pub fn printed(word: &[u8], unit: f64) -> f64 {
    match leading(word) {
        Some((value, [] | [b'%'])) => value,
        _ => human(word, unit),
    }
}

/// See [`printed`].
#[cold]
fn human(word: &[u8], unit: f64) -> f64 {
    let bytes = match word.strip_suffix(b"s") {
        Some(sectors) => number(sectors).map(|sectors| sectors * SECTOR),
        None => with_suffix(word),
    };
    bytes.filter(|_| unit >= SECTOR).map_or(f64::NAN, |bytes| bytes / unit)
}

/// The plans of a file, by their headers: headers are repeated for every interval of some sections.
#[derive(Default)]
pub struct Plans {
    list: Vec<(Box<[u8]>, Plan)>,
    last: usize,
    skipped: Vec<String>,
}

impl Plans {
    /// The position of the plan for a header, made from its words when it is new. `None` when there are too many.
    pub fn find<'a>(
        &mut self,
        key: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
        import: &mut Import,
    ) -> Option<usize> {
        self.known(key).or_else(|| {
            let words: Vec<&[u8]> = words.collect();
            let plan = Plan::new(&words, import);
            if !plan.is_read() {
                let name = plan.option.clone().unwrap_or_else(|| shown(&words));
                self.skip(&name);
            }
            self.add(key, plan)
        })
    }

    /// The position of the plan with this key.
    pub fn known(&mut self, key: &[u8]) -> Option<usize> {
        // Sections follow each other in the same order in every interval.
        let next = self.last + 1;
        for i in [self.last, next] {
            if self.list.get(i).is_some_and(|(k, _)| **k == *key) {
                self.last = i;
                return Some(i);
            }
        }
        let found = self.list.iter().position(|(k, _)| **k == *key)?;
        self.last = found;
        Some(found)
    }

    /// Keeps a plan.
    pub fn add(&mut self, key: &[u8], plan: Plan) -> Option<usize> {
        if self.list.len() >= PLANS_MAX {
            return None;
        }
        self.list.push((key.into(), plan));
        self.last = self.list.len() - 1;
        Some(self.last)
    }

    /// The plan at a position.
    #[inline]
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&Plan> {
        self.list.get(i).map(|(_, plan)| plan)
    }

    /// Remembers a section that has no place.
    pub fn skip(&mut self, name: &str) {
        if self.skipped.len() < PLANS_MAX && !self.skipped.iter().any(|s| s == name) {
            self.skipped.push(name.to_owned());
        }
    }

    /// Says which sections were passed over.
    pub fn note(&self, import: &mut Import) {
        if !self.skipped.is_empty() {
            import.note(format!("not read, for want of a metric: {}", self.skipped.join(", ")));
        }
    }
}

/// What to call a section that no option is known for.
fn shown(words: &[&[u8]]) -> String {
    let head: Vec<String> = words.iter().take(3).map(|w| text(w)).collect();
    format!("the section \"{} …\"", head.join(" "))
}
