//! `/proc/meminfo`: the memory of the whole machine.
//!
//! ```text
//! MemTotal:       24684084 kB
//! MemFree:        23857464 kB
//! Active(anon):       1580 kB
//! HugePages_Total:       0
//! ```
//!
//! See `Documentation/filesystems/proc.rst` and `meminfo_proc_show` in `fs/proc/meminfo.c`. `kB` are KiB.

use mitra_model::{Frame, NA, Strings, lookup, metrics};

use crate::Outcome;
use crate::column::Column;
use crate::keyed::{Keyed, until};
use crate::scan::{digits, skip_blanks, split_line};

/// The source of metrics from this file begins with this.
const SOURCE: &str = "/proc/meminfo:";

/// The parser of `/proc/meminfo`.
#[derive(Debug, Default)]
pub struct MemInfo {
    keys: Keyed<Option<Field>>,
}

/// A line that the metric table has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) column: Column,
    /// The text between the number and the end of the line.
    pub(crate) suffix: &'static [u8],
}

impl Field {
    pub(crate) fn of(name: &str) -> Option<Field> {
        let in_kib = lookup(name)?.unit == mitra_model::Unit::KiB;
        Some(Field { column: Column::find(name)?, suffix: if in_kib { b" kB\n" } else { b"\n" } })
    }

    /// A size that is not wanted.
    pub(crate) fn left_out() -> Field {
        Field { column: Column::NONE, suffix: b" kB\n" }
    }
}

impl MemInfo {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        parse_fields(&mut self.keys, input, until(b':'), field, frame.system_mut())
    }
}

/// The field of a key such as `MemTotal:`. The metric table says from which line each metric comes.
pub(crate) fn field(key: &[u8]) -> Option<Field> {
    let key = key.strip_suffix(b":")?;
    let is_it = |source: &str| source.strip_prefix(SOURCE).is_some_and(|name| name.as_bytes() == key);
    Field::of(metrics::table("meminfo").iter().find(|metric| is_it(metric.source))?.name)
}

/// Reads lines of a key, blanks, a number and perhaps a unit.
pub(crate) fn parse_fields(
    keys: &mut Keyed<Option<Field>>,
    input: &[u8],
    key_length: impl Fn(&[u8]) -> Option<usize>,
    classify: impl Fn(&[u8]) -> Option<Field>,
    row: &mut [i64],
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rest = input;
    let mut line = 0;
    keys.begin();
    while !rest.is_empty() {
        line += 1;
        let found = keys.find(rest, &key_length, &classify);
        let parts = found.and_then(|found| Some((found.slot, found.again, digits(skip_blanks(found.rest))?)));
        rest = match parts {
            Some((Some(field), again, (value, tail))) if let Some(tail) = tail.strip_prefix(field.suffix) => {
                if again {
                    outcome.bad(line);
                } else {
                    field.column.set(row, value);
                    if value == NA {
                        outcome.bad(line);
                    }
                }
                tail
            }
            Some((None, _, (_, [b'\n', tail @ ..] | [b' ', b'k', b'B', b'\n', tail @ ..]))) => {
                outcome.unknown_keys += 1;
                tail
            }
            _ => {
                outcome.bad(line);
                split_line(rest).map_or(&[], |(_, tail)| tail)
            }
        };
    }
    outcome
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/meminfo");
        s.is("mem.total", 3_881_512);
        s.is("mem.available", 2_264_388);
        s.is("mem.vmalloc_used", 182_336);
        s.none("mem.shmem_huge");
        let s = parsed("4.18", "proc/meminfo");
        s.is("mem.shmem_pmd_mapped", 0);
        s.is("mem.hugetlb", 0);
        s.none("mem.file_huge");
        let s = parsed("5.15", "proc/meminfo");
        s.is("mem.kreclaimable", 512_224);
        s.none("mem.zswap");
        let s = parsed("6.1", "proc/meminfo");
        s.is("mem.sec_page_tables", 1_024);
        s.is("mem.cma_free", 32_128);
        let s = parsed("6.18", "proc/meminfo");
        s.is("mem.total", 24_684_084);
        s.is("mem.active_anon", 1_580);
        s.is("mem.balloon", 0);
        s.is("mem.huge_page_size", 2_048);
        s.is("mem.direct_map_1g", 25_165_824);
    }

    #[test]
    fn damage() {
        let s = Sample::of(
            "proc/meminfo",
            b"MemTotal: 5\nMemFree: 6 kB\nBuffers: 7 kB\r\nCached: -1 kB\nMemFree: 9 kB\nHugePages_Total: 3 kB\n\
              HugePages_Free: 4\nSwapCached: 8 MB\nNew: 5 kB\nNewer: 6\nNo number: kB\nDirty: 12 kB",
        );
        s.is("mem.free", 6);
        s.is("mem.huge_free", 4);
        s.count(2);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (8, Some(1), 2));
    }
}
