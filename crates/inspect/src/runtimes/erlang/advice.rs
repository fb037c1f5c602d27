//! Advises allocator settings that fit an Erlang VM, by its own numbers.
//!
//! A block that is larger than the threshold `sbct` gets its own carrier, which is mapped for it
//! and unmapped when it is freed: all of its pages are faulted in anew. Smaller blocks share
//! carriers that stay. So if the process has many faults, and most of them come from short-lived
//! single-block carriers, the threshold should be above the size of those blocks. Two more settings
//! go with it. A shared carrier must have room for several such blocks, or it comes and goes with
//! each of them too. `erts_alloc` has 512 KiB for the threshold and 5 MiB for the largest shared
//! carrier; the advice keeps the same factor of ten. The smallest carrier is half of the threshold,
//! so that a missing heap costs no more than it does now.

use serde::{Deserialize, Serialize};

use super::Faults;

/// Minimum time of a fault, with clearing its page and its part of the unmapping; two microseconds
/// are usual.
const FAULT_SECONDS: f64 = 1e-6;
/// Threshold for the cost of faults, as a share of a CPU: all threads of a process wait for the one
/// mmap lock, which faults and unmapping take. For processes that use less than a CPU, the share of
/// what they use.
const NOTICED: f64 = 0.05;
/// Lower bound of that threshold in CPUs: less is not worth a restart.
const NOTICED_CPUS: f64 = 0.01;
/// Share of the faults that the carriers must explain.
const MOST: f64 = 0.5;
/// Share of the short-lived bytes that must be below the threshold. The remaining twentieth is
/// negligible.
const COVERED: f64 = 0.95;
/// The largest shared carrier as a multiple of the threshold: as `erts_alloc` has it, and the
/// minimum for several blocks.
const LARGEST: [u64; 2] = [10, 4];
/// Limit of the additional memory in the worst case, as a share of the available memory.
const HELD: f64 = 0.25;
/// Upper bound for the size of heaps.
const SBCT_MAX: u64 = 1 << 36;

/// The advised flags.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Arguments for `erl`: `+MHsbct`, `4096`, ….
    pub flags: Vec<String>,
    /// Why, with the numbers.
    pub because: String,
    /// The allocators whose settings do not fit.
    pub allocators: Vec<Misfit>,
    /// Minor faults per second that the advice avoids.
    pub minor_faults_per_s: f64,
    /// Additional memory in the worst case: one shared carrier of the largest size in each
    /// instance.
    pub held_more_bytes_max: u64,
}

/// An allocator whose blocks are too large for its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Misfit {
    /// `eheap_alloc`.
    pub name: String,
    /// Number of blocks seen in single-block carriers.
    pub blocks_seen: u64,
    /// Their mean size.
    pub blocks_mean_bytes: u64,
    /// Their largest size.
    pub blocks_largest_bytes: u64,
    /// The share of their bytes in blocks below the advised threshold.
    pub covered: f64,
    /// New carriers per second, at least.
    pub carriers_per_s: f64,
    /// The current threshold.
    pub sbct_bytes_now: u64,
    /// The advised threshold.
    pub sbct_bytes: u64,
    /// The advised smallest shared carrier.
    pub smbcs_bytes: u64,
    /// The advised largest shared carrier.
    pub lmbcs_bytes: u64,
}

/// An allocator, summed over its instances.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AllocatorActivity {
    pub(super) name: String,
    pub(super) instances: u64,
    pub(super) sbct: u64,
    /// Sizes of blocks that appeared during sampling, or else of those that were present.
    pub(super) blocks: Vec<u64>,
    /// New carriers per second.
    pub(super) carriers_per_s: f64,
    /// Bytes of new blocks per second.
    pub(super) bytes_per_s: f64,
    /// Whether most carriers differed between samples, without counters for them: then more
    /// appeared than were seen.
    pub(super) turns_over: bool,
}

/// The letter of an allocator in the emulator's flags.
fn letter(allocator: &str) -> Option<char> {
    Some(match allocator {
        "eheap_alloc" => 'H',
        "binary_alloc" => 'B',
        "std_alloc" => 'D',
        "ets_alloc" => 'E',
        "fix_alloc" => 'F',
        "ll_alloc" => 'L',
        "driver_alloc" => 'R',
        "sl_alloc" => 'S',
        "temp_alloc" => 'T',
        _ => return None,
    })
}

/// The advice, or the reason in words why there is none.
pub(super) fn advise(
    faults: &Faults,
    page: f64,
    activity: &[AllocatorActivity],
    free_bytes: Option<u64>,
) -> Result<Advice, String> {
    let faults_per_s = faults.minor_per_s;
    let cost = faults_per_s * FAULT_SECONDS;
    if cost < NOTICED.min((NOTICED * faults.cpus).max(NOTICED_CPUS)) {
        return Err(format!(
            "{faults_per_s:.0} minor faults per second cost {cost:.3} CPUs of the {:.2} that it uses: not worth a change",
            faults.cpus
        ));
    }
    let churns = |one: &&AllocatorActivity| {
        let is_above = one.blocks.iter().any(|block| *block >= one.sbct);
        is_above && (one.turns_over || one.bytes_per_s / page >= (1.0 - COVERED) * faults_per_s)
    };
    let known: f64 = activity.iter().map(|one| one.bytes_per_s / page).sum();
    let turns_over = activity.iter().any(|one| one.turns_over);
    let churning: Vec<&AllocatorActivity> = activity.iter().filter(churns).collect();
    if churning.is_empty() || !(turns_over || known >= MOST * faults_per_s) {
        return Err(format!(
            "{faults_per_s:.0} minor faults per second, of which carriers of single blocks explain {known:.0} at most: the \
             cause is another"
        ));
    }
    let misfits: Vec<(Misfit, u64)> = churning.iter().filter_map(|one| misfit(one, free_bytes)).collect();
    if misfits.is_empty() {
        return Err("its blocks are so large that carriers for several of them would hold too much of the free memory".to_owned());
    }
    let mut flags = Vec::new();
    let mut because = Vec::new();
    for (misfit, _) in &misfits {
        let Some(letter) = letter(&misfit.name) else { continue };
        for (setting, bytes) in
            [("sbct", misfit.sbct_bytes), ("smbcs", misfit.smbcs_bytes), ("lmbcs", misfit.lmbcs_bytes)]
        {
            flags.extend([format!("+M{letter}{setting}"), (bytes >> 10).to_string()]);
        }
        because.push(format!(
            "{} maps and unmaps a carrier for each block of {} KB or more: {} such blocks were seen, of {} KB on average and \
             {} KB at most; above {} KB lies {:.1} % of their bytes",
            misfit.name,
            misfit.sbct_bytes_now >> 10,
            misfit.blocks_seen,
            misfit.blocks_mean_bytes >> 10,
            misfit.blocks_largest_bytes >> 10,
            misfit.sbct_bytes >> 10,
            100.0 * (1.0 - misfit.covered)
        ));
    }
    Ok(Advice {
        flags,
        because: format!("{faults_per_s:.0} minor faults per second: {}", because.join("; ")),
        minor_faults_per_s: faults_per_s,
        held_more_bytes_max: misfits.iter().fold(0, |sum, (_, held)| sum.saturating_add(*held)),
        allocators: misfits.into_iter().map(|(misfit, _)| misfit).collect(),
    })
}

/// The advised settings, and the additional memory that they may keep.
fn misfit(activity: &AllocatorActivity, free_bytes: Option<u64>) -> Option<(Misfit, u64)> {
    letter(&activity.name)?;
    let mut blocks: Vec<u64> =
        activity.blocks.iter().copied().filter(|block| *block >= activity.sbct).collect();
    blocks.sort_unstable();
    let total: u64 = blocks.iter().fold(0, |sum, block| sum.saturating_add(*block));
    let largest = *blocks.last()?;
    let mut below = 0_u64;
    let enough = blocks.iter().copied().find(|block| {
        below = below.saturating_add(*block);
        below as f64 >= COVERED * total as f64
    })?;
    // A block as large as the threshold already gets its own carrier.
    let sbct = (enough + 1).checked_next_power_of_two().filter(|sbct| *sbct <= SBCT_MAX)?;
    let covered: u64 = blocks.iter().filter(|block| **block < sbct).sum();
    let room = free_bytes.map_or(u64::MAX, |free| (HELD * free as f64) as u64);
    let held = |factor: u64| activity.instances.saturating_mul(factor * sbct);
    let factor = LARGEST.into_iter().find(|factor| held(*factor) <= room)?;
    let misfit = Misfit {
        name: activity.name.clone(),
        blocks_seen: blocks.len() as u64,
        blocks_mean_bytes: total / blocks.len().max(1) as u64,
        blocks_largest_bytes: largest,
        covered: covered as f64 / total.max(1) as f64,
        carriers_per_s: activity.carriers_per_s,
        sbct_bytes_now: activity.sbct,
        sbct_bytes: sbct,
        smbcs_bytes: sbct / 2,
        lmbcs_bytes: factor * sbct,
    };
    Some((misfit, held(factor)))
}

/// Available memory: `MemAvailable` of `/proc/meminfo`.
pub(super) fn free_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn heaps(blocks: &[u64], bytes_per_s: f64) -> AllocatorActivity {
        AllocatorActivity {
            name: "eheap_alloc".to_owned(),
            instances: 3,
            sbct: 512 * KIB,
            blocks: blocks.to_vec(),
            carriers_per_s: 500.0,
            bytes_per_s,
            turns_over: false,
        }
    }

    fn faults(minor_per_s: f64) -> Faults {
        Faults { minor_per_s, cpus: 1.5, system_cpus: 0.5, seconds: 2.0 }
    }

    #[test]
    fn the_threshold_is_above_the_blocks_that_come_and_go() {
        // The case `content-page-faults`: blocks of 3,864,608 bytes, 300,000 faults each second.
        let activity = [heaps(&[3_864_608; 93], 1.2e9)];
        let advice = advise(&faults(300_000.0), 4096.0, &activity, Some(16 << 30)).unwrap();
        assert_eq!(advice.flags, ["+MHsbct", "4096", "+MHsmbcs", "2048", "+MHlmbcs", "40960"]);
        assert_eq!(advice.allocators[0].covered, 1.0);
        assert_eq!(advice.held_more_bytes_max, 3 * 40_960 * KIB);
        // A few blocks are so large that together they hold little.
        let mut blocks = vec![1_500_000; 100];
        blocks.push(6_000_000);
        let advice = advise(&faults(300_000.0), 4096.0, &[heaps(&blocks, 1.2e9)], Some(16 << 30)).unwrap();
        assert_eq!(advice.flags[1], "2048");
        assert!(advice.because.contains("above 2048 KB lies 3.8 % of their bytes"), "{}", advice.because);
    }

    #[test]
    fn nothing_is_advised_where_it_would_not_help() {
        let activity = [heaps(&[3_864_608; 93], 1.2e9)];
        assert!(advise(&faults(20_000.0), 4096.0, &activity, None).err().unwrap().contains("not worth"));
        // For a process with little CPU time that is much.
        let small = Faults { cpus: 0.2, ..faults(20_000.0) };
        assert!(advise(&small, 4096.0, &activity, None).is_ok());
        // The faults have another cause.
        let still = [heaps(&[3_864_608; 93], 1e8)];
        assert!(advise(&faults(300_000.0), 4096.0, &still, None).err().unwrap().contains("another"));
        assert!(advise(&faults(300_000.0), 4096.0, &[heaps(&[], 1.2e9)], None).is_err());
        assert!(advise(&faults(300_000.0), 4096.0, &[], None).is_err());
        // Not enough memory: less at first, then no advice.
        let advice = advise(&faults(300_000.0), 4096.0, &activity, Some(400 << 20)).unwrap();
        assert_eq!(advice.flags[5], "16384");
        assert!(
            advise(&faults(300_000.0), 4096.0, &activity, Some(100 << 20))
                .err()
                .unwrap()
                .contains("too much")
        );
        // Blocks below its own threshold share their carriers.
        let below = [heaps(&[400 * KIB; 50], 1.2e9)];
        assert!(advise(&faults(300_000.0), 4096.0, &below, None).is_err());
    }
}
