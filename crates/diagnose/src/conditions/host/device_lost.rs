//! A disk or a network link went away while it was in use.
//!
//! The kernel says so in its log, or the device's counters simply end in the middle of its work. What stood on it fails or hangs
//! from that moment on. Devices that programs make and remove (loop devices, veth pairs of containers) come and go by design,
//! and one that was idle is missed by nobody.

use crate::kernel_log;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "device-lost",
    title: "a device disappeared",
    area: "host",
    needs: &["disk.reads", "disk.writes", "disk.io_time", "nic.rx_packets", "nic.tx_packets"],
    observe,
    causes: &[
        effect("dirty-writeback-stall", "what cannot be written stays dirty").here(),
        effect("hung-task", "requests to a device that is gone never complete"),
        effect("pressure-io", "requests to a device that is gone never complete"),
        effect("session-drop", "the link is what the session runs over"),
        effect("hardware-error", "requests to a device that is gone fail").here(),
    ],
    remedies_of: remedies,
    next: &[measure("what the kernel said when it went", "journalctl -k --since -1h")],
    source: include_str!("device_lost.rs"),
    ..Condition::ROOT
};

/// Packets or requests a second right before: it was in use.
const IN_USE_S: f64 = 1.0;
/// Once is a cable that was moved or a switch that was started anew.
const FLAPS_LEAST: usize = 2;
/// How the kernel and udev name devices of hardware (of the virtual kind too). What software makes has names of its own, and
/// comes and goes by design: loop devices, cables of containers, bridges.
const DISKS: &[&str] = &["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dasd"];
const NICS: &[&str] = &["eth", "en", "wl", "ww", "ib", "sl"];

fn observe(view: &View<'_>) -> Observation {
    let by_device = kernel_log::reports(view, &["device-lost", "link-down"]);
    if let Some(((what, device), list)) = by_device.iter().max_by_key(|(_, list)| list.len()) {
        let (event, text) = list[0];
        let mut finding = view.finding_at(event.real);
        let is_link = *what == "link-down";
        if !device.is_empty() {
            let place = if is_link { &mut finding.culprit.nic } else { &mut finding.culprit.device };
            *place = Some((*device).to_owned());
        }
        finding.statement =
            format!("{}: {text}", if is_link { "a link went down" } else { "a device was lost" });
        let times = if is_link { came_back(view, device) } else { 0 };
        if times >= FLAPS_LEAST {
            finding.remarks.push(format!("the link of {device} flaps: it came up again {times} times"));
        }
        let metric = format!("event.{what}");
        finding.evidence.push(view.event_evidence(&metric, device, list.len() as f64, "", event));
        finding.confidence = 0.9;
        return finding.active();
    }
    if let Some(finding) = vanished(view) {
        return finding.active();
    }
    if !kernel_log::is_known(view) {
        return Observation::cannot_tell("the kernel log: dmesg -T");
    }
    Observation::inactive("no device and no link went away")
}

/// How often the link of an interface came up after it had gone down. The driver and a bond above it may both tell of one time.
fn came_back(view: &View<'_>, nic: &str) -> usize {
    let (mut is_down, mut times) = (false, 0);
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        match &event.kind {
            EventKind::DeviceError { what, device, .. } if what == "link-down" && device == nic => {
                is_down = true;
            }
            EventKind::Device { device, state, .. } if state == "up" && device == nic => {
                times += usize::from(std::mem::take(&mut is_down));
            }
            _ => {}
        }
    }
    times
}

/// A device whose counters end while it worked and the machine went on.
fn vanished(view: &View<'_>) -> Option<Finding> {
    if view.is_case {
        return None;
    }
    let known_until = view.set.span()?.until.min(view.window.until);
    for (metrics, is_nic) in
        [(["disk.reads", "disk.writes"], false), (["nic.rx_packets", "nic.tx_packets"], true)]
    {
        for (row, series) in view.each(metrics[0]) {
            let Some(end) = series.samples(view.window).last().map(|(t, ..)| t) else { continue };
            let step_ns = (series.axis.step_s().max(1.0) * 1e9) as i64;
            let names = if is_nic { NICS } else { DISKS };
            let is_hardware =
                names.iter().any(|n| row.starts_with(n)) && !row.contains('@') && !row.contains('.');
            if !is_hardware || known_until - end < 3 * step_ns {
                continue;
            }
            let span = Span { since: end - 10 * step_ns, until: end + 1 };
            let rate = |m: &str| view.set.get(m, row).and_then(|s| s.mean(span)).unwrap_or(0.0);
            let used: f64 = metrics.iter().map(|m| rate(m)).sum();
            if used < IN_USE_S {
                continue;
            }
            let mut finding = view.finding_at(end);
            let place = if is_nic { &mut finding.culprit.nic } else { &mut finding.culprit.device };
            *place = Some(row.to_owned());
            let what = if is_nic { "packets" } else { "requests" };
            finding.statement =
                format!("{row} is gone; until then it had {} {what} a second", words::count(used));
            finding.evidence.extend(view.evidence(metrics[0], row, span));
            finding.confidence = 0.75;
            return Some(finding);
        }
    }
    None
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.device.as_ref().or(finding.culprit.nic.as_ref());
    let name = name.map_or("the device", String::as_str);
    vec![Remedy {
        action: format!(
            "check {name}: cable, slot, power, the other end of the link, the hypervisor's view of it"
        ),
        command: "lsblk; ip -s link; dmesg -T | tail -50".to_owned(),
        verify: format!("{} is listed again", words::shell(name)),
        risk: "a disk that comes back under another name has to be checked before it is mounted".to_owned(),
    }]
}
