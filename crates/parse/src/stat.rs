//! `/proc/stat`: CPU time, interrupts, switches and forks.
//!
//! ```text
//! cpu  7494 0 3324 305949 1467 0 83 13 0 0
//! cpu0 3626 0 1196 153700 678 0 21 4 0 0
//! intr 257551 0 0 13 …
//! ctxt 488327
//! btime 1795254752
//! processes 8120
//! procs_running 2
//! procs_blocked 0
//! softirq 201032 0 24200 4 13203 86785 0 68 44236 0 32536
//! ```
//!
//! See `show_stat` in `fs/proc/stat.c`. Times are in `USER_HZ`; only CPUs that are online have a line.

use mitra_model::{Entity, Frame, Key, NA, Strings, Table};

use crate::Outcome;
use crate::column::Column;
use crate::rows::{Rows, lossy};
use crate::scan::{Lines, digits, number, numbers};

const TIMES: usize = 10;
/// Times that every kernel of 2.6 has: user to softirq. Since 2.6.11 there is steal.
const TIMES_MIN: usize = 7;

/// The parser of `/proc/stat`.
#[derive(Debug)]
pub struct Stat {
    cpus: Rows,
    system_times: [Column; TIMES],
    cpu_times: [Column; TIMES],
    online: Column,
    others: [(&'static [u8], Column); 7],
}

impl Default for Stat {
    fn default() -> Self {
        let other = |key: &'static [u8], name| (key, Column::of(name));
        let ignored = |key: &'static [u8]| (key, Column::NONE);
        Stat {
            cpus: Rows::default(),
            system_times: Column::list([
                "sys.cpu_user",
                "sys.cpu_nice",
                "sys.cpu_system",
                "sys.cpu_idle",
                "sys.cpu_iowait",
                "sys.cpu_irq",
                "sys.cpu_softirq",
                "sys.cpu_steal",
                "sys.cpu_guest",
                "sys.cpu_guest_nice",
            ]),
            cpu_times: Column::list([
                "cpu.user",
                "cpu.nice",
                "cpu.system",
                "cpu.idle",
                "cpu.iowait",
                "cpu.irq",
                "cpu.softirq",
                "cpu.steal",
                "cpu.guest",
                "cpu.guest_nice",
            ]),
            online: Column::of("sys.cpus_online"),
            others: [
                other(b"intr ", "sys.intr"),
                other(b"ctxt ", "sys.ctxt"),
                ignored(b"btime "),
                other(b"processes ", "sys.forks"),
                other(b"procs_running ", "sys.procs_running"),
                other(b"procs_blocked ", "sys.procs_blocked"),
                other(b"softirq ", "sys.softirq"),
            ],
        }
    }
}

impl Stat {
    /// Fills the system row and a row for each CPU.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let mut online = 0;
        let mut seen = 0_u32;
        frame.system_mut();
        self.cpus.begin(strings, frame.table(Entity::Cpu));
        while let Some(line) = lines.next(&mut outcome) {
            let read = if let Some(rest) = line.strip_prefix(b"cpu") {
                self.cpu(rest, &mut seen, strings, frame).inspect(|is_one| online += i64::from(*is_one))
            } else {
                self.other(line, &mut seen, frame.system_mut(), &mut outcome)
            };
            if read.is_none() {
                outcome.bad(lines.number());
            }
            // The line of interrupts follows those of all CPUs and of each, unless one of them was damaged.
            let is_complete = outcome.is_clean() && i64::from(lines.number()) == online + 2;
            if is_complete && line.starts_with(b"intr ") {
                self.online.set(frame.system_mut(), online);
            }
        }
        outcome
    }

    /// The rest of a line after `cpu`; returns whether it is of one CPU and not of all.
    fn cpu(&mut self, rest: &[u8], seen: &mut u32, strings: &mut Strings, frame: &mut Frame) -> Option<bool> {
        let is_one = !rest.starts_with(b" ");
        let name_length = if is_one { rest.len() - digits(rest)?.1.len() } else { 0 };
        let (name, times) = rest.split_at_checked(name_length)?;
        let mut values = [NA; TIMES];
        if !times.starts_with(b" ") || numbers(times, &mut values)? < TIMES_MIN {
            return None;
        }
        let (row, columns) = if is_one {
            let table = frame.table_mut(Entity::Cpu);
            (self.cpus.row(name, lossy, strings, table)?, &self.cpu_times)
        } else {
            let again = *seen & ALL_CPUS != 0;
            *seen |= ALL_CPUS;
            if again {
                return None;
            }
            (frame.system_mut(), &self.system_times)
        };
        for (column, value) in columns.iter().zip(values) {
            column.set(row, value);
        }
        values.iter().take(TIMES_MIN).all(|value| *value != NA).then_some(is_one)
    }

    /// Any other line; only the first number is read.
    fn other(&self, line: &[u8], seen: &mut u32, row: &mut [i64], outcome: &mut Outcome) -> Option<bool> {
        for (bit, (key, column)) in self.others.iter().enumerate() {
            if let Some(rest) = line.strip_prefix(*key) {
                let (value, more) = number(rest)?;
                let is_whole = more.is_empty() || more.last().is_some_and(u8::is_ascii_digit);
                if !is_whole || *seen & 1 << bit != 0 {
                    return None;
                }
                *seen |= 1 << bit;
                column.set(row, value);
                return (value != NA).then_some(false);
            }
        }
        let space = line.iter().position(|b| *b == b' ')?;
        number(line.get(space..)?)?;
        outcome.unknown_keys += 1;
        Some(false)
    }
}

/// The bit of the line of all CPUs in the set of lines that were seen.
const ALL_CPUS: u32 = 1 << 31;

/// The row of the n-th CPU that is online, for files that list values of CPUs without saying which.
pub(crate) fn online_cpu(table: &Table, n: usize) -> Option<Key> {
    table.keys().get(n).copied()
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/stat");
        s.is("sys.cpu_user", 1_234_567);
        s.is("sys.cpu_guest_nice", 0);
        s.row_is("3", "cpu.idle", 9_812_004);
        s.is("sys.cpus_online", 4);
        s.is("sys.forks", 812_345);
        let s = parsed("4.18", "proc/stat");
        s.is("sys.ctxt", 918_273_645);
        s.row_is("1", "cpu.steal", 77);
        let s = parsed("5.15", "proc/stat");
        s.row_is("5", "cpu.user", 200_125);
        s.is("sys.cpus_online", 3);
        let s = parsed("6.1", "proc/stat");
        s.is("sys.softirq", 70_911_233);
        let s = parsed("6.18", "proc/stat");
        s.is("sys.cpu_user", 7_494);
        s.is("sys.cpu_steal", 13);
        s.is("sys.intr", 257_551);
        s.is("sys.procs_running", 2);
        s.row_is("1", "cpu.user", 3_868);
        s.row_is("1", "cpu.softirq", 62);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/stat",
            b"cpu  1 2 3 4 5 6 7 8\ncpu  1 2 3 4 5 6 7 8 9\ncpu0 1 2 3\ncpu1 1 2 3 4 5 6 7 x\ncpu2 1 2 3 4 5 6 7 8\n\
              cpu2 1 2 3 4 5 6 7 8\ncpuX 1 2 3 4 5 6 7 8\ncpu3x 1 2 3 4 5 6 7 8\nctxt -5\nctxt 6\nintr\nnew 5\nprocesses 7",
        );
        s.is("sys.cpu_steal", 8);
        s.row_is("2", "cpu.steal", 8);
        s.is("sys.ctxt", 6);
        s.none("sys.cpu_guest");
        s.none("sys.cpus_online");
        s.none("sys.forks");
        s.count(8 + 8 + 1);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (9, Some(2), 1));
    }
}
