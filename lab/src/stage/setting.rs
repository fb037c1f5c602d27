//! Settings of the machine: sysctls, memory made small, swap on zram.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Netns, Place, Stage};
use crate::counters::mem_available_bytes;
use crate::incident::Stop;
use crate::journal::Undo;
use crate::machine;

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";
/// So often huge pages are asked for: each time the kernel compacts a little more.
const RESERVE_TRIES: u32 = 4;
/// A twentieth more than was asked for is near enough.
const NEARLY: u64 = 20;
/// Memory so scattered that more than this cannot be reserved is left alone.
const BALLAST_MB_MAX: u64 = 6_000;

/// `vm.swappiness` or `/proc/sys/vm/swappiness` as a path. A dot in the name of a device is written as a slash.
fn sysctl_path(name: &str) -> String {
    if name.starts_with('/') {
        return name.to_owned();
    }
    if name.contains('/') {
        return format!("/proc/sys/{name}");
    }
    format!("/proc/sys/{}", name.replace('.', "/"))
}

impl Stage {
    /// Writes a setting; what was there is put back at the end.
    pub fn sysctl(&mut self, path: &str, value: &str) -> Result<(), Stop> {
        let path = sysctl_path(path);
        let before = fs::read_to_string(&path).map_err(|e| Stop::Skipped(format!("{path}: {e}")))?;
        self.journal.note(Undo::Write(path.clone().into(), before.trim().to_owned()))?;
        fs::write(&path, value).map_err(|e| Stop::Failed(format!("{path}: {value}: {e}")))
    }

    /// Writes a setting of a network namespace of the stage; it is gone with the namespace.
    pub fn sysctl_in(&mut self, netns: &Netns, path: &str, value: &str) -> Result<(), Stop> {
        let path = sysctl_path(path);
        netns
            .inside(|| fs::write(&path, value))?
            .map_err(|e| Stop::Skipped(format!("{path} in a network namespace: {e}")))
    }

    /// Makes the machine small: huge pages that nobody uses leave about `usable_bytes`. What is too scattered for huge
    /// pages is held by a process of its own.
    pub fn small_memory(&mut self, usable_bytes: u64) -> Result<(), Stop> {
        let before = fs::read_to_string(NR_HUGEPAGES)
            .map_err(|e| Stop::Skipped(format!("{NR_HUGEPAGES}: {e}")))?
            .trim()
            .to_owned();
        if before != "0" {
            return Err(Stop::Skipped("huge pages are in use on this machine".into()));
        }
        let page_bytes = hugepage_bytes().ok_or_else(|| Stop::Skipped("no huge page size".into()))?;
        let available = mem_available_bytes().unwrap_or(0);
        let pages = available.saturating_sub(usable_bytes) / page_bytes;
        self.journal.note(Undo::Write(NR_HUGEPAGES.into(), before))?;
        // Huge pages need memory in one piece, and cached files lie all over it.
        let mut left = available;
        for _ in 0..RESERVE_TRIES {
            _ = fs::write("/proc/sys/vm/drop_caches", "3");
            _ = fs::write("/proc/sys/vm/compact_memory", "1");
            fs::write(NR_HUGEPAGES, pages.to_string())?;
            left = mem_available_bytes().unwrap_or(0);
            if left <= usable_bytes + usable_bytes / NEARLY {
                return Ok(());
            }
        }
        let ballast_mb = left.saturating_sub(usable_bytes) >> 20;
        if ballast_mb > BALLAST_MB_MAX {
            return Err(Stop::Skipped(format!("memory could not be made small: {} MB are left", left >> 20)));
        }
        let holder = self.role("ballast", "hold", ballast_mb.to_string(), &Place::default())?.handle();
        self.wait_for("the memory that is too much to be held", 20, |stage| {
            stage.ended(holder).is_some()
                || mem_available_bytes().is_some_and(|left| left <= usable_bytes + usable_bytes / NEARLY)
        })?;
        self.must_run(holder, "the process that holds memory")
    }

    /// Swaps to a zram device of its own. Returns the name of the device, `zram0`.
    pub fn zram_swap(&mut self, bytes: u64) -> Result<String, Stop> {
        let control = Path::new("/sys/class/zram-control/hot_add");
        if !control.exists() {
            _ = Command::new("modprobe").arg("zram").output();
        }
        // Reading adds a device, so the number cannot be noted before; nothing uses it yet.
        let number = fs::read_to_string(control)
            .map_err(|e| Stop::Skipped(format!("no zram: {}: {e}", control.display())))?
            .trim()
            .to_owned();
        self.journal.note(Undo::Zram(number.clone()))?;
        let device = format!("/dev/zram{number}");
        fs::write(format!("/sys/block/zram{number}/disksize"), bytes.to_string())?;
        machine::run(Command::new("mkswap").arg(&device))?;
        machine::run(Command::new("swapon").args(["-p", "100"]).arg(&device))?;
        Ok(format!("zram{number}"))
    }
}

fn hugepage_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Hugepagesize:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::sysctl_path;

    #[test]
    fn a_setting_is_named_by_dots_or_by_its_path() {
        assert_eq!(sysctl_path("vm.swappiness"), "/proc/sys/vm/swappiness");
        assert_eq!(sysctl_path("net/ipv4/conf/eth0.1/rp_filter"), "/proc/sys/net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(sysctl_path("/proc/sys/vm/swappiness"), "/proc/sys/vm/swappiness");
    }
}
