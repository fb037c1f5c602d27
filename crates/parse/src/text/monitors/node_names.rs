//! Names of Prometheus' exporters: of node_exporter for the machine, and of cAdvisor for control groups.

use std::collections::HashMap;
use std::sync::OnceLock;

use mitra_model::{Metric, metrics};

use super::wide::{Cell, Names, find, names};
use crate::text::prelude::*;

/// Metrics of the machine; times are in seconds and sizes in bytes, as here.
#[rustfmt::skip]
const MACHINE: &[Names] = &[
    names(Form::Total, 1.0, pairs!(
        "node_context_switches_total sys.ctxt  node_forks_total sys.forks  node_intr_total sys.intr
         node_pressure_cpu_waiting_seconds_total psi.cpu_some  node_pressure_io_waiting_seconds_total psi.io_some
         node_pressure_io_stalled_seconds_total psi.io_full  node_pressure_memory_waiting_seconds_total psi.memory_some
         node_pressure_memory_stalled_seconds_total psi.memory_full  node_pressure_irq_stalled_seconds_total psi.irq_full"
    )),
    names(Form::Level, 1.0, pairs!(
        "node_load1 sys.load1  node_load5 sys.load5  node_load15 sys.load15  node_procs_running sys.procs_running
         node_procs_blocked sys.procs_blocked  node_nf_conntrack_entries conntrack.count
         node_nf_conntrack_entries_limit conntrack.max  node_filefd_allocated files.nr  node_filefd_maximum files.max"
    )),
];
/// Behind `node_disk_`, with the label `device`.
#[rustfmt::skip]
const DISKS: &[Names] = &[
    names(Form::Total, 1.0, pairs!(
        "reads_completed_total disk.reads  reads_merged_total disk.read_merges  read_bytes_total disk.read_bytes
         read_time_seconds_total disk.read_time  writes_completed_total disk.writes  writes_merged_total disk.write_merges
         written_bytes_total disk.write_bytes  write_time_seconds_total disk.write_time  io_time_seconds_total disk.io_time
         io_time_weighted_seconds_total disk.weighted_time  discards_completed_total disk.discards
         discards_merged_total disk.discard_merges  discard_time_seconds_total disk.discard_time
         flush_requests_total disk.flushes  flush_requests_time_seconds_total disk.flush_time"
    )),
    names(Form::Total, 512.0, pairs!("discarded_sectors_total disk.discard_bytes")),
    names(Form::Level, 1.0, pairs!("io_now disk.in_flight")),
];
/// Behind `node_network_`, with the label `device`.
const NICS: &[Names] = &[names(
    Form::Total,
    1.0,
    pairs!(
        "receive_bytes_total nic.rx_bytes  receive_packets_total nic.rx_packets  receive_errs_total nic.rx_errs
         receive_drop_total nic.rx_drop  receive_fifo_total nic.rx_fifo  receive_frame_total nic.rx_frame
         receive_multicast_total nic.rx_multicast  transmit_bytes_total nic.tx_bytes  transmit_packets_total nic.tx_packets
         transmit_errs_total nic.tx_errs  transmit_drop_total nic.tx_drop  transmit_fifo_total nic.tx_fifo
         transmit_colls_total nic.tx_colls  transmit_carrier_total nic.tx_carrier"
    ),
)];
/// Behind `node_filesystem_`, with the label `mountpoint`.
const FILESYSTEMS: &[Names] = &[names(
    Form::Level,
    1.0,
    pairs!(
        "size_bytes fs.total_bytes  free_bytes fs.free_bytes  avail_bytes fs.avail_bytes  files fs.inodes
         files_free fs.inodes_free"
    ),
)];
/// Behind `node_softnet_`, with the label `cpu`.
const SOFTNET: &[Names] = &[names(
    Form::Total,
    1.0,
    pairs!(
        "processed_total softnet.processed  dropped_total softnet.dropped  times_squeezed_total softnet.time_squeeze"
    ),
)];
/// Behind `container_`, with the label `id`.
#[rustfmt::skip]
const CGROUPS: &[Names] = &[
    names(Form::Total, 1.0, pairs!(
        "cpu_usage_seconds_total cgroup.cpu_usage  cpu_user_seconds_total cgroup.cpu_user
         cpu_system_seconds_total cgroup.cpu_system  cpu_cfs_periods_total cgroup.nr_periods
         cpu_cfs_throttled_periods_total cgroup.nr_throttled  cpu_cfs_throttled_seconds_total cgroup.throttled_time
         memory_failcnt cgroup.memory_failcnt  oom_events_total cgroup.oom_kill"
    )),
    names(Form::Level, 1.0, pairs!(
        "memory_usage_bytes cgroup.memory_current  memory_rss cgroup.anon  memory_cache cgroup.file
         memory_swap cgroup.swap_current  threads cgroup.pids_current  spec_memory_limit_bytes cgroup.memory_max"
    )),
];

/// The metric of a key of `/proc/meminfo` as node_exporter writes it: `Active_anon` for `Active(anon)`.
fn memory(key: &[u8]) -> Option<&'static Metric> {
    static KEYS: OnceLock<HashMap<String, &'static Metric>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let key = |metric: &'static Metric| {
            let key = metric.source.strip_prefix("/proc/meminfo:")?;
            Some((key.replace('(', "_").replace(')', ""), metric))
        };
        metrics::table("meminfo").iter().filter_map(key).collect()
    });
    keys.get(std::str::from_utf8(key).ok()?).copied()
}

/// What a sample is, by its name and its labels.
pub(super) fn cell(name: &[u8], label: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Cell> {
    if let Some(rest) = name.strip_prefix(b"container_") {
        // cAdvisor repeats a group for each CPU, and for each kind of failure.
        let is_whole = label(b"cpu").is_none_or(|cpu| cpu == b"total") && label(b"failure_type").is_none();
        let id = label(b"id").filter(|id| id.starts_with(b"/") && is_whole)?;
        return find(CGROUPS, rest, &id);
    }
    let rest = name.strip_prefix(b"node_")?;
    if let Some(found) = find(MACHINE, name, b"") {
        return Some(found);
    }
    let behind = |prefix: &[u8]| rest.strip_prefix(prefix);
    if let Some(rest) = behind(b"memory_") {
        let key = rest.strip_suffix(b"_bytes").unwrap_or(rest);
        return Some(Cell { metric: memory(key)?, form: Form::Level, factor: 1.0, row: Vec::new() });
    }
    if let Some(rest) = behind(b"disk_") {
        return find(DISKS, rest, &label(b"device")?);
    }
    if let Some(rest) = behind(b"network_") {
        return find(NICS, rest, &label(b"device")?);
    }
    if let Some(rest) = behind(b"filesystem_") {
        return find(FILESYSTEMS, rest, &label(b"mountpoint")?);
    }
    if let Some(rest) = behind(b"softnet_") {
        return find(SOFTNET, rest, &label(b"cpu")?);
    }
    if rest == b"cpu_seconds_total" {
        let mode = String::from_utf8(label(b"mode")?).ok()?;
        return Cell::new(&format!("cpu.{mode}"), Form::Total, 1.0, &label(b"cpu")?);
    }
    let rest = std::str::from_utf8(rest).ok()?;
    if let Some(key) = rest.strip_prefix("vmstat_") {
        return Cell::raw(&format!("vm.{key}"), b"");
    }
    if let Some((area, key)) = rest.strip_prefix("netstat_").and_then(|rest| rest.split_once('_')) {
        return Cell::raw(&format!("{}.{key}", area.to_ascii_lowercase()), b"");
    }
    let key = rest.strip_prefix("sockstat_")?;
    let key = if key == "sockets_used" { "used".to_owned() } else { key.to_ascii_lowercase() };
    // `mem_bytes` repeats `mem` in bytes.
    Cell::raw(&format!("sock.{key}"), b"")
}
