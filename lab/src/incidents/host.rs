//! Incidents of the whole machine: interrupts, settings, schedules, hardware.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::incident::{Incident, Need, Stop, Truth};
use crate::machine;
use crate::stage::{Fs, Isolation, Stage};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("packets-on-one-cpu", "interrupt-imbalance", "host", packets)
        .what("receive steering puts all packets on one CPU, where a program is pinned")
        .needs(&[Need::Tool("ip"), Need::Tool("nft"), Need::Tool("taskset"), Need::Cpus(2)]),
    Incident::new("drift-dirty", "config-drift", "host", drift_dirty)
        .what("vm.dirty_bytes is set so low that every writer has to wait")
        .needs(&[Need::DiskBytes(1 << 30), Need::DirtyBounds]),
    Incident::new("timer-jobs", "scheduled-burst", "host", timer_jobs)
        .what("a scheduler starts jobs at round seconds that take all CPUs for a while")
        .chain(&["runqueue-wait"]),
    Incident::new("bad-disk", "hardware-error", "host", bad_disk)
        .what("reads from a device fail: a part of what is behind it is gone")
        .needs(&[Need::DiskBytes(1 << 30)]),
];

fn packets(stage: &mut Stage) -> Result<Truth, Stop> {
    let (near, far) = (stage.netns()?, stage.netns()?);
    let (_, device, _, address) = stage.veth(&near, &far)?;
    let cpu = stage.draw().uniform(0, machine::cpus() as u64 - 1).min(31);
    let other = (cpu + 1) % machine::cpus() as u64;
    // `ip netns exec` mounts the namespace's own view of /sys.
    let steer = format!("echo {:x} > /sys/class/net/{device}/queues/rx-0/rps_cpus", 1_u64 << cpu);
    stage.run(far.command("sh").args(["-c", &steer]))?;
    // A long rule list that every packet passes: the receiving CPU pays for each rule.
    let rules = stage.between((1_500, 2_500), (700, 900));
    let mut table = String::from("table inet lab {\n chain in {\n type filter hook input priority 0;\n");
    for i in 0..rules {
        table.push_str(&format!("  udp dport {} ip saddr 192.0.2.{} drop\n", 10_000 + i % 50_000, i % 250));
    }
    table.push_str("  udp dport 9 drop\n }\n}\n");
    let path = stage.file("rules");
    std::fs::write(&path, table)?;
    stage.run(far.command("nft").args(["-f", &path]))?;
    // A process in the namespace, as in every container.
    stage.spawn_in(Command::new("sleep").arg("3600"), &Isolation { cgroup: None, netns: Some(&far) })?;
    let name = stage.draw().name();
    let victim = stage.role(&name, "work", "", &Isolation::default())?;
    stage.run(Command::new("taskset").args(["-pc", &cpu.to_string(), &victim.pid().to_string()]))?;
    let per_s = stage.between((38_000, 42_000), (24_000, 26_000));
    stage.healthy()?;

    stage.trouble_starts();
    let sender = stage.draw().name();
    let argument = format!("{address}:9 {per_s} 18 8");
    let sender =
        stage.role(&sender, "udp-load", argument, &Isolation { cgroup: None, netns: Some(&near) })?;
    stage.run(Command::new("taskset").args(["-pc", &other.to_string(), &sender.pid().to_string()]))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(2.0, 1.25))?;
    Ok(Truth { nic: Some(device), ..Truth::default() })
}

/// `vm.dirty_bytes` makes writers wait. In half of the runs the background limit is set as well, to
/// half of it, which is the default ratio anyway. A ratio cannot be this low: one percent of the
/// memory is more than the victim writes.
///
/// The truth names no process: the one that set it has exited.
fn drift_dirty(stage: &mut Stage) -> Result<Truth, Stop> {
    let name = stage.draw().name();
    let kb = stage.draw().between(64, 256);
    let per_s = stage.draw().between(80, 150);
    let path = stage.file("log");
    let victim =
        stage.role(&name, "write-file", format!("{kb} {per_s} 256 {path}"), &Isolation::default())?;
    stage.healthy()?;

    stage.trouble_starts();
    let bytes = stage.between((8 << 10, 32 << 10), (128 << 10, 256 << 10));
    if stage.draw().pick(&[false, true]) {
        stage.bound_dirty("dirty_background", bytes / 2)?;
    }
    stage.bound_dirty("dirty", bytes)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.5))?;
    Ok(Truth { sysctl: Some("vm.dirty_bytes".into()), ..Truth::default() })
}

fn timer_jobs(stage: &mut Stage) -> Result<Truth, Stop> {
    let (bystander, scheduler, job) = (stage.draw().name(), stage.draw().name(), stage.draw().name());
    let victim = stage.role(&bystander, "work", "", &Isolation::default())?;
    // Three bursts make a rhythm. Those of the loud form come within ten seconds.
    let period = stage.between((4, 4), (5, 6));
    let cpus = machine::cpus() as u64;
    let workers = cpus * stage.uniform((3, 5), (2, 3));
    // Loud: all CPUs are busy for about a third of the time. Faint: a fifth.
    let millis = period * stage.between((310, 360), (190, 220)) * cpus / workers;
    stage.healthy()?;

    // The first burst comes half a second after the start of the scheduler.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    machine::nap(Duration::from_secs((now.as_secs() / period + 1) * period).saturating_sub(now + BEFORE))?;
    stage.trouble_starts();
    let argument = format!("{period} {millis} {workers} {job}");
    let pid = stage.role(&scheduler, "start-jobs", argument, &Isolation::default())?.pid();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let is_at_work = |_: &mut Stage| std::fs::read_to_string(&children).is_ok_and(|pids| !pids.is_empty());
    stage.wait_for("the first burst", period + 1, is_at_work)?;
    stage.onset_is_now();
    // A rhythm needs three bursts, which take longer than most troubles.
    machine::nap(Duration::from_secs(period))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(1.3, 1.12))?;
    Ok(Truth { process: Some(job), ..Truth::default() })
}

/// Time for the scheduler to start.
const BEFORE: Duration = Duration::from_millis(500);

fn bad_disk(stage: &mut Stage) -> Result<Truth, Stop> {
    let fs = stage.loop_fs(256 << 20, Fs::None)?;
    let name = stage.draw().name();
    let per_s = stage.draw().between(40, 200);
    let victim = stage.role(&name, "read-pages", format!("{per_s} {}", fs.node()), &Isolation::default())?;
    stage.healthy()?;

    stage.trouble_starts();
    // Loud: three quarters of the disk are gone. Faint: a thirtieth.
    let left = (256 << 20) / 32 * stage.loud(8, 31);
    let file = std::fs::OpenOptions::new().write(true).open(fs.backing())?;
    file.set_len(left)?;
    stage.trouble()?;
    stage.failed(&victim, stage.loud(5.0, 0.3))?;
    Ok(Truth { devices: vec![fs.device().to_owned()], ..Truth::default() })
}
