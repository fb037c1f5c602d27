//! Counters of a whole process: `/proc/PID/status` (proc(5)).
//!
//! ```text
//! VmHWM: 15300 kB
//! VmRSS: 15300 kB
//! RssAnon: 12944 kB
//! VmSwap: 764 kB
//! Threads: 1
//! ```

use std::fs;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Memory counters of a process. Since Linux 6.2 each CPU caches a few pages, so that the counters
/// and the page tables differ by up to 32 pages for each CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTotals {
    /// `VmSize`: addresses.
    pub virtual_bytes: Option<u64>,
    /// `VmRSS`.
    pub rss_bytes: Option<u64>,
    /// `VmHWM`: the peak of `VmRSS`.
    pub rss_max_bytes: Option<u64>,
    /// `RssAnon`.
    pub rss_anon_bytes: Option<u64>,
    /// `RssFile`.
    pub rss_file_bytes: Option<u64>,
    /// `RssShmem`.
    pub rss_shmem_bytes: Option<u64>,
    /// `VmSwap`.
    pub swap_bytes: Option<u64>,
    /// `VmPTE`: the page tables themselves.
    pub page_tables_bytes: Option<u64>,
    /// `HugetlbPages`, not part of the resident set.
    pub hugetlb_bytes: Option<u64>,
    /// `VmLck`: locked into memory.
    pub locked_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

pub(super) fn read(pid: u32) -> Result<ProcessTotals, Error> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read(&path).map_err(|e| match Error::of_process(pid, path, e) {
        // The process existed when it was opened.
        Error::NoProcess { pid } => Error::Ended { pid },
        error => error,
    })?;
    Ok(parse(&String::from_utf8_lossy(&text)))
}

pub(super) fn parse(text: &str) -> ProcessTotals {
    let mut totals = ProcessTotals::default();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let field = match name {
            "VmSize" => &mut totals.virtual_bytes,
            "VmRSS" => &mut totals.rss_bytes,
            "VmHWM" => &mut totals.rss_max_bytes,
            "RssAnon" => &mut totals.rss_anon_bytes,
            "RssFile" => &mut totals.rss_file_bytes,
            "RssShmem" => &mut totals.rss_shmem_bytes,
            "VmSwap" => &mut totals.swap_bytes,
            "VmPTE" => &mut totals.page_tables_bytes,
            "HugetlbPages" => &mut totals.hugetlb_bytes,
            "VmLck" => &mut totals.locked_bytes,
            "Threads" => &mut totals.threads,
            _ => continue,
        };
        let value = value.trim();
        let (number, scale) = match value.strip_suffix(" kB") {
            Some(number) => (number.trim(), 1024),
            None => (value, 1),
        };
        *field = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_bytes_and_what_is_missing_is_none() {
        let totals =
            parse("Name:\tVmRSS\nVmRSS:\t   15300 kB\nVmSwap:\t      764 kB\nThreads:\t3\nVmHWM:\tmuch kB\n");
        assert_eq!(totals.rss_bytes, Some(15_300 << 10));
        assert_eq!(totals.swap_bytes, Some(764 << 10));
        assert_eq!((totals.threads, totals.rss_anon_bytes, totals.rss_max_bytes), (Some(3), None, None));
    }
}
