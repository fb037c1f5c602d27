//! Too many of something: processes, threads, messages, tasks that want to run.

use std::process::Command;
use std::time::Duration;

use super::{Home, Ordeal};
use crate::incident::{Need, Stop};
use crate::machine;
use crate::stage::{Place, Stage};

/// The ordeals of this file.
pub const ORDEALS: &[Ordeal] = &[
    Ordeal {
        name: "forks",
        what: "thousands of children a second, from two parents on each CPU",
        needs: &[],
        home: Home::Disk,
        make: |stage, _| forks(stage),
    },
    Ordeal {
        name: "threads",
        what: "20,000 threads in one process",
        needs: &[Need::MemoryBytes(2 << 30)],
        home: Home::Disk,
        make: |stage, _| threads(stage),
    },
    Ordeal {
        name: "kernel-log",
        what: "up to twenty thousand lines of kernel log a second",
        needs: &[Need::Tool("nft"), Need::Path("/proc/sys/net/netfilter/nf_log_all_netns")],
        home: Home::Disk,
        make: |stage, _| kernel_log(stage),
    },
    Ordeal {
        name: "spinners",
        what: "thirty-two tasks for each CPU",
        needs: &[],
        home: Home::Disk,
        make: |stage, _| spinners(stage),
    },
];

fn forks(stage: &mut Stage) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    for i in 0..2 * machine::cpus() {
        stage.role(&format!("forker{i}"), "fork-fast", "", &Place::default())?;
    }
    stage.trouble()?;
    // A fork and its end take a CPU about 0.2 ms here.
    stage.must_move("stat.processes", 2_000.0)
}

fn threads(stage: &mut Stage) -> Result<(), Stop> {
    const THREADS: usize = 20_000;
    stage.healthy()?;
    stage.trouble_starts();
    let many = stage.role("threads", "many-threads", THREADS.to_string(), &Place::default())?;
    let tasks = format!("/proc/{}/task", many.pid());
    stage.trouble()?;
    let alive = std::fs::read_dir(tasks)?.count();
    if alive >= THREADS {
        return Ok(());
    }
    Err(Stop::NotMade(format!("{alive} threads")))
}

/// A rule that logs packets, in a network namespace of its own: the kernel limits nobody there.
fn kernel_log(stage: &mut Stage) -> Result<(), Stop> {
    stage.sysctl("net.netfilter.nf_log_all_netns", "1")?;
    let netns = stage.netns()?;
    let place = Place { netns: Some(&netns), ..Place::default() };
    let rules = "add table inet lab; add chain inet lab out { type filter hook output priority 0; }; \
                 add rule inet lab out udp dport 9 log prefix \"mitra-lab: a driver that talks too much \"";
    let mut nft = Command::new("nft");
    let nft = stage.spawn_in(nft.arg(rules), &place)?;
    stage.wait_for("the rule that logs", 10, |stage| stage.ended(nft).is_some())?;
    stage.healthy()?;
    stage.trouble_starts();
    let talker = stage.role("talker", "udp-load", "127.0.0.1:9 20000 1 20", &place)?;
    stage.trouble()?;
    stage.must_run(talker.handle(), "the sender of packets that are logged")
}

fn spinners(stage: &mut Stage) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    for i in 0..32 * machine::cpus() {
        stage.spawn(Command::new("sh").args(["-c", "while :; do :; done"]).env("N", i.to_string()))?;
    }
    stage.wait(Duration::from_millis(100))?;
    stage.trouble()
}
