//! Troubles of memory: a flood of the page cache, thrashing, the OOM killer, swapping.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cgroup::Cgroup;
use crate::disk::{device_names, write_file};
use crate::guard::{SmallMemory, ZramSwap, spawn};
use crate::harness::{Case, Lab, Stop, nap};
use crate::report::Truth;
use crate::victim::Victim;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "streaming-read-flood", tools: &["dd"], run: streaming_read_flood },
    Case { name: "page-cache-thrash", tools: &["fio"], run: page_cache_thrash },
    Case { name: "oom-kill", tools: &[], run: oom_kill },
    Case { name: "swap-thrash", tools: &["mkswap", "swapon", "swapoff"], run: swap_thrash },
];

/// One reader streams four times what memory holds, once; another program's mapped file is evicted.
fn streaming_read_flood(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let devices = device_names(&dir)?;
    lab.watch_device(&devices[0]);
    let (hot, big) = (dir.join("hot"), dir.join("big"));
    write_file(&hot, 1 << 30)?;
    write_file(&big, 12 << 30)?;
    let _small = SmallMemory::leave(3 << 30)?;
    let victim = Victim::start("map-file", "live-mapper", &path_text(&hot), None, &dir)?;
    wait_for_pages(&victim, 1 << 30)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let flood = spawn(
        Command::new("dd").arg(format!("if={}", big.display())).args(["of=/dev/null", "bs=1M"]),
        None,
        &dir.join("dd.log"),
    )?;
    lab.incident_phase(|_| Ok(()))?;
    lab.victim_suffered(&victim, 5.0)?;
    lab.expect(&Truth {
        conditions: &["streaming-read-flood"],
        process: Some("dd"),
        pids: vec![flood.pid()],
        devices,
        // Free memory has to be used up before anything is evicted.
        onset_late_s: 6.0,
        ..Truth::default()
    })
}

/// Random reads of more than a memory cgroup may hold.
fn page_cache_thrash(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let devices = device_names(&dir)?;
    lab.watch_device(&devices[0]);
    let cgroup = Cgroup::create("thrash", &["memory"])?;
    cgroup.limit_memory(384 << 20)?;
    lab.watch_cgroup(&cgroup);
    let (hot, big) = (dir.join("hot"), dir.join("big"));
    write_file(&hot, 256 << 20)?;
    write_file(&big, 1 << 30)?;
    let victim = Victim::start("read-file", "live-reader", &path_text(&hot), Some(&cgroup), &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let fio = spawn(
        Command::new("fio")
            .args(["--name=thrash", "--rw=randread", "--bs=4k", "--ioengine=psync", "--direct=0"])
            .args(["--numjobs=4", "--thread", "--time_based", "--runtime=60", "--allow_file_create=0"])
            .args(["--output-format=terse", "--norandommap", "--fadvise_hint=random"])
            .arg(format!("--filename={}", big.display())),
        Some(&cgroup),
        &dir.join("fio.log"),
    )?;
    lab.incident_phase(|_| Ok(()))?;
    lab.victim_suffered(&victim, 1.5)?;
    lab.expect(&Truth {
        conditions: &["page-cache-thrash"],
        process: Some("fio"),
        pids: vec![fio.pid()],
        cgroup: Some(cgroup.name().to_owned()),
        // fio takes a second to start; then 384 MB are filled within another.
        onset_late_s: 5.0,
        ..Truth::default()
    })
}

/// A program outgrows its memory cgroup, is killed, is started again by its keeper.
fn oom_kill(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let cgroup = Cgroup::create("oom", &["memory"])?;
    cgroup.limit_memory(256 << 20)?;
    lab.watch_cgroup(&cgroup);
    let _bystander = Victim::start("touch-gently", "live-resident", "64", None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let start = || Victim::start("grow", "live-hungry", "60", Some(&cgroup), &dir);
    let hungry = RefCell::new(start()?);
    let pids = RefCell::new(vec![hungry.borrow().pid()]);
    lab.incident_phase(|_| {
        if hungry.borrow_mut().ended() {
            *hungry.borrow_mut() = start()?;
            pids.borrow_mut().push(hungry.borrow().pid());
        }
        Ok(())
    })?;
    let kills = pids.borrow().len() - 1;
    println!("  live-hungry was killed {kills} times");
    if kills == 0 {
        return Err(Stop::Failed("the trouble was not made: nothing was killed".into()));
    }
    lab.expect(&Truth {
        conditions: &["oom-kill"],
        process: Some("live-hungry"),
        pids: pids.into_inner(),
        cgroup: Some(cgroup.name().to_owned()),
        // 256 MB at 60 MB/s: the first kill comes after about 4 s.
        onset_late_s: 8.0,
        ..Truth::default()
    })
}

/// A program uses twice the memory that its cgroup may have; the rest is in zram.
fn swap_thrash(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let _swap = ZramSwap::on(1 << 30)?;
    let cgroup = Cgroup::create("swap", &["memory"])?;
    cgroup.limit_memory(256 << 20)?;
    lab.watch_cgroup(&cgroup);
    let _neighbour = Victim::start("touch-gently", "live-small", "32", Some(&cgroup), &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let toucher = Victim::start("touch-memory", "live-toucher", "512", Some(&cgroup), &dir)?;
    lab.incident_phase(|_| Ok(()))?;
    let (_, swapped_in) = lab.rates("vm.pswpin");
    if swapped_in < 1_000.0 {
        return Err(Stop::Failed(format!("the trouble was not made: {swapped_in:.0} pages/s swapped in")));
    }
    lab.expect(&Truth {
        conditions: &["swap-thrash"],
        process: Some("live-toucher"),
        pids: vec![toucher.pid()],
        cgroup: Some(cgroup.name().to_owned()),
        onset_late_s: 4.0,
        ..Truth::default()
    })
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Waits until the victim has its file in memory.
fn wait_for_pages(victim: &Victim, bytes: u64) -> Result<(), Stop> {
    for _ in 0..100 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", victim.pid())).unwrap_or_default();
        let resident = statm.split(' ').nth(1).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0) * 4096;
        if resident >= bytes {
            return Ok(());
        }
        nap(std::time::Duration::from_millis(100))?;
    }
    Err(Stop::Failed("the victim did not get its file into memory".into()))
}
