//! The columns of `pidstat`, by the names in the header.

use super::columns::{self, Kind};
use super::plan::printed;
use crate::text::prelude::*;

/// Columns that are read; `pidstat` has 25 with all options.
pub(super) const COLUMNS_MAX: usize = 48;

/// Columns that belong to the process: they are kept of its leader alone, else the threads would seem to have it each.
const OF_PROCESS: [&str; 4] = ["VSZ", "RSS", "threads", "fd-nr"];
/// Scheduling policies by the names of `-R`, and their numbers in the kernel.
const POLICIES: [(&[u8], f64); 6] =
    [(b"NORMAL", 0.0), (b"FIFO", 1.0), (b"RR", 2.0), (b"BATCH", 3.0), (b"IDLE", 5.0), (b"DEADLN", 6.0)];

/// Where the words of a row go.
pub(super) struct TaskColumns {
    /// `None` where nothing of the section is kept.
    pub group: Option<GroupId>,
    /// Which word is the process, and which the thread if there are threads.
    pub pid: usize,
    pub tid: Option<usize>,
    /// Words before the command.
    pub words: usize,
    cells: Vec<(usize, usize, f64)>,
    /// The slots of user time and the word with the time of guests, which it does not hold as printed.
    guest: Option<(usize, usize)>,
    /// The slots that make the whole CPU time where `-I` divides what is printed by the number of CPUs.
    whole: Option<(usize, usize, usize)>,
    delay: Option<usize>,
    of_process: Vec<usize>,
    /// The word and the slot of the policy, which is a name.
    policy: Option<(usize, usize)>,
}

/// Whether the words after the time are a header: `UID PID %usr … Command`.
pub(super) fn is_header(rest: &[u8]) -> bool {
    let mut w = words(rest);
    let first = w.next();
    let second = if matches!(first, Some(b"UID" | b"USER")) { w.next() } else { first };
    matches!(second, Some(b"PID" | b"TGID")) && rest.trim_ascii_end().ends_with(b" Command")
}

impl TaskColumns {
    /// The columns that the words after the time name.
    pub fn new(import: &mut Import, rest: &[u8]) -> TaskColumns {
        let names: Vec<&[u8]> = words(rest).take(COLUMNS_MAX).collect();
        let place = |name: &str| names.iter().position(|n| *n == name.as_bytes());
        let tgid = place("TGID");
        let mut columns: Vec<Column> = Vec::new();
        let mut cells = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let Some((metric, like)) = columns::find(Kind::Task, name) else { continue };
            if let Some(column) = Column::new(metric, like.form, like.factor) {
                cells.push((i, columns.len(), like.factor));
                columns.push(column);
            }
        }
        let slot = |name: &str| {
            let at = place(name)?;
            cells.iter().find(|(word, ..)| *word == at).map(|(_, slot, _)| *slot)
        };
        let user = slot("%usr").or_else(|| slot("%user"));
        let whole = import.context.ran("pidstat", Some('I'));
        let delay = slot("iodelay");
        let mut task_columns = TaskColumns {
            group: None,
            pid: tgid.or_else(|| place("PID")).unwrap_or(0),
            tid: tgid.and_then(|_| place("TID")),
            words: names.len().saturating_sub(1),
            guest: user.zip(place("%guest")),
            whole: slot("%CPU").filter(|_| whole).and_then(|cpu| Some((cpu, user?, slot("%system")?))),
            delay,
            of_process: OF_PROCESS.iter().filter_map(|name| slot(name)).collect(),
            policy: place("policy").zip(slot("policy")),
            cells,
        };
        if !columns.is_empty() {
            let group = import.group(columns);
            if let Some(delay) = delay {
                // Without delay accounting the kernel leaves it at zero.
                import.zeros_are_unavailable(group, delay);
            }
            task_columns.group = Some(group);
        }
        task_columns
    }

    /// Fills in a row. `interval_s` is how long the row covers, if known; `leader` is false for further threads.
    #[inline]
    pub fn fill(&self, words: &[&[u8]], interval_s: f64, leader: bool, slots: &mut [f64]) {
        for (word, slot, factor) in &self.cells {
            if let (Some(word), Some(slot)) = (words.get(*word), slots.get_mut(*slot)) {
                let value = printed(word, *factor);
                // -1.00 says that the file could not be read.
                *slot = if value < 0.0 { f64::NAN } else { value };
            }
        }
        if let Some((user, guest)) = self.guest
            && let (Some(guest), Some(slot)) = (words.get(guest), slots.get_mut(user))
        {
            *slot += printed(guest, 0.01);
        }
        if let Some((cpu, user, system)) = self.whole {
            let value = |slot: usize| slots.get(slot).copied().unwrap_or(f64::NAN);
            let sum = value(user) + value(system);
            if let Some(slot) = slots.get_mut(cpu) {
                *slot = sum;
            }
        }
        if let Some((word, slot)) = self.policy
            && let (Some(name), Some(slot)) = (words.get(word), slots.get_mut(slot))
        {
            *slot = POLICIES.iter().find(|(known, _)| known == name).map_or(f64::NAN, |(_, number)| *number);
        }
        // Ticks during the interval, not per second.
        if let Some(slot) = self.delay.and_then(|i| slots.get_mut(i)) {
            *slot /= interval_s;
        }
        if !leader {
            for i in &self.of_process {
                if let Some(slot) = slots.get_mut(*i) {
                    *slot = f64::NAN;
                }
            }
        }
    }
}
