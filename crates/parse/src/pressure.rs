//! `/proc/pressure/*` and the `*.pressure` files of control groups: time lost to waiting.
//!
//! ```text
//! some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035
//! full avg10=0.00 avg60=0.00 avg300=0.00 total=0
//! ```
//!
//! See `Documentation/accounting/psi.rst`. Totals are microseconds. Before 5.13 the file of the CPU has no `full`;
//! the file of interrupts has no `some`.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::scan::{Lines, digits};

/// What tasks wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// A CPU.
    Cpu,
    /// Block I/O.
    Io,
    /// Memory: reclaim, refaults, swap-in, compaction.
    Memory,
    /// The end of an interrupt.
    Irq,
}

/// The parser of one of the files.
#[derive(Debug)]
pub struct Pressure {
    some: Column,
    full: Column,
}

impl Pressure {
    /// For the whole machine.
    #[must_use]
    pub fn new(resource: Resource) -> Self {
        let (some, full) = match resource {
            Resource::Cpu => (Column::of("psi.cpu_some"), "psi.cpu_full"),
            Resource::Io => (Column::of("psi.io_some"), "psi.io_full"),
            Resource::Memory => (Column::of("psi.memory_some"), "psi.memory_full"),
            Resource::Irq => (Column::NONE, "psi.irq_full"),
        };
        Pressure { some, full: Column::of(full) }
    }

    /// For control groups.
    #[must_use]
    pub fn of_cgroup(resource: Resource) -> Self {
        let (some, full) = match resource {
            Resource::Cpu => (Column::of("cgroup.psi_cpu_some"), "cgroup.psi_cpu_full"),
            Resource::Io => (Column::of("cgroup.psi_io_some"), "cgroup.psi_io_full"),
            Resource::Memory => (Column::of("cgroup.psi_memory_some"), "cgroup.psi_memory_full"),
            Resource::Irq => (Column::NONE, "cgroup.psi_irq_full"),
        };
        Pressure { some, full: Column::of(full) }
    }

    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        self.fill(input, frame.system_mut())
    }

    /// Fills a row of the table that the parser was made for.
    pub fn fill(&self, input: &[u8], row: &mut [i64]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let (mut seen_some, mut seen_full) = (false, false);
        while let Some(line) = lines.next(&mut outcome) {
            let (column, seen, rest) = if let Some(rest) = line.strip_prefix(b"some ") {
                (self.some, &mut seen_some, rest)
            } else if let Some(rest) = line.strip_prefix(b"full ") {
                (self.full, &mut seen_full, rest)
            } else {
                outcome.bad(lines.number());
                continue;
            };
            match total(rest) {
                Some(total) if !std::mem::replace(seen, true) => {
                    column.set(row, total);
                    if total == NA {
                        outcome.bad(lines.number());
                    }
                }
                _ => outcome.bad(lines.number()),
            }
        }
        outcome
    }
}

fn total(line: &[u8]) -> Option<i64> {
    let rest = line.strip_prefix(b"avg10=")?;
    let at = rest.windows(7).position(|window| window == b" total=")?;
    match digits(rest.get(at + 7..)?)? {
        (total, []) => Some(total),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("5.15", "proc/pressure/cpu");
        s.is("psi.cpu_some", 412_881_903);
        s.is("psi.cpu_full", 0);
        let s = parsed("6.1", "proc/pressure/irq");
        s.is("psi.irq_full", 1_204_511);
        s.count(1);
        let s = parsed("6.1", "proc/pressure/memory");
        s.is("psi.memory_full", 98_112);
        let s = parsed("6.18", "proc/pressure/io");
        s.is("psi.io_some", 12_535_598);
        s.is("psi.io_full", 11_674_330);
    }

    #[test]
    fn damage() {
        let line = b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n";
        Sample::of("proc/pressure/cpu", line).count(1);
        for bad in [
            &b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035"[..],
            b"some avg10=18.61 avg60=13.96 avg300=3.89 total=-19001035\n",
            b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\r\n",
            b"some avg10=18.61 avg60=13.96 avg300=3.89 total=190010359999999999999\n",
            b"some avg10=18.61 avg60=13.96 avg300=3.89\n",
            b"some total=4\n",
            b"none avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n",
        ] {
            let s = Sample::of("proc/pressure/cpu", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        let s = Sample::of("proc/pressure/cpu", b"full avg10=0.00 total=4\nfull avg10=0.00 total=5\n");
        s.is("psi.cpu_full", 4);
        assert_eq!(s.outcome.first_bad, Some(2));
    }
}
