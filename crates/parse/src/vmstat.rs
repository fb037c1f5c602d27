//! `/proc/vmstat`: levels and events of the memory management, one a line.
//!
//! ```text
//! nr_free_pages 1028865
//! pgpgin 14470481
//! pgscan_kswapd 0
//! ```
//!
//! The kernel's list is `vmstat_text` in `mm/vmstat.c`; each name is a metric `vm.NAME`.

use mitra_model::{Frame, Strings};

use crate::Outcome;
use crate::column::Column;
use crate::flat_keyed::lines_of_numbers;
use crate::keyed::Keyed;

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
