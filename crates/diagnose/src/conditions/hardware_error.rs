//! A device, a memory module or a file system reports errors.
//!
//! Requests fail, or come back late because they are tried again; a file system that finds a contradiction turns itself
//! read-only; memory that has to be corrected costs interrupts and will soon not be correctable. The kernel's log is the only
//! witness, and it says it at the first time. A network link or a disk that is gone altogether is `device-lost`.

use std::collections::BTreeMap;

use mitra_model::report::{Next, Remedy};
use mitra_model::{Event, EventKind};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "hardware-error",
    title: "a device reports errors",
    role: Role::Root,
    area: "host",
    needs: &["disk.backing"],
    observe,
    remedies,
    next,
    source: include_str!("hardware_error.rs"),
};

/// What is an error and not a loss.
const ERRORS: &[&str] = &["io-error", "machine-check", "filesystem-error"];

/// Whether the log of the kernel is known at all: a recording has it, a case only where a line of it is there.
pub(super) fn knows_the_log(view: &View<'_>) -> bool {
    let is_kernel = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::KernelLog { .. }
                | EventKind::OomKill { .. }
                | EventKind::Crash { .. }
                | EventKind::Stuck { .. }
                | EventKind::DeviceError { .. }
                | EventKind::TcpPressure { .. }
                | EventKind::AllocationFailure { .. }
        )
    };
    !view.is_case || view.set.events.iter().any(|e| is_kernel(&e.kind))
}

/// What the kernel said of devices in the window, by kind and device.
pub(super) fn reports<'a>(
    view: &'a View<'_>,
    kinds: &[&str],
) -> BTreeMap<(&'a str, &'a str), Vec<(&'a Event, &'a str)>> {
    let mut by_device: BTreeMap<(&str, &str), Vec<(&Event, &str)>> = BTreeMap::new();
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        if let EventKind::DeviceError { what, device, text } = &event.kind
            && kinds.contains(&what.as_str())
        {
            by_device.entry((what, device)).or_default().push((event, text));
        }
    }
    by_device
}

fn observe(view: &View<'_>) -> Observation {
    let by_device = reports(view, ERRORS);
    let Some(((what, device), list)) = by_device.iter().max_by_key(|(_, list)| list.len()) else {
        return if knows_the_log(view) {
            Observation::Inactive("the kernel's log has no error of a device".to_owned())
        } else {
            Observation::CannotTell("the kernel log: dmesg -T".to_owned())
        };
    };
    let first = list[0].0;
    let mut finding = view.finding_at(first.real);
    finding.end = list.last().map(|(e, _)| e.real);
    finding.step_s = 1.0;
    let kind = match *what {
        "machine-check" => "an error of the hardware",
        "filesystem-error" => "an error of the file system",
        _ => "failed requests",
    };
    let name = if device.is_empty() { "no device is named" } else { device };
    finding.statement = format!(
        "the kernel reported {kind} {} times ({name}): {}",
        words::count(list.len() as f64),
        list[0].1
    );
    if !device.is_empty() {
        if what == &"machine-check" {
            finding.culprit.address = Some((*device).to_owned());
        } else {
            finding.culprit.device = Some((*device).to_owned());
        }
    }
    for ((what, device), list) in by_device.iter().take(4) {
        let metric = format!("event.{what}");
        finding.evidence.push(view.event_evidence(&metric, device, list.len() as f64, "", list[0].0));
    }
    if let Some(file) = view.set.text("disk.backing", device).and_then(|t| t.last()) {
        finding.remarks.push(format!("{device} is a loop device over {file}"));
        finding.culprit.path = Some(file.to_owned());
    }
    finding.confidence = if list.len() > 1 { 0.95 } else { 0.85 };
    Observation::Active(Box::new(finding))
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let device = finding.culprit.device.as_deref().unwrap_or("the device");
    vec![Remedy {
        action: format!("take {device} out of use: save what is on it, then replace it or its cable"),
        command: format!("smartctl -a /dev/{device}; nvme smart-log /dev/{device}; ras-mc-ctl --errors"),
        verify: "dmesg -T: no new line".to_owned(),
        risk: "reading a dying disk in full may finish it; copy what matters first".to_owned(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "every line that the kernel has of it".to_owned(),
        command: "dmesg -T --level=emerg,alert,crit,err,warn | tail -50".to_owned(),
    }]
}
