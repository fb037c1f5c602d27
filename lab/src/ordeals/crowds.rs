//! Too many of something: processes, threads, messages, runnable tasks.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::{ArchiveDisk, Ordeal};
use crate::incident::{Need, Stop};
use crate::machine;
use crate::stage::{Isolation, Stage};

/// The ordeals of this file.
pub const ORDEALS: &[Ordeal] = &[
    Ordeal {
        name: "forks",
        what: "thousands of children a second, from two parents on each CPU",
        needs: &[],
        home: ArchiveDisk::Disk,
        make: |stage, _| forks(stage),
    },
    Ordeal {
        name: "threads",
        what: "20,000 threads in one process",
        needs: &[Need::MemoryBytes(2 << 30)],
        home: ArchiveDisk::Disk,
        make: |stage, _| threads(stage),
    },
    Ordeal {
        name: "kernel-log",
        what: "up to twenty thousand lines of kernel log a second",
        needs: &[
            Need::Tool("nft"),
            Need::Path("/proc/sys/net/netfilter/nf_log_all_netns"),
            Need::Path(KERNEL_LOG),
        ],
        home: ArchiveDisk::Disk,
        make: |stage, _| kernel_log(stage),
    },
    Ordeal {
        name: "spinners",
        what: "thirty-two tasks for each CPU",
        needs: &[],
        home: ArchiveDisk::Disk,
        make: |stage, _| spinners(stage),
    },
];

/// The kernel log; each read returns one message.
const KERNEL_LOG: &str = "/dev/kmsg";
/// Longer than any message with its properties.
const MESSAGE_BYTES: usize = 16 << 10;
/// Far more than a complaining driver logs.
const MESSAGES_PER_S_MIN: f64 = 1_000.0;

fn forks(stage: &mut Stage) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    for i in 0..2 * machine::cpus() {
        stage.role(&format!("forker{i}"), "fork-fast", "", &Isolation::default())?;
    }
    stage.trouble()?;
    stage.must_move("stat.processes", 5_000.0)
}

fn threads(stage: &mut Stage) -> Result<(), Stop> {
    const THREADS: usize = 20_000;
    stage.healthy()?;
    stage.trouble_starts();
    let many = stage.role("threads", "many-threads", THREADS.to_string(), &Isolation::default())?;
    let tasks = format!("/proc/{}/task", many.pid());
    stage.trouble()?;
    let alive = std::fs::read_dir(tasks)?.count();
    if alive >= THREADS {
        return Ok(());
    }
    Err(Stop::NotMade(format!("{alive} threads")))
}

/// A rule that logs packets, in its own network namespace: the kernel does not rate-limit it there.
fn kernel_log(stage: &mut Stage) -> Result<(), Stop> {
    stage.sysctl("net.netfilter.nf_log_all_netns", "1")?;
    let netns = stage.netns()?;
    let place = Isolation { netns: Some(&netns), ..Isolation::default() };
    let rules = "add table inet lab; add chain inet lab out { type filter hook output priority 0; }; \
                 add rule inet lab out udp dport 9 log prefix \"mitra-lab: a driver that talks too much \"";
    let mut nft = Command::new("nft");
    let nft = stage.spawn_in(nft.arg(rules), &place)?;
    stage.wait_for("the rule that logs", 10, |stage| stage.ended(nft).is_some())?;
    if stage.ended(nft) != Some(true) {
        return Err(Stop::Failed(format!("nft: {}", stage.output(nft).trim())));
    }
    stage.healthy()?;
    stage.trouble_starts();
    let (start, before) = (Instant::now(), last_message()?);
    let talker = stage.role("talker", "udp-load", "127.0.0.1:9 20000 1 20", &place)?;
    stage.trouble()?;
    stage.must_run(talker.handle(), "the sender of packets that are logged")?;
    let per_s = last_message()?.saturating_sub(before) as f64 / start.elapsed().as_secs_f64();
    if per_s >= MESSAGES_PER_S_MIN {
        return Ok(());
    }
    Err(Stop::NotMade(format!("{per_s:.0} messages of the kernel a second")))
}

/// The sequence number of the newest kernel message.
fn last_message() -> io::Result<u64> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let mut log = OpenOptions::new().read(true).custom_flags(nonblocking).open(KERNEL_LOG)?;
    let mut message = vec![0; MESSAGE_BYTES];
    let mut last = 0;
    loop {
        match log.read(&mut message) {
            Ok(n) => last = number_of(message.get(..n).unwrap_or_default()).unwrap_or(last),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(last),
            // The next message has been overwritten.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            Err(e) => return Err(e),
        }
    }
}

/// The sequence number in `6,339,5140900,-;text`.
fn number_of(message: &[u8]) -> Option<u64> {
    std::str::from_utf8(message.split(|b| *b == b',').nth(1)?).ok()?.parse().ok()
}

fn spinners(stage: &mut Stage) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    for i in 0..32 * machine::cpus() {
        stage.spawn(Command::new("sh").args(["-c", "while :; do :; done"]).env("N", i.to_string()))?;
    }
    stage.wait(Duration::from_millis(100))?;
    stage.trouble()?;
    stage.must_move("stat.procs_running", 30.0 * machine::cpus() as f64)
}

#[cfg(test)]
mod tests {
    use super::number_of;

    #[test]
    fn messages_of_the_kernel_are_numbered() {
        assert_eq!(number_of(b"6,339,5140900,-;NET: Registered, family"), Some(339));
        assert_eq!(number_of("4,1000000,1,c;\u{b5}".as_bytes()), Some(1_000_000));
        assert_eq!((number_of(b"6,x,1,-;text"), number_of(b"")), (None, None));
    }
}
