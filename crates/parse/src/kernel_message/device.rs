//! Errors of devices, of file systems and of memory, devices and links that went away, and links that came back.
//!
//! ```text
//! blk_update_request: I/O error, dev sdb, sector 1953 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
//! EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0
//! ixgbe 0000:01:00.0 eth0: NIC Link is Down
//! sd 2:0:0:0: rejecting I/O to offline device
//! EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x7 …)
//! device-mapper: multipath: 253:3: Failing path 8:32.
//! device-mapper: thin: 253:4: switching pool to out-of-data-space (queue IO) mode
//! device-mapper: thin: 253:4: switching pool to read-only mode
//! ```
//!
//! A failed request has several lines; the one that names the block device counts. Corrected hardware errors lost no data
//! and are a kind of their own.

use mitra_model::EventKind;

use super::{after, contains, kept};

const IO_ERROR: &str = "io-error";
const LINK_DOWN: &str = "link-down";
const MACHINE_CHECK: &str = "machine-check";
const CORRECTED: &str = "corrected-error";
const FILESYSTEM_ERROR: &str = "filesystem-error";
const DEVICE_LOST: &str = "device-lost";
const DISK_FAILING: &str = "disk-failing";
const PATH_FAILED: &str = "path-failed";
const POOL_FULL: &str = "pool-full";

pub(super) fn device_error(text: &str) -> Option<EventKind> {
    let (what, device) = block(text)
        .or_else(|| filesystem(text))
        .or_else(|| ata(text))
        .or_else(|| nvme(text))
        .or_else(|| scsi(text))
        .or_else(|| link(text))
        .or_else(|| hardware(text))
        .filter(|(_, device)| !is_empty_drive(device))
        .map(|(what, device)| (what, device.trim_start_matches("/dev/").to_owned()))
        .or_else(|| mapper(text))?;
    Some(EventKind::DeviceError { what: what.to_owned(), device, text: kept(text) })
}

type KindAndDevice<'a> = Option<(&'static str, &'a str)>;

/// The name at the start of a text.
fn name(text: &str) -> &str {
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | ':' | ')' | ']' | ';'));
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

/// Whether it is a floppy or CD drive, which logs errors without a medium.
fn is_empty_drive(device: &str) -> bool {
    let number = device.strip_prefix("fd").or_else(|| device.strip_prefix("sr"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn block(text: &str) -> KindAndDevice<'_> {
    const REQUESTS: [&str; 6] = [
        "I/O error, dev ",
        "critical medium error, dev ",
        "critical target error, dev ",
        "critical nexus error, dev ",
        "timeout error, dev ",
        "protection error, dev ",
    ];
    if contains(text, "error") {
        let request = REQUESTS.iter().find_map(|mark| after(text, mark));
        let buffer =
            || after(text, "Buffer I/O error on dev ").or_else(|| after(text, "I/O error on device "));
        let write = || after(text, "lost page write due to I/O error on ");
        if let Some(rest) = request.or_else(buffer).or_else(write) {
            return Some((IO_ERROR, name(rest)));
        }
        if contains(text, " transferring data, sector ") && text.starts_with("mmcblk") {
            return Some((IO_ERROR, name(text)));
        }
    }
    // `md/raid1:md0: Disk failure on sdb1, disabling device.`, `md: kicking non-fresh sdb1 from array!`
    let lost = after(text, "Disk failure on ").or_else(|| after(text, "md: kicking non-fresh "));
    lost.map(|rest| (DEVICE_LOST, name(rest)))
}

fn filesystem(text: &str) -> KindAndDevice<'_> {
    // `EXT4-fs error (device sda1): …`, `BTRFS critical (device dm-0): …`, `EXT4-fs (sda1): …`, `XFS (dm-0): …`
    let (head, rest) = text.split_once(')')?;
    let rest = rest.trim_start_matches(": ");
    let (kind, device) = head.rsplit_once('(')?;
    let device = device.strip_prefix("device ").unwrap_or(device);
    let kind = kind.trim_end();
    let (system, level) = kind.split_once(' ').unwrap_or((kind, ""));
    let is_system = system.len() <= 12
        && (system.ends_with("-fs") || matches!(system, "XFS" | "BTRFS" | "BTRFS:" | "F2FS" | "GFS2"));
    if !is_system {
        return None;
    }
    let is_error = matches!(level, "error" | "critical") || {
        ["orruption", "I/O error", "I/O Error", "I/O error detected", "shut down", "shutdown(", "csum failed"]
            .iter()
            .any(|word| contains(rest, word))
            || rest.starts_with("error (")
            || contains(rest, "emounting filesystem read-only")
            || contains(rest, "forced readonly")
    };
    is_error.then_some((FILESYSTEM_ERROR, name(device)))
}

/// `ata1.00: exception Emask 0x0 …`, `ata1: hard resetting link`, `ata1.00: disabled`, and the speed that is lowered after
/// errors: `ata1: limiting SATA link speed to 1.5 Gbps`, `ata1.00: limiting speed to UDMA/100:PIO4`.
fn ata(text: &str) -> KindAndDevice<'_> {
    let rest = text.strip_prefix("ata")?;
    let port = name(text);
    let is_port = rest.starts_with(|c: char| c.is_ascii_digit());
    let words = text.get(port.len()..)?.strip_prefix(": ").filter(|_| is_port)?;
    const ERRORS: [&str; 5] = [
        "exception Emask",
        "hard resetting link",
        "COMRESET failed",
        "limiting SATA link speed",
        "limiting speed to ",
    ];
    if ERRORS.iter().any(|error| words.starts_with(error)) {
        Some((IO_ERROR, port))
    } else {
        (words.starts_with("disabled") || words.starts_with("disable device")).then_some((DEVICE_LOST, port))
    }
}

/// `nvme nvme0: I/O 123 QID 4 timeout, aborting`, `nvme nvme0: Device not ready; aborting reset`.
fn nvme(text: &str) -> KindAndDevice<'_> {
    let rest = text.strip_prefix("nvme ").or_else(|| text.starts_with("nvme").then_some(text))?;
    let device = name(rest);
    let words = rest.get(device.len()..)?.strip_prefix(": ")?;
    let is_any = |list: &[&str]| list.iter().any(|word| contains(words, word));
    if is_any(&["Device not ready", "Removing after", "Disabling device", "failed to become ready"]) {
        Some((DEVICE_LOST, device))
    } else {
        is_any(&[" timeout, ", "controller is down; will reset", "resetting controller"])
            .then_some((IO_ERROR, device))
    }
}

/// `sd 2:0:0:0: [sdb] tag#3 timing out command, waited 180s`, `sd 2:0:0:0: rejecting I/O to offline device`,
/// `sd 2:0:0:0: [sdb] tag#3 Add. Sense: Failure prediction threshold exceeded`.
fn scsi(text: &str) -> KindAndDevice<'_> {
    const LOST: [&str; 4] = [
        "Device offlined",
        "rejecting I/O to dead device",
        "rejecting I/O to offline device",
        "device offline error, dev ",
    ];
    let lost = LOST.iter().find_map(|word| after(text, word).map(|rest| (*word, rest)));
    let what = if lost.is_some() {
        DEVICE_LOST
    } else if contains(text, "timing out command, waited ") {
        IO_ERROR
    } else if after(text, "Add. Sense: ").is_some_and(predicts_failure) {
        DISK_FAILING
    } else {
        return None;
    };
    if let Some((word, rest)) = lost
        && word.ends_with("dev ")
    {
        return Some((what, name(rest)));
    }
    // The disk's name if the line has it, else its address.
    let address = text.split_ascii_whitespace().nth(1).unwrap_or_default().trim_end_matches(':');
    let disk = after(text, ": [").map(name).filter(|n| n.starts_with(|c: char| c.is_ascii_alphabetic()));
    Some((what, disk.unwrap_or(address)))
}

/// What a disk says that expects its own failure (SPC, additional sense code 5Dh); a test of that says `(false)`.
fn predicts_failure(sense: &str) -> bool {
    let is_test = sense.trim_end().ends_with("(false)");
    (contains(sense, "ailure prediction threshold exceeded") && !is_test)
        || contains(sense, "impending failure")
}

/// Paths and pools of device-mapper (`fail_path` in dm-mpath.c, `notify_of_pool_mode_change` in dm-thin.c). Older kernels leave
/// out which map it is that lost a path.
fn mapper(text: &str) -> Option<(&'static str, String)> {
    let rest = text.strip_prefix("device-mapper: ")?;
    if let Some(rest) = rest.strip_prefix("multipath: ") {
        let path = after(rest, "Failing path ")?.split_ascii_whitespace().next()?.trim_end_matches('.');
        return Some((PATH_FAILED, scsi_disk(path).unwrap_or_else(|| path.to_owned())));
    }
    let (pool, words) = rest.strip_prefix("thin: ")?.split_once(": ")?;
    let minor = pool.split_once(':').map(|(_, minor)| minor).filter(|minor| minor.parse::<u32>().is_ok());
    let device = minor.map_or_else(|| pool.to_owned(), |minor| format!("dm-{minor}"));
    // `no free data space available.`, `no free metadata space available for device.`
    let is_full = words.starts_with("switching pool to out-of-data-space")
        || after(words, "no free ").is_some_and(|rest| contains(rest, " space available"));
    // Its metadata could not be written: writes fail, and with the second one reads too.
    let is_failed = ["switching pool to read-only", "switching pool to fail"]
        .iter()
        .any(|words_of| words.starts_with(words_of));
    let what = is_full.then_some(POOL_FULL).or_else(|| is_failed.then_some(IO_ERROR))?;
    Some((what, device))
}

/// The name of a SCSI disk by its numbers, `8:32`: sixteen minors for each disk, and the majors 8, 65 to 71 and 128 to 135
/// (`sd_probe` and `sd_format_disk_name` in drivers/scsi/sd.c).
fn scsi_disk(numbers: &str) -> Option<String> {
    let (major, minor) = numbers.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let high = match major {
        8 => 0,
        65..=71 => major - 64,
        128..=135 => major - 120,
        _ => return None,
    };
    let mut index = (minor & 0xfff00) | (high << 4) | ((minor >> 4) & 0xf);
    let mut letters = String::new();
    loop {
        letters.insert(0, char::from(b'a' + (index % 26) as u8));
        if index < 26 {
            return Some(format!("sd{letters}"));
        }
        index = index / 26 - 1;
    }
}

fn link(text: &str) -> KindAndDevice<'_> {
    // `bond0: (slave eth0): link status definitely down, disabling slave`, before 5.x
    // `bonding: bond0: link status definitely down for interface eth0, disabling it`
    if let Some(rest) = after(text, "link status definitely down") {
        let device = after(text, "(slave ").or_else(|| after(rest, "for interface "))?;
        return Some((LINK_DOWN, name(device)));
    }
    // `NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out`
    if let Some(rest) = text.strip_prefix("NETDEV WATCHDOG: ") {
        return contains(rest, "timed out").then(|| (IO_ERROR, name(rest)));
    }
    if !contains(text, "ink") || contains(text, "SATA link down") {
        return None;
    }
    if contains(text, "pciehp: ") && contains(text, ": Link Down") {
        return Some((DEVICE_LOST, name_of_function(text)));
    }
    Some((LINK_DOWN, interface_before(text, &["link is down", "link down"])?))
}

/// `e1000e: eth0 NIC Link is Up 1000 Mbps Full Duplex`, `IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready`,
/// `bond0: (slave eth0): link status definitely up, 1000 Mbps full duplex`.
pub(super) fn link_up(text: &str) -> Option<EventKind> {
    if ["SATA", "PCI", "pcie"].iter().any(|bus| contains(text, bus)) {
        return None;
    }
    let device = match after(text, "link status definitely up") {
        Some(rest) => name(after(text, "(slave ").or_else(|| after(rest, "for interface "))?),
        None => interface_before(text, &["link is up", "link up", "link becomes ready"])?,
    };
    let [what, device, state] = ["interface", device, "up"].map(str::to_owned);
    Some(EventKind::Device { what, device, state })
}

/// The name of the network interface before some words in lower case.
fn interface_before<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    let lower = text.to_ascii_lowercase();
    let at = words.iter().find_map(|words| lower.find(words))?;
    let before = text.get(..at)?.trim_end();
    let is_medium =
        |word: &&str| matches!(*word, "NIC" | "Copper" | "Fibre" | "SerDes" | "Remote" | "port" | "the");
    let device = before.split_ascii_whitespace().rev().find(|w| !is_medium(w))?;
    let device = device.trim_end_matches(':').rsplit(':').next()?;
    // `IFNAMSIZ`, and no address of a bus.
    let is_name = (1..=15).contains(&device.len())
        && device.starts_with(|c: char| c.is_ascii_alphabetic())
        && device.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@'));
    is_name.then_some(device)
}

/// `0000:01:00.0`, the second word of lines about PCI.
fn name_of_function(text: &str) -> &str {
    text.split_ascii_whitespace().nth(1).unwrap_or_default().trim_end_matches(':')
}

/// Machine checks of memory, buses and processors, corrected or not.
fn hardware(text: &str) -> KindAndDevice<'_> {
    let kind = |is_corrected: bool| if is_corrected { CORRECTED } else { MACHINE_CHECK };
    if let Some(rest) = after(text, "[Hardware Error]: ") {
        // Of a report of the firmware the line with its severity counts.
        if let Some(severity) = rest.trim_start().strip_prefix("event severity: ") {
            let is_error = !severity.starts_with("info");
            return is_error.then(|| (kind(severity.starts_with("corrected")), ""));
        }
        // A processor has a line with its status register, whose bit 61 is set for uncorrected errors.
        let cpu = rest.split_once(": Machine Check").filter(|(cpu, _)| cpu.starts_with("CPU"));
        if let Some((cpu, words)) = cpu {
            let status = words.rsplit_once(": ").and_then(|(_, status)| u64::from_str_radix(status, 16).ok());
            return Some((kind(status.is_some_and(|status| status & NOT_CORRECTED == 0)), cpu));
        }
        // "logged": the machine went on. Lost data has its own lines.
        if ["Corrected error", "Machine check events logged"].iter().any(|words| rest.starts_with(words)) {
            return Some((CORRECTED, ""));
        }
        const NOT: [&str; 3] = ["Uncorrected error", "Uncorrected, ", "Deferred error"];
        return NOT.iter().any(|words| rest.starts_with(words)).then_some((MACHINE_CHECK, ""));
    }
    // `EDAC MC0: 1 CE …`, before 3.6 `EDAC MC0: CE page 0x283, …`
    if let Some(rest) = text.strip_prefix("EDAC ") {
        let (controller, rest) = rest.split_once(": ")?;
        let word = rest.split_ascii_whitespace().take(2).find(|word| matches!(*word, "CE" | "UE"))?;
        return Some((kind(word == "CE"), controller));
    }
    if let Some(rest) = text.strip_prefix("Memory failure: ") {
        return contains(rest, "recovery action").then_some((MACHINE_CHECK, "memory"));
    }
    // `severity=Corrected`, since 6.8 `Correctable`; the others are `Uncorrected (Fatal)` and so on.
    let severity = after(text, "PCIe Bus Error: severity=")?;
    Some((kind(severity.starts_with("Correct")), name_of_function(text)))
}

/// `MCI_STATUS_UC`.
const NOT_CORRECTED: u64 = 1 << 61;
