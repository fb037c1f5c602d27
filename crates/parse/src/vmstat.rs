//! `/proc/vmstat`: levels and events of the memory management, one a line.
//!
//! ```text
//! nr_free_pages 1028865
//! pgpgin 14470481
//! pgscan_kswapd 0
//! ```
//!
//! The kernel's list is `vmstat_text` in `mm/vmstat.c`; each name is a metric `vm.NAME`.

use mitra_model::{Frame, NA, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::keyed::{Keyed, until};
use crate::scan::{digits, split_line};

/// The parser of `/proc/vmstat`.
#[derive(Debug, Default)]
pub struct VmStat {
    keys: Keyed<Option<Column>>,
}

impl VmStat {
    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], _: &mut Strings, frame: &mut Frame) -> Outcome {
        let classify = |key: &[u8]| Column::in_area("vm", key.strip_suffix(b" ")?);
        lines_of_numbers(&mut self.keys, input, classify, frame.system_mut(), |value| value)
    }
}

/// Reads lines of a key, one space and a number, each into the column that its key stands for.
///
/// Control groups have several files of this form.
pub(crate) fn lines_of_numbers(
    keys: &mut Keyed<Option<Column>>,
    input: &[u8],
    classify: impl Fn(&[u8]) -> Option<Column>,
    row: &mut [i64],
    convert: impl Fn(i64) -> i64,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rest = input;
    let mut line = 0;
    keys.begin();
    while !rest.is_empty() {
        line += 1;
        if let Some(found) = keys.find(rest, until(b' '), &classify)
            && let Some((value, [b'\n', tail @ ..])) = digits(found.rest)
        {
            rest = tail;
            match found.slot {
                Some(_) if found.again => outcome.bad(line),
                Some(column) => {
                    column.set(row, convert(value));
                    if value == NA {
                        outcome.bad(line);
                    }
                }
                None => outcome.unknown_keys += 1,
            }
        } else {
            outcome.bad(line);
            rest = split_line(rest).map_or(&[], |(_, tail)| tail);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        let s = parsed("3.10", "proc/vmstat");
        s.is("vm.nr_free_pages", 311_042);
        s.is("vm.pgscan_kswapd_normal", 8_812_004);
        s.is("vm.allocstall", 1_288);
        s.is("vm.nr_tlb_remote_flush", 91_331);
        s.none("vm.pgscan_kswapd");
        let s = parsed("4.18", "proc/vmstat");
        s.is("vm.allocstall_normal", 512);
        s.is("vm.workingset_refault", 77_120);
        s.is("vm.oom_kill", 1);
        s.none("vm.workingset_refault_file");
        let s = parsed("5.15", "proc/vmstat");
        s.is("vm.workingset_refault_file", 2_218_904);
        s.is("vm.pgdemote_kswapd", 0);
        s.none("vm.pgscan_khugepaged");
        let s = parsed("6.1", "proc/vmstat");
        s.is("vm.zswpin", 0);
        s.is("vm.thp_scan_exceed_none_pte", 4);
        let s = parsed("6.18", "proc/vmstat");
        s.is("vm.nr_free_pages_blocks", 905_728);
        s.is("vm.pgpgin", 14_470_481);
        s.is("vm.direct_map_level2_splits", 3);
    }

    #[test]
    fn damage() {
        let mut s =
            Sample::of("proc/vmstat", b"pgpgin 5\npgpgout  7\npswpin -1\npswpout 3\r\npgfault\n\npgfree 8\n");
        s.is("vm.pgpgin", 5);
        s.is("vm.pgfree", 8);
        s.count(2);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad), (5, Some(2)));
        s.again(b"pgpgin 6\npgpgin 7\npgfault 99999999999999999999\nno_such_key 4\npgfree 1");
        s.is("vm.pgpgin", 6);
        s.count(1);
        assert_eq!((s.outcome.bad_lines, s.outcome.first_bad, s.outcome.unknown_keys), (3, Some(2), 1));
    }
}
