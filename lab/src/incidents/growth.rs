//! Growth until others pay for it.
//!
//! The machine is made small first. Once the victim has its file in memory, only as much memory is
//! left free as the growth takes before the kernel has to evict pages. The growth is bounded, so
//! that some hundred megabytes always remain.

use std::process::Command;

use super::common::wait_for_pages;
use crate::incident::{Incident, Need, Stop, Truth};
use crate::stage::{Fs, Isolation, Stage, Victim};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    // Nothing frees it, which is the definition of a leak in native code.
    Incident::new("growth", "anonymous-growth", "growth", growth)
        .what("a program keeps ever more memory, until the files that another one has mapped are evicted")
        .also(&["memory-leak-native"])
        .needs(NEEDS)
        .chain(EVICTED),
    // True by definition.
    Incident::new("leak-malloc", "anonymous-growth", "growth", leak_malloc)
        .what("a Python program leaks what a C library allocates for it")
        .also(&["memory-leak-native"])
        .needs(&[
            Need::Tool("python3"),
            Need::MemoryBytes(5 << 30),
            Need::DiskBytes(2 << 30),
            Need::SmallMachine,
            Need::NoSwap,
        ])
        .chain(EVICTED),
    Incident::new("leak-objects", "anonymous-growth", "growth", leak_objects)
        .what("a Python program keeps all its objects in a dictionary")
        .also(&["memory-leak-managed"])
        .needs(&[
            Need::Tool("python3"),
            Need::MemoryBytes(5 << 30),
            Need::DiskBytes(2 << 30),
            Need::SmallMachine,
            Need::NoSwap,
        ])
        .chain(EVICTED),
    Incident::new("tmpfs", "shmem-growth", "growth", tmpfs)
        .what("a program fills a tmpfs, until the files that another one has mapped are evicted")
        .needs(NEEDS)
        .chain(EVICTED),
    Incident::new("missing-names", "slab-dentry-bloat", "growth", missing_names)
        .what("a program looks up names that do not exist, each only once")
        .needs(NEEDS)
        .chain(&["page-cache-eviction"]),
    Incident::new("many-inodes", "slab-inode-bloat", "growth", many_inodes)
        .what("a walk over hundreds of thousands of files fills memory with inodes")
        .needs(&[
            Need::Tool("mkfs.xfs"),
            Need::Tool("find"),
            Need::MemoryBytes(5 << 30),
            Need::DiskBytes(3 << 30),
            Need::SmallMachine,
            Need::NoSwap,
        ])
        .chain(&["page-cache-eviction"]),
    Incident::new("sockets", "slab-leak", "growth", sockets)
        .what("a program opens sockets and never closes them: the kernel's own memory grows")
        .needs(NEEDS)
        .chain(&["page-cache-eviction"]),
];

/// The growth must evict file pages. With swap, the kernel may swap out other memory instead.
const NEEDS: &[Need] =
    &[Need::MemoryBytes(5 << 30), Need::DiskBytes(2 << 30), Need::SmallMachine, Need::NoSwap];
/// Once no memory is free, kswapd evicts, and the victim faults its pages in again.
const EVICTED: &[&str] = &["kswapd-scanning", "page-cache-eviction", "major-faults"];
/// MB of memory that these incidents leave usable.
const USABLE_MB: u64 = 4_000;
/// Bytes of a negative dentry.
const DENTRY_BYTES: u64 = 192;
/// Bytes of an XFS inode with its dentry.
const INODE_BYTES: u64 = 1_216;
/// Bytes of two sockets, with their files and inodes.
const PAIR_BYTES: u64 = 5_300;

/// A small machine with a victim that uses a mapped file of `file_mb` MB, and `free_bytes` free
/// beside it.
fn small_with_victim(stage: &mut Stage, file_mb: u64, free_bytes: u64) -> Result<Victim, Stop> {
    let hot = stage.write_file("hot", file_mb << 20)?;
    stage.small_memory(USABLE_MB << 20)?;
    stage.leave_free((file_mb << 20) + free_bytes)?;
    let victim = stage.start("map-file", hot.display().to_string())?;
    wait_for_pages(stage, &victim, file_mb << 20)?;
    // Other processes may have freed memory meanwhile.
    stage.leave_free(free_bytes)?;
    Ok(victim)
}

/// A small machine with a victim. Returns the growth in MB/s and in MB: it fills the free memory in
/// two thirds of the trouble and then takes some of the victim's pages.
fn paced(stage: &mut Stage) -> Result<(Victim, u64, u64), Stop> {
    let file_mb = stage.draw().between(700, 1_000);
    // Loud: a large part of the victim's file is evicted. Faint: one page in ten.
    let evicted_mb = (file_mb as f64 * stage.real((0.3, 0.45), (0.08, 0.14))) as u64;
    let free_mb = stage.draw().between(1_000, 1_350);
    let victim = small_with_victim(stage, file_mb, free_mb << 20)?;
    let most_mb = free_mb + evicted_mb;
    let seconds = stage.length().as_secs_f64() * stage.draw().real(0.55, 0.8);
    Ok((victim, (most_mb as f64 / seconds) as u64, most_mb))
}

/// A small machine with a victim, for a growth of `bytes` over the whole trouble. A part of that is
/// free; the rest is evicted from the victim's file, of which half stays.
fn small_for(stage: &mut Stage, file_mb: u64, bytes: u64) -> Result<Victim, Stop> {
    let share = stage.real((0.35, 0.45), (0.55, 0.65));
    let evicted = ((file_mb << 20) / stage.loud(2, 4)).min((bytes as f64 * (1.0 - share)) as u64);
    small_with_victim(stage, file_mb, bytes - evicted)
}

fn growth(stage: &mut Stage) -> Result<Truth, Stop> {
    let (victim, per_s, most) = paced(stage)?;
    let name = stage.draw().name();
    stage.healthy()?;

    stage.trouble_starts();
    let culprit = stage.role(&name, "grow-until", format!("{per_s} {most}"), &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.4))?;
    Ok(Truth::of(&culprit))
}

/// Leaks allocations of 40 to 400 bytes through libc.
const MALLOC: &str = "
import ctypes, sys, time
rate, most, size = int(sys.argv[1]) << 20, int(sys.argv[2]) << 20, int(sys.argv[3])
libc = ctypes.CDLL(None)
libc.calloc.restype = ctypes.c_void_p
start, done = time.time(), 0
while True:
    due = min(most, (time.time() - start) * rate)
    while done < due:
        libc.memset(ctypes.c_void_p(libc.calloc(1, size)), 1, size)
        done += size + 16
    time.sleep(0.05)
";

/// Keeps objects in an unbounded cache.
const OBJECTS: &str = "
import sys, time
rate, most, size = int(sys.argv[1]) << 20, int(sys.argv[2]) << 20, int(sys.argv[3])
cache, start, done = {}, time.time(), 0
while True:
    due = min(most, (time.time() - start) * rate)
    while done < due:
        cache[len(cache)] = [bytes(size)]
        done += size + 33 + 72 + 100
    time.sleep(0.05)
";

fn python(stage: &mut Stage, program: &str, size: u64) -> Result<Truth, Stop> {
    let (victim, per_s, most) = paced(stage)?;
    stage.healthy()?;

    stage.trouble_starts();
    let words = [per_s, most, size].map(|n| n.to_string());
    let culprit = stage.spawn(Command::new("python3").args(["-c", program]).args(words))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.4))?;
    Ok(Truth { process: Some("python".into()), pids: vec![culprit.pid()], ..Truth::default() })
}

fn leak_malloc(stage: &mut Stage) -> Result<Truth, Stop> {
    let size = stage.draw().between(2_000, 40_000);
    python(stage, MALLOC, size)
}

fn leak_objects(stage: &mut Stage) -> Result<Truth, Stop> {
    let size = stage.draw().between(1_000, 20_000);
    python(stage, OBJECTS, size)
}

fn tmpfs(stage: &mut Stage) -> Result<Truth, Stop> {
    let (victim, per_s, most) = paced(stage)?;
    let (name, folder) = (stage.draw().name(), stage.draw().name());
    let at = stage.dir().join(folder);
    stage.mount("tmpfs", &at, "tmpfs", "size=4g")?;
    stage.healthy()?;

    stage.trouble_starts();
    let argument = format!("{per_s} {most} {}", at.display());
    let culprit = stage.role(&name, "fill-directory", argument, &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.4))?;
    Ok(Truth { path: Some(at.display().to_string()), ..Truth::of(&culprit) })
}

fn missing_names(stage: &mut Stage) -> Result<Truth, Stop> {
    // A negative dentry takes only 192 bytes, so less memory is left free than for the other
    // growths.
    let per_s = stage.between((200_000, 400_000), (60_000, 90_000));
    let file_mb = stage.draw().between(1_000, 1_200);
    let bytes = per_s * DENTRY_BYTES * stage.length().as_secs();
    let victim = small_for(stage, file_mb, bytes)?;
    let name = stage.draw().name();
    let folder = stage.draw().name();
    let dir = stage.dir().join(folder);
    std::fs::create_dir_all(&dir)?;
    stage.healthy()?;

    stage.trouble_starts();
    let argument = format!("{per_s} {}", dir.display());
    let culprit = stage.role(&name, "look-up-missing", argument, &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(1.5, 1.1))?;
    Ok(Truth { slab: Some("dentry".into()), ..Truth::of(&culprit) })
}

fn many_inodes(stage: &mut Stage) -> Result<Truth, Stop> {
    let files = stage.between((300_000, 380_000), (240_000, 280_000));
    let fs = stage.loop_fs(1 << 30, Fs::Xfs)?;
    let maker = stage.draw().name();
    let making = stage.role(
        &maker,
        "make-files",
        format!("{files} {}", fs.mount().display()),
        &Isolation::default(),
    )?;
    stage.wait_for("the files", 90, |stage| stage.ended(making.handle()).is_some())?;
    stage.run(&mut Command::new("sync"))?;
    let file_mb = stage.draw().between(450, 600);
    // Making the machine small drops the cached inodes.
    let victim = small_for(stage, file_mb, files * INODE_BYTES)?;
    stage.healthy()?;

    stage.trouble_starts();
    let line = format!("while :; do find {} -size +1 >/dev/null; done", fs.mount().display());
    stage.spawn(Command::new("sh").args(["-c", &line]))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(1.5, 1.1))?;
    Ok(Truth { process: Some("find".into()), slab: Some("xfs_inode".into()), ..Truth::default() })
}

fn sockets(stage: &mut Stage) -> Result<Truth, Stop> {
    let file_mb = stage.draw().between(1_000, 1_200);
    let per_s = stage.between((26_000, 36_000), (20_000, 25_000));
    let pairs = per_s * stage.length().as_secs();
    let victim = small_for(stage, file_mb, pairs * PAIR_BYTES)?;
    let name = stage.draw().name();
    stage.healthy()?;

    stage.trouble_starts();
    stage.role(&name, "hold-sockets", format!("{per_s} {pairs}"), &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(1.5, 1.1))?;
    // One process opens as many sockets as its limit allows, then the next one continues. A socket
    // consists of objects of several caches, and SLUB merges caches of one size under either name,
    // so the largest cache cannot be predicted.
    Ok(Truth { process: Some(name), ..Truth::default() })
}
