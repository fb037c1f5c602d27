//! Memory incidents: a flood of the page cache, thrashing, the OOM killer, swapping.

use std::process::Command;

use super::common::{fio, trouble_from_full, wait_for_pages};
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::{Fs, Isolation, Speed, Stage};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("flood-once", "streaming-read-flood", "page-cache", flood_once)
        .what("one large read, once, evicts what another program has mapped")
        .needs(&[
            Need::Tool("dd"),
            Need::DiskBytes(14 << 30),
            Need::MemoryBytes(4 << 30),
            Need::SmallMachine,
            Need::NoSwap,
        ])
        .chain(&["kswapd-scanning", "page-cache-eviction", "major-faults"]),
    Incident::new("cache-thrash", "page-cache-thrash", "page-cache", cache_thrash)
        .what("random reads of more than a memory cgroup may hold")
        .needs(&[Need::Tool("fio"), Need::DiskBytes(3 << 30)])
        .chain(&["page-cache-eviction", "refaults"]),
    Incident::new("oom-in-cgroup", "oom-kill", "reclaim", oom_kill)
        .what("a program outgrows its memory cgroup, is killed, is started again by its keeper"),
    Incident::new("swap-thrash", "swap-thrash", "reclaim", swap_thrash)
        .what("a program uses more memory than its cgroup may have; the rest is in zram")
        .needs(&[Need::Tool("mkswap"), Need::Tool("swapon"), Need::Tool("swapoff"), Need::OwnSwap])
        .chain(&["major-faults"]),
    Incident::new("group-at-limit", "cgroup-memory-limit", "reclaim", group_at_limit)
        .what("a writer fills its cgroup with pages not yet on the disk, and a neighbour in it waits for memory")
        .needs(&[
            Need::Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
            Need::Path("/dev/fuse"),
            Need::Tool("losetup"),
            Need::MemoryBytes(3 << 30),
        ])
        .chain(&["pressure-memory"]),
];

fn flood_once(stage: &mut Stage) -> Result<Truth, Stop> {
    let devices = stage.disk()?;
    if let Some(device) = devices.first() {
        stage.watch_device(device);
    }
    let hot_mb = stage.draw().between(700, 1_100);
    let hot = stage.write_file("hot", hot_mb << 20)?;
    let name = stage.draw().name();
    // The longer the read, the more of the mapped file is evicted. The faint one is little larger
    // than the free memory.
    let big_mb = stage.between((9 << 10, 12 << 10), (2_400, 2_900));
    let big = stage.write_file(&name, big_mb << 20)?;
    let block = stage.draw().pick(&["bs=256k", "bs=1M", "bs=4M"]);
    stage.small_memory(3 << 30)?;
    let name = stage.draw().name();
    let victim = stage.role(&name, "map-file", hot.display().to_string(), &Isolation::default())?;
    wait_for_pages(stage, &victim, hot_mb << 20)?;
    stage.healthy()?;

    stage.trouble_starts();
    let flood =
        stage.spawn(Command::new("dd").arg(format!("if={}", big.display())).args(["of=/dev/null", block]))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { process: Some("dd".into()), pids: vec![flood.pid()], devices, ..Truth::default() })
}

fn cache_thrash(stage: &mut Stage) -> Result<Truth, Stop> {
    let devices = stage.disk()?;
    if let Some(device) = devices.first() {
        stage.watch_device(device);
    }
    let cgroup = stage.cgroup(&["memory"])?;
    let limit_mb = stage.draw().between(320, 448);
    cgroup.limit_memory(limit_mb << 20)?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let hot = stage.write_file("hot", (limit_mb * 2 / 3) << 20)?;
    // Faint: the two files together are a quarter to a half larger than the cgroup. Loud: three to
    // five times as large.
    let big_mb = (limit_mb as f64 * stage.real((2.5, 4.0), (0.6, 0.8))) as u64;
    let big = stage.write_file("big", big_mb << 20)?;
    let jobs = stage.draw().between(2, 4);
    let name = stage.draw().name();
    let victim = stage.role(&name, "read-file", hot.display().to_string(), &place)?;
    let mut load = fio(stage, &big);
    stage.healthy()?;

    stage.trouble_starts();
    let fio = stage.spawn_in(
        load.args(["--rw=randread", "--bs=4k", "--ioengine=psync", "--direct=0"])
            .args(["--norandommap", "--fadvise_hint=random"])
            .arg(format!("--numjobs={jobs}")),
        &place,
    )?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(1.5, 1.3))?;
    Ok(Truth {
        process: Some("fio".into()),
        pids: vec![fio.pid()],
        cgroup: Some(cgroup.name().to_owned()),
        ..Truth::default()
    })
}

fn oom_kill(stage: &mut Stage) -> Result<Truth, Stop> {
    let cgroup = stage.cgroup(&["memory"])?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let limit_mb = stage.draw().between(160, 320);
    cgroup.limit_memory(limit_mb << 20)?;
    // Loud: killed again and again. Faint: once, in the middle of the trouble.
    let seconds = stage.real((2.5, 4.0), (6.0, 8.0));
    let mb_per_s = (limit_mb as f64 / seconds) as u64;
    let hungry = stage.draw().name();
    stage.healthy()?;

    stage.trouble_starts();
    let mut now = stage.role(&hungry, "grow", mb_per_s.to_string(), &place)?;
    let mut pids = vec![now.pid()];
    let mut killed = false;
    stage.trouble_on(|stage, _| {
        if stage.ended(now.handle()).is_some() {
            // The first kill shows that the cgroup's memory is used up.
            if !killed {
                stage.onset_is_now();
            }
            killed = true;
            now = stage.role(&hungry, "grow", mb_per_s.to_string(), &place)?;
            pids.push(now.pid());
        }
        Ok(())
    })?;
    // The process may have ended for other reasons. One OOM kill in the whole trouble is enough.
    stage.must_move("vm.oom_kill", 0.5 / stage.length().as_secs_f64())?;
    Ok(Truth { process: Some(hungry), pids, cgroup: Some(cgroup.name().to_owned()), ..Truth::default() })
}

fn swap_thrash(stage: &mut Stage) -> Result<Truth, Stop> {
    stage.zram_swap(1 << 30)?;
    let cgroup = stage.cgroup(&["memory"])?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let limit_mb = stage.draw().between(192, 320);
    cgroup.limit_memory_but_swap(limit_mb << 20)?;
    let set_mb = (limit_mb as f64 * stage.real((1.7, 2.2), (1.05, 1.15))) as u64;
    let (neighbour, toucher) = (stage.draw().name(), stage.draw().name());
    let victim = stage.role(&neighbour, "touch-gently", (limit_mb / 4).to_string(), &place)?;
    stage.healthy()?;

    stage.trouble_starts();
    let toucher = stage.role(&toucher, "touch-memory", set_mb.to_string(), &place)?;
    stage.trouble()?;
    if stage.ended(toucher.handle()).is_some() {
        // Reclaim gave up before it found enough to swap out, which is another incident.
        return Err(Stop::NotMade("the kernel killed it for lack of memory".to_owned()));
    }
    stage.must_move("vm.pswpin", 20.0)?;
    // The victim uses a quarter of the cgroup's limit, and its pages are swapped out too.
    stage.suffered(&victim, stage.loud(2.0, 1.3))?;
    Ok(Truth { cgroup: Some(cgroup.name().to_owned()), ..Truth::of(&toucher) })
}

/// The disk could take all that the cgroup may hold in a few seconds, and the machine has room for
/// far more: only the limit causes waits. At the limit the kernel cannot drop unwritten pages.
/// Every page allocation in the cgroup waits in reclaim until the disk has written some. The victim
/// does no I/O.
///
/// cgroup v2 throttles a writer at a share of its cgroup's memory, before that is full.
fn group_at_limit(stage: &mut Stage) -> Result<Truth, Stop> {
    let limit_mb = stage.draw().between(96, 192);
    let disk_mb_s = limit_mb as f64 / stage.real((2.0, 3.5), (0.8, 1.2));
    let speed = Speed { micros: 100, bytes_per_s: (disk_mb_s * 1e6) as u64 };
    let (disk, upper) = stage.slow_fs(1 << 30, Fs::Ext4, speed)?;
    stage.watch_device(upper.device());
    let cgroup = stage.cgroup(&["memory"])?;
    cgroup.limit_memory(limit_mb << 20)?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let (name, writer, never) = (stage.draw().name(), stage.draw().name(), stage.file("never"));
    let pages = stage.draw().between(128, 512);
    let victim = stage.role(&name, "map-and-unmap", format!("1 {pages} {never}"), &place)?;
    let writes_mb_s = (disk_mb_s * stage.real((2.0, 4.0), (1.2, 1.5))) as u64;
    let file = upper.mount().join(format!("{writer}.out"));
    stage.healthy()?;

    stage.trouble_starts();
    let argument = format!("{} {writes_mb_s} 700", file.display());
    let writer = stage.role(&writer, "write-buffered", argument, &place)?;
    trouble_from_full(stage, "the memory of the group", || Ok(cgroup.memory_fails() > 0))?;
    disk.set(Speed::default())?;
    for of_group in [&victim, &writer] {
        if stage.ended(of_group.handle()).is_some() {
            return Err(Stop::NotMade("the kernel killed in the group for lack of memory".to_owned()));
        }
    }
    stage.suffered(&victim, stage.loud(3.0, 1.3))?;
    Ok(Truth { cgroup: Some(cgroup.name().to_owned()), ..Truth::default() })
}
