//! Counts of things by name, second by second and in all: of system calls, of directories, of trace events.

use crate::text::prelude::*;

/// Names that are counted apart; the rest is counted together.
pub(super) const NAMES_MAX: usize = 1024;
/// Rows that say "none in this second", of one file. Beyond them only seconds with something have rows.
const ZEROS_MAX: usize = 400_000;
/// Seconds whose lines are kept, to say what was not there yet.
const SECONDS_MAX: usize = 100_000;
/// Silent seconds after one another that get rows.
const SILENT_MAX: i64 = 10;
/// A time that is earlier than the one before by less than this is a matter of CPUs that took turns.
const DISORDER: i64 = 5 * SECOND;
/// Names are found by a hash in a table of so many places.
const SLOTS: usize = 4 * NAMES_MAX;
const OTHER: &[u8] = b"(other)";

/// What the times of a file count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// Midnight.
    Day,
    /// 1970.
    Epoch,
    /// The boot of the machine.
    Boot,
    /// The beginning of the trace.
    Begin,
}

impl Clock {
    /// The end of a second, at so many nanoseconds. Those of a trace are counted in milliseconds.
    pub(super) fn when(self, ns: i64, import: &mut Import) -> When {
        match self {
            Clock::Day => {
                // The end of the last second of a day is of that day.
                When::Clock(ns.saturating_sub(SECOND).rem_euclid(DAY) + SECOND)
            }
            _ => self.exactly(ns, import),
        }
    }

    /// The same for a moment that ends no second.
    pub(super) fn exactly(self, ns: i64, import: &mut Import) -> When {
        match self {
            Clock::Day => When::Clock(ns.rem_euclid(DAY)),
            Clock::Epoch => When::At(ns),
            Clock::Boot => When::Boot(ns),
            Clock::Begin => {
                import.context.interval_s = Some(1e-3);
                When::Step(u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX))
            }
        }
    }
}

/// What is added up of one name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    /// How often it came.
    pub n: u64,
    /// How often with an error.
    pub errors: u64,
    /// How long it took in all, in nanoseconds.
    pub ns: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

struct Cell {
    name: Box<[u8]>,
    total: Sums,
    now: Sums,
    first: u32,
    first_now: u32,
    since: i64,
}

/// See the module.
pub(super) struct Tally {
    metrics: &'static [&'static str],
    cells: Vec<Cell>,
    slots: Vec<u16>,
    clock: Option<Clock>,
    start: i64,
    until: i64,
    line: u32,
    rates: Option<GroupId>,
    zeros: usize,
    seconds: Vec<(i64, u32)>,
    timed: bool,
}

impl Tally {
    /// Nothing yet. The metrics are of the count, of the errors and of the time, as far as there are such.
    pub(super) fn new(metrics: &'static [&'static str]) -> Self {
        Tally {
            metrics,
            cells: Vec::new(),
            slots: vec![u16::MAX; SLOTS],
            clock: None,
            start: 0,
            until: i64::MIN,
            line: 0,
            rates: None,
            zeros: 0,
            seconds: Vec::new(),
            timed: false,
        }
    }

    /// The position of a name; a new one gets the next. What is too much is one name.
    #[inline]
    pub(super) fn find(&mut self, name: &[u8]) -> usize {
        match self.known(name) {
            Ok(at) => at,
            Err(slot) => self.add(name, slot),
        }
    }

    /// The position of a name that was seen before; else the slot where it belongs.
    #[inline]
    pub(super) fn known(&self, name: &[u8]) -> Result<usize, usize> {
        let mut slot = hash(name) as usize % SLOTS;
        loop {
            let at = usize::from(self.slots.get(slot).copied().unwrap_or(u16::MAX));
            match self.cells.get(at) {
                None => return Err(slot),
                Some(cell) if *cell.name == *name => return Ok(at),
                Some(_) => slot = (slot + 1) % SLOTS,
            }
        }
    }

    #[cold]
    fn add(&mut self, name: &[u8], slot: usize) -> usize {
        let at = self.cells.len();
        if at >= NAMES_MAX {
            return NAMES_MAX;
        }
        let name = if at + 1 == NAMES_MAX { OTHER } else { name };
        let (now, total) = (Sums::default(), Sums::default());
        self.cells.push(Cell { name: name.into(), total, now, first: 0, first_now: 0, since: self.start });
        if let Some(free) = self.slots.get_mut(slot).filter(|_| at + 1 < NAMES_MAX) {
            *free = at as u16;
        }
        at
    }

    /// The name at a position.
    pub(super) fn name(&self, at: usize) -> &[u8] {
        self.cells.get(at.min(NAMES_MAX - 1)).map_or(OTHER, |c| &c.name)
    }

    /// What was added up of the name at a position, to be added to.
    #[inline]
    pub(super) fn count(&mut self, at: usize, line: u32) -> &mut Sums {
        // There is a last cell when there are positions behind it.
        if self.cells.is_empty() {
            self.add(OTHER, 0);
        }
        let at = at.min(self.cells.len() - 1);
        let cell = &mut self.cells[at];
        if cell.now.n == 0 {
            cell.first_now = line;
            if cell.first == 0 {
                (cell.first, cell.since) = (line, self.start);
            }
        }
        &mut cell.now
    }

    /// Says that what follows happened at a time.
    #[inline]
    pub(super) fn tick(&mut self, clock: Clock, t: i64, line: u32, import: &mut Import) {
        if t >= self.until || t < self.start {
            self.turn(clock, t, line, import);
        }
    }

    #[cold]
    fn turn(&mut self, clock: Clock, t: i64, line: u32, import: &mut Import) {
        if t < self.start && self.start - t < DISORDER {
            return;
        }
        let start = t.div_euclid(SECOND) * SECOND;
        if self.clock.is_some() {
            self.flush(import);
            let silent = (start - self.until) / SECOND;
            let from = if silent > SILENT_MAX { start } else { self.until + SECOND };
            let mut end = from;
            while end <= start && silent > 0 {
                self.zeros(end, import);
                end += SECOND;
            }
        }
        (self.clock, self.start, self.until, self.line) = (Some(clock), start, start + SECOND, line);
        if self.seconds.len() < SECONDS_MAX {
            self.seconds.push((start, line));
        }
    }

    fn columns(&self, form: Form) -> Vec<Column> {
        self.metrics.iter().filter_map(|m| Column::new(m, form, 1.0)).collect()
    }

    /// Writes the second down and adds it to the totals.
    fn flush(&mut self, import: &mut Import) {
        if let Some(clock) = self.clock {
            let group = self.group(clock, import);
            let when = clock.when(self.until, import);
            for cell in &self.cells {
                if cell.now.n > 0 {
                    let row = import.row(group, &cell.name, when, cell.first_now);
                    put(row, &cell.now, self.timed);
                } else if self.zeros < ZEROS_MAX {
                    self.zeros += 1;
                    put(import.row(group, &cell.name, when, self.line), &Sums::default(), self.timed);
                }
            }
        }
        for cell in &mut self.cells {
            cell.total.n += cell.now.n;
            cell.total.errors += cell.now.errors;
            cell.total.ns = cell.total.ns.saturating_add(cell.now.ns);
            cell.total.max_ns = cell.total.max_ns.max(cell.now.max_ns);
            cell.now = Sums::default();
        }
    }

    fn group(&mut self, clock: Clock, import: &mut Import) -> GroupId {
        if let Some(group) = self.rates {
            return group;
        }
        let group = import.group(self.columns(Form::Rate));
        let since = clock.when(self.start, import);
        import.since(group, since);
        self.rates = Some(group);
        group
    }

    fn zeros(&mut self, end: i64, import: &mut Import) {
        let (Some(clock), Some(group)) = (self.clock, self.rates) else { return };
        let when = clock.when(end, import);
        if self.seconds.len() < SECONDS_MAX {
            self.seconds.push((end - SECOND, self.line));
        }
        for cell in &self.cells {
            if self.zeros < ZEROS_MAX {
                self.zeros += 1;
                put(import.row(group, &cell.name, when, self.line), &Sums::default(), self.timed);
            }
        }
    }

    /// Says that there are times that things took, so that no time is not the same as unknown.
    #[inline]
    pub(super) fn timed(&mut self) {
        self.timed = true;
    }

    /// Whether there are such times.
    pub(super) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Writes the rest down, and the totals, and gives back the totals.
    pub(super) fn finish(&mut self, import: &mut Import) -> Vec<(Box<[u8]>, Sums, u32)> {
        self.flush(import);
        self.before_the_first(import);
        let group = import.group(self.columns(Form::Total));
        let mut all = Vec::new();
        for cell in self.cells.drain(..).filter(|c| c.total.n > 0) {
            let row = import.row(group, &cell.name, When::Fact, cell.first);
            for (slot, value) in row.iter_mut().zip(values(&cell.total, self.timed)) {
                *slot = if slot.is_finite() { *slot + value } else { value };
            }
            all.push((cell.name, cell.total, cell.first));
        }
        all
    }

    /// A name that came late was not there before: the seconds before it get rows too.
    fn before_the_first(&mut self, import: &mut Import) {
        let (Some(clock), Some(group)) = (self.clock, self.rates) else { return };
        for (start, line) in std::mem::take(&mut self.seconds) {
            let when = clock.when(start + SECOND, import);
            for cell in self.cells.iter().filter(|c| c.since > start && c.total.n > 0) {
                if self.zeros < ZEROS_MAX {
                    self.zeros += 1;
                    put(import.row(group, &cell.name, when, line), &Sums::default(), self.timed);
                }
            }
        }
    }
}

fn values(sums: &Sums, timed: bool) -> [f64; 3] {
    [sums.n as f64, sums.errors as f64, if timed { sums.ns as f64 / SECOND as f64 } else { f64::NAN }]
}

fn put(row: &mut [f64], sums: &Sums, timed: bool) {
    for (slot, value) in row.iter_mut().zip(values(sums, timed)) {
        *slot = value;
    }
}

/// A hash of a few bytes that is fast and spreads well, not one that an attacker could not fool.
#[inline]
pub(super) fn hash(bytes: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = chunk.try_into().map_or(0, u64::from_le_bytes);
        h = (h ^ word).wrapping_mul(K);
        h ^= h >> 29;
    }
    let mut last = 0;
    for byte in chunks.remainder() {
        last = last << 8 | u64::from(*byte);
    }
    h = (h ^ last).wrapping_mul(K);
    h ^= h >> 32;
    h = h.wrapping_mul(K);
    h ^ h >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_are_one() {
        let mut tally = Tally::new(&["call.calls"]);
        let mut import = Import::new(None);
        import.begin_file("many");
        for i in 0..NAMES_MAX * 2 {
            let at = tally.find(format!("call{i}").as_bytes());
            tally.count(at, 1).n += 1;
        }
        let all = tally.finish(&mut import);
        assert_eq!(all.len(), NAMES_MAX);
        assert_eq!(all.iter().map(|a| a.1.n).sum::<u64>(), 2 * NAMES_MAX as u64);
        assert_eq!(&*all[NAMES_MAX - 1].0, OTHER);
    }

    #[test]
    fn seconds_without_anything_are_zero() {
        let mut tally = Tally::new(&["call.calls"]);
        let mut import = Import::new(None);
        import.begin_file("seconds");
        for (t, line, name) in [(10, 1, "a"), (10, 2, "a"), (13, 3, "b"), (9, 4, "a"), (14, 5, "a")] {
            tally.tick(Clock::Epoch, 1_000_000_000 * SECOND + t * SECOND, line, &mut import);
            let at = tally.find(name.as_bytes());
            tally.count(at, line).n += 1;
        }
        tally.finish(&mut import);
        let set = import.finish().set;
        let a = set.get("call.calls", "a").unwrap();
        assert_eq!(a.values, [2.0, 0.0, 0.0, 1.0, 1.0]);
        assert_eq!(a.axis.dt, [1.0; 5]);
        assert_eq!(set.get("call.calls", "b").unwrap().values, [0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(set.total("call.calls", "a").unwrap().values, [4.0]);
    }
}
