//! What the recorder costs.

use mitra_model::NA;

use crate::cells::{cell, col, set};
use crate::file::{Buffer, KeptFile, LINK_BYTES, Root, link};
use crate::ticker::Tick;

/// The recorder's own figures.
#[derive(Debug)]
pub struct SelfMetrics {
    statm: KeptFile,
    pid: usize,
    /// Its id as the machine's `/proc` has it, once it was read.
    own_pid: Option<i64>,
    cpu_time: usize,
    rss: usize,
    sample_time: usize,
    tick_late: usize,
    missed_ticks: usize,
    written_bytes: usize,
    waiting_bytes: usize,
    lost_samples: usize,
    disk_errors: usize,
    shed_level: usize,
    parse_errors: usize,
    /// How long the last sample took, in nanoseconds.
    pub sample_ns: Option<i64>,
    /// Lateness and misses of the tick that this sample belongs to.
    pub tick: Option<Tick>,
    /// Ticks missed since the start.
    pub missed: u64,
    /// What the archive was given, if there is one.
    pub archive: Option<ArchiveState>,
}

/// How the archive does that the samples are given to.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArchiveState {
    /// Bytes written since the start.
    pub written_bytes: u64,
    /// Bytes that wait for the disk.
    pub waiting_bytes: u64,
    /// Samples since the start that were not taken, or not kept.
    pub lost_samples: u64,
    /// Errors of the disk since the start.
    pub disk_errors: u64,
}

impl SelfMetrics {
    pub fn new() -> Self {
        SelfMetrics {
            statm: KeptFile::new("proc/self/statm"),
            pid: col("mitra.pid"),
            own_pid: None,
            cpu_time: col("mitra.cpu_time"),
            rss: col("mitra.rss"),
            sample_time: col("mitra.sample_time"),
            tick_late: col("mitra.tick_late"),
            missed_ticks: col("mitra.missed_ticks"),
            written_bytes: col("mitra.written_bytes"),
            waiting_bytes: col("mitra.waiting_bytes"),
            lost_samples: col("mitra.lost_samples"),
            disk_errors: col("mitra.disk_errors"),
            shed_level: col("mitra.shed_level"),
            parse_errors: col("mitra.parse_errors"),
            sample_ns: None,
            tick: None,
            missed: 0,
            archive: None,
        }
    }

    /// Resident memory in bytes; the second number of `statm`, in pages.
    pub fn rss_bytes(&mut self, machine: &Root, buffer: &mut Buffer) -> Option<u64> {
        if self.own_pid.is_none() {
            let own = link(machine.fd(), "proc/self", &mut [0; LINK_BYTES]).map(<[u8]>::to_vec);
            self.own_pid = own.and_then(|own| String::from_utf8(own).ok()?.parse().ok());
        }
        let bytes = self.statm.read(machine, buffer).ok()?;
        let pages = std::str::from_utf8(bytes).ok()?.split(' ').nth(1)?.trim().parse::<u64>().ok()?;
        pages.checked_mul(rustix::param::page_size() as u64)
    }

    /// Fills the cells.
    pub fn fill(&self, row: &mut [i64], cpu_ns: i64, rss: Option<u64>, shed_level: i64, parse_errors: i64) {
        set(row, self.pid, self.own_pid.unwrap_or(NA));
        set(row, self.cpu_time, cpu_ns / 1_000);
        set(row, self.rss, rss.map_or(NA, cell));
        set(row, self.sample_time, self.sample_ns.map_or(NA, |ns| ns / 1_000));
        let late = self.tick.map(|tick| i64::try_from(tick.late.as_micros()).unwrap_or(i64::MAX));
        set(row, self.tick_late, late.unwrap_or(NA));
        set(row, self.missed_ticks, cell(self.missed));
        set(row, self.written_bytes, self.archive.map_or(NA, |archive| cell(archive.written_bytes)));
        set(row, self.waiting_bytes, self.archive.map_or(NA, |archive| cell(archive.waiting_bytes)));
        set(row, self.lost_samples, self.archive.map_or(NA, |archive| cell(archive.lost_samples)));
        set(row, self.disk_errors, self.archive.map_or(NA, |archive| cell(archive.disk_errors)));
        set(row, self.shed_level, shed_level);
        set(row, self.parse_errors, parse_errors);
    }
}
