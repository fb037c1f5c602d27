//! The other files of a task: `status`, `io`, `schedstat` and `cgroup` below `/proc/PID` or `/proc/PID/task/TID`.
//!
//! ```text
//! Tgid: 8146
//! RssAnon:      112 kB
//! Cpus_allowed: 3
//! voluntary_ctxt_switches: 0
//! ```
//! ```text
//! rchar: 8677
//! read_bytes: 0
//! ```
//! ```text
//! 878542 1799513 2
//! ```
//! ```text
//! 4:memory:/web
//! 0::/web.slice
//! ```
//!
//! See `Documentation/filesystems/proc.rst`, `proc_pid_status(5)` and `cgroups(7)`.

use mitra_model::{NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::keyed::{Keyed, until};
use crate::scan::{Lines, digits, hex, numbers, only_number, skip_blanks, split_line};
use crate::task::TaskColumns;

/// The parser of these files, for all tasks.
#[derive(Debug)]
pub struct TaskFiles {
    columns: TaskColumns,
    page_bytes: i64,
    status: Keyed<Option<Line>>,
    io: Keyed<Option<Column>>,
}

/// The meaning of a line of `status`.
#[derive(Debug, Clone, Copy)]
enum Line {
    Number(Column),
    /// A size in KiB, stored in pages.
    Size(Column),
    CpusAllowed,
}

impl TaskFiles {
    /// For a machine with pages of that size.
    #[must_use]
    pub fn new(page_bytes: u64) -> Self {
        TaskFiles {
            columns: TaskColumns::default(),
            page_bytes: i64::try_from(page_bytes).unwrap_or(NA).max(1),
            status: Keyed::default(),
            io: Keyed::default(),
        }
    }

    /// The columns, for `stat`.
    #[must_use]
    pub fn columns(&self) -> &TaskColumns {
        &self.columns
    }

    /// Fills the row from `status`. Sizes are of the process, so they are wanted for its leader only. Kernels before 4.5
    /// have one size for anonymous and file pages.
    pub fn status(&mut self, input: &[u8], with_sizes: bool, row: &mut [i64]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let columns = &self.columns;
        self.status.begin();
        while let Some(line) = lines.next(&mut outcome) {
            let found = self.status.find(
                line,
                |line| Some(line.iter().position(|b| *b == b':')? + 1),
                |key| {
                    Some(match key {
                        b"Tgid:" => Line::Number(columns.tgid),
                        b"voluntary_ctxt_switches:" => Line::Number(columns.nvcsw),
                        b"nonvoluntary_ctxt_switches:" => Line::Number(columns.nivcsw),
                        b"RssAnon:" => Line::Size(columns.rss_anon),
                        b"RssFile:" => Line::Size(columns.rss_file),
                        b"RssShmem:" => Line::Size(columns.rss_shmem),
                        b"VmSwap:" => Line::Size(columns.swap),
                        b"Cpus_allowed:" => Line::CpusAllowed,
                        _ => return None,
                    })
                },
            );
            let Some(found) = found else {
                outcome.bad(lines.number());
                continue;
            };
            let Some(kind) = found.slot else { continue };
            let is_good = !found.again
                && match kind {
                    Line::Number(column) => set(column, only_number(found.rest), row),
                    Line::Size(_) if !with_sizes => true,
                    Line::Size(column) => set(column, pages(found.rest, self.page_bytes), row),
                    Line::CpusAllowed => match mask(found.rest) {
                        Some((mask, count)) => {
                            columns.cpus_allowed.set(row, mask);
                            columns.cpus_allowed_count.set(row, count);
                            true
                        }
                        None => false,
                    },
                };
            if !is_good {
                outcome.bad(lines.number());
            }
        }
        outcome
    }

    /// Fills the row from `io`.
    pub fn io(&mut self, input: &[u8], row: &mut [i64]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut lines = Lines::new(input);
        let columns = &self.columns.io;
        self.io.begin();
        while let Some(line) = lines.next(&mut outcome) {
            let found = self.io.find(line, until(b' '), |key| {
                let names: [&[u8]; 7] = [
                    b"rchar: ",
                    b"wchar: ",
                    b"syscr: ",
                    b"syscw: ",
                    b"read_bytes: ",
                    b"write_bytes: ",
                    b"cancelled_write_bytes: ",
                ];
                columns.get(names.iter().position(|name| *name == key)?).copied()
            });
            let value = found.as_ref().and_then(|found| only_number(found.rest));
            match (found, value) {
                (Some(found), Some(value)) if let Some(column) = found.slot => {
                    if found.again || !set(column, Some(value), row) {
                        outcome.bad(lines.number());
                    }
                }
                (Some(found), Some(_)) if found.slot.is_none() => outcome.unknown_keys += 1,
                _ => outcome.bad(lines.number()),
            }
        }
        outcome
    }

    /// Fills the row from `schedstat`: time on a CPU and time runnable, in nanoseconds.
    pub fn schedstat(&self, input: &[u8], row: &mut [i64]) -> Outcome {
        match times(input) {
            Some((on_cpu, delay)) if on_cpu != NA && delay != NA => {
                self.columns.cpu_time.set(row, on_cpu / 1000);
                self.columns.run_delay.set(row, delay / 1000);
                Outcome::default()
            }
            _ => Outcome::bad_file(),
        }
    }

    /// Fills the control group from `cgroup`.
    pub fn cgroup(&self, input: &[u8], strings: &mut Strings, row: &mut [i64]) -> Outcome {
        let (path, outcome) = cgroup_path(input);
        if let Some(path) = path {
            self.columns.cgroup.set(row, i64::from(strings.intern(&String::from_utf8_lossy(path))));
        }
        outcome
    }
}

/// Writes a number; returns whether it could be read and fits.
fn set(column: Column, value: Option<i64>, row: &mut [i64]) -> bool {
    let Some(value) = value.filter(|value| *value != NA) else { return false };
    column.set(row, value);
    true
}

/// A size such as `     112 kB` in pages.
fn pages(text: &[u8], page_bytes: i64) -> Option<i64> {
    let (kib, rest) = digits(skip_blanks(text))?;
    (rest == b" kB" && kib != NA).then_some(())?;
    Some(kib.checked_mul(1024)? / page_bytes)
}

/// A mask such as `\tff` or `\t00000001,ffffffff`: its bits 0 to 62, and how many bits it has.
fn mask(text: &[u8]) -> Option<(i64, i64)> {
    let text = skip_blanks(text);
    let (mut low, mut count) = (0_u64, 0_i64);
    for (position, group) in text.rsplit(|b| *b == b',').enumerate() {
        let (bits, []) = hex(group)? else { return None };
        let bits = u32::try_from(bits).ok()?;
        count += i64::from(bits.count_ones());
        if position < 2 {
            low |= u64::from(bits) << (32 * position);
        }
    }
    Some((i64::try_from(low & u64::try_from(i64::MAX).unwrap_or(0)).ok()?, count))
}

fn times(input: &[u8]) -> Option<(i64, i64)> {
    let (line, []) = split_line(input)? else { return None };
    let mut values = [NA; 4];
    let [on_cpu, delay, _, _] = (numbers(line, &mut values)? == 3).then_some(values)?;
    Some((on_cpu, delay))
}

/// The path of the cgroup v2, or of the v1 cpu or memory controller if that is the root.
#[must_use]
pub fn cgroup_path(input: &[u8]) -> (Option<&[u8]>, Outcome) {
    let mut outcome = Outcome::default();
    let mut lines = Lines::new(input);
    let (mut unified, mut cpu, mut memory) = (None, None, None);
    while let Some(line) = lines.next(&mut outcome) {
        let Some((hierarchy, controllers, path)) = membership(line) else {
            outcome.bad(lines.number());
            continue;
        };
        let mut controllers = controllers.split(|b| *b == b',');
        if hierarchy == 0 {
            unified.get_or_insert(path);
        } else if controllers.clone().any(|name| name == b"cpu") {
            cpu.get_or_insert(path);
        } else if controllers.any(|name| name == b"memory") {
            memory.get_or_insert(path);
        }
    }
    let is_below_root = |path: &&[u8]| *path != b"/";
    let path = unified.filter(is_below_root).or(cpu.filter(is_below_root)).or(memory.filter(is_below_root));
    (path.or(unified).or(cpu).or(memory), outcome)
}

/// Number of the hierarchy, its controllers and the path of `4:memory:/web`.
fn membership(line: &[u8]) -> Option<(i64, &[u8], &[u8])> {
    let (hierarchy, rest) = digits(line)?;
    let rest = rest.strip_prefix(b":")?;
    let colon = rest.iter().position(|b| *b == b':')?;
    let (controllers, path) = rest.split_at_checked(colon)?;
    let path = path.strip_prefix(b":")?;
    path.starts_with(b"/").then_some((hierarchy, controllers, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Cells, fixture};

    #[test]
    fn each_kernel() {
        let mut files = TaskFiles::new(4096);
        let mut cells = Cells::task();
        assert!(files.status(fixture("6.18", "proc/4242/status"), true, &mut cells.row).is_clean());
        cells.is("task.tgid", 4242);
        cells.is("task.rss_anon", 28);
        cells.is("task.rss_file", 416);
        cells.is("task.cpus_allowed", 3);
        cells.is("task.cpus_allowed_count", 2);
        cells.is("task.nivcsw", 1);
        assert!(files.io(fixture("6.18", "proc/4242/io"), &mut cells.row).is_clean());
        cells.is("task.rchar", 8_677);
        cells.is("task.syscw", 2);
        assert!(files.schedstat(fixture("6.18", "proc/4242/schedstat"), &mut cells.row).is_clean());
        cells.is("task.cpu_time", 878);
        cells.is("task.run_delay", 1_799);
        files.cgroup(fixture("6.18", "proc/4242/cgroup"), &mut cells.strings, &mut cells.row);
        cells.text_is("task.cgroup", "/web");

        let mut cells = Cells::task();
        assert!(files.status(fixture("3.10", "proc/4242/status"), true, &mut cells.row).is_clean());
        cells.none("task.rss_anon");
        cells.is("task.swap", 1_204 / 4);
        cells.is("task.nvcsw", 812_004);
        files.cgroup(fixture("3.10", "proc/4242/cgroup"), &mut cells.strings, &mut cells.row);
        cells.text_is("task.cgroup", "/system.slice/tomcat.service");

        let mut cells = Cells::task();
        assert!(files.status(fixture("5.15", "proc/4242/status"), false, &mut cells.row).is_clean());
        cells.none("task.rss_anon");
        cells.is("task.cpus_allowed_count", 72);
        cells.is("task.cpus_allowed", i64::MAX);
        files.cgroup(fixture("5.15", "proc/4242/cgroup"), &mut cells.strings, &mut cells.row);
        cells.text_is("task.cgroup", "/user.slice/user-1000.slice");

        let mut cells = Cells::task();
        assert!(files.io(fixture("4.18", "proc/4242/io"), &mut cells.row).is_clean());
        cells.is("task.cancelled_write_bytes", 4_096);
        assert!(files.schedstat(fixture("6.1", "proc/4242/schedstat"), &mut cells.row).is_clean());
        cells.is("task.cpu_time", 99_120_331);
    }

    #[test]
    fn damaged_status() {
        let mut files = TaskFiles::new(4096);
        let mut cells = Cells::task();
        let outcome = files.status(
            b"Name:\ta: b\nTgid:\t5\nTgid:\t6\nRssAnon:\t8 MB\nRssFile:\t-8 kB\nCpus_allowed:\tx\nVmSwap:\t4 kB\r\n\
              RssShmem:\t99999999999999999999 kB\nno colon\nvoluntary_ctxt_switches:\t1",
            true,
            &mut cells.row,
        );
        cells.is("task.tgid", 5);
        cells.count(1);
        assert_eq!((outcome.bad_lines, outcome.first_bad), (8, Some(3)));
        assert_eq!(mask(b"ffffffff,00000001"), Some((0x7fff_ffff_0000_0001, 33)));
        assert_eq!(mask(b"1,00000000,00000003"), Some((3, 3)));
        assert_eq!(mask(b"1ffffffff"), None);
        assert_eq!(mask(b""), None);
        assert_eq!(mask(b"3,"), None);
    }

    #[test]
    fn damaged_others() {
        let mut files = TaskFiles::new(4096);
        let mut cells = Cells::task();
        let outcome = files.io(
            b"rchar: 5\nrchar: 6\nwchar: -1\nsyscr:\nsyscw: 1\r\nnovel: 5\nread_bytes: 7",
            &mut cells.row,
        );
        cells.is("task.rchar", 5);
        cells.count(1);
        assert_eq!((outcome.bad_lines, outcome.unknown_keys), (5, 1));
        for bad in [
            &b""[..],
            b"1 2 3",
            b"1 2\n",
            b"1 2 3 4\n",
            b"1 -2 3\n",
            b"1 2 3\r\n",
            b"99999999999999999999 2 3\n",
        ] {
            assert_eq!(files.schedstat(bad, &mut cells.row).bad_lines, 1);
        }
        cells.count(1);
        let (path, outcome) = cgroup_path(b"x::/a\n0:/b\n0::c\n2:cpu,cpuacct:/d\n0::/e");
        assert_eq!((path, outcome.bad_lines), (Some(&b"/d"[..]), 4));
        assert_eq!(cgroup_path(b"").0, None);
        assert_eq!(cgroup_path(b"0::/\n2:cpu:/\n").0, Some(&b"/"[..]));
    }
}
