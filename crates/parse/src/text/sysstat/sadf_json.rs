//! `sadf -j`: JSON, as it comes or laid out anew by another tool. See [`super::json`].
//!
//! ```text
//! "timestamp": {"date": "2026-11-21", "time": "13:30:15", "utc": 1, "interval": 1},
//! "cpu-load": [
//!   {"cpu": "all", "usr": 49.50, "nice": 0.00, "sys": 50.00, "iowait": 0.00, "idle": 0.00}
//! ```
//!
//! Names lack what sar puts around them: `pgpgin` is `pgpgin/s`, `memfree` is `kbmemfree`. A JSON document on one line
//! is read up to the length that lines may have.

use super::columns::Kind;
use super::json::{Object, each, starts as is_sysstat};
use super::plan::{COLUMNS_MAX, Cells, Plan, Plans};
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("sadf -j", "data files of sadc as JSON", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    is_sysstat(lines)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut plans = Plans::default();
    let mut cells: Cells = [f64::NAN; COLUMNS_MAX];
    each(lines, import, "sadf", true, &mut |report, import| {
        let (Some(time), Some(since)) = (report.time, report.since) else { return };
        for object in &report.objects {
            let key = [&object.section[..], b" ", &object.keys].concat();
            let plan = plans.known(&key).or_else(|| {
                let (kind, names) = printed(object);
                let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
                let plan = Plan::of(kind, &names, import);
                if !plan.is_read() {
                    plans.skip(&text(&object.section));
                }
                plans.add(&key, plan)
            });
            if let Some(plan) = plan.and_then(|i| plans.get(i)).filter(|plan| plan.is_read()) {
                object.fill(&mut cells);
                plan.since(import, since);
                plan.put(import, &object.name, time, object.line, &cells);
            }
        }
    });
    plans.note(import);
}

/// What a section is about, and the names that its columns have in sar.
fn printed(object: &Object) -> (Kind, Vec<Vec<u8>>) {
    const RATES: &[&[u8]] = list!(
        "process-and-context-switch swap-pages paging net-ip net-eip net-icmp net-eicmp net-tcp net-etcp net-udp"
    );
    let section = object.section.as_slice();
    let (kind, before, after) = match section {
        b"cpu-load" | b"cpu-load-all" => (Kind::Cpu, "%", ""),
        b"softnet" => (Kind::Cpu, "", "/s"),
        b"interrupts" => (Kind::Irq, "", ""),
        b"disk" => (Kind::Disk, "", ""),
        b"net-dev" | b"net-edev" => (Kind::Nic, "", "/s"),
        b"filesystems" => (Kind::Filesystem, "", ""),
        b"memory" => (Kind::System, "kb", ""),
        b"kernel" | b"queue" | b"net-sock" | b"psi-cpu" | b"psi-io" | b"psi-mem" => (Kind::System, "", ""),
        _ if RATES.contains(&section) => (Kind::System, "", "/s"),
        _ => (Kind::Other, "", ""),
    };
    let name = |key: &[u8]| -> Vec<u8> {
        match (section, key) {
            (b"softnet", b"blg_len") => key.to_vec(),
            (b"interrupts", b"value") => b"intr/s".to_vec(),
            (b"psi-cpu", b"some_avg") => b"%scpu".to_vec(),
            (b"psi-io", b"some_avg") => b"%sio".to_vec(),
            (b"psi-io", b"full_avg") => b"%fio".to_vec(),
            (b"psi-mem", b"some_avg") => b"%smem".to_vec(),
            (b"psi-mem", b"full_avg") => b"%fmem".to_vec(),
            (b"memory", b"inactive") => b"kbinact".to_vec(),
            (b"memory", b"frmpg" | b"bufpg" | b"campg")
            | (b"disk", b"rd_sec" | b"wr_sec" | b"dc_sec" | b"rkB" | b"wkB" | b"dkB") => {
                [key, b"/s"].concat()
            }
            _ => match key.strip_suffix(b"-percent") {
                Some(share) => [b"%", share].concat(),
                None => [before.as_bytes(), key, after.as_bytes()].concat(),
            },
        }
    };
    (kind, object.keys().map(name).collect())
}
