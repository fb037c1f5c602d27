//! Settings of the machine: sysctls, reduced memory, swap on zram.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Isolation, Netns, Stage};
use crate::counters::{self, NR_HUGEPAGES, mem_available_bytes};
use crate::incident::{Stop, WithPath};
use crate::journal::Undo;
use crate::machine;
use crate::roles::HOLDS;

const PAGE: u64 = 4096;
/// Number of attempts to reserve huge pages: each time the kernel compacts a little more.
const RESERVE_TRIES: u32 = 4;
/// A twentieth above the target is close enough.
const NEARLY: u64 = 20;
/// Tolerance in bytes: free memory varies by this much.
const NEARLY_BYTES: u64 = 64 << 20;
/// Limit of the ballast: if memory is so fragmented that more would be needed, the run is skipped.
const BALLAST_MB_MAX: u64 = 6_000;

/// `vm.swappiness` or `/proc/sys/vm/swappiness` as a path. A dot in the name of a device is written
/// as a slash.
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
    /// Writes a setting. The old value is restored at the end.
    pub fn sysctl(&mut self, path: &str, value: &str) -> Result<(), Stop> {
        let path = sysctl_path(path);
        let before = fs::read_to_string(&path).map_err(|e| Stop::Skipped(format!("{path}: {e}")))?;
        self.journal.note(Undo::Write(path.clone().into(), before.trim().to_owned()))?;
        fs::write(&path, value).map_err(|e| Stop::Failed(format!("{path}: {value}: {e}")))
    }

    /// Writes a setting of one of the stage's network namespaces. It vanishes with the namespace.
    pub fn sysctl_in(&mut self, netns: &Netns, path: &str, value: &str) -> Result<(), Stop> {
        let path = sysctl_path(path);
        netns
            .inside(|| fs::write(&path, value))?
            .map_err(|e| Stop::Skipped(format!("{path} in a network namespace: {e}")))
    }

    /// Makes the machine small: unused huge pages leave about `usable_bytes`. A ballast process
    /// holds memory that is too fragmented for huge pages.
    pub fn small_memory(&mut self, usable_bytes: u64) -> Result<(), Stop> {
        if counters::huge_pages() != Some(0) {
            return Err(Stop::Skipped("huge pages are in use, or there are none, on this machine".into()));
        }
        let page_bytes = hugepage_bytes().ok_or_else(|| Stop::Skipped("no huge page size".into()))?;
        let available = mem_available_bytes().unwrap_or(0);
        let pages = available.saturating_sub(usable_bytes) / page_bytes;
        self.conductor.begins("memory that is made small", 0);
        self.journal.note(Undo::Write(NR_HUGEPAGES.into(), "0".into()))?;
        // Huge pages need contiguous memory, and cached files are scattered over all of it.
        let mut left = available;
        for _ in 0..RESERVE_TRIES {
            _ = fs::write("/proc/sys/vm/drop_caches", "3");
            _ = fs::write("/proc/sys/vm/compact_memory", "1");
            fs::write(NR_HUGEPAGES, pages.to_string()).at(NR_HUGEPAGES)?;
            left = mem_available_bytes().unwrap_or(0);
            if left <= usable_bytes + usable_bytes / NEARLY {
                return Ok(());
            }
        }
        self.hold(left.saturating_sub(usable_bytes))
    }

    /// Leaves `bytes` to allocate before the kernel evicts a single page: ballast takes the rest of
    /// the free memory above the watermarks. Must be called once everything that the healthy time
    /// needs is in memory.
    ///
    /// `MemAvailable` does not serve here: it counts the victim's cache as free.
    pub fn leave_free(&mut self, bytes: u64) -> Result<(), Stop> {
        let free = counters::mem_free_bytes().unwrap_or(0);
        let kept = fs::read_to_string("/proc/zoneinfo").map(|text| watermarks(&text)).unwrap_or(0);
        let spare = free.saturating_sub(kept);
        if spare + (bytes / NEARLY).max(NEARLY_BYTES) < bytes {
            return Err(Stop::NotMade(format!("{} MB are free, {} wanted", spare >> 20, bytes >> 20)));
        }
        self.hold(spare.saturating_sub(bytes))
    }

    /// Starts a process that keeps `bytes` in memory. The OOM killer takes it first.
    fn hold(&mut self, bytes: u64) -> Result<(), Stop> {
        let mb = bytes >> 20;
        if mb > BALLAST_MB_MAX {
            return Err(Stop::Skipped(format!("memory could not be made small: {mb} MB are too much")));
        }
        if mb == 0 {
            return Ok(());
        }
        let holder = self.role("ballast", "hold", mb.to_string(), &Isolation::default())?.handle();
        let holds = |stage: &Self| stage.output(holder).contains(HOLDS);
        self.wait_for("the memory that is too much to be held", 20, |stage| {
            stage.ended(holder).is_some() || holds(stage)
        })?;
        self.must_run(holder, "the process that holds memory")?;
        self.ballast.push(holder);
        Ok(())
    }

    /// Limits dirty pages (`dirty`, `dirty_background`) in bytes. The kernel then resets the ratio
    /// to 0, and does not accept 0 bytes: writing the ratio again undoes it.
    pub fn bound_dirty(&mut self, which: &str, bytes: u64) -> Result<(), Stop> {
        let path = |unit: &str| Path::new("/proc/sys/vm").join(format!("{which}_{unit}"));
        let read = |unit: &str| fs::read_to_string(path(unit)).at(path(unit)).map(|t| t.trim().to_owned());
        let (by_bytes, by_ratio) = (read("bytes")?, read("ratio")?);
        let undo = match by_bytes.as_str() {
            "0" => Undo::Write(path("ratio"), by_ratio),
            _ => Undo::Write(path("bytes"), by_bytes),
        };
        self.journal.note(undo)?;
        fs::write(path("bytes"), bytes.to_string()).at(path("bytes"))
    }

    /// Adds swap on a new zram device. Returns the name of the device, `zram0`.
    pub fn zram_swap(&mut self, bytes: u64) -> Result<String, Stop> {
        let control = Path::new("/sys/class/zram-control/hot_add");
        if !control.exists() {
            _ = Command::new("modprobe").arg("zram").output();
        }
        // Reading adds a device, so its number cannot be noted before. Nothing uses it yet.
        let number = fs::read_to_string(control)
            .map_err(|e| Stop::Skipped(format!("no zram: {}: {e}", control.display())))?
            .trim()
            .to_owned();
        self.journal.note(Undo::Zram(number.clone()))?;
        let device = format!("/dev/zram{number}");
        let disksize = format!("/sys/block/zram{number}/disksize");
        fs::write(&disksize, bytes.to_string()).at(&disksize)?;
        machine::run(Command::new("mkswap").arg(&device))?;
        machine::run(Command::new("swapon").args(["-p", "100"]).arg(&device))?;
        Ok(format!("zram{number}"))
    }
}

/// Bytes that allocations leave free: the high watermark of each zone and its protection from
/// allocations that may use a higher zone, summed as in the kernel's `totalreserve_pages`.
fn watermarks(zoneinfo: &str) -> u64 {
    let number = |word: &str| word.trim_matches(['(', ')', ',']).parse::<u64>().ok();
    let (mut pages, mut high, mut managed) = (0, 0, 0);
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("high"), Some(value)) => high = number(value).unwrap_or(0),
            (Some("managed"), Some(value)) => managed = number(value).unwrap_or(0),
            (Some("protection:"), Some(first)) => {
                let most = words.chain([first]).filter_map(number).max().unwrap_or(0);
                pages += (high + most).min(managed);
            }
            _ => {}
        }
    }
    pages * PAGE
}

fn hugepage_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Hugepagesize:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::{sysctl_path, watermarks};

    #[test]
    fn what_stays_free_is_the_sum_over_the_zones() {
        let zone = |name: &str, high: u32, managed: u32, protection: &str| {
            format!(
                "Node 0, zone {name}\n  pages free     9\n        high     {high}\n        managed  {managed}\n        \
                 protection: ({protection})\n    cpu: 0\n              high: 9\n"
            )
        };
        let text = zone("DMA", 16, 3840, "0, 2992, 24063")
            + &zone("DMA32", 3660, 772_915, "0, 0, 21071")
            + &zone("Normal", 25_557, 5_394_266, "0, 0, 0");
        assert_eq!(watermarks(&text), (3840 + 3660 + 21_071 + 25_557) * 4096);
    }

    #[test]
    fn a_setting_is_named_by_dots_or_by_its_path() {
        assert_eq!(sysctl_path("vm.swappiness"), "/proc/sys/vm/swappiness");
        assert_eq!(sysctl_path("net/ipv4/conf/eth0.1/rp_filter"), "/proc/sys/net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(sysctl_path("/proc/sys/vm/swappiness"), "/proc/sys/vm/swappiness");
    }
}
