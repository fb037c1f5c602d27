//! `/proc/interrupts`: each interrupt line and how often each CPU served it.
//!
//! ```text
//!            CPU0       CPU1
//!  36:          0      86790 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
//! LOC:      37552      39008   Local timer interrupts
//! ERR:          0
//! ```
//!
//! See `show_interrupts` in `kernel/irq/proc.c` and `arch_show_interrupts`. Only CPUs that are online have a column;
//! `ERR` and `MIS` have one number for the machine.

use mitra_model::{Entity, Frame, NA, StrId, Strings};

use crate::Outcome;
use crate::column::{Column, sum};
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, digits, number, skip_blanks, trim_end, word};
use crate::softirqs::CPUS_MAX;

/// Lines and CPUs whose counts are remembered, at most, to tell which CPU is busiest: 8 MiB of them.
const COUNTS_MAX: usize = 1 << 20;

/// The parser of `/proc/interrupts`.
#[derive(Debug)]
pub struct Interrupts {
    rows: Rows,
    /// The number of the CPU of each column.
    cpus: Vec<i64>,
    /// The counts of the line that is being read.
    counts: Vec<i64>,
    /// The counts of each line in the last pass, in the order of the lines.
    lines: Vec<Remembered>,
    generation: u32,
    count: Column,
    busiest: Column,
    description: Column,
}

#[derive(Debug, Default)]
struct Remembered {
    name: Box<[u8]>,
    description: Box<[u8]>,
    text: Option<StrId>,
    /// Counts of each CPU when the file was last read.
    counts: Vec<i64>,
}

impl Default for Interrupts {
    fn default() -> Self {
        Interrupts {
            rows: Rows::default(),
            cpus: Vec::new(),
            counts: Vec::new(),
            lines: Vec::new(),
            generation: 0,
            count: Column::of("irq.count"),
            busiest: Column::of("irq.busiest_cpu"),
            description: Column::of("irq.description"),
        }
    }
}

impl Interrupts {
    /// Fills a row for each interrupt line.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let table = frame.table_mut(Entity::Irq);
        self.rows.begin(strings, table);
        if self.generation != strings.generation() {
            self.generation = strings.generation();
            self.lines.iter_mut().for_each(|line| line.text = None);
        }
        if !self.header(lines.next(&mut outcome).unwrap_or_default()) {
            outcome.bad(1);
            return outcome;
        }
        let mut nth = 0;
        while let Some(line) = lines.next(&mut outcome) {
            let Some((name, description)) = self.line(line) else {
                outcome.bad(lines.number());
                continue;
            };
            let Some(row) = self.rows.row(name, lossy, strings, table) else {
                outcome.bad(lines.number());
                continue;
            };
            let total = self.counts.iter().fold(0, |total, count| sum(total, *count));
            self.count.set(row, total);
            if total == NA {
                outcome.bad(lines.number());
            }
            if let Some(remembered) = remember(&mut self.lines, nth, name, self.cpus.len()) {
                self.busiest.set(row, remembered.busiest(&self.counts, &self.cpus));
                self.description.set(row, remembered.text(description, strings));
            }
            nth += 1;
        }
        outcome
    }

    /// Reads which CPU each column is of.
    fn header(&mut self, line: &[u8]) -> bool {
        let mut rest = line;
        let mut changed = false;
        let mut count = 0;
        while let Some((name, tail)) = word(rest) {
            let Some((cpu, [])) = name.strip_prefix(b"CPU").and_then(digits) else { return false };
            match self.cpus.get_mut(count) {
                Some(known) => changed |= std::mem::replace(known, cpu) != cpu,
                None if count < CPUS_MAX => {
                    changed = true;
                    self.cpus.push(cpu);
                }
                None => return false,
            }
            count += 1;
            rest = tail;
        }
        changed |= self.cpus.len() != count;
        self.cpus.truncate(count);
        if changed {
            self.lines.iter_mut().for_each(|line| line.counts.clear());
        }
        count > 0
    }

    /// Reads the counts of a line; returns its name and the rest after the counts.
    fn line<'a>(&mut self, line: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let line = skip_blanks(line);
        let colon = line.iter().position(|b| *b == b':')?;
        let (name, mut rest) = line.split_at_checked(colon)?;
        rest = rest.strip_prefix(b":")?;
        self.counts.clear();
        while self.counts.len() < self.cpus.len() {
            let Some((count, tail)) = number(rest) else { break };
            self.counts.push(count);
            rest = tail;
        }
        let description = trim_end(skip_blanks(rest));
        let is_whole =
            self.counts.len() == self.cpus.len() || (self.counts.len() == 1 && description.is_empty());
        let is_text = !description.ends_with(b"\r");
        (is_whole && is_text && !name.is_empty()).then_some((name, description))
    }
}

/// The counts of the line in the last pass; none if it is new or has moved.
fn remember<'a>(
    lines: &'a mut Vec<Remembered>,
    nth: usize,
    name: &[u8],
    cpus: usize,
) -> Option<&'a mut Remembered> {
    if nth >= lines.len() {
        if (nth + 1).saturating_mul(cpus) > COUNTS_MAX {
            return None;
        }
        lines.resize_with(nth + 1, Remembered::default);
    }
    let line = lines.get_mut(nth)?;
    if *line.name != *name {
        *line = Remembered { name: name.into(), ..Remembered::default() };
    }
    Some(line)
}

impl Remembered {
    /// The CPU with the largest increase since the last pass. `NA` without an increase.
    fn busiest(&mut self, counts: &[i64], cpus: &[i64]) -> i64 {
        let mut busiest = (0, NA);
        if self.counts.len() == counts.len() && counts.len() == cpus.len() {
            for ((now, before), cpu) in counts.iter().zip(&self.counts).zip(cpus) {
                let increase = now.saturating_sub(*before);
                if increase > busiest.0 && *now != NA && *before != NA {
                    busiest = (increase, *cpu);
                }
            }
        }
        self.counts.clear();
        self.counts.extend_from_slice(counts);
        busiest.1
    }

    /// The description as a cell; runs of blanks become one.
    fn text(&mut self, description: &[u8], strings: &mut Strings) -> i64 {
        if description.is_empty() {
            return NA;
        }
        if *self.description != *description || self.text.is_none() {
            let text = String::from_utf8_lossy(description);
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            self.text = Some(strings.intern(&words.join(" ")));
            self.description = description.into();
        }
        self.text.map_or(NA, i64::from)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/interrupts").row_is(
            "LOC",
            "irq.count",
            4_000_000 + 4_100_000 + 4_200_000 + 4_300_000,
        );
        parsed("4.18", "proc/interrupts").row_is("25", "irq.count", 812_004);
        parsed("5.15", "proc/interrupts").row_text("9", "irq.description", "IO-APIC 9-fasteoi acpi");
        parsed("6.1", "proc/interrupts").row_is("NMI", "irq.count", 11 + 12);
        let mut s = parsed("6.18", "proc/interrupts");
        s.row_is("36", "irq.count", 86_790);
        s.row_is("LOC", "irq.count", 37_552 + 39_008);
        s.row_is("ERR", "irq.count", 0);
        s.row_text("36", "irq.description", "PCI-MSIX-0000:00:02.0 1-edge virtio1-req.0");
        s.row_none("36", "irq.busiest_cpu");
        s.again(b"  CPU0 CPU1\n 24: 2 0 x\n");
        s.row_is("24", "irq.busiest_cpu", 0);
    }

    #[test]
    fn damage() {
        let mut s = Sample::of("proc/interrupts", b" CPU1 CPU3\n 1: 5 6 a  b\nERR: 7\n");
        s.again(b" CPU1 CPU3\n 1: 5 9 a  b\n 1: 6 6 a\n 2: 5\n 3: 5 x\n4 1 2\n 5: 1 -2 c\n 6: 1 2 d\r\n : 1 2\n 7: 1 99999999999999999999 e\nERR: 7\n 8: 1 2 ");
        s.row_is("1", "irq.count", 14);
        s.row_is("1", "irq.busiest_cpu", 3);
        s.row_text("1", "irq.description", "a b");
        s.row_none("7", "irq.count");
        s.row_is("2", "irq.count", 5);
        s.row_is("ERR", "irq.count", 7);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (8, Some(3)));
        for bad in [&b""[..], b"\n1: 2\n", b" CPU0 x\n1: 2\n", b" CPU0\r\n1: 2\n"] {
            let s = Sample::of("proc/interrupts", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        // Other CPUs are online: increases of columns mean nothing.
        s.again(b" CPU1 CPU2\n 1: 6 99 a  b\n");
        s.row_none("1", "irq.busiest_cpu");
    }
}
