//! The sections of `mpstat`, by the names in their headers.

use mitra_model::lookup;

use super::super::{Column, Form, GroupId, Import};
use super::iostat_columns::printed;

/// Columns that are read. Sections of single interrupts have hundreds, and are not read.
pub(super) const COLUMNS_MAX: usize = 64;

/// Of all CPUs together, and of one.
const LOAD: &[(&str, &str, &str)] = &[
    ("%usr", "sys.cpu_user", "cpu.user"),
    ("%user", "sys.cpu_user", "cpu.user"),
    ("%nice", "sys.cpu_nice", "cpu.nice"),
    ("%sys", "sys.cpu_system", "cpu.system"),
    ("%system", "sys.cpu_system", "cpu.system"),
    ("%iowait", "sys.cpu_iowait", "cpu.iowait"),
    ("%irq", "sys.cpu_irq", "cpu.irq"),
    ("%soft", "sys.cpu_softirq", "cpu.softirq"),
    ("%steal", "sys.cpu_steal", "cpu.steal"),
    ("%guest", "sys.cpu_guest", "cpu.guest"),
    ("%gnice", "sys.cpu_guest_nice", "cpu.guest_nice"),
    ("%idle", "sys.cpu_idle", "cpu.idle"),
];

/// What a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// CPU time, and in old versions the interrupts of each CPU.
    Load,
    /// Interrupts of all kinds together.
    Interrupts,
    /// Soft interrupts by kind.
    SoftInterrupts,
    /// CPU time of nodes, or single interrupts.
    PassedOver(&'static str),
}

/// What the names after the time are the header of, if it is one of `mpstat`. `sar` prints almost the same: it has
/// `%steal` after `%iowait`.
pub(super) fn kind(names: &[&[u8]]) -> Option<Kind> {
    let (first, rest) = names.split_first()?;
    let interrupts = |w: &[u8]| w.ends_with(b"/s");
    match *first {
        b"NODE" if rest.first().is_some_and(|w| *w == b"%usr") => Some(Kind::PassedOver(
            "mpstat -N: CPU time of nodes is passed over; that of the CPUs says the same",
        )),
        b"CPU" if rest.windows(2).any(|w| matches!(w, [b"%iowait", b"%irq"])) => Some(Kind::Load),
        b"CPU" if rest.first().is_some_and(|w| w.starts_with(b"%")) => {
            rest.last().is_some_and(|w| *w == b"intr/s").then_some(Kind::Load)
        }
        b"CPU" if rest == [b"intr/s"] => Some(Kind::Interrupts),
        b"CPU" if rest.first().is_some_and(|w| *w == b"HI/s") => Some(Kind::SoftInterrupts),
        b"CPU" if !rest.is_empty() && rest.iter().all(|w| interrupts(w)) => {
            let single =
                |w: &&[u8]| w.iter().all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'i' | b'/' | b's'));
            rest.iter()
                .all(single)
                .then_some(Kind::PassedOver("mpstat -I CPU: interrupts by number are passed over"))
        }
        _ => None,
    }
}

/// Where the cells of a row go.
pub(super) struct Cells {
    pub group: GroupId,
    cells: Vec<Option<usize>>,
    /// Slots of time in user mode and of the time of guests, which it does not hold as printed.
    guests: Vec<(usize, usize)>,
}

impl Cells {
    /// The places for the names, for all CPUs together or for one. `None` where nothing is kept.
    pub fn new(import: &mut Import, kind: Kind, names: &[&[u8]], all: bool) -> Option<Cells> {
        let mut columns: Vec<Column> = Vec::new();
        let cells: Vec<Option<usize>> = names
            .iter()
            .map(|name| {
                let column = column(kind, name, all)?;
                if columns.iter().any(|c| std::ptr::eq(c.metric, column.metric)) {
                    return None;
                }
                columns.push(column);
                Some(columns.len() - 1)
            })
            .collect();
        let slot = |name: &str| {
            let at = names.iter().position(|n| *n == name.as_bytes())?;
            *cells.get(at)?
        };
        let user = slot("%usr").or_else(|| slot("%user"));
        let guests =
            [user.zip(slot("%guest")), slot("%nice").zip(slot("%gnice"))].into_iter().flatten().collect();
        (!columns.is_empty()).then(|| Cells { group: import.group(columns), cells, guests })
    }

    /// Fills in a row from words.
    pub fn fill(&self, words: &[&[u8]], slots: &mut [f64]) {
        self.fill_with(words.iter().map(|word| printed(word, 1.0)), slots);
    }

    /// Fills in a row from numbers in the order of the names.
    pub fn fill_with(&self, numbers: impl Iterator<Item = f64>, slots: &mut [f64]) {
        for (number, cell) in numbers.zip(&self.cells) {
            if let Some(slot) = cell.and_then(|i| slots.get_mut(i)) {
                *slot = number;
            }
        }
        for (user, guest) in &self.guests {
            let guest = slots.get(*guest).copied().unwrap_or(f64::NAN);
            if let Some(slot) = slots.get_mut(*user) {
                *slot += guest;
            }
        }
    }
}

fn column(kind: Kind, name: &[u8], all: bool) -> Option<Column> {
    match kind {
        Kind::Load if name != b"intr/s" => {
            let (_, system, cpu) = LOAD.iter().find(|(n, ..)| n.as_bytes() == name)?;
            if all { Column::new(system, Form::Share, 0.01) } else { Column::new(cpu, Form::Rate, 0.01) }
        }
        // There is no row of the table for the interrupts of one CPU.
        Kind::Load | Kind::Interrupts if all && name == b"intr/s" => Column::new("sys.intr", Form::Rate, 1.0),
        Kind::SoftInterrupts if !all => {
            let name = std::str::from_utf8(name.strip_suffix(b"/s")?).ok()?;
            let metric = lookup(&format!("softirq.{}", name.to_ascii_lowercase()))?;
            Column::new(metric.name, Form::Rate, 1.0)
        }
        _ => None,
    }
}
