//! A device, a memory module or a file system reports errors.
//!
//! Requests fail, or come back late because they are tried again; a file system that finds a contradiction turns itself
//! read-only; memory loses what was in it. The kernel's log is the only witness, and it says it at the first time. A network
//! link or a disk that is gone is `device-lost`.
//!
//! What the hardware corrected by itself (ECC, a packet that was sent again on PCI Express) lost nothing. It is no incident
//! unless it comes again and again: each time costs an interrupt, or an interrupt of the firmware that stops all CPUs for
//! milliseconds.

use crate::kernel_log;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "hardware-error",
    title: "a device reports errors",
    area: "host",
    needs: &["disk.backing", "nic.rx_packets"],
    triggers: &[Trigger::Event(|kind| matches!(kind, EventKind::DeviceError { .. }))],
    observe,
    causes: &[
        explains("slow-device", "requests are retried until they time out").here(),
        effect("dirty-writeback-stall", "what cannot be written stays dirty").here(),
        effect("hung-task", "requests are retried until they time out"),
        effect("disk-saturated", "requests are retried until they time out").here(),
        effect("pressure-io", "requests are retried until they time out"),
        effect("tasks-in-d-state", "requests are retried until they time out"),
        explains("process-crash", "a page that cannot be read kills the program that touches it"),
    ],
    remedies_of: remedies,
    next: &[measure(
        "all kernel log lines about it",
        "dmesg -T --level=emerg,alert,crit,err,warn | tail -50",
    )],
    source: include_str!("hardware_error.rs"),
    ..Condition::ROOT
};

/// What is an error and not a loss.
const ERRORS: &[&str] = &["io-error", "machine-check", "filesystem-error"];
/// What was corrected.
const CORRECTED: &str = "corrected-error";
/// So many corrections are no chance.
const STORM_LEAST: f64 = 10.0;
/// One a second: with ten milliseconds of the firmware each they take a hundredth of all CPUs, and the kernel begins to leave
/// lines out (`printk_ratelimit`: ten in five seconds).
const STORM_S: f64 = 1.0;

fn observe(view: &View<'_>) -> Observation {
    let by_device = kernel_log::reports(view, ERRORS);
    let most = by_device.iter().max_by_key(|(_, list)| list.len());
    if let Some(((what, device), list)) = most {
        let mut finding = finding(view, what, device, list);
        for ((what, device), list) in by_device.iter().filter(|(key, _)| **key != (*what, *device)).take(3) {
            finding.evidence.extend(told(view, what, device, list));
        }
        return finding.active();
    }
    let corrected = kernel_log::reports(view, &[CORRECTED]);
    let Some(((what, device), list)) = corrected.iter().max_by_key(|(_, list)| list.len()) else {
        return if kernel_log::is_known(view) {
            Observation::inactive("the kernel's log has no error of a device")
        } else {
            Observation::cannot_tell("the kernel log: dmesg -T")
        };
    };
    let count = list.len() as f64;
    let seconds = match (list.first(), list.last()) {
        (Some((first, _)), Some((last, _))) => words::between(first.real, last.real).max(1.0),
        _ => 1.0,
    };
    if count < STORM_LEAST || count / seconds < STORM_S {
        return Observation::Inactive(format!(
            "{} of {} was corrected {} times, and nothing was lost: what reports it can be replaced at the next maintenance",
            kind_of(what),
            name_of(device),
            words::count(count)
        ));
    }
    let mut finding = finding(view, what, device, list);
    finding.confidence = 0.6;
    finding.active()
}

/// What is reported, in words.
fn kind_of(what: &str) -> &'static str {
    match what {
        "machine-check" => "an error of the hardware",
        "filesystem-error" => "an error of the file system",
        CORRECTED => "an error that the hardware corrected",
        _ => "failed requests",
    }
}

fn name_of(device: &str) -> &str {
    if device.is_empty() { "no device is named" } else { device }
}

/// The reports of a kind and a device as evidence.
fn told(view: &View<'_>, what: &str, device: &str, list: &[(&Event, &str)]) -> Option<Evidence> {
    let (event, _) = list.first()?;
    Some(view.event_evidence(&format!("event.{what}"), device, list.len() as f64, "", event))
}

fn finding(view: &View<'_>, what: &str, device: &str, list: &[(&Event, &str)]) -> Finding {
    let (onset, text) = list.first().map_or((view.window.since, ""), |(event, text)| (event.real, *text));
    let mut finding = view.finding_at(onset);
    finding.end = list.last().map(|(event, _)| event.real);
    finding.step_s = 1.0;
    finding.statement = format!(
        "the kernel reported {} {} times ({}): {text}",
        kind_of(what),
        words::count(list.len() as f64),
        name_of(device)
    );
    finding.evidence.extend(told(view, what, device, list));
    if !device.is_empty() {
        let culprit = &mut finding.culprit;
        let is_nic = view.each("nic.rx_packets").any(|(row, _)| row == device);
        let place = match what {
            "machine-check" | CORRECTED => &mut culprit.address,
            _ if is_nic => &mut culprit.nic,
            _ => &mut culprit.device,
        };
        *place = Some(device.to_owned());
    }
    if let Some(file) = view.set.text("disk.backing", device).and_then(|t| t.last()) {
        finding.remarks.push(format!("{device} is a loop device over {file}"));
        finding.culprit.path = Some(file.to_owned());
    }
    finding.confidence = if list.len() > 1 { 0.95 } else { 0.85 };
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let culprit = &finding.culprit;
    let device = culprit.device.as_deref().or(culprit.nic.as_deref()).unwrap_or("the device");
    let shell = words::shell(device);
    let kind = finding.evidence.first().and_then(|e| e.metric.strip_prefix("event.")).unwrap_or_default();
    let (action, command, risk) = match kind {
        "machine-check" | CORRECTED => {
            let address = culprit.address.as_deref().unwrap_or_default();
            (
                "find the module, the card or the slot that reports it, and replace it at the next maintenance"
                    .to_owned(),
                format!("ras-mc-ctl --errors; edac-util -v; lspci -vvs {}", words::shell(address)),
                "until then its data may be lost",
            )
        }
        "filesystem-error" => (
            format!("save what is on {device}, unmount it and let its file system be checked"),
            format!("findmnt /dev/{shell}; fsck -n /dev/{shell}; smartctl -a /dev/{shell}"),
            "repairing a file system on a failing disk may destroy both: copy the important data first",
        ),
        _ if culprit.nic.is_some() => (
            format!("check the driver and link errors of {device}, and replace the cable or card"),
            format!("ethtool -S {shell}; ethtool {shell}"),
            "the link is down meanwhile",
        ),
        _ => (
            format!("take {device} out of service: save its data, then replace it or its cable"),
            format!("smartctl -a /dev/{device}; nvme smart-log /dev/{device}"),
            "reading a failing disk in full may kill it; copy the important data first",
        ),
    };
    let verify = "dmesg -T: no new line".to_owned();
    vec![Remedy { action, command, verify, risk: risk.to_owned() }]
}
