//! `/proc/softirqs`: soft interrupts of each kind on each CPU.
//!
//! ```text
//!                     CPU0       CPU1
//!           HI:          0          0
//!        TIMER:      11963      12251
//! ```
//!
//! See `show_softirqs` in `fs/proc/softirqs.c`. All CPUs that are possible have a column, online or not.

use mitra_model::{Entity, Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, number, skip_blanks, word};

/// No machine has more CPUs.
pub(crate) const CPUS_MAX: usize = 16_384;
/// The row of a CPU that has none.
const NO_ROW: usize = usize::MAX;

/// The parser of `/proc/softirqs`.
#[derive(Debug)]
pub struct SoftIrqs {
    cpus: Rows,
    /// The row of each column.
    rows: Vec<usize>,
    values: Vec<i64>,
    kinds: [(&'static [u8], Column); 11],
}

impl Default for SoftIrqs {
    fn default() -> Self {
        let kind = |key: &'static [u8], name| (key, Column::of(name));
        SoftIrqs {
            cpus: Rows::default(),
            rows: Vec::new(),
            values: Vec::new(),
            kinds: [
                kind(b"HI", "softirq.hi"),
                kind(b"TIMER", "softirq.timer"),
                kind(b"NET_TX", "softirq.net_tx"),
                kind(b"NET_RX", "softirq.net_rx"),
                kind(b"BLOCK", "softirq.block"),
                kind(b"IRQ_POLL", "softirq.irq_poll"),
                kind(b"BLOCK_IOPOLL", "softirq.irq_poll"),
                kind(b"TASKLET", "softirq.tasklet"),
                kind(b"SCHED", "softirq.sched"),
                kind(b"HRTIMER", "softirq.hrtimer"),
                kind(b"RCU", "softirq.rcu"),
            ],
        }
    }
}

impl SoftIrqs {
    /// Fills the rows of the CPUs: those that the frame has, or all if it has none.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Cpu);
        let mut seen = 0_u32;
        self.cpus.begin(strings, table);
        self.rows.clear();
        let mut header = lines.next(&mut outcome).unwrap_or_default();
        while let Some((name, rest)) = word(header) {
            let row =
                match name.strip_prefix(b"CPU").filter(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
                {
                    Some(cpu) if self.rows.len() < CPUS_MAX => {
                        self.cpus.position(cpu, lossy, strings, table, false)
                    }
                    _ => {
                        outcome.bad(1);
                        return outcome;
                    }
                };
            self.rows.push(row.unwrap_or(NO_ROW));
            header = rest;
        }
        while let Some(line) = lines.next(&mut outcome) {
            let Some(kind) = self.line(line) else {
                outcome.bad(lines.number());
                continue;
            };
            let Some((_, column)) = self.kinds.get(kind) else {
                outcome.unknown_keys += 1;
                continue;
            };
            if seen & 1 << kind != 0 {
                outcome.bad(lines.number());
                continue;
            }
            seen |= 1 << kind;
            for (row, value) in self.rows.iter().zip(&self.values) {
                if *row != NO_ROW {
                    column.set(table.row_mut(*row), *value);
                }
            }
            if self.values.contains(&NA) {
                outcome.bad(lines.number());
            }
        }
        outcome
    }

    /// Reads the numbers of a line; returns the position of its kind, past the end for one that is not known.
    fn line(&mut self, line: &[u8]) -> Option<usize> {
        let (key, mut rest) = word(line)?;
        let key = key.strip_suffix(b":").filter(|key| !key.is_empty())?;
        self.values.clear();
        for _ in 0..self.rows.len() {
            let (value, tail) = number(rest)?;
            self.values.push(value);
            rest = tail;
        }
        if !skip_blanks(rest).is_empty() || self.rows.is_empty() {
            return None;
        }
        Some(self.kinds.iter().position(|(name, _)| *name == key).unwrap_or(self.kinds.len()))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed, parsed_after};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/softirqs").row_is("2", "softirq.irq_poll", 3);
        parsed("4.18", "proc/softirqs").row_is("1", "softirq.rcu", 8_812_004);
        let s = parsed_after("5.15", &["proc/stat", "proc/softirqs"]);
        s.row_is("5", "softirq.net_rx", 771_024);
        s.no_row("1");
        parsed("6.1", "proc/softirqs").row_is("0", "softirq.sched", 1_204_118);
        let s = parsed("6.18", "proc/softirqs");
        s.row_is("0", "softirq.timer", 11_963);
        s.row_is("1", "softirq.block", 86_788);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/softirqs",
            b"  CPU0 CPU1\n HI: 1 2\n HI: 3 4\n TIMER: 1\n NET_TX: 1 2 3\n BLOCK: 1 -2\n SCHED 1 2\n NOVEL: 1 2\n RCU: 1 2\r\n NET_RX: 5 99999999999999999999\nTASKLET: 1 2",
        );
        s.row_is("0", "softirq.hi", 1);
        s.row_is("1", "softirq.hi", 2);
        s.row_is("0", "softirq.net_rx", 5);
        s.count(3);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (8, Some(3), 1));
        for bad in [
            &b"CPU0 1\nHI: 1 2\n"[..],
            b"CPU0 CPUx\nHI: 1 2\n",
            b"CPU\nHI: 1\n",
            b"CPU0\r\nHI: 1\n",
            b"\nHI: 1\n",
        ] {
            let s = Sample::of("proc/softirqs", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        let s = Sample::of("proc/softirqs", b"CPU0 CPU0\nHI: 1 2\n");
        s.row_is("0", "softirq.hi", 1);
        s.count(1);
    }
}
