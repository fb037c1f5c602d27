//! A device, a memory module or a file system reports errors.
//!
//! Requests fail, or come back late because they are tried again; a file system that finds a contradiction turns itself
//! read-only; memory loses what was in it. The kernel's log is the only witness, and it says it at the first time. A network
//! link or a disk that is gone is `device-lost`. A path to a disk that fails again and again has come back in between: it flaps,
//! and each time requests wait until they are tried on another path. A pool of thin volumes that is full holds writes back and
//! then fails them. A disk that counts failures of its own (SMART) is told before it fails. Such a warning and a path that failed
//! are findings where nobody suffers. A listing without a time (`multipath -ll`) does not say since when it is so, and explains
//! little.
//!
//! What the hardware corrected by itself (ECC, a packet that was sent again on PCI Express) lost nothing. It is no incident
//! unless it comes again and again: each time costs an interrupt, or an interrupt of the firmware that stops all CPUs for
//! milliseconds.

use std::collections::BTreeSet;

use mitra_model::time::Era;

use crate::kernel_log;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "hardware-error",
    title: "a device reports errors",
    area: "host",
    needs: &["disk.backing", "nic.rx_packets"],
    triggers: &[Trigger::Event(|kind| matches!(kind, EventKind::DeviceError { .. }))],
    observe,
    may_be_harmless: true,
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
const ERRORS: &[&str] =
    &["io-error", "machine-check", "filesystem-error", DISK_FAILING, PATH_FAILED, POOL_FULL];
const DISK_FAILING: &str = "disk-failing";
const PATH_FAILED: &str = "path-failed";
const POOL_FULL: &str = "pool-full";

/// What a disk's warning can bring about: it tries again.
const OF_WARNINGS: &[&str] = &["slow-device"];
/// What one that is listed without a time can.
const OF_LISTINGS: &[&str] = &["slow-device", "disk-saturated", "dirty-writeback-stall"];
/// Where requests only wait nothing is lost that a program needs.
const OF_WAITING: &[&str] = &[
    "slow-device",
    "dirty-writeback-stall",
    "hung-task",
    "disk-saturated",
    "pressure-io",
    "tasks-in-d-state",
];
/// What was corrected.
const CORRECTED: &str = "corrected-error";
/// So many corrections are no chance.
const STORM_LEAST: f64 = 10.0;
/// One a second: with ten milliseconds of the firmware each they take a hundredth of all CPUs, and the kernel begins to leave
/// lines out (`printk_ratelimit`: ten in five seconds).
const STORM_S: f64 = 1.0;

fn observe(view: &View<'_>) -> Observation {
    let by_device = kernel_log::reports(view, ERRORS);
    let most = by_device.iter().max_by_key(|((what, _), list)| (severity(what), failures(what, list)));
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

/// What lost something comes before what another path makes good, and that before a warning.
fn severity(what: &str) -> u8 {
    match what {
        DISK_FAILING => 0,
        PATH_FAILED => 1,
        _ => 2,
    }
}

/// How many failures the reports tell of. smartd repeats the state of a disk with each check, every half hour.
fn failures<'a>(what: &str, list: &[(&Event, &'a str)]) -> usize {
    if what != DISK_FAILING {
        return list.len();
    }
    // A change of the number is told with what it was: `8 Currently unreadable (pending) sectors (changed +8)`.
    let state =
        |(_, text): &(&Event, &'a str)| text.split_once(" (changed ").map_or(*text, |(state, _)| state);
    list.iter().map(state).collect::<BTreeSet<&str>>().len()
}

/// How often it happened, as far as that can be told: logs may have it twice, and listings again and again.
fn times(list: &[(&Event, &str)]) -> usize {
    let seconds = |era: Era| {
        let of_era = list.iter().map(|(event, _)| event.real).filter(|t| Era::of(*t) == era);
        of_era.map(|t| t.div_euclid(SECOND)).collect::<BTreeSet<i64>>().len()
    };
    [Era::Dated, Era::Day, Era::Boot].map(seconds).into_iter().max().unwrap_or(0)
}

/// What is reported, in words.
fn kind_of(what: &str) -> &'static str {
    match what {
        "machine-check" => "an error of the hardware",
        "filesystem-error" => "an error of the file system",
        CORRECTED => "an error that the hardware corrected",
        DISK_FAILING => "a disk's warning of its own failure",
        PATH_FAILED => "a failed path to a disk",
        POOL_FULL => "a pool of thin volumes without room",
        _ => "failed requests",
    }
}

/// The same of a report. Sectors that cannot be read are often few, and the rest of the disk is well.
fn kind_in(what: &str, text: &str) -> &'static str {
    match what {
        DISK_FAILING if text.contains(" sectors") => "a disk that has sectors that it cannot read",
        _ => kind_of(what),
    }
}

fn name_of(device: &str) -> &str {
    if device.is_empty() { "no device is named" } else { device }
}

/// The reports of a kind and a device as evidence.
fn told(view: &View<'_>, what: &str, device: &str, list: &[(&Event, &str)]) -> Option<Evidence> {
    let (event, _) = list.first()?;
    Some(view.event_evidence(&format!("event.{what}"), device, failures(what, list) as f64, "", event))
}

fn finding(view: &View<'_>, what: &str, device: &str, list: &[(&Event, &str)]) -> Finding {
    let (onset, text) = list.first().map_or((view.window.since, ""), |(event, text)| (event.real, *text));
    let mut finding = view.finding_at(onset);
    finding.end = list.last().map(|(event, _)| event.real);
    finding.step_s = 1.0;
    let is_listed = Era::of(onset) == Era::Fact;
    finding.governs = match what {
        DISK_FAILING => Some(OF_WARNINGS),
        _ if is_listed => Some(OF_LISTINGS),
        PATH_FAILED | POOL_FULL => Some(OF_WAITING),
        _ => None,
    };
    finding.is_harmless = matches!(what, DISK_FAILING | PATH_FAILED);
    // What a disk says of itself comes from smartd too.
    let who = match what {
        _ if is_listed => "the files have",
        DISK_FAILING => "the log has",
        _ => "the kernel reported",
    };
    finding.statement = format!(
        "{who} {} {} times ({}): {text}",
        kind_in(what, text),
        words::count(failures(what, list) as f64),
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
    let drops = times(list);
    if what == PATH_FAILED && drops > 1 {
        let path = if device.is_empty() { "a path".to_owned() } else { format!("the path over {device}") };
        finding.remarks.push(format!(
            "{path} flaps: it failed {} times, and only a path that is up again can fail again",
            words::count(drops as f64)
        ));
    }
    if let Some(file) = view.set.text("disk.backing", device).and_then(|t| t.last()) {
        finding.remarks.push(format!("{device} is a loop device over {file}"));
        finding.culprit.path = Some(file.to_owned());
    }
    finding.confidence = if failures(what, list) > 1 { 0.95 } else { 0.85 };
    finding
}

/// What `smartctl` is asked for of a device. Behind a controller smartd tells disks apart by their number: `bus/0
/// [megaraid_disk_05]`.
fn smartctl(device: Option<&str>) -> String {
    let Some(device) = device else { return "smartctl --scan".to_owned() };
    let (device, disk) = device.split_once(" [").unwrap_or((device, ""));
    let device = words::shell(device);
    let disk = disk.trim_end_matches(']').split_once("_disk_");
    match disk.and_then(|(kind, number)| Some((kind, number.parse::<u32>().ok()?))) {
        Some((kind, number)) => format!("smartctl -x -d {},{number} /dev/{device}", words::shell(kind)),
        None => format!("smartctl -x /dev/{device}"),
    }
}

/// What shows the paths, and where one of them goes. The kernel may have only its numbers: `259:1`.
fn multipath(device: Option<&str>) -> String {
    let Some(device) = device else { return "multipath -ll".to_owned() };
    let shell = words::shell(device);
    if device.contains(':') {
        return format!("multipath -ll; readlink -f /sys/dev/block/{shell}");
    }
    format!("multipath -ll; udevadm info -q path -n /dev/{shell}")
}

/// What to do about a kind that has commands of its own: what, by which command, how to see that it helped, what may go wrong.
fn of_storage(kind: &str, known: Option<&str>) -> Option<[String; 4]> {
    let device = known.unwrap_or("the device");
    Some(match kind {
        PATH_FAILED => [
            format!("check what the path over {device} goes through: cable, port, zoning, the controller of the array"),
            multipath(known),
            "multipath -ll: each path is active ready".to_owned(),
            "with the last path gone requests wait or fail (no_path_retry in multipath.conf)".to_owned(),
        ],
        POOL_FULL => [
            format!("extend the pool {device} or remove snapshots of it, and let it be extended by itself from now on"),
            "lvs -a -o +data_percent,metadata_percent,kernel_major,kernel_minor; lvextend -L +SIZE VG/POOL; lvmconfig \
             activation/thin_pool_autoextend_threshold"
                .to_owned(),
            "lvs: data_percent and metadata_percent are lower, and writes go on".to_owned(),
            "writes that wait for longer than no_space_timeout (60 s) fail: file systems on it may have to be checked"
                .to_owned(),
        ],
        DISK_FAILING => [
            format!("copy what is on {device}, then replace it"),
            smartctl(known),
            "smartctl -H of the new one: PASSED".to_owned(),
            "reading a failing disk in full may kill it; copy the important data first".to_owned(),
        ],
        _ => return None,
    })
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let culprit = &finding.culprit;
    let device = culprit.device.as_deref().or(culprit.nic.as_deref()).unwrap_or("the device");
    let shell = words::shell(device);
    let kind = finding.evidence.first().and_then(|e| e.metric.strip_prefix("event.")).unwrap_or_default();
    if let Some([action, command, verify, risk]) = of_storage(kind, culprit.device.as_deref()) {
        return vec![Remedy { action, command, verify, risk }];
    }
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
            match &culprit.device {
                Some(_) => format!("smartctl -a /dev/{shell}; nvme smart-log /dev/{shell}"),
                None => "smartctl --scan; nvme list".to_owned(),
            },
            "reading a failing disk in full may kill it; copy the important data first",
        ),
    };
    let verify = "dmesg -T: no new line".to_owned();
    vec![Remedy { action, command, verify, risk: risk.to_owned() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_without_a_time_explains_little_and_is_not_the_kernels_word() {
        let mut set = SeriesSet::default();
        let (what, device, text) = (PATH_FAILED.to_owned(), "dm-4".to_owned(), "no path".to_owned());
        for second in 0..3 {
            let kind =
                EventKind::DeviceError { what: what.clone(), device: device.clone(), text: text.clone() };
            set.events.push(Event::at(Era::Fact.zero() + second * SECOND, kind));
        }
        let Observation::Active(finding) = observe(&View::of_case(&set, None)) else { panic!() };
        assert_eq!(finding.governs, Some(OF_LISTINGS));
        assert!(finding.statement.starts_with("the files have"), "{}", finding.statement);
        assert!(finding.remarks.is_empty(), "{:?}", finding.remarks);
    }

    #[test]
    fn a_state_that_smartd_repeats_is_one_failure() {
        let event = Event::at(0, EventKind::Recorder { text: String::new() });
        let pending = "Device: /dev/sda [SAT], 8 Currently unreadable (pending) sectors";
        let changed = format!("{pending} (changed +8)");
        let list: Vec<(&Event, &str)> = [&changed[..], pending, pending].map(|text| (&event, text)).to_vec();
        assert_eq!((failures(DISK_FAILING, &list), failures(PATH_FAILED, &list)), (1, 3));
        let more = pending.replace('8', "16");
        let list = [list, vec![(&event, &more[..])]].concat();
        assert_eq!(failures(DISK_FAILING, &list), 2);
    }

    #[test]
    fn sectors_that_cannot_be_read_are_less_than_a_disk_that_fails() {
        let sectors = "Device: /dev/sda [SAT], 8 Currently unreadable (pending) sectors";
        assert_eq!(kind_in(DISK_FAILING, sectors), "a disk that has sectors that it cannot read");
        let failed = "Device: /dev/sda [SAT], FAILED SMART self-check. BACK UP DATA NOW!";
        assert_eq!(kind_in(DISK_FAILING, failed), kind_of(DISK_FAILING));
    }
}
